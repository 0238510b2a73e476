//! A mutex that is not re-entrant, and that any task with the guard may release.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::time::Duration;

use docent::{Client, InterProcessSemaphoreMutex};
use docent_testing::TestingServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect_string).await?;
    let mutex = InterProcessSemaphoreMutex::new(&client, "/examples/semaphore-mutex")?;

    let guard = mutex.acquire().await?;
    println!("held: {}", guard.is_held());

    let again = mutex.acquire_timeout(Duration::from_millis(100)).await?;
    println!("held twice: {}", again.is_some());

    // The guard is the right to release it, and it may go anywhere: to another task, for example.
    tokio::spawn(guard.release()).await??;
    println!("held after another task has released it: {}", mutex.is_acquired_in_this_process());

    let guard = mutex.acquire().await?;
    println!("held again: {}", guard.is_held());
    guard.release().await?;
    Ok(client.close().await?)
}
