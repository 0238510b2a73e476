//! Five clients, one lock, and a resource that only one of them may use at a time.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::{process::exit, sync::Arc, time::Duration};

use docent::{Client, InterProcessMutex};
use docent_testing::TestingServer;

/// The protected resource: it counts overlapping uses.
#[derive(Default)]
struct LimitedResource {
    in_use: AtomicBool,
    holds: AtomicU32,
    overlaps: AtomicU32,
}

impl LimitedResource {
    async fn work(&self) {
        if self.in_use.swap(true, SeqCst) {
            self.overlaps.fetch_add(1, SeqCst);
            eprintln!("OVERLAP: used by two clients at once!");
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
        self.holds.fetch_add(1, SeqCst);
        self.in_use.store(false, SeqCst);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string = std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| {
        eprintln!("DOCENT_CONNECT is not set: an embedded server, a test double, stands in");
        embedded.connect_string()
    });
    let resource = Arc::new(LimitedResource::default());
    let mut clients = tokio::task::JoinSet::new();
    for number in 1..=5 {
        let client = Client::connect(&connect_string).await?;
        let resource = Arc::clone(&resource);
        clients.spawn(async move {
            let mutex = InterProcessMutex::new(&client, "/examples/lock")?;
            for _ in 0..5 {
                let guard = mutex.acquire().await?;
                let token = guard.fencing_token().await?;
                println!("client {number} holds {} with token {token}", guard.path());
                resource.work().await;
                guard.release().await?;
            }
            client.close().await
        });
    }
    clients.join_all().await.into_iter().collect::<Result<(), _>>()?;
    let (holds, overlaps) = (resource.holds.load(SeqCst), resource.overlaps.load(SeqCst));
    println!("{holds} holds, {overlaps} overlaps");
    exit(i32::from(overlaps > 0))
}
