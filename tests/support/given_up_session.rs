//! A session that its client gives up by its own clock, while the server keeps it.

use std::time::Duration;

use docent::{Client, Config, ConnectionState};
use docent_testing::{server, tap::TapClient};

use super::{DEADLINE, fixture::Fixture, reaches};

/// The configuration of a server that expires no session by itself.
pub fn config_without_expiry() -> server::Config {
    server::Config {
        // Sessions expire only at multiples of the tick time.
        tick_time: Duration::from_secs(3600),
        min_session_timeout: Some(Duration::from_secs(1)),
        ..Default::default()
    }
}

/// A client with a short session timeout.
pub async fn short_session(fixture: &Fixture, label: &str) -> (Client, TapClient) {
    // Long enough that a busy machine does not lose the connection by itself.
    let session = Duration::from_secs(6);
    let timeouts =
        |config: Config| config.with_session_timeout(session).with_connection_timeout(DEADLINE);
    fixture.client_with(label, timeouts).await
}

/// Keeps the client disconnected until it has given up its session.
pub async fn give_up_session(client: &Client, tap: &TapClient) {
    tap.refuse().await.unwrap();
    tap.cut();
    wait_until_given_up(client, tap).await;
}

/// Like [`give_up_session`], when the port is closed already and a fault has cut the connection.
pub async fn wait_until_given_up(client: &Client, tap: &TapClient) {
    reaches(client, ConnectionState::Lost).await;
    tap.accept().await.unwrap();
}
