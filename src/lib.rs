//! A ZooKeeper client and Apache Curator's lock recipes, written from scratch.
//!
//! A docent shows visitors round a zoo: this one guides between ZooKeeper and Curator. The crate is a
//! facade over its layers:
//!
//! * [`protocol`]: the wire protocol, without IO.
//! * [`session`]: the session machine, and the [`Client`] on it.
//! * [`recipes`] (feature, on by default): Curator's locks, frame for frame, without their defects.
//! * `testing` (feature): an embedded server and a recording proxy, for your own tests.
//! * `tls` (feature): connections by rustls.
//! * `sasl` (feature): authentication by SASL's DIGEST-MD5, [`Config::with_sasl`](session::Config).
//!
//! # Example
//!
//! ```
//! use docent::{Client, recipes::locks::InterProcessMutex};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = docent_testing::TestingServer::start().await?;
//! # let connect_string = server.connect_string();
//! let client = Client::connect(&connect_string).await?;
//! let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
//!
//! let guard = mutex.acquire().await?;
//! println!("held, fencing token {}", guard.fencing_token().await?);
//! guard.release().await?;
//!
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What a lock is worth
//!
//! A holder can lose its lock without being able to notice in time: read
//! [`LockGuard`](recipes::locks::LockGuard) before relying on one.

pub use docent_protocol as protocol;
#[cfg(feature = "recipes")]
pub use docent_recipes as recipes;
pub use docent_session as session;
#[cfg(feature = "testing")]
pub use docent_testing as testing;

pub use docent_protocol::{Acl, CreateMode, EventType, KeeperState, Perms, Stat, Ttl, WatcherType};
pub use docent_session::{
    Client, Config, ConnectionState, Error, ErrorKind, Outcome, WatchedEvent, Watcher,
};

/// The README's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
