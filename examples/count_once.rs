//! Counting each order once: the count and the mark of the order are one transaction. A lost reply, a repeated delivery
//! and another worker change nothing.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::{Client, CreateMode, Error, ErrorKind};
use docent_testing::TestingServer;

/// The format of `DistributedAtomicLong`: 8 bytes, big-endian.
const COUNT: &str = "/examples/count_once/count";
const COUNTED: &str = "/examples/count_once/counted";

async fn read(client: &Client) -> Result<(i64, i32), Error> {
    let node = client.get_data(COUNT).await?;
    let bytes = <[u8; 8]>::try_from(&*node.data).unwrap_or_default();
    Ok((i64::from_be_bytes(bytes), node.stat.version))
}

/// Returns false if the order was counted before.
async fn count(client: &Client, order: &str) -> Result<bool, Error> {
    let mark = format!("{COUNTED}/{order}");
    loop {
        let (count, version) = read(client).await?;
        let mut transaction = client.transaction();
        transaction.create(&mark, b"", CreateMode::Persistent).set_data(
            COUNT,
            &(count + 1).to_be_bytes(),
            Some(version),
        );
        match transaction.commit().await {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::NodeExists => return Ok(false),
            // Another worker was faster, or the reply was lost: the next attempt finds the mark, or counts.
            Err(error) if error.kind() == ErrorKind::BadVersion || error.is_retryable() => {}
            Err(error) => return Err(error),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect_string).await?;
    client.ensure_path(COUNTED, CreateMode::Persistent).await?;
    client.create_or_set(COUNT, &0_i64.to_be_bytes(), CreateMode::Persistent).await?;
    let mut new = 0;
    for _delivery in 0..3 {
        let orders: Vec<_> = (0..20).map(|order| format!("order-{order}")).collect();
        let counts = orders.iter().map(|order| count(&client, order));
        for counted in counts {
            new += u32::from(counted.await?);
        }
    }
    println!("60 deliveries of 20 orders: {new} new ones, count {}", read(&client).await?.0);
    Ok(client.close().await?)
}
