//! Ending a program well: its locks are free and its ephemeral nodes are gone at once, not a session timeout later.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::{pin::pin, time::Duration};

use docent::{Client, Error, ErrorKind, InterProcessMutex};
use docent_testing::TestingServer;
use tokio::io::AsyncReadExt;

const PATH: &str = "/examples/end-well";

/// Waits until the program is asked to stop. Here that is the end of its input; a service has
/// `tokio::signal::ctrl_c()` and SIGTERM in place of this, or they would kill the process.
async fn stop() {
    let mut byte = [0];
    while matches!(tokio::io::stdin().read(&mut byte).await, Ok(1)) {}
}

/// Each `?` ends the session all the same: `run` closes it.
async fn serve(client: Client) -> Result<(), Error> {
    let guard = InterProcessMutex::new(&client, PATH)?.acquire().await?;
    println!("serving");
    // Made once: a listener that is made in its branch misses a signal that comes while a job runs.
    let mut stop = pin!(stop());
    let mut jobs = tokio::time::interval(Duration::from_millis(10));
    loop {
        tokio::select! {
            () = &mut stop => break println!("asked to stop"),
            () = guard.lost() => break println!("the lock was lost"),
            _ = jobs.tick() => client.sync("/").await?,
        }
    }
    // Finish what must not be interrupted, while the lock is held.
    guard.release().await
}

/// A program that fails in the middle.
async fn fail(client: Client) -> Result<(), Error> {
    let guard = InterProcessMutex::new(&client, PATH)?.acquire().await?;
    client.get_data("/examples/no-such-node").await?;
    guard.release().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect = std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    Client::connect(&connect).await?.run(serve).await?;
    let failed = Client::connect(&connect).await?.run(fail).await;
    println!("failed: {}", failed.is_err_and(|error| error.kind() == ErrorKind::NoNode));
    // Another process has the lock at once.
    let other = Client::connect(&connect).await?;
    let free = InterProcessMutex::new(&other, PATH)?.acquire_timeout(Duration::ZERO).await?;
    println!("the lock is free at once: {}", free.is_some());
    Ok(other.close().await?)
}
