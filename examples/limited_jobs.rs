//! Jobs of which at most three run at once, in all processes together.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use docent::{Client, Error, InterProcessSemaphoreV2};
use docent_testing::TestingServer;
use tokio::task::JoinSet;

static RUNNING: AtomicU32 = AtomicU32::new(0);
static MOST: AtomicU32 = AtomicU32::new(0);

async fn job(number: u32) -> u32 {
    MOST.fetch_max(RUNNING.fetch_add(1, SeqCst) + 1, SeqCst);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    RUNNING.fetch_sub(1, SeqCst);
    number
}

/// Runs a job under a lease. `None` if the lease was lost meanwhile.
async fn limited(semaphore: &InterProcessSemaphoreV2, number: u32) -> Result<Option<u32>, Error> {
    let lease = semaphore.acquire().await?;
    let done = tokio::select! {
        done = job(number) => Some(done),
        // The lease is gone: another process may start a job in its place.
        () = lease.lost() => None,
    };
    lease.release().await?;
    Ok(done)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect = std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let mut processes = JoinSet::new();
    for process in 0..2 {
        // All processes must give the same number of leases. A SharedCount lets them read it from ZooKeeper.
        let client = Client::connect(&connect).await?;
        let semaphore = InterProcessSemaphoreV2::new(&client, "/examples/limited-jobs", 3)?;
        processes.spawn(async move {
            let mut jobs = JoinSet::new();
            for number in 0..6 {
                let semaphore = semaphore.clone();
                jobs.spawn(async move { limited(&semaphore, process * 6 + number).await });
            }
            let done: Vec<Option<u32>> =
                jobs.join_all().await.into_iter().collect::<Result<_, _>>()?;
            client.close().await?;
            Ok::<_, Error>(done.into_iter().flatten().count())
        });
    }
    let done: Vec<usize> = processes.join_all().await.into_iter().collect::<Result<_, _>>()?;
    let (done, most) = (done.iter().sum::<usize>(), MOST.load(SeqCst));
    println!("{done} jobs done, at most three at once: {}", (1..=3).contains(&most));
    Ok(())
}
