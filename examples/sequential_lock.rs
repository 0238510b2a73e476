//! The sequential lock: a queue of nodes. It is fair, and a release wakes one waiter. Lost replies need more: see
//! `InterProcessMutex`.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::{Client, CreateMode, Error, ErrorKind};
use docent_testing::TestingServer;

/// A lock that is a directory: its children are the queue.
struct SequentialLock<'a> {
    client: &'a Client,
    path: &'a str,
}

impl SequentialLock<'_> {
    /// Returns the path of the lock node.
    async fn acquire(&self) -> Result<String, Error> {
        let prefix = format!("{}/n-", self.path);
        // The server appends ten digits, each time a greater number.
        let ours = self.client.create(&prefix, b"", CreateMode::EphemeralSequential).await?;
        loop {
            let children = self.client.get_children(self.path).await?;
            let mut queue: Vec<_> =
                children.iter().map(|name| format!("{}/{name}", self.path)).collect();
            queue.sort_unstable();
            let Some(ahead) = queue.into_iter().take_while(|node| *node < ours).last() else {
                return Ok(ours);
            };
            // A read that leaves a watch, as exists does; but on a missing node it leaves none.
            match self.client.get_data_and_watch(&ahead).await {
                Ok((_, mut watcher)) => drop(watcher.next().await),
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error),
            }
            // An event means "look again": the node ahead may have left without having held the lock.
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect = std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect).await?;
    client.ensure_path("/examples/sequential-lock", CreateMode::Container).await?;
    let lock = SequentialLock { client: &client, path: "/examples/sequential-lock" };
    let first = lock.acquire().await?;
    let second = lock.acquire();
    let release = async {
        println!("the first holds the lock; it deletes its node");
        client.delete(&first, None).await
    };
    let (second, released) = tokio::join!(second, release);
    released?;
    let second = second?;
    println!("the second holds the lock; its number is greater: {}", second > first);
    client.delete(&second, None).await?;
    Ok(client.close().await?)
}
