//! A queue for one consumer at a time: a lock, and one transaction for the result and the deletion of an item.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::{Client, CreateMode, Error, InterProcessMutex, LockGuard};
use docent_testing::TestingServer;

const ITEMS: &str = "/examples/queue/items";
const RESULTS: &str = "/examples/queue/results";

/// Processes up to `limit` items, the oldest first, each once. After an error the caller begins again with a new guard:
/// an item that is still there has no result.
async fn consume(client: &Client, guard: &LockGuard, limit: usize) -> Result<usize, Error> {
    let mut processed = 0;
    let names = client.get_children(ITEMS).await?;
    for name in names.sorted().into_iter().take(limit) {
        let item = format!("{ITEMS}/{name}");
        let data = client.get_data(&item).await?.data;
        let result = format!("{} bytes", data.len());
        // Applied together, and only while the lock node exists.
        let mut transaction = guard.guarded()?;
        transaction
            .create(&format!("{RESULTS}/{name}"), result.as_bytes(), CreateMode::Persistent)
            .delete(&item, None);
        transaction.commit().await?;
        processed += 1;
    }
    Ok(processed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let (alice, bob) =
        (Client::connect(&connect_string).await?, Client::connect(&connect_string).await?);
    for parent in [ITEMS, RESULTS] {
        alice.ensure_path(parent, CreateMode::Persistent).await?;
    }
    for _ in 0..20 {
        let item = format!("{ITEMS}/item-");
        alice.create(&item, b"data", CreateMode::PersistentSequential).await?;
    }
    let alices = InterProcessMutex::new(&alice, "/examples/queue/lock")?.acquire().await?;
    println!("Alice has processed {}", consume(&alice, &alices, 7).await?);
    // The server does this when Alice's session ends while she is paused or cut off.
    bob.delete(alices.path(), None).await?;
    let bobs = InterProcessMutex::new(&bob, "/examples/queue/lock")?.acquire().await?;
    println!("Alice continues: {}", consume(&alice, &alices, 1).await.is_ok());
    println!("Bob has processed {}", consume(&bob, &bobs, 100).await?);
    println!("results: {}", alice.get_children(RESULTS).await?.len());
    bobs.release().await?;
    alice.close().await?;
    Ok(bob.close().await?)
}
