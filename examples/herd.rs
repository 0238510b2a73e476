//! Wake-ups per release: the naive lock (one node, everyone watches it) against the sequential one.
//!
//! Prints a table for 10, 100 and 1,000 waiters (or those given), on an embedded server, and draws it into the file
//! that `HERD_SVG` names.

use docent::{Client, CreateMode, Watcher};
use docent_testing::TestingServer;
use std::{env, error::Error, fmt::Write, fs};

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
    Ok(watchers.iter_mut().filter_map(Watcher::try_changed).count())
}

const HEAD: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 360 190' width='540' \
font-family='sans-serif' font-size='12'>
<style>rect{fill:#fff}.naive{fill:#b3261e}.sequential{fill:#14527a}@media (prefers-color-scheme:dark){
text{fill:#e6e9ee}rect{fill:#1c2026}.naive{fill:#ff8a80}.sequential{fill:#6cb8ec}}</style>
<rect width='100%' height='100%'/>
<text x='8' y='16'>woken per release: naive (red), sequential (blue)</text>\n";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestingServer::start().await?;
    let mut counts: Vec<usize> = env::args().skip(1).flat_map(|text| text.parse()).collect();
    if counts.is_empty() {
        counts = vec![10, 100, 1000];
    }
    println!("| waiters | naive: woken per release | sequential |\n|---:|---:|---:|");
    let mut svg = HEAD.to_owned();
    for (row, waiters) in counts.into_iter().enumerate() {
        let naive = woken(&server.connect_string(), waiters, true).await?;
        let sequential = woken(&server.connect_string(), waiters, false).await?;
        println!("| {waiters} | {naive} | {sequential} |");
        writeln!(svg, "<text x='8' y='{}'>{waiters} waiters</text>", 50 + row * 50)?;
        for (count, class, y) in [(naive, "naive", 30), (sequential, "sequential", 48)] {
            let (y, width) = (y + row * 50, 2 + count * 200 / 1000);
            writeln!(svg, "<rect x='90' y='{y}' width='{width}' height='14' class='{class}'/>")?;
            writeln!(svg, "<text x='{}' y='{}'>{count}</text>", 96 + width, y + 11)?;
        }
    }
    Ok(env::var("HERD_SVG").map_or(Ok(()), |file| fs::write(file, svg + "</svg>\n"))?)
}
