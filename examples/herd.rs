//! Wake-ups per release: the naive lock (one node, everyone watches it) against the sequential one.
//!
//! Prints a table for 10, 100 and 1,000 waiters (or those given), on an embedded server.

use docent::{Client, CreateMode, Watcher};
use docent_testing::TestingServer;
use std::{env, error::Error};

/// The number of clients that one release wakes, of `waiters` waiting ones.
async fn woken(server: &str, waiters: usize, naive: bool) -> Result<usize, Box<dyn Error>> {
    let holder = Client::connect(server).await?;
    let base = format!("/herd-{waiters}-{naive}");
    holder.create(&base, b"", CreateMode::Persistent).await?;
    let held = format!("{base}/held-");
    let first = holder.create(&held, b"", CreateMode::EphemeralSequential).await?;
    let (mut clients, mut watchers, mut last) = (Vec::new(), Vec::new(), first.clone());
    for _ in 0..waiters {
        let client = Client::connect(server).await?;
        watchers.push(client.exists_and_watch(if naive { &first } else { &last }).await?.1);
        last = client.create(&held, b"", CreateMode::EphemeralSequential).await?;
        clients.push(client);
    }
    holder.delete(&first, None).await?;
    for client in &clients {
        // An event arrives before the replies to later requests.
        client.exists("/").await?;
    }
    Ok(watchers.iter_mut().filter_map(Watcher::try_next).count())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestingServer::start().await?;
    let mut counts: Vec<usize> = env::args().skip(1).flat_map(|text| text.parse()).collect();
    if counts.is_empty() {
        counts = vec![10, 100, 1000];
    }
    println!("| waiters | naive: woken per release | sequential |\n|---:|---:|---:|");
    for waiters in counts {
        let naive = woken(&server.connect_string(), waiters, true).await?;
        let sequential = woken(&server.connect_string(), waiters, false).await?;
        println!("| {waiters} | {naive} | {sequential} |");
    }
    Ok(())
}
