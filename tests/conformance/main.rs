//! What each operation does and how it fails, told by a server.
//!
//! The stories ask for [`server`] and know nothing else about it, so that any server can be put to them:
//! what a real ZooKeeper answers is what every other one has to.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the helpers that only they call"
)]

#[path = "../support/mod.rs"]
mod support;

use std::{cell::Cell, sync::OnceLock, time::Duration};

use docent::session::{Client, Config, Error};
use docent::{CreateMode, ErrorKind, Outcome};
use docent_testing::{
    TestingServer,
    server::{Config as ServerConfig, Version},
};
use support::real::{real_server, unique_path};

/// Puts stories to each server there is.
macro_rules! stories {
    ($($story:ident),+ $(,)?) => {
        stories! { @on real crate::Which::Real; $($story),+ }
        stories! { @on embedded crate::Which::Embedded(docent_testing::server::Version::V3_8); $($story),+ }
        stories! { @on embedded_3_9 crate::Which::Embedded(docent_testing::server::Version::V3_9); $($story),+ }
    };
    (@on $server:ident $which:expr; $($story:ident),+) => {
        mod $server {
            $(
                #[tokio::test]
                async fn $story() {
                    crate::ASKED.set($which);
                    super::$story().await;
                }
            )+
        }
    };
}
use stories;

mod acls;
mod bytes;
mod nodes;
mod sessions;
mod transactions;
mod watches;

/// The servers that are asked.
#[derive(Clone, Copy)]
enum Which {
    Real,
    Embedded(Version),
}

thread_local! {
    /// Whom the story of this thread asks: each has a thread of its own.
    static ASKED: Cell<Which> = const { Cell::new(Which::Real) };
}

/// The connect string of the server that is asked; `None`, told loudly, when there is none.
#[track_caller]
fn server() -> Option<String> {
    match ASKED.get() {
        Which::Real => real_server(),
        Which::Embedded(version) => Some(embedded(version).to_owned()),
    }
}

/// The embedded server of a version, which ends with the process.
fn embedded(version: Version) -> &'static str {
    static SERVERS: [OnceLock<String>; 2] = [OnceLock::new(), OnceLock::new()];

    let server = &SERVERS[usize::from(matches!(version, Version::V3_9))];
    server.get_or_init(|| {
        let (connect, connected) = std::sync::mpsc::channel();
        // Stories come and go with their runtimes; the server stays.
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config = ServerConfig {
                    version,
                    extended_types_enabled: true,
                    container_check_interval: Duration::from_millis(100),
                    ..ServerConfig::default()
                };
                let server = TestingServer::start_with(config).await.unwrap();
                connect.send(server.connect_string()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        connected.recv().unwrap()
    })
}

/// A client and a node of its own to play below.
struct Playground {
    client: Client,
    base: String,
}

impl Playground {
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

    /// A node in the playground.
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// Creates a persistent node.
    async fn node(&self, name: &str, data: &[u8]) -> String {
        self.client.create(&self.path(name), data, CreateMode::Persistent).await.unwrap()
    }

    /// Another client of the same server.
    async fn another(&self) -> Client {
        client(&server().unwrap()).await
    }

    /// Another client whose root is the playground.
    async fn chrooted(&self) -> Client {
        client(&format!("{}{}", server().unwrap(), self.base)).await
    }
}

async fn client(connect: &str) -> Client {
    let config = Config::new(connect).unwrap().with_session_timeout(Duration::from_secs(20));
    Client::connect_with(config).await.unwrap()
}

/// What an error is to be: its kind, and that nothing was done.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (kind, Outcome::NotApplied), "{error}");
    error
}
