//! A ZooKeeper session: a state machine without IO, and a tokio client on it.
//!
//! * [`machine::Session`] is the state machine: bytes and instants in, bytes and completions out. It implements every
//!   rule of a session and needs no runtime (`default-features = false`).
//! * [`Client`] is the client for applications: one documented method for each operation, and a driver task that moves
//!   the bytes.
//!
//! Applications add the crate `docent`, which re-exports this one.
//!
//! # What happens when …
//!
//! | … | |
//! |---|---|
//! | the connection breaks | the state is SUSPENDED; every server is tried in turn, with the same session; watches are set again; sent requests fail with `ConnectionLoss` and [`Outcome::Unknown`], unsent requests wait |
//! | no server is reached for the session timeout, or a server reports the session as expired | the state is LOST; pending requests fail with `SessionExpired`, watches end; a new session is created |
//! | a request's reply is lost | the request is not sent again: only the caller knows whether that is safe. The outcome of the error is `Unknown` |
//! | a server sends invalid data | the connection is closed, with the reason in the error; no panic, no hang |
//! | a future is dropped | its request is sent and takes effect; a watch without a watcher is removed from the server |
//! | a caller is faster than the server | pending requests and bytes are limited; requests above the limit fail, or wait ([`WhenFull`]) |
//! | a consumer of events is slow | it delays nothing else; events beyond its buffer become one [resync](WatchedEvent::is_resync) |
//! | the servers of the ensemble change | [`Client::update_server_list`] moves the client without losing a request; an [`EnsembleTracker`] does so by itself |
//! | a program ends | [`Client::run`] and [`Client::close`] end the session and wait for the server's confirmation; the last drop of a client, or a runtime that ends, sends the queued requests and closeSession without waiting |
//! | a caller must know how long the session lives for certain | [`SessionLease`] has a best-effort bound and a proven one |
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `tokio` (default) | [`Client`] |
//! | `tls` | connections by rustls with ring |
//! | `tls-aws-lc-rs` | the same with aws-lc-rs. For its build that is validated for FIPS 140-3, let your program depend on `rustls` with the feature `fips`, too |
//! | `tls-no-provider` | the same with the provider that the program has installed, which the other features prefer, too |
//! | `tls-platform-roots` | `TlsOptions::with_platform_roots`: certificates that the platform trusts |
//! | `dns-srv` | connect strings `dns-srv://name`, whose servers are SRV records: [`ConnectString`] |
//! | `sasl` | authentication by DIGEST-MD5, or by another mechanism |
//! | `stream` | [`Watcher`], [`Events`] and [`Latest`] as streams of `futures-core` |
//! | `metrics` | the counters of [`Metrics`], for the crate `metrics` |
//!
//! Without features, the crate is the machine: three third-party crates, no IO, no clock. The example `embed` is a
//! client on a blocking socket in sixty lines.
//!
//! # Logs and traces
//!
//! The client reports to the crate `tracing`: states of the connection and new sessions at INFO, the loss of a session at
//! WARN, attempts to connect at DEBUG. Each request is a span `request` at TRACE, with the target `docent::request` and
//! the fields `op`, `path` and `xid`, from the call until its caller takes the reply. The span has one event: `reply`,
//! `failed` with the field `error`, or `dropped by the caller`. A subscriber sees them with a filter such as
//! `docent::request=trace`; without a subscriber for TRACE, a request pays for one comparison. `docs/OBSERVABILITY.md` in the
//! repository sends spans and metrics to an OpenTelemetry collector.
#![cfg_attr(
    not(feature = "tokio"),
    doc = "

[`Client`]: https://docs.rs/docent-session
[`Client::close`]: https://docs.rs/docent-session
[`Client::run`]: https://docs.rs/docent-session
[`Client::update_server_list`]: https://docs.rs/docent-session
[`EnsembleTracker`]: https://docs.rs/docent-session
[`Events`]: https://docs.rs/docent-session
[`Latest`]: https://docs.rs/docent-session
[`Watcher`]: https://docs.rs/docent-session
"
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod config;
mod error;
pub mod machine;
#[cfg(not(docent_sim))]
mod planted;
#[cfg(docent_sim)]
pub mod planted;
mod session_token;
mod time;

#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "tokio")]
mod driver;

pub use backoff::Backoff;
pub use config::Config;
pub use error::{Error, ErrorKind, Outcome};
#[cfg(feature = "sasl")]
pub use machine::sasl::{
    SaslAction, SaslContext, SaslCredential, SaslError, SaslExchange, SaslMechanism,
};
pub use machine::{
    connect_string::{ConnectString, Host, InvalidConnectString},
    connection_state::ConnectionState,
    lease::{SessionClaim, SessionLease},
    metrics::{Latency, Metrics},
    settings::{Credential, WhenFull},
    timeouts::Timeouts,
    watch_table::{NodePath, WatchKind, WatchedEvent},
};
pub use session_token::SessionToken;
pub use time::Instant;

#[cfg(feature = "tls-no-provider")]
pub use driver::{Tls, TlsOptions};
#[cfg(feature = "tokio")]
pub use {
    client::{
        AclEntries, AddWatchResponse, Allow, Call, Children, Cleanup, Client, ClientInfo,
        EnsembleConfig, EnsembleServer, EnsembleTracker, Events, InvalidEnsembleConfig, Latest,
        MultiReadResponse, Node, OnDrop, ReadResult, Reconfig, Response, StateEvent, Transaction,
        TransactionResponse, TransactionResult, WatchResponse, Watcher, WeakClient, children,
        retry,
    },
    driver::{
        BlockingWork, ByteStream, Clock, Connecting, LocalAddress, Runtime, ServerLookup, Task,
        Tcp, TcpOptions, Timer, Transport,
    },
};
