//! A server behind a tap, for tests that run on the embedded server and on a real one.

use std::future::Future;
use std::time::Duration;

use docent::{
    Acl, Client, Config, CreateMode, ErrorKind, OpCode,
    acl::{self, Perms},
};
use docent_testing::{
    TestingServer, server,
    tap::{Record, Tap, TapClient},
};

use super::{
    DEADLINE, eventually,
    real::{real_server, unique_path},
};

/// Runs each test on both servers.
#[macro_export]
macro_rules! on_both_servers {
    ($($test:ident)*) => {
        mod embedded {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test($crate::fixture::Fixture::embedded().await).await;
                }
            )*
        }
        mod real {
            $(
                #[tokio::test]
                async fn $test() {
                    let Some(fixture) = $crate::fixture::Fixture::real().await else { return };
                    super::$test(fixture).await;
                }
            )*
        }
    };
}

/// A server behind a tap, and a path that no other test uses.
pub struct Fixture {
    pub tap: Tap,
    pub server: String,
    pub path: String,
    /// Kept alive with the fixture.
    pub embedded: Option<TestingServer>,
}

impl Fixture {
    pub async fn embedded() -> Self {
        // Empty containers are removed soon, as on the real server of a test run.
        let container_check_interval = Duration::from_secs(1);
        let config = server::Config { container_check_interval, ..Default::default() };
        let server = TestingServer::start_with(config).await.unwrap();
        let connect = server.connect_string();
        Self::on(connect, Some(server)).await
    }

    /// `None` if there is no server; the test is then counted as skipped.
    #[track_caller]
    pub fn real() -> impl Future<Output = Option<Self>> {
        let server = real_server();
        async move { Some(Self::on(server?, None).await) }
    }

    pub async fn on(server: String, embedded: Option<TestingServer>) -> Self {
        let tap = Tap::start(&server).await.unwrap();
        Self { tap, server, path: unique_path("lock"), embedded }
    }

    /// A client behind the tap.
    pub async fn client(&self, label: &str) -> (Client, TapClient) {
        let tap = self.tap.client(label).await.unwrap();
        let config = Config::new(&tap.connect_string())
            .unwrap()
            .with_session_timeout(Duration::from_secs(6))
            .with_connection_timeout(Duration::from_secs(5));
        (config.connect().await.unwrap(), tap)
    }

    /// A client that the tap does not record.
    pub async fn observer(&self) -> Client {
        Client::connect(&self.server).await.unwrap()
    }

    /// Creates the path and its parents, as persistent nodes.
    pub async fn create_path(&self, client: &Client) {
        for (end, _) in self.path.match_indices('/').skip(1).chain([(self.path.len(), "")]) {
            match client.create(&self.path[..end], b"", CreateMode::Persistent).await {
                Err(error) if error.kind() != ErrorKind::NodeExists => panic!("{error}"),
                _ => {}
            }
        }
    }

    /// Waits until a node has `count` children.
    pub async fn children(&self, path: &str, count: usize) -> Vec<String> {
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

    /// Waits for a frame of the labelled client.
    pub async fn wait_for_frame(&self, label: &str, wanted: impl Fn(&Record) -> bool + Send) {
        let of_label = |record: &Record| &*record.client == label && wanted(record);
        self.tap.wait_for(DEADLINE, of_label).await.unwrap();
    }

    /// The number of requests of this operation after `since`.
    pub fn requests(&self, since: u64, op: OpCode) -> usize {
        self.tap.trace().since(since).iter().filter(|record| record.is_request(op)).count()
    }

    /// The requests of a client after `since`, except pings and its handshake.
    pub fn sent(&self, label: &str, since: u64) -> Vec<OpCode> {
        let trace = self.tap.trace().since(since);
        let requests = trace.iter().filter(|record| &*record.client == label);
        let requests = requests.filter_map(|r| r.op().filter(|op| r.is_request(*op)));
        requests.filter(|op| *op != OpCode::Ping).collect()
    }

    /// Waits until a client has sent these requests after `since`.
    pub async fn sends(&self, label: &str, since: u64, wanted: &[OpCode]) {
        eventually(&format!("{wanted:?}"), async || {
            (self.sent(label, since) == wanted).then_some(())
        })
        .await;
    }

    /// Allows everyone all operations on a node except these.
    pub async fn forbid(&self, operator: &Client, path: &str, perms: Perms) {
        let perms = Perms::from_number(Perms::ALL.number() & !perms.number());
        let acl = [Acl { perms, ..acl::OPEN_ACL_UNSAFE[0] }];
        operator.set_acl(path, &acl, None).await.unwrap();
    }

    /// Allows everyone all operations on a node.
    pub async fn allow_all(&self, operator: &Client, path: &str) {
        operator.set_acl(path, acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    }

    /// Creates a sibling of the path, so that the server does not remove their container.
    pub async fn keep_parent(&self, client: &Client) {
        let path = format!("{}-sibling", self.path);
        client.create(&path, b"", CreateMode::Persistent).await.unwrap();
    }

    /// Waits until the lock path is empty.
    pub async fn wait_until_empty(&self) {
        self.children(&self.path, 0).await;
    }

    /// Waits until a semaphore has `count` lease nodes.
    pub async fn leases(&self, count: usize) -> Vec<String> {
        self.children(&format!("{}/leases", self.path), count).await
    }

    /// Waits until the mutex of a semaphore has `count` nodes.
    pub async fn locks(&self, count: usize) -> Vec<String> {
        self.children(&format!("{}/locks", self.path), count).await
    }

    /// The operations that a client has sent, one letter each.
    pub fn sequence(&self, label: &str) -> String {
        let letter = |record: &Record| {
            [
                (OpCode::Create2, "C"),
                (OpCode::GetChildren2, "L"),
                (OpCode::GetData, "W"),
                (OpCode::Delete, "D"),
                (OpCode::GetChildren, "F"),
                (OpCode::CreateContainer, "K"),
                (OpCode::CheckWatches, "X"),
            ]
            .into_iter()
            .find(|(op, _)| record.is_request(*op))
            .map(|(_, letter)| letter)
        };
        self.tap.trace().of(label).iter().filter_map(letter).collect()
    }
}
