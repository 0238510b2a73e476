//! The naive lock: one node. It has no order, and each release wakes every waiter; it fails when a session ends, or a reply
//! is lost. On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use docent::{Client, CreateMode, Error, ErrorKind};
use docent_testing::TestingServer;

/// A lock that is one node: the client that created it holds the lock.
struct NaiveLock<'a> {
    client: &'a Client,
    path: &'a str,
}

impl NaiveLock<'_> {
    async fn acquire(&self) -> Result<(), Error> {
        loop {
            // Ephemeral: the end of the holder's session releases the lock.
            match self.client.create(self.path, b"", CreateMode::Ephemeral).await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NodeExists => {}
                Err(error) => return Err(error),
            }
            // One request reads the node and leaves a watch on it.
            let (holder, mut watcher) = self.client.exists_and_watch(self.path).await?;
            // Otherwise it was deleted since the create: there is nothing to wait for.
            if holder.is_some() {
                watcher.next().await;
            }
        }
    }

    async fn release(&self) -> Result<(), Error> {
        self.client.delete(self.path, None).await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    static IN_USE: AtomicU32 = AtomicU32::new(0);
    let embedded = TestingServer::start().await?;
    let connect = std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let client = Client::connect(&connect).await?;
        clients.spawn(client.run(async |client: Client| {
            let lock = NaiveLock { client: &client, path: "/naive-lock" };
            for _ in 0..5 {
                lock.acquire().await?;
                assert_eq!(IN_USE.swap(1, SeqCst), 0, "two holders");
                IN_USE.store(0, SeqCst);
                lock.release().await?;
            }
            Ok::<_, Error>(5)
        }));
    }
    let holds = clients.join_all().await.into_iter().sum::<Result<u32, Error>>()?;
    println!("{holds} holds, one at a time");
    Ok(())
}
