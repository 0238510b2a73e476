//! The measured cache of docent, and the clients that fill and change its tree. Run by `cargo xtask bench cache`; the
//! twin around Curator's cache is `benches/java/CacheBench.java`.
//!
//! | `cache_peer CONNECT` | what |
//! | --- | --- |
//! | `fill FROM TO CHILDREN` | creates `/cache`, the children of these numbers, and theirs, with 100 bytes each |
//! | `write PARENTS CHILDREN N` | N setData of 100 bytes, many in flight, one grandchild after the other |
//! | `cache` | replies to lines `memory`, `start` and `events` of standard input: bytes, nodes after the load, events |

use std::{
    collections::VecDeque,
    io::Write as _,
    ops::Range,
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use docent::{CacheEvent, Client, Config, CreateMode, CuratorCache, Error, ErrorKind};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const ROOT: &str = "/cache";
const DATA: [u8; 100] = [7; 100];
const IN_FLIGHT: usize = 500;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() {
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run()));
    if let Err(error) = done {
        eprintln!("cache_peer: {error}");
        exit(1);
    }
}

async fn run() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [connect, command, numbers @ ..] = arguments.as_slice() else {
        return Err("usage: cache_peer CONNECT fill|write|cache [NUMBERS]".into());
    };
    let config = Config::new(connect)?.with_session_timeout(Duration::from_secs(20));
    let client = config.connect().await?;
    let numbers = numbers.iter().map(|text| text.parse()).collect::<Result<Vec<usize>, _>>()?;
    match (*command, numbers.as_slice()) {
        ("fill", [from, to, children]) => fill(&client, *from..*to, *children).await?,
        ("write", [parents, children, count]) => {
            write(&client, *parents, *children, *count).await?;
        }
        ("cache", []) => cache(&client).await?,
        _ => return Err(format!("{command} with {numbers:?}").into()),
    }
    Ok(client.close().await?)
}

fn grandchild(parent: usize, child: usize) -> String {
    format!("{ROOT}/p{parent:03}/n{child:05}")
}

async fn fill(client: &Client, parents: Range<usize>, children: usize) -> Result<(), Error> {
    let root = client.create(ROOT, &DATA, CreateMode::Persistent);
    root.allow(ErrorKind::NodeExists).await?;
    for parent in parents {
        let path = format!("{ROOT}/p{parent:03}");
        client.create(&path, &DATA, CreateMode::Persistent).await?;
        for first in (0..children).step_by(IN_FLIGHT) {
            let mut transaction = client.transaction();
            for child in first..children.min(first + IN_FLIGHT) {
                transaction.create(&grandchild(parent, child), &DATA, CreateMode::Persistent);
            }
            transaction.commit().await?;
        }
    }
    Ok(())
}

async fn write(
    client: &Client,
    parents: usize,
    children: usize,
    count: usize,
) -> Result<(), Error> {
    let mut pending = VecDeque::new();
    for number in 0..count {
        let number = number % (parents * children);
        let path = grandchild(number % parents, number / parents);
        pending.push_back(client.set_data(&path, &DATA, None));
        if pending.len() >= IN_FLIGHT
            && let Some(oldest) = pending.pop_front()
        {
            oldest.await?;
        }
    }
    for reply in pending {
        reply.await?;
    }
    Ok(())
}

async fn cache(client: &Client) -> Outcome<()> {
    let events = Arc::new(AtomicU64::new(0));
    let mut cache = None;
    say("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.as_str() {
            "memory" => say(&format!("memory {}", resident_bytes()?)),
            "events" => say(&format!("events {}", events.load(Ordering::Relaxed))),
            "start" => {
                let options = docent::CacheOptions::default();
                let (started, mut stream) = CuratorCache::start_with_events(client, ROOT, options)?;
                let count = Arc::clone(&events);
                tokio::spawn(async move {
                    while let Some(event) = stream.next().await {
                        let is_change = matches!(
                            event,
                            CacheEvent::Created { .. }
                                | CacheEvent::Changed { .. }
                                | CacheEvent::Deleted { .. }
                        );
                        count.fetch_add(u64::from(is_change), Ordering::Relaxed);
                    }
                });
                started.initialized().await?;
                say(&format!("initialized {}", started.len()));
                cache = Some(started);
            }
            other => return Err(format!("unknown command {other:?}").into()),
        }
    }
    drop(cache);
    Ok(())
}

/// The resident memory of this process in bytes, as Linux reports it. It includes what the allocator keeps.
fn resident_bytes() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("VmRSS is missing")?;
    Ok(kib.parse::<u64>()? * 1024)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        exit(0);
    }
}
