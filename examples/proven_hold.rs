//! A proven hold: no other client can acquire the lock before `proven_until()`, whatever servers and networks do.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::time::Duration;

use docent::{Client, InterProcessMutex, LockOptions};
use docent_testing::TestingServer;

/// The longest time for one page. A page that is begun is finished before the bound.
const LONGEST_STEP: Duration = Duration::from_millis(500);

fn print(page: u32) {
    println!("page {page}");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect_string).await?;

    let options = LockOptions::default().with_proven_renewal(Duration::from_secs(5));
    let mutex = InterProcessMutex::with_options(&client, "/examples/proven", options)?;
    let guard = mutex.acquire().await?;
    for page in 1..=3 {
        if client.now() + LONGEST_STEP >= guard.proven_until() {
            println!("not proven any more: page {page} is left to the next holder");
            break;
        }
        print(page);
    }
    guard.release().await?;
    Ok(client.close().await?)
}
