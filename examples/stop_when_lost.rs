//! A worker that stops when its lock is lost, and then queues again.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::{Client, Error, InterProcessMutex};
use docent_testing::TestingServer;
use tokio::sync::mpsc;

const PATH: &str = "/examples/stop-when-lost";

/// The job: the first one would take an hour.
async fn job(round: u32) -> u32 {
    if round == 1 {
        tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    }
    round
}

async fn worker(client: Client, started: mpsc::Sender<String>) -> Result<(), Error> {
    let mutex = InterProcessMutex::new(&client, PATH)?;
    for round in 1..=2 {
        let guard = mutex.acquire().await?;
        // The receiver has ended: nothing depends on it.
        let _ = started.send(guard.path().to_owned()).await;
        tokio::select! {
            // If this is done at the same time, the loss comes first.
            biased;
            // Watches the lock node: the end of the session, and a deletion by anyone else.
            () = guard.lost() => println!("round {round}: the lock was lost, the job was dropped"),
            // Dropped at its next await. What it has sent already may still take effect.
            job = job(round) => println!("round {job}: done, and still held: {}", guard.is_held()),
        }
        // No error if the node is gone already.
        guard.release().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect = std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let (sender, mut started) = mpsc::channel(2);
    let worker = Client::connect(&connect).await?.run(|client| worker(client, sender));
    let operator = async {
        let client = Client::connect(&connect).await?;
        // An operator deletes the lock node. An expired session would do the same.
        if let Some(node) = started.recv().await {
            client.delete(&node, None).await?;
        }
        client.close().await
    };
    let (worker, operator) = tokio::join!(worker, operator);
    Ok(worker.and(operator)?)
}
