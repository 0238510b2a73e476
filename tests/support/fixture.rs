//! A server behind a tap, for tests that run on the embedded server and on a real one.

use std::future::Future;
use std::time::Duration;

use docent::{
    Acl, Client, Config, CreateMode, ErrorKind, OpCode,
    acl::{self, Perms},
};
use docent_testing::{
    TestingCluster, TestingServer,
    server::{self, Version},
    tap::{Record, Tap, TapClient},
};

use super::{
    DEADLINE,
    ensemble::address,
    eventually,
    real::{real_server, unique_path},
};

/// Runs each test on the embedded server and on a real one. A test gets a [`Fixture`], or what two functions return; the
/// second returns `None` without a real server, and the test is then counted as skipped.
#[macro_export]
macro_rules! on_both_servers {
    ($($test:ident)*) => {
        $crate::on_both_servers! {
            #[tokio::test]
            $crate::fixture::Fixture::embedded, $crate::fixture::Fixture::real; $($test())*
        }
    };
    (
        #[$attribute:meta]
        $embedded:path, $real:path; $($test:ident($($argument:expr),*))*
    ) => {
        mod embedded {
            $(
                #[$attribute]
                async fn $test() {
                    super::$test($embedded($($argument),*).await).await;
                }
            )*
        }
        mod real {
            $(
                #[$attribute]
                async fn $test() {
                    let Some(fixture) = $real($($argument),*).await else { return };
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
        Self::with(server::Config { container_check_interval, ..Default::default() }).await
    }

    /// An embedded server with these settings.
    pub async fn with(config: server::Config) -> Self {
        let server = TestingServer::start_with(config).await.unwrap();
        Self::on(server.connect_string(), Some(server)).await
    }

    /// An embedded server of a version.
    pub async fn of_version(version: Version) -> Self {
        Self::with(server::Config { version, ..Default::default() }).await
    }

    /// A member of an embedded ensemble.
    pub async fn of_member(cluster: &TestingCluster, member: usize) -> Self {
        Self::on(address(cluster, member), None).await
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
        let timeouts = |config: Config| {
            let config = config.with_session_timeout(Duration::from_secs(6));
            config.with_connection_timeout(Duration::from_secs(5))
        };
        self.client_with(label, timeouts).await
    }

    /// A client behind the tap, with other settings than the default ones.
    pub async fn client_with(
        &self,
        label: &str,
        settings: impl FnOnce(Config) -> Config,
    ) -> (Client, TapClient) {
        let tap = self.tap.client(label).await.unwrap();
        let config = settings(Config::new(&tap.connect_string()).unwrap());
        (config.connect().await.unwrap(), tap)
    }

    /// The embedded server.
    pub fn testing_server(&self) -> &TestingServer {
        self.embedded.as_ref().unwrap()
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

    /// Waits for a reply to the labelled client, also an earlier one.
    pub async fn wait_for_reply(&self, label: &str, op: OpCode) {
        self.tap.wait_for(DEADLINE, reply(label, op)).await.unwrap();
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

    /// Waits until a semaphore has `count` lease nodes.
    pub async fn leases(&self, count: usize) -> Vec<String> {
        self.children(&format!("{}/leases", self.path), count).await
    }

    /// Waits until the mutex of a semaphore has `count` nodes.
    pub async fn locks(&self, count: usize) -> Vec<String> {
        self.children(&format!("{}/locks", self.path), count).await
    }
}

/// Whether a record is a request of this operation by a client.
pub fn request(label: &str, op: OpCode) -> impl Fn(&Record) -> bool + Clone + Send {
    move |record| &*record.client == label && record.is_request(op)
}

/// Whether a record is a reply to this operation of a client.
pub fn reply(label: &str, op: OpCode) -> impl Fn(&Record) -> bool + Clone + Send {
    move |record| &*record.client == label && record.is_reply(op)
}
