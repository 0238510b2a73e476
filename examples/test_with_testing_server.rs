//! Tests without a ZooKeeper: start a server in the test, use it, and make it misbehave.
//!
//! In `Cargo.toml`: `[dev-dependencies] docent = { version = "0.1", features = ["testing"] }`; then it is
//! `docent::testing::TestingServer`.

use std::time::Duration;

use docent::{Client, ConnectionState, Error, InterProcessMutex};
use docent_testing::TestingServer;

/// The code under test: a job that only one process at a time may run. Returns whether the lock was held throughout.
async fn run_once(client: &Client, job: impl Future<Output = ()>) -> Result<bool, Error> {
    let mutex = InterProcessMutex::new(client, "/jobs/nightly")?;
    let Some(guard) = mutex.acquire_timeout(Duration::from_millis(200)).await? else {
        return Ok(false);
    };
    job.await;
    let held_to_the_end = guard.is_held();
    guard.release().await?;
    Ok(held_to_the_end)
}

// `#[tokio::test]` in your tests.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // On a free loopback port, in memory, until it is dropped.
    let server = TestingServer::start().await?;
    let one = Client::connect(&server.connect_string()).await?;
    let other = Client::connect(&server.connect_string()).await?;

    assert!(run_once(&one, async {}).await?);
    println!("alone, it runs");

    let inner = async { assert!(matches!(run_once(&other, async {}).await, Ok(false))) };
    assert!(run_once(&one, inner).await?);
    println!("while it runs, it runs nowhere else");

    // The server's side of a crash: the session ends in the middle of the job.
    let mut state = one.state();
    let session = one.session().map_or(0, |lease| lease.session_id());
    let expired = async {
        server.expire_session(session);
        server.cut_session(session);
        let lost = state.wait_for(|state| *state == Some(ConnectionState::Lost)).await;
        assert!(lost.is_some(), "the client has not ended");
    };
    let held = run_once(&one, expired).await;
    assert!(!matches!(held, Ok(true)), "it must not believe that it was alone");
    println!("a session that ends in the middle is noticed");
    Ok(())
}
