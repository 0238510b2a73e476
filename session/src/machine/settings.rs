//! The settings of a session machine: the part of the configuration that it reads.

use std::{fmt, time::Duration};

use docent_protocol::frame;

use super::connect_string::ConnectString;
use crate::{SessionToken, config::Backoff};

/// The settings of a session machine, made from a [`Config`](crate::Config), which sets and documents each of them.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) connect_string: ConnectString,
    pub(crate) session_timeout: Duration,
    pub(crate) connection_timeout: Duration,
    pub(crate) session_expiration_percent: u8,
    pub(crate) backoff: Backoff,
    pub(crate) max_request_bytes: usize,
    pub(crate) max_reply_bytes: usize,
    pub(crate) max_requests: usize,
    pub(crate) max_pending_bytes: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) session: Option<SessionToken>,
    pub(crate) read_only: bool,
    pub(crate) direct_servers: bool,
    pub(crate) credentials: Vec<Credential>,
    #[cfg(feature = "sasl")]
    pub(crate) sasl: Option<std::sync::Arc<dyn super::sasl::SaslMechanism>>,
}

impl Settings {
    pub(crate) fn new(connect_string: ConnectString) -> Self {
        Self {
            connect_string,
            session_timeout: Duration::from_secs(60),
            connection_timeout: Duration::from_secs(15),
            session_expiration_percent: 100,
            backoff: Backoff::default(),
            max_request_bytes: frame::DEFAULT_LIMIT,
            max_reply_bytes: 16 << 20,
            max_requests: 1_000_000,
            max_pending_bytes: 64 << 20,
            when_full: WhenFull::Fail,
            request_timeout: None,
            session: None,
            read_only: false,
            direct_servers: false,
            credentials: Vec::new(),
            #[cfg(feature = "sasl")]
            sasl: None,
        }
    }
}

/// What happens to a request when the limits of the configuration are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The request fails with [`TooManyRequests`](crate::ErrorKind::TooManyRequests), not applied. The limits apply to all
    /// pending requests, sent or unsent: they bound the memory of the client.
    #[default]
    Fail,
    /// The request waits in the queue until enough earlier requests are answered. The limits apply to the requests in
    /// flight: they bound the work of a server at one time.
    ///
    /// As always, the request is queued by its call and sent even if its future is dropped. So the callers bound the
    /// memory of the queue: a caller that awaits each call has one request in it, a caller that never awaits has all of
    /// its requests in it. A waiting request fails like any other unsent request: after the connection timeout without
    /// a connection, after the [request timeout](crate::Config::with_request_timeout), or with the session.
    Wait,
}

/// An authentication scheme and its secret. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    scheme: Box<str>,
    auth: Box<[u8]>,
}

impl Credential {
    /// A credential of `scheme`. For `digest`, `auth` is `user:password`.
    #[must_use]
    pub fn new(scheme: &str, auth: &[u8]) -> Self {
        Self { scheme: scheme.into(), auth: auth.into() }
    }

    /// The scheme, such as `digest`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The secret. For `digest`, `user:password`.
    #[must_use]
    pub fn auth(&self) -> &[u8] {
        &self.auth
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}
