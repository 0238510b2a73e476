//! The effect and the errors of each operation, on a server.
//!
//! The tests know only the [`server`] that they run on, so any server can be tested with them: each
//! server must answer as a real ZooKeeper does.

use docent_testing::server::Config as ServerConfig;
use std::{cell::Cell, sync::OnceLock};

use super::*;
use crate::support::real::start_embedded;

/// Runs each test on every server.
macro_rules! on_all_servers {
    ($($test:ident),+ $(,)?) => {
        on_all_servers! { @on real crate::conformance::ServerKind::Real; $($test),+ }
        on_all_servers! { @on embedded crate::conformance::ServerKind::Embedded(docent_testing::server::Version::V3_8); $($test),+ }
        on_all_servers! { @on embedded_3_9 crate::conformance::ServerKind::Embedded(docent_testing::server::Version::V3_9); $($test),+ }
    };
    (@on $server:ident $kind:expr; $($test:ident),+) => {
        mod $server {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::conformance::SERVER_UNDER_TEST.set($kind);
                    if let Some(fixture) = crate::conformance::Fixture::new().await {
                        super::$test(fixture).await;
                    }
                }
            )+
        }
    };
}
use on_all_servers;

mod acls;
mod bytes;
mod conveniences;
mod nodes;
mod sessions;
mod transactions;
mod watches;

/// The servers under test.
#[derive(Clone, Copy)]
enum ServerKind {
    Real,
    Embedded(Version),
}

thread_local! {
    /// The server of the test on this thread: each test has its own thread.
    static SERVER_UNDER_TEST: Cell<ServerKind> = const { Cell::new(ServerKind::Real) };
}

/// The connect string of the server under test; `None`, which is reported, if it is missing.
#[track_caller]
fn server() -> Option<String> {
    match SERVER_UNDER_TEST.get() {
        ServerKind::Real => real_server(),
        ServerKind::Embedded(version) => Some(embedded(version).to_owned()),
    }
}

/// The embedded server of a version, which ends with the process.
fn embedded(version: Version) -> &'static str {
    static SERVERS: [OnceLock<String>; 2] = [OnceLock::new(), OnceLock::new()];

    let server = &SERVERS[usize::from(matches!(version, Version::V3_9))];
    server.get_or_init(|| {
        start_embedded(ServerConfig {
            version,
            extended_types_enabled: true,
            container_check_interval: Duration::from_millis(100),
            ..ServerConfig::default()
        })
    })
}

/// A client, and a node that no other test uses.
struct Fixture {
    client: Client,
    base: String,
}

impl Fixture {
    #[track_caller]
    fn new() -> impl Future<Output = Option<Self>> {
        let connect = server();
        async move {
            let connect = connect?;
            let base = unique_path("conformance");
            let client = client(&connect).await;
            let parent = base.rsplit_once('/').unwrap().0;
            client.create(parent, b"", CreateMode::Persistent).await.unwrap();
            client.create(&base, b"", CreateMode::Persistent).await.unwrap();
            Some(Self { client, base })
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    async fn node(&self, name: &str, data: &[u8]) -> String {
        self.client.create(&self.path(name), data, CreateMode::Persistent).await.unwrap()
    }

    /// Another client of the same server.
    async fn another(&self) -> Client {
        client(&server().unwrap()).await
    }

    /// Another client whose root is the node.
    async fn chrooted(&self) -> Client {
        client(&format!("{}{}", server().unwrap(), self.base)).await
    }
}

async fn client(connect: &str) -> Client {
    let config = Config::new(connect).unwrap().with_session_timeout(Duration::from_secs(20));
    config.connect().await.unwrap()
}

/// Options that create a persistent node and its missing parents.
fn parents() -> CreateOptions<'static> {
    CreateOptions::new(CreateMode::Persistent).with_parents()
}

/// Asserts the kind of an error, and that the operation was not applied.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (kind, Outcome::NotApplied), "{error}");
    error
}
