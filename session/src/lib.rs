//! A ZooKeeper session: a state machine without IO, and a tokio client on it.
//!
//! * [`machine::Session`] is the state machine: bytes and instants in, bytes and completions out. It implements every
//!   rule of a session and needs no runtime (`default-features = false`).
//! * [`Client`] is the client for applications: one documented method for each operation, and a driver task that moves
//!   the bytes.
//!
//! Applications add the crate `docent`, which re-exports the modules of this one.
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
//! | a caller is faster than the server | pending requests and bytes are limited; requests above the limit fail, or wait ([`WhenFull`](config::WhenFull)) |
//! | a consumer of events is slow | it delays nothing else; events beyond its buffer become one [resync](WatchedEvent::is_resync) |
//! | a server that is preferred, or has few clients after a restart, is reachable again | with [`Config::with_failback`], the client moves there within that time, without losing session, holds, requests or events; [`Client::reconnect`] does so at once |
//! | the servers of the ensemble change | [`Client::update_server_list`] moves the client without losing a request; an [`EnsembleTracker`] does so by itself |
//! | a program ends | [`Client::run`] and [`Client::close`] end the session and wait for the server's confirmation; the last drop of a client, or a runtime that ends, sends the queued requests and closeSession without waiting |
//! | a caller must know how long the session lives for certain | [`SessionLease`](session::SessionLease) has a best-effort bound and a proven one |
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `tokio` (default) | [`Client`] |
//! | `tls` | connections by rustls with ring |
//! | `tls-aws-lc-rs` | the same with aws-lc-rs. For its build that is validated for FIPS 140-3, let your program depend on `rustls` with the feature `fips`, too, which takes cmake and Go |
//! | `tls-no-provider` | the same with the provider that the program has installed, which the other features prefer, too |
//! | `tls-platform-roots` | `TlsOptions::with_platform_roots`: certificates that the platform trusts |
//! | `dns-srv` | connect strings `dns-srv://name`, whose servers are SRV records: [`config::ConnectString`] |
//! | `sasl` | authentication by DIGEST-MD5, or by another mechanism |
//! | `stream` | [`Watcher`], [`Events`] and [`Latest`] as streams of `futures-core` |
//! | `metrics` | the counters of [`client::Metrics`], for the crate `metrics` |
//!
//! Without features, the crate is the machine: three third-party crates, no IO, no clock. The example `embed` is a
//! client on a blocking socket in sixty lines.
//!
//! # Logs and traces
//!
//! The client reports to the crate `tracing`: states of the connection and new sessions at INFO, the loss of a session at
//! WARN, and so, once for each outage, a server that refuses TLS or is refused, attempts to connect at DEBUG. Each request is a span `request` at TRACE, with the target `docent::request` and
//! the fields `op`, `path` and `xid`, from the call until its caller takes the reply. The span has one event: `reply`,
//! `failed` with the field `error`, or `dropped by the caller`. A subscriber sees them with a filter such as
//! `docent::request=trace`; without a subscriber for TRACE, a request pays for one comparison. `docs/OBSERVABILITY.md` in the
//! repository sends spans and metrics to an OpenTelemetry collector.
#![cfg_attr(
    not(feature = "tokio"),
    doc = "

[`Client`]: https://docs.rs/docent-session
[`Client::close`]: https://docs.rs/docent-session
[`Client::reconnect`]: https://docs.rs/docent-session
[`Client::run`]: https://docs.rs/docent-session
[`Client::update_server_list`]: https://docs.rs/docent-session
[`EnsembleTracker`]: https://docs.rs/docent-session
[`Events`]: https://docs.rs/docent-session
[`Latest`]: https://docs.rs/docent-session
[`client::Metrics`]: https://docs.rs/docent-session
[`Watcher`]: https://docs.rs/docent-session
"
)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod backoff;
pub mod config;
pub mod error;
#[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "what only the driver calls"))]
pub mod machine;
#[cfg(not(docent_sim))]
mod planted;
#[cfg(docent_sim)]
pub mod planted;
mod session_token;
#[cfg_attr(not(feature = "tokio"), expect(unused_imports, reason = "what only the driver uses"))]
mod sync;
mod time;

#[cfg(feature = "tokio")]
pub mod client;
#[cfg(feature = "tokio")]
mod driver;

pub use config::Config;
pub use error::{Error, ErrorKind, Outcome};
pub use session::{ConnectionState, SessionToken};
pub use watch::WatchedEvent;
#[cfg(feature = "tokio")]
pub use {
    client::{Children, Client, CreateOptions, Node, Transaction, TransactionResult, retry},
    ensemble::EnsembleTracker,
    watch::{Events, Latest, Watcher},
};

/// The members of the ensemble: to read, to follow and to change.
#[cfg(feature = "tokio")]
pub mod ensemble {
    pub use crate::client::{
        admin::Reconfig,
        ensemble_config::{EnsembleConfig, EnsembleServer, InvalidEnsembleConfig},
        ensemble_tracker::EnsembleTracker,
    };
}

/// What a client has of its surroundings: connections, time, tasks and randomness.
pub mod runtime {
    #[cfg(feature = "tokio")]
    pub use crate::driver::{
        BlockingWork, ByteStream, Clock, Connecting, LocalAddress, Runtime, ServerLookup, Task,
        Tcp, TcpOptions, Timer, Transport,
    };
    pub use crate::time::Instant;
}

/// SASL: a user with its password, or a mechanism of the program.
#[cfg(feature = "sasl")]
pub mod sasl {
    pub use crate::machine::sasl::{
        SaslAction, SaslContext, SaslCredential, SaslError, SaslExchange, SaslMechanism,
    };
}

/// The session: its states, how long it lives, and the token by which another client takes it over.
pub mod session {
    #[cfg(feature = "tokio")]
    pub use crate::client::events::StateEvent;
    pub use crate::{
        machine::{
            connection_state::ConnectionState,
            lease::{SessionClaim, SessionLease},
        },
        session_token::SessionToken,
    };
}

/// TLS connections, by rustls.
#[cfg(feature = "tls-no-provider")]
pub mod tls {
    pub use crate::driver::{Tls, TlsOptions};
}

/// Watches and their events, and the two types of what is received over time.
pub mod watch {
    #[cfg(feature = "tokio")]
    pub use crate::client::{
        events::{Events, Latest},
        watcher::{OnDrop, Watcher},
    };
    pub use crate::machine::watch_table::{NodePath, WatchKind, WatchedEvent};
    pub use docent_protocol::{AddWatchMode, EventType, KeeperState, WatcherType};
}
