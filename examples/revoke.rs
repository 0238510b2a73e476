//! A revocable hold: a long task releases the lock at the request of an urgent one.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::{sync::Arc, time::Duration};

use docent::{Client, InterProcessMutex, Revoker, retry::RetryOneTime};
use docent_testing::TestingServer;
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let (night, urgent) =
        (Client::connect(&connect_string).await?, Client::connect(&connect_string).await?);

    // Called before each acquire: it applies to one hold.
    let mutex = InterProcessMutex::new(&night, "/examples/revoke")?;
    let revoked = Arc::new(Notify::new());
    let notify = Arc::clone(&revoked);
    mutex.make_revocable(move || notify.notify_one());
    let guard = mutex.acquire().await?;
    println!("the night's work has started");
    let work = tokio::spawn(async move {
        revoked.notified().await;
        // A request, not a command: the holder may finish its current step first.
        println!("the release of the lock was requested; held: {}", guard.is_held());
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
