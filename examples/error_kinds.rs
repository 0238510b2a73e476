//! What to do with an error: by its kind first, then by its outcome.
//!
//! On an embedded server in this process, behind a proxy that breaks the connection.

use docent::{Client, CreateMode, CreateOptions, Error, ErrorKind, OpCode, Outcome};
use docent_testing::{TestingServer, fault::Fault, tap::Tap};

/// The answer for most programs; the table of this page has the answer for each kind.
fn advice(error: &Error) -> &'static str {
    use ErrorKind::{BadVersion, LockLost, NoNode, NodeExists, NotEmpty, SessionExpired};
    match error.kind() {
        NodeExists | NoNode | NotEmpty | BadVersion => "an answer: read the tree, and decide",
        LockLost | SessionExpired => "stop the work; acquire again",
        _ if error.outcome() == Outcome::Unknown => "perhaps applied: read before a repeat",
        _ if error.is_retryable() => "not applied: repeat it",
        _ => "a mistake in the program or its settings: report it",
    }
}

fn show(what: &str, result: Result<impl Sized, Error>) {
    match result {
        Ok(_) => println!("{what}: done"),
        Err(error) => println!("{what}: {:?}, {}", error.kind(), advice(&error)),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = TestingServer::start().await?;
    let tap = Tap::start(&server.connect_string()).await?;
    let client = Client::connect(&tap.connect_string()).await?;
    let path = "/examples/error-kinds";
    let options = CreateOptions::new(CreateMode::Ephemeral).with_parents();
    show("create", client.create(path, b"", options).await);
    show("create again", client.create(path, b"", options).await);
    show("set with an old version", client.set_data(path, b"", Some(7)).await);
    show("a path without a slash", client.get_data("examples").await);
    // The server has not received it.
    tap.inject(Fault::drop_before(OpCode::SetData));
    show("a lost request", client.set_data(path, b"one", None).await);
    // The server has applied it. The client sees the same as before.
    tap.inject(Fault::drop_reply(OpCode::SetData));
    show("a lost reply", client.set_data(path, b"two", None).await);
    show("delete", client.delete(path, None).await);
    client.close().await?;
    show("after close", client.get_data(path).await);
    Ok(())
}
