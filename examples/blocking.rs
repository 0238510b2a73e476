//! Workers without async: threads that take turns by a lock, and one that follows the node that they write.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::{error::Error, thread, time::Duration};

use docent::blocking::{Blocking, Client, InterProcessMutex, wait};
use docent::{AddWatchMode, CreateMode, CreateOptions, Watcher};
use docent_testing::TestingServer;

const LOG: &str = "/examples/blocking/log";
const LOCK: &str = "/examples/blocking/lock";
const LIMIT: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Appends two pages. No other worker writes between the read and the write.
fn work(client: &Client, name: &[u8]) -> Result<()> {
    let mutex = InterProcessMutex::new(client, LOCK)?;
    for _ in 0..2 {
        let guard = mutex.acquire_timeout(LIMIT)?.ok_or("the lock is busy")?;
        let mut log = client.get_data(LOG)?.data.to_vec();
        log.extend(name);
        // Applied only while the lock is held: a worker that was stopped for too long overwrites nothing.
        wait(async || guard.guarded()?.set_data(LOG, &log, None).commit().await)?;
        guard.release()?;
    }
    Ok(())
}

/// Counts changes: the watcher is an iterator, here with a limit of time for each event.
fn follow(mut watcher: Blocking<Watcher>) -> Result<usize> {
    watcher
        .timeout_iter(LIMIT)
        .take(6)
        .try_fold(0, |changes, event| event.map(|_| changes + 1).map_err(Into::into))
}

fn main() -> Result<()> {
    // The embedded server is async: it has its own runtime.
    let runtime = tokio::runtime::Runtime::new()?;
    let embedded = runtime.block_on(TestingServer::start())?;
    let connect = std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());

    let client = Client::connect(&connect)?;
    client.create(LOG, b"", CreateOptions::new(CreateMode::Persistent).with_parents())?;
    let watcher = client.add_watch(LOG, AddWatchMode::Persistent)?;
    let follower = thread::spawn(move || follow(watcher));
    // Threads share a client.
    thread::scope(|scope| {
        let workers = [b"A", b"B", b"C"].map(|name| scope.spawn(|| work(&client, name)));
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err("a panic".into())))
    })?;
    println!("changes: {}", follower.join().unwrap_or(Err("a panic".into()))?);
    let mut pages = client.get_data(LOG)?.data.to_vec();
    pages.sort_unstable();
    println!("pages by {}", String::from_utf8(pages)?);
    client.delete_recursive(LOG)?;
    Ok(client.close()?)
}
