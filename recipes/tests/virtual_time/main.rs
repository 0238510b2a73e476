//! Recipes on a server in this process, in virtual time: how long waits, holds and pauses last.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod deleted_nodes;
mod proven_renewal;
mod strict_mutex;
#[path = "../support/mod.rs"]
mod support;

use std::{sync::Arc, time::Duration};

use docent_recipes::locks::LockOptions;
use docent_session::{Client, Config, retry::RetryNTimes, runtime::Clock};
use docent_testing::{TestingServer, server};

use support::InProcess;

/// The session timeout of most clients.
const T: Duration = Duration::from_secs(6);

/// A server, and the clock of its clients.
struct World {
    server: Arc<TestingServer>,
    clock: Clock,
}

impl World {
    async fn new() -> Self {
        Self::with(server::Config::default()).await
    }

    async fn with_client() -> (Self, Client) {
        let world = Self::new().await;
        let client = world.client().await;
        (world, client)
    }

    async fn with(config: server::Config) -> Self {
        let server = Arc::new(TestingServer::start_with(config).await.unwrap());
        Self { server, clock: Clock::tokio() }
    }

    /// The settings of a client whose replies take some time.
    fn config_with(&self, latency: Duration) -> Config {
        let transport = InProcess::new(&self.server).with_latency(latency);
        transport.config().with_clock(self.clock.clone()).with_session_timeout(T)
    }

    fn config(&self) -> Config {
        self.config_with(Duration::ZERO)
    }

    async fn client(&self) -> Client {
        self.config().connect().await.unwrap()
    }
}

fn options() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(10, Duration::from_millis(100)))
}
