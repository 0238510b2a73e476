//! Tests of the leader recipes, each run on the embedded server and on a real one where it can be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the functions that they call"
)]

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod interop;
mod latch;
mod latch_faults;
mod nodes;
mod peer;
mod selector;
mod trace_parity;

use std::time::Duration;

use docent::{
    Client, Config, ConnectionState, LeaderOptions, LockOptions, OpCode, retry::RetryNTimes,
};
use docent_testing::{TestingServer, server, tap::TapClient};
use support::{DEADLINE, fixture::Fixture, within_deadline};

/// Enough retries for every fault of these tests.
fn options() -> LeaderOptions {
    lock_options().into()
}

fn lock_options() -> LockOptions {
    let policy = RetryNTimes::new(10, Duration::from_millis(100));
    LockOptions::default().with_retry_policy(policy)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server that expires no session by itself, so that a client can give up a session that the server keeps.
async fn without_expiry() -> (Fixture, TestingServer) {
    let config = server::Config {
        // Sessions expire at multiples of it.
        tick_time: Duration::from_secs(3600),
        min_session_timeout: Some(ms(1000)),
        ..Default::default()
    };
    let server = TestingServer::start_with(config).await.unwrap();
    (Fixture::on(server.connect_string(), None).await, server)
}

/// A client with a short session timeout.
async fn short_session(fixture: &Fixture, label: &str) -> (Client, TapClient) {
    let tap = fixture.tap.client(label).await.unwrap();
    let config = Config::new(&tap.connect_string()).unwrap().with_session_timeout(ms(2000));
    (config.with_connection_timeout(DEADLINE).connect().await.unwrap(), tap)
}

/// Keeps the client disconnected until it has given up its session by its own clock.
async fn give_up_session(client: &Client, tap: &TapClient) {
    tap.refuse().await.unwrap();
    tap.cut();
    let mut state = client.state();
    let lost = state.wait_for(|state| *state == Some(ConnectionState::Lost));
    within_deadline("the loss", lost).await.unwrap();
    tap.accept().await.unwrap();
}

/// The requests of a client since `before`, but pings and its handshake.
fn requests(fixture: &Fixture, label: &str, before: u64) -> Vec<OpCode> {
    let trace = fixture.tap.trace().since(before);
    let requests = trace.iter().filter(|r| &*r.client == label);
    let requests = requests.filter_map(|r| r.op().filter(|op| r.is_request(*op)));
    requests.filter(|op| *op != OpCode::Ping).collect()
}
