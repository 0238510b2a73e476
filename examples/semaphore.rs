//! A semaphore of six leases, acquired one, one, two and two at a time. The next acquire waits until one is returned.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::time::Duration;

use docent::{Client, InterProcessSemaphoreV2};
use docent_testing::TestingServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect_string).await?;
    let semaphore = InterProcessSemaphoreV2::new(&client, "/examples/semaphore", 6)?;

    let mut leases = Vec::new();
    for quantity in [1, 1, 2, 2] {
        leases.extend(semaphore.acquire_many(quantity).await?);
        println!("took {quantity}, {} of 6 are out", leases.len());
    }

    let seventh = semaphore.acquire_timeout(Duration::from_millis(100)).await?;
    println!("a seventh: {}", seventh.is_some());

    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    leases.remove(0).release().await?;
    leases.push(waiting.await??);
    println!("one was returned, and one that waited has it: {} of 6 are out", leases.len());

    for lease in leases {
        lease.release().await?;
    }
    println!("{} are out", semaphore.participants().await?.len());
    Ok(client.close().await?)
}
