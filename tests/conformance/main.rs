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

mod acls;
mod bytes;
mod nodes;
mod sessions;
mod transactions;
mod watches;

use std::time::Duration;

use docent::session::{Client, Config, Error};
use docent::{CreateMode, ErrorKind, Outcome};
use support::real::unique_path;

/// The connect string of the server that is asked.
fn server() -> Option<String> {
    Some(support::real::server())
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
