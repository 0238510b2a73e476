//! The naive lock: one node. Each release wakes every waiter, and one that comes too late deletes the node of the next
//! holder.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use docent::{Client, Config, ConnectionState, CreateMode, Error, ErrorKind};
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
                watcher.changed().await;
            }
        }
    }

    async fn release(&self) -> Result<(), Error> {
        self.client.delete(self.path, None).await
    }
}

/// Ends the session of a client, as the servers do after a pause that is longer than its timeout. The client goes on
/// with a new session.
async fn expire(client: &Client, connect: &str) -> Result<(), Error> {
    let mut states = client.states();
    let Some(token) = client.session_token() else { return Ok(()) };
    Config::new(connect)?.with_session(token).connect().await?.close().await?;
    while states.next().await.is_some_and(|state| state != ConnectionState::Lost) {}
    client.wait_until_connected(Duration::from_secs(30)).await
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

    let (a, b) = (Client::connect(&connect).await?, Client::connect(&connect).await?);
    let [first, second] = [&a, &b].map(|client| NaiveLock { client, path: "/naive-lock" });
    first.acquire().await?;
    expire(&a, &connect).await?;
    second.acquire().await?;
    first.release().await?;
    let is_gone = b.exists("/naive-lock").await?.is_none();
    println!("a late release deleted the node of the next holder: {is_gone}");
    a.close().await?;
    Ok(b.close().await?)
}
