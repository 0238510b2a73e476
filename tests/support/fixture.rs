//! A server behind a tap, for tests that run on the embedded server and on a real one.

use std::future::Future;
use std::time::Duration;

use docent::{Client, Config, CreateMode, ErrorKind};
use docent_testing::{
    TestingServer, server,
    tap::{Tap, TapClient},
};

use super::{
    eventually,
    real::{real_server, unique_path},
};

/// Runs each test on both servers.
#[allow(unused_macros, reason = "not every test program has such tests")]
macro_rules! on_both_servers {
    ($($test:ident)*) => {
        mod embedded {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test($crate::support::fixture::Fixture::embedded().await).await;
                }
            )*
        }
        mod real {
            $(
                #[tokio::test]
                async fn $test() {
                    let Some(fixture) = $crate::support::fixture::Fixture::real().await else { return };
                    super::$test(fixture).await;
                }
            )*
        }
    };
}

/// A server behind a tap, and a path that no other test uses.
pub(crate) struct Fixture {
    pub(crate) tap: Tap,
    pub(crate) server: String,
    pub(crate) path: String,
    /// Kept alive with the fixture.
    pub(crate) embedded: Option<TestingServer>,
}

impl Fixture {
    pub(crate) async fn embedded() -> Self {
        // Empty containers are removed soon, as on the real server of a test run.
        let container_check_interval = Duration::from_secs(1);
        let config = server::Config { container_check_interval, ..Default::default() };
        let server = TestingServer::start_with(config).await.unwrap();
        let connect = server.connect_string();
        Self::on(connect, Some(server)).await
    }

    /// `None` if there is no server; the test is then counted as skipped.
    #[track_caller]
    pub(crate) fn real() -> impl Future<Output = Option<Self>> {
        let server = real_server();
        async move { Some(Self::on(server?, None).await) }
    }

    pub(crate) async fn on(server: String, embedded: Option<TestingServer>) -> Self {
        let tap = Tap::start(&server).await.unwrap();
        Self { tap, server, path: unique_path("lock"), embedded }
    }

    /// A client behind the tap.
    pub(crate) async fn client(&self, label: &str) -> (Client, TapClient) {
        let tap = self.tap.client(label).await.unwrap();
        let config = Config::new(&tap.connect_string())
            .unwrap()
            .with_session_timeout(Duration::from_secs(6))
            .with_connection_timeout(Duration::from_secs(5));
        (config.connect().await.unwrap(), tap)
    }

    /// A client that the tap does not record.
    pub(crate) async fn observer(&self) -> Client {
        Client::connect(&self.server).await.unwrap()
    }

    /// Creates the path and its parents, as persistent nodes.
    pub(crate) async fn create_path(&self, client: &Client) {
        for (end, _) in self.path.match_indices('/').skip(1).chain([(self.path.len(), "")]) {
            match client.create(&self.path[..end], b"", CreateMode::Persistent).await {
                Err(error) if error.kind() != ErrorKind::NodeExists => panic!("{error}"),
                _ => {}
            }
        }
    }

    /// Waits until a node has `count` children.
    pub(crate) async fn children(&self, path: &str, count: usize) -> Vec<String> {
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
