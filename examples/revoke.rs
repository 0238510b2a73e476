//! A holder that can be asked to give way: a long night's work makes room for something urgent.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::{sync::Arc, time::Duration};

use docent::{
    Client,
    recipes::locks::{InterProcessMutex, Revoker},
    session::retry::RetryOneTime,
};
use docent_testing::TestingServer;
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let (night, urgent) =
        (Client::connect(&connect_string).await?, Client::connect(&connect_string).await?);

    // Before each acquire: it lasts for one hold.
    let mutex = InterProcessMutex::new(&night, "/examples/revoke")?;
    let asked = Arc::new(Notify::new());
    let tell = Arc::clone(&asked);
    mutex.make_revocable(move || tell.notify_one());
    let guard = mutex.acquire().await?;
    println!("the night's work has begun");
    let work = tokio::spawn(async move {
        asked.notified().await;
        // A request, not a command: the holder finishes what cannot be left halfway.
        println!("the night's work was asked to give way; held: {}", guard.is_held());
        guard.release().await
    });

    let mutex = InterProcessMutex::new(&urgent, "/examples/revoke")?;
    let holder = mutex.participants().await?.remove(0);
    let policy = RetryOneTime { sleep_between_retry: Duration::from_millis(100) };
    Revoker::attempt_revoke(&urgent, &policy, &holder).await?;
    let guard = mutex.acquire().await?;
    println!("the urgent work has the lock");
    work.await??;
    guard.release().await?;
    night.close().await?;
    Ok(urgent.close().await?)
}
