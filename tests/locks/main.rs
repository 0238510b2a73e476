//! Every kind of lock, told on the embedded server and on a real one by the same stories.
//!
//! Most are Curator's own tests of its lock package, ported by their meaning; those have their Java name above
//! them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the stories that they tell"
)]

/// Tells each story on both servers.
macro_rules! on_both_servers {
    ($($story:ident)*) => {
        mod embedded {
            $(
                #[tokio::test]
                async fn $story() {
                    super::$story($crate::Stage::embedded().await).await;
                }
            )*
        }
        mod real {
            $(
                #[tokio::test]
                async fn $story() {
                    let Some(stage) = $crate::Stage::real().await else { return };
                    super::$story(stage).await;
                }
            )*
        }
    };
}

#[path = "../support/mod.rs"]
mod support;

mod any_lock;
mod cancellation;
mod cluster;
mod framework;
mod hand_off;
mod killed_server;
mod multi;
mod mutex;
mod read_write;
mod semaphore;
mod sessions;
mod shared;
mod time;

use std::time::Duration;

use docent::{Client, Config, ErrorKind, recipes::locks::LockOptions, session::retry::RetryNTimes};
use docent_testing::{
    TestingServer, server,
    tap::{Tap, TapClient},
};
use support::{
    eventually,
    real::{real_server, unique_path},
};

/// A server behind a tap, and a path nobody else uses.
struct Stage {
    tap: Tap,
    server: String,
    path: String,
    /// Lives as long as the stage.
    _embedded: Option<TestingServer>,
}

impl Stage {
    async fn embedded() -> Self {
        // Empty parents go soon, as on the real server of a test run.
        let container_check_interval = Duration::from_secs(1);
        let config = server::Config { container_check_interval, ..Default::default() };
        let server = TestingServer::start_with(config).await.unwrap();
        let connect = server.connect_string();
        Self::on(connect, Some(server)).await
    }

    /// `None` if there is no server, which is then told and counted.
    #[track_caller]
    fn real() -> impl Future<Output = Option<Self>> {
        let server = real_server();
        async move { Some(Self::on(server?, None).await) }
    }

    async fn on(server: String, embedded: Option<TestingServer>) -> Self {
        let tap = Tap::start(&server).await.unwrap();
        Self { tap, server, path: unique_path("lock"), _embedded: embedded }
    }

    /// A client behind the tap.
    async fn client(&self, label: &str) -> (Client, TapClient) {
        let tap = self.tap.client(label).await.unwrap();
        let config = Config::new(&tap.connect_string())
            .unwrap()
            .with_session_timeout(Duration::from_secs(6))
            .with_connection_timeout(Duration::from_secs(5));
        (Client::connect_with(config).await.unwrap(), tap)
    }

    /// A client that nobody records.
    async fn observer(&self) -> Client {
        Client::connect(&self.server).await.unwrap()
    }

    /// Waits until a node has so many children.
    async fn children(&self, path: &str, count: usize) -> Vec<String> {
        let observer = self.observer().await;
        let children = eventually(&format!("{count} children of {path}"), async || {
            let children = match observer.get_children(path).await {
                Ok(children) => children.to_vec(),
                Err(error) if error.kind() == ErrorKind::NoNode => Vec::new(),
                Err(error) => panic!("{error}"),
            };
            (children.len() == count).then_some(children)
        })
        .await;
        observer.close().await.unwrap();
        children
    }
}

/// Patient enough for every fault of these stories.
fn options() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(10, Duration::from_millis(100)))
}

/// Nothing is tried again.
fn no_retries() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(0, Duration::ZERO))
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
