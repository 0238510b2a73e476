//! `bench cache`: docent's cache and Curator's, with the same server and the same tree.

use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use xtask::{Java, Result, Server, Settings, command::run as run_to_end, workspace::root};

use crate::{
    examples,
    markdown::{number, table, write_measured},
    process::Process,
    proxy::Proxy,
    statistics::{cpu_seconds, median, resident_bytes},
};

/// The time limit of a step.
const LIMIT: Duration = Duration::from_secs(300);

/// The number of children of each child of the root.
const CHILDREN: usize = 999;

/// The sizes of a run.
struct Size {
    /// The number of the root's children in the tree for both clients, and in the tree for docent alone. Before 5.6,
    /// Curator's cache loads no more than 65,535 nodes (CURATOR-690).
    parents: [usize; 2],
    writes: usize,
    idle: Duration,
    rounds: usize,
}

/// The columns: the measured cache and the index of its tree.
const COLUMNS: [(&str, usize); 3] = [("docent", 0), ("Curator", 0), ("docent", 1)];

/// The rows.
const ROWS: [&str; 16] = [
    "load: time, s",
    "load: CPU time of the client, s",
    "load: requests",
    "load: most requests in flight",
    "memory, bytes per node",
    "resident memory of the process after the load, MiB",
    "idle: bytes per minute, both directions",
    "cut: time to the next handshake, s",
    "resync: time, s",
    "resync: CPU time of the client, s",
    "resync: requests",
    "resync: most requests in flight",
    "followed, writes per second",
    "followed: CPU time of the client per write, µs",
    "followed: requests per write",
    "followed: events per write",
];

type Round = [f64; ROWS.len()];

const fn nodes(parents: usize) -> usize {
    1 + parents * (1 + CHILDREN)
}

/// Measures, prints the table, and writes it into docs/BENCHMARKS.md, unless the run is a quick one.
pub(crate) fn run(quick: bool) -> Result<()> {
    let secs = Duration::from_secs;
    let size = match quick {
        true => Size { parents: [5, 10], writes: 2_000, idle: secs(5), rounds: 1 },
        false => Size { parents: [50, 100], writes: 20_000, idle: secs(30), rounds: 3 },
    };
    let program = examples(&["cache_peer"])?.join("cache_peer");
    let java = Java::find()?;
    let classes = java.compile(&root().join("benches/java/CacheBench.java"))?;
    let server = Server::start(&java, Settings::default())?;
    let direct = server.address().to_string();

    let mut columns: [Vec<Round>; 3] = Default::default();
    let mut filled = 0;
    for (tree, parents) in size.parents.into_iter().enumerate() {
        let numbers = [filled, parents, CHILDREN].map(|number| number.to_string());
        run_to_end(Command::new(&program).args([&direct, "fill"]).args(numbers))?;
        filled = parents;
        for round in 1..=size.rounds {
            let of_tree = COLUMNS.iter().zip(&mut columns).filter(|((_, of), _)| *of == tree);
            for ((name, _), rounds) in of_tree {
                let proxy = Proxy::start(&direct)?;
                let mut command = if *name == "docent" {
                    let mut command = Command::new(&program);
                    command.args([&proxy.address(), "cache"]);
                    command
                } else {
                    let mut command = java.command(&classes)?;
                    // The last of two such options counts. These replace the settings for small, short-lived programs.
                    command.args(["-XX:TieredStopAtLevel=4", "-Xmx2g", "CacheBench"]);
                    command.arg(proxy.address());
                    command
                };
                let measured = measure(&mut command, &program, &direct, &proxy, parents, &size)
                    .map_err(|error| format!("{name}: {error}"))?;
                println!("{} nodes, round {round}: {name}: {measured:.1?}", nodes(parents));
                rounds.push(measured);
            }
        }
    }
    let text = text(&size, &columns);
    println!("{text}");
    if quick { Ok(()) } else { write_measured("cache", &text) }
}

fn measure(
    command: &mut Command,
    writer: &Path,
    direct: &str,
    proxy: &Proxy,
    parents: usize,
    size: &Size,
) -> Result<Round> {
    let nodes = nodes(parents);
    let mut process = Process::start(command)?;
    process.expect("ready")?;
    let id = process.id();
    let before = ask(&mut process, "memory", "memory")?;

    proxy.reset();
    let (begun, cpu) = (Instant::now(), cpu_seconds(&[id]));
    let loaded = ask(&mut process, "start", "initialized")?;
    let load = proxy.wait_until_quiet(LIMIT)?;
    let (load_time, load_cpu) = (seconds(Some(begun), load.last), cpu_seconds(&[id]) - cpu);
    if loaded != nodes as f64 {
        return Err(format!("{loaded} nodes instead of {nodes}").into());
    }
    let resident = resident_bytes(id)?;
    let memory = (ask(&mut process, "memory", "memory")? - before) / nodes as f64;

    proxy.reset();
    thread::sleep(size.idle);
    let idle = proxy.counts().bytes as f64 * 60.0 / size.idle.as_secs_f64();

    proxy.reset();
    let (begun, cpu) = (Instant::now(), cpu_seconds(&[id]));
    proxy.cut();
    let resync = proxy.wait_until_quiet(LIMIT)?;
    let reconnect = seconds(Some(begun), resync.connected);
    let resync_cpu = cpu_seconds(&[id]) - cpu;

    let events = ask(&mut process, "events", "events")?;
    proxy.reset();
    let (begun, cpu) = (Instant::now(), cpu_seconds(&[id]));
    let numbers = [parents, CHILDREN, size.writes].map(|number| number.to_string());
    run_to_end(Command::new(writer).args([direct, "write"]).args(numbers))?;
    let followed = proxy.wait_until_quiet(LIMIT)?;
    let followed_cpu = cpu_seconds(&[id]) - cpu;
    let events = ask(&mut process, "events", "events")? - events;
    let writes = size.writes as f64;
    Ok([
        load_time,
        load_cpu,
        load.requests as f64,
        load.most_in_flight as f64,
        memory,
        resident / f64::from(1 << 20),
        idle,
        reconnect,
        seconds(resync.connected, resync.last),
        resync_cpu,
        resync.requests as f64,
        resync.most_in_flight as f64,
        writes / seconds(Some(begun), followed.last),
        followed_cpu * 1e6 / writes,
        followed.requests as f64 / writes,
        events / writes,
    ])
}

/// The seconds between two events; 0 if one of them has not happened.
fn seconds(from: Option<Instant>, to: Option<Instant>) -> f64 {
    from.zip(to).map_or(0.0, |(from, to)| to.saturating_duration_since(from).as_secs_f64())
}

/// Sends a command. Returns the number that follows `word` in the reply.
fn ask(process: &mut Process, command: &str, word: &str) -> Result<f64> {
    process.send(command)?;
    Ok(process.expect(word)?.parse()?)
}

/// The table with the median of each measurement.
fn text(size: &Size, columns: &[Vec<Round>; 3]) -> String {
    let head = COLUMNS.map(|(name, tree)| {
        let nodes = size.parents.get(tree).map(|parents| nodes(*parents) as f64);
        format!("{name}, {} nodes", number(nodes))
    });
    let head: Vec<_> = [""].into_iter().chain(head.iter().map(String::as_str)).collect();
    let rows = ROWS.iter().enumerate().map(|(row, what)| {
        let values = columns.iter().map(|rounds| {
            let values: Vec<_> =
                rounds.iter().filter_map(|round| round.get(row).copied()).collect();
            number(Some(median(&values)))
        });
        [(*what).to_owned()].into_iter().chain(values).collect::<Vec<_>>()
    });
    table(&head, 1, rows)
}
