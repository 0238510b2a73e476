//! Readers share the lock, a writer excludes all others: two tasks write a book, three read it, and no read is torn.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use docent::{Client, Error, InterProcessReadWriteLock};
use docent_testing::TestingServer;
use tokio::task::{JoinSet, yield_now};

/// Each page changes by itself, so the book can be caught halfway.
static PAGES: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

async fn write(lock: InterProcessReadWriteLock) -> Result<(), Error> {
    for _ in 0..10 {
        let guard = lock.write_lock().acquire().await?;
        for page in &PAGES {
            page.fetch_add(1, SeqCst);
            yield_now().await; // Other tasks run here.
        }
        guard.release().await?;
    }
    Ok(())
}

/// How often the pages differed.
async fn read(lock: InterProcessReadWriteLock) -> Result<u32, Error> {
    let mut torn = 0;
    for _ in 0..10 {
        let guard = lock.read_lock().acquire().await?;
        let first = PAGES[0].load(SeqCst);
        yield_now().await;
        torn += u32::from(PAGES[1].load(SeqCst) != first);
        guard.release().await?;
    }
    Ok(torn)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect_string).await?;
    let lock = InterProcessReadWriteLock::new(&client, "/examples/read-write")?;

    let readers = [lock.read_lock().acquire().await?, lock.read_lock().acquire().await?];
    println!("two readers at once: {}", readers.iter().all(|guard| guard.is_held()));
    drop(readers);

    let writers: JoinSet<_> = (0..2).map(|_| write(lock.clone())).collect();
    let readers: JoinSet<_> = (0..3).map(|_| read(lock.clone())).collect();
    writers.join_all().await.into_iter().collect::<Result<(), _>>()?;
    let torn: u32 = readers.join_all().await.into_iter().sum::<Result<_, _>>()?;
    println!("{} writes, {torn} torn reads", PAGES[1].load(SeqCst));
    Ok(client.close().await?)
}
