//! A session that its client gives up by its own clock, while the server keeps it.

use std::time::Duration;

use docent::{Client, Config, ConnectionState};
use docent_testing::{TestingServer, server, tap::TapClient};

use super::{DEADLINE, fixture::Fixture, within_deadline};

/// The configuration of a server that expires no session by itself.
pub fn config_without_expiry() -> server::Config {
    server::Config {
        // Sessions expire only at multiples of the tick time.
        tick_time: Duration::from_secs(3600),
        min_session_timeout: Some(Duration::from_secs(1)),
        ..Default::default()
    }
}

/// A server that expires no session by itself, behind a tap.
pub async fn without_expiry() -> (Fixture, TestingServer) {
    let server = TestingServer::start_with(config_without_expiry()).await.unwrap();
    (Fixture::on(server.connect_string(), None).await, server)
}

/// A client with a short session timeout.
pub async fn short_session(fixture: &Fixture, label: &str) -> (Client, TapClient) {
    let tap = fixture.tap.client(label).await.unwrap();
    let config = Config::new(&tap.connect_string()).unwrap();
    // Long enough that a busy machine does not lose the connection by itself.
    let config = config.with_session_timeout(Duration::from_secs(6));
    (config.with_connection_timeout(DEADLINE).connect().await.unwrap(), tap)
}

/// Keeps the client disconnected until it has given up its session.
pub async fn give_up_session(client: &Client, tap: &TapClient) {
    tap.refuse().await.unwrap();
    tap.cut();
    wait_until_given_up(client, tap).await;
}

/// Like [`give_up_session`], when the port is closed already and a fault has cut the connection.
pub async fn wait_until_given_up(client: &Client, tap: &TapClient) {
    let mut state = client.state();
    let lost = state.wait_for(|state| *state == Some(ConnectionState::Lost));
    within_deadline("the loss", lost).await.unwrap();
    tap.accept().await.unwrap();
}
