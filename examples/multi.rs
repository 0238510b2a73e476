//! Several locks as one, of different kinds: all of them are held, or none is.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::{sync::Arc, time::Duration};

use docent::{Client, InterProcessMultiLock, InterProcessMutex, InterProcessSemaphoreMutex};
use docent_testing::TestingServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect_string).await?;
    let printer = InterProcessMutex::new(&client, "/examples/multi/printer")?;
    let paper = InterProcessSemaphoreMutex::new(&client, "/examples/multi/paper")?;
    // Acquired in this order, released in reverse. All users of these locks must use the same order.
    let both =
        InterProcessMultiLock::from_locks(vec![Arc::new(printer.clone()), Arc::new(paper.clone())]);
    let soon = Duration::from_millis(100);

    let guard = both.acquire().await?;
    println!("held together: {} locks", guard.paths().count());
    println!("the printer alone: {}", printer.acquire_timeout(soon).await?.is_some());
    println!("the paper alone: {}", paper.acquire_timeout(soon).await?.is_some());
    guard.release().await?;

    // The second lock is held elsewhere, so the first one is released again.
    let paper_only = paper.acquire().await?;
    println!("both without the paper: {}", both.acquire_timeout(soon).await?.is_some());
    let printer_only = printer.acquire().await?;
    println!("the printer was released again: {}", printer_only.is_held());
    printer_only.release().await?;
    paper_only.release().await?;
    Ok(client.close().await?)
}
