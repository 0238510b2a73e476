//! Tests that cut the connection: a proxy between the client and the server loses replies, cuts, and ends sessions.
//!
//! On an embedded server in this process, behind a proxy that breaks the connection.

use std::time::Duration;

use docent::{Client, Config, ConnectionState, CreateMode, InterProcessMutex, OpCode, Outcome};
use docent_testing::{TestingServer, fault::Fault, tap::Tap};
use tokio::time::{error::Elapsed, timeout};

const DEADLINE: Duration = Duration::from_secs(30);

/// Waits for a state of the connection, at most until the deadline.
async fn wait_for(client: &Client, wanted: ConnectionState) -> Result<(), Elapsed> {
    let mut state = client.state();
    let reached = state.wait_for(|state| *state == Some(wanted));
    timeout(DEADLINE, reached).await.map(drop)
}

// In your tests: #[tokio::test], and docent::testing instead of docent_testing (feature testing).
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = TestingServer::start().await?;
    let tap = Tap::start(&server.connect_string()).await?;
    let port = tap.client("worker").await?;
    let config = Config::new(&port.connect_string())?.with_session_timeout(DEADLINE);
    let client = config.connect().await?;
    let mutex = InterProcessMutex::new(&client, "/examples/cut-connection")?;

    // The server applies the create; its reply is lost. The acquire finds its node by the GUID.
    tap.inject(Fault::drop_reply(OpCode::Create2));
    let guard = mutex.acquire().await?;
    println!("lock nodes after a lost reply: {}", mutex.participants().await?.len());

    // A plain call fails instead.
    tap.inject(Fault::drop_reply(OpCode::Create));
    let error = client.create("/examples/x", b"", CreateMode::Ephemeral).await.err();
    let unknown = error.is_some_and(|error| error.outcome() == Outcome::Unknown);
    println!("the outcome of a plain call is unknown: {unknown}");

    // The network is gone: shorter than the session timeout, so the lock stays.
    port.refuse().await?;
    port.cut();
    wait_for(&client, ConnectionState::Suspended).await?;
    port.accept().await?;
    wait_for(&client, ConnectionState::Reconnected).await?;
    println!("held after an outage: {}", guard.is_held());

    // The session ends, as after a long outage.
    port.kill_session(DEADLINE).await?;
    timeout(DEADLINE, guard.lost()).await?;
    println!("held after the end of the session: {}", guard.is_held());
    guard.release().await?;
    Ok(client.close().await?)
}
