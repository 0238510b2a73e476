//! Configuration that survives reconnects: a persistent watch, read again after whatever may have been missed. On an
//! embedded server in this process, behind a proxy that breaks the connection.

use std::time::Duration;

use docent::retry::RetryForever;
use docent::{AddWatchMode::Persistent, Client, ConnectionState, Error, ErrorKind};
use docent_testing::{TestingServer, tap::Tap};
use tokio::sync::mpsc;

const PATH: &str = "/examples/follow-node";

/// Sends the text of the node: at first, and after each event. Ends with the client.
async fn follow(client: Client, texts: mpsc::UnboundedSender<String>) -> Result<(), Error> {
    let policy = RetryForever { retry_interval: Duration::from_millis(100) };
    let mut reason = "at first";
    loop {
        // The watch comes before the read: a change between the two is an event.
        let mut watcher = client.retry(&policy, || client.add_watch(PATH, Persistent)).await?;
        loop {
            let read = || client.get_data(PATH).allow(ErrorKind::NoNode);
            let data = client.retry(&policy, read).await?.map(|node| node.data);
            let text = String::from_utf8_lossy(&data.unwrap_or_default()).into_owned();
            let _ = texts.send(format!("{text} ({reason})"));
            reason = match watcher.next().await {
                // No server reports the events of an outage. A resync says that some may be missing.
                Some(event) if event.is_resync() => "after a reconnect",
                Some(event) if !event.is_end() => "after a change",
                // The session has ended, and its watches with it.
                _ => break,
            }
        }
        reason = "in a new session";
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = TestingServer::start().await?;
    let admin = Client::connect(&server.connect_string()).await?;
    let options = docent::CreateOptions::new(docent::CreateMode::Persistent).with_parents();
    admin.create_or_set(PATH, b"one", options).await?;
    let tap = Tap::start(&server.connect_string()).await?;
    let (port, (sender, mut texts)) = (tap.client("follower").await?, mpsc::unbounded_channel());
    let follower = Client::connect(&port.connect_string()).await?;
    let mut state = follower.state();
    tokio::spawn(follow(follower, sender));
    println!("{}", texts.recv().await.unwrap_or_default());
    admin.set_data(PATH, b"two", None).await?;
    println!("{}", texts.recv().await.unwrap_or_default());
    port.refuse().await?;
    port.cut();
    state.wait_for(|state| *state == Some(ConnectionState::Suspended)).await;
    admin.set_data(PATH, b"three", None).await?;
    port.accept().await?;
    println!("{}", texts.recv().await.unwrap_or_default());
    port.kill_session(Duration::from_secs(30)).await?;
    println!("{}", texts.recv().await.unwrap_or_default());
    Ok(admin.close().await?)
}
