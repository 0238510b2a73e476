//! The settings of a session machine: the part of the configuration that it reads.

use std::time::Duration;

use docent_protocol::frame;

use super::connect_string::ConnectString;
use crate::{
    Backoff, SessionToken,
    config::{Credential, WhenFull},
};

/// The settings of a session machine. [`Config`](crate::Config) sets and documents each of them.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
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
