//! Retrying a plain call: a client repeats nothing by itself, because a repeated write may be applied twice.
//!
//! On an embedded server in this process, behind a proxy that breaks the connection.

use std::time::Duration;

use docent::retry::ExponentialBackoffRetry;
use docent::{Client, CreateMode, CreateOptions, Error, OpCode, Outcome, Stat};
use docent_testing::{TestingServer, fault::Fault, tap::Tap};

const PATH: &str = "/examples/retry-call";

/// Writes with the version that was read. After a lost reply, another read shows whether the write was applied.
async fn set(client: &Client, text: &[u8], seen: &Stat) -> Result<&'static str, Error> {
    let policy = ExponentialBackoffRetry::new(Duration::from_millis(50), 5);
    loop {
        match client.retry(&policy, || client.set_data(PATH, text, Some(seen.version))).await {
            Ok(_) => return Ok("applied, with a reply"),
            Err(error) if error.outcome() == Outcome::Unknown => {}
            Err(error) => return Err(error),
        }
        let now = client.retry(&policy, || client.get_data(PATH)).await?;
        // The versions of a node that was created anew begin again at 0.
        let is_same = now.stat.czxid == seen.czxid;
        match now.stat.version - seen.version {
            0 if is_same => println!("not applied yet"),
            1 if is_same && now.data == text => return Ok("applied, without a reply"),
            _ => return Ok("another client has written since: read and decide"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = TestingServer::start().await?;
    // A proxy that loses requests and replies, and breaks the connection each time.
    let tap = Tap::start(&server.connect_string()).await?;
    let client = Client::connect(&tap.connect_string()).await?;
    // Creates or overwrites: the same once or twice, so it may be repeated whatever the outcome.
    let policy = ExponentialBackoffRetry::new(Duration::from_millis(50), 5);
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    client.retry_idempotent(&policy, || client.create_or_set(PATH, b"one", options)).await?;

    // A read changes nothing, and is repeated.
    tap.inject(Fault::drop_before(OpCode::GetData).times(2));
    let node = client.retry(&policy, || client.get_data(PATH)).await?;
    println!("read, at the third attempt: {}", String::from_utf8_lossy(&node.data));

    tap.inject(Fault::drop_reply(OpCode::SetData));
    println!("two: {}", set(&client, b"two", &node.stat).await?);
    let seen = Stat { version: node.stat.version + 1, ..node.stat };
    tap.inject(Fault::drop_before(OpCode::SetData));
    println!("three: {}", set(&client, b"three", &seen).await?);
    Ok(client.close().await?)
}
