//! A ZooKeeper session: a state machine without IO, and a tokio client on it.
//!
//! * [`state::Session`] is the machine: bytes and instants in, bytes and completions out. It has every rule
//!   of a session in it and needs no runtime (`default-features = false`).
//! * [`Client`] is what applications use: one documented method for each operation, a driver task behind
//!   it.
//!
//! Applications add the crate `docent`, which re-exports what is here.
//!
//! # What happens when …
//!
//! | … | |
//! |---|---|
//! | the connection breaks | the state is SUSPENDED; every server is tried in turn, with the same session; watches are set again; what was sent fails with `ConnectionLoss` and [`Outcome::Unknown`], what was not waits |
//! | no server is found for the session timeout, or one says so | the state is LOST; everything that waits fails with `SessionExpired`, watches end; a new session is made |
//! | a request's reply is lost | nothing is sent again: only the caller knows whether it may be. The error says `Unknown` |
//! | a server sends what no server sends | the connection is given up, with the reason in the error; no panic, no hang |
//! | a future is dropped | its request goes out and takes effect; a watch that nobody waits for any more is given back |
//! | a caller is faster than the server | requests and bytes are bounded; too many fail, or wait ([`WhenFull`]) |
//! | a consumer of events is slow | it holds up nobody; events beyond its buffer become one [resync](WatchedEvent::is_resync) |
//! | one must know how long the session surely lives | [`SessionLease`] says what can be said |
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `tokio` (default) | [`Client`] |
//! | `tls` | connections by rustls |
//! | `sasl` | authentication by DIGEST-MD5 |
//!
//! Without any, the crate is the machine: three crates of others, no IO, no clock. The example `embed` is a client on a
//! blocking socket in sixty lines.
#![cfg_attr(not(feature = "tokio"), doc = "\n[`Client`]: https://docs.rs/docent-session")]

mod config;
mod connection_state;
mod error;
mod hosts;
mod lease;
#[cfg(feature = "sasl")]
mod sasl;
pub mod state;
mod time;
mod timeouts;
mod watches;

pub use config::{Backoff, Config, Credential, SessionToken, WhenFull};
pub use connection_state::ConnectionState;
pub use error::{Error, ErrorKind, Outcome};
pub use hosts::{ConnectString, Host, InvalidConnectString};
pub use lease::{SessionClaim, SessionLease};
#[cfg(feature = "sasl")]
pub use sasl::SaslCredential;
pub use state::{Latency, Metrics};
pub use time::Instant;
pub use timeouts::Timeouts;
pub use watches::{WatchKind, WatchedEvent};

#[cfg(feature = "tokio")]
mod answer;
#[cfg(feature = "tokio")]
mod chroot;
#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "tokio")]
mod clock;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(feature = "tokio")]
mod response;
#[cfg(feature = "tokio")]
pub mod retry;
#[cfg(feature = "tokio")]
mod transaction;
#[cfg(feature = "tokio")]
mod transport;
#[cfg(feature = "tokio")]
mod watcher;

#[cfg(feature = "tokio")]
pub use client::{AclEntries, Client, ClientInfo, Reconfig, States};
#[cfg(feature = "tokio")]
pub use clock::Clock;
#[cfg(feature = "tokio")]
pub use response::{
    AddWatchResponse, Children, MaybeResponse, MaybeWatchResponse, Node, Response, WatchResponse,
};
#[cfg(feature = "tokio")]
pub use transaction::{
    MultiReadResponse, ReadResult, Transaction, TransactionResponse, TransactionResult,
};
#[cfg(feature = "tokio")]
pub use transport::{Connecting, Stream, Tcp, Transport};
#[cfg(feature = "tls")]
pub use transport::{Tls, TlsOptions};
#[cfg(feature = "tokio")]
pub use watcher::{OnDrop, Watcher};
