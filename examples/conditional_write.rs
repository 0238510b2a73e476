//! A transaction with a condition: all of it is applied, or nothing.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::{Client, CreateMode, CreateOptions, Error, ErrorKind};
use docent_testing::TestingServer;

const SHOP: &str = "/examples/conditional-write";

/// Sells a piece while the shop is open: one piece less, and a receipt. False when it is closed or sold out.
async fn sell(client: &Client) -> Result<bool, Error> {
    let (open, stock, receipt) =
        (format!("{SHOP}/open"), format!("{SHOP}/stock"), format!("{SHOP}/receipt-"));
    loop {
        let node = client.get_data(&stock).await?;
        let pieces: u32 = String::from_utf8_lossy(&node.data).parse().unwrap_or(0);
        let Some(left) = pieces.checked_sub(1) else { return Ok(false) };
        let mut transaction = client.transaction();
        transaction
            // The node must exist. With Some(version), it must also be unchanged.
            .check(&open, None)
            .set_data(&stock, left.to_string().as_bytes(), Some(node.stat.version))
            .create(&receipt, b"", CreateMode::PersistentSequential);
        match transaction.commit().await {
            Ok(_) => return Ok(true),
            // The index of the operation that failed: that of the condition.
            Err(error) if error.index() == Some(0) => return Ok(false),
            // Another client has sold a piece meanwhile, and nothing was applied: read again.
            Err(error) if error.kind() == ErrorKind::BadVersion => {}
            // If the outcome is Unknown, it may have been applied: see "Counting once".
            Err(error) => return Err(error),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect = std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect).await?;
    client
        .create(
            &format!("{SHOP}/stock"),
            b"5",
            CreateOptions::new(CreateMode::Persistent).with_parents(),
        )
        .await?;
    println!("before it opens: {}", sell(&client).await?);
    client.create(&format!("{SHOP}/open"), b"", CreateMode::Persistent).await?;
    let (one, two, three) = tokio::join!(sell(&client), sell(&client), sell(&client));
    println!("three at once: {} {} {}", one?, two?, three?);
    client.delete(&format!("{SHOP}/open"), None).await?;
    println!("after it has closed: {}", sell(&client).await?);
    let children = client.get_children(SHOP).await?;
    let receipts = children.iter().filter(|name| name.starts_with("receipt-")).count();
    let stock = client.get_data(&format!("{SHOP}/stock")).await?.data;
    println!("{receipts} receipts, {} pieces left", String::from_utf8_lossy(&stock));
    client.delete_recursive(SHOP).await?;
    Ok(client.close().await?)
}
