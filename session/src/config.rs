//! Every knob of a client, with its default and its unit.

use std::{fmt, time::Duration};

use docent_protocol::frame;

use crate::{ConnectString, Error, ErrorKind};

/// How a client connects and what it puts up with.
///
/// ```
/// use std::time::Duration;
/// use docent_session::Config;
///
/// let config = Config::new("zk1:2181,zk2:2181/app")?.with_session_timeout(Duration::from_secs(10));
/// assert_eq!(config.connect_string.chroot(), Some("/app"));
/// # Ok::<(), docent_session::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The servers and the chroot.
    pub connect_string: ConnectString,
    /// The session timeout to ask for; the server may grant another. Default 60 s (Curator's); at most
    /// `i32::MAX` milliseconds are asked for.
    pub session_timeout: Duration,
    /// How long a request may wait for a connection before it fails with
    /// [`ConnectionLoss`](ErrorKind::ConnectionLoss), not applied. Default 15 s (Curator's).
    pub connection_timeout: Duration,
    /// After how much of the session timeout without a connection the session is taken as lost, in
    /// percent. Default 100, Curator's.
    ///
    /// Source: `CuratorFrameworkFactory.Builder.simulatedSessionExpirationPercent`.
    pub session_expiration_percent: u8,
    /// The pauses between attempts to connect.
    pub backoff: Backoff,
    /// The largest request, in bytes: the servers' `jute.maxbuffer`. Default 1,048,575, theirs.
    pub max_request_bytes: usize,
    /// The largest reply, in bytes. A larger one fails its own request only. Default 16 MiB: servers do
    /// not limit replies.
    pub max_reply_bytes: usize,
    /// How many bytes the requests that are waiting may have, sent or not. One more request fails with
    /// [`TooManyRequests`](ErrorKind::TooManyRequests), unless it is the only one, or
    /// [waits](Self::when_full). Default 64 MiB.
    pub max_pending_bytes: usize,
    /// How long any request may wait for its reply before it fails with
    /// [`OperationTimeout`](ErrorKind::OperationTimeout): not applied if it was not sent by then, unknown if it
    /// was. Others are not touched, and the late reply is dropped. Default none: the connection is given up
    /// when nothing is heard for two thirds of the session timeout, and requests with it.
    ///
    /// Source: `zookeeper.request.timeout`, which in Java gives up the connection.
    pub request_timeout: Option<Duration>,
    /// An existing session to go on with, of this or another process. Default none.
    pub session: Option<SessionToken>,
    /// How many requests may be waiting, sent or not. One more fails with
    /// [`TooManyRequests`](ErrorKind::TooManyRequests), or [waits](Self::when_full). Default 1,000,000.
    pub max_requests: usize,
    /// What becomes of a request that is one too many by `max_requests` or `max_pending_bytes`. Default
    /// [`WhenFull::Fail`].
    pub when_full: WhenFull,
    /// How many events a watcher keeps for who does not take them. When there are more, they are dropped and a
    /// [resync](crate::WatchedEvent::is_resync) takes their place. Default 1,000.
    pub max_watch_events: usize,
    /// Whether a read-only server will do. Default no.
    pub read_only: bool,
    /// What is told to each server first.
    pub credentials: Vec<Credential>,
    /// Who to be by SASL, which comes before the other credentials. Default nobody.
    #[cfg(feature = "sasl")]
    pub sasl: Option<crate::SaslCredential>,
    /// The seed of shuffling and jitter; `None` takes one from the operating system.
    pub seed: Option<u64>,
}

impl Config {
    /// The defaults, for these servers.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when the connect string is not one; the text names the part and the rule.
    pub fn new(connect_string: &str) -> Result<Self, Error> {
        let connect_string = connect_string
            .parse()
            .map_err(|error| Error::refused(ErrorKind::InvalidConfig, error))?;
        Ok(Self {
            connect_string,
            session_timeout: Duration::from_secs(60),
            connection_timeout: Duration::from_secs(15),
            session_expiration_percent: 100,
            backoff: Backoff::default(),
            max_request_bytes: frame::DEFAULT_LIMIT,
            max_reply_bytes: 16 << 20,
            max_requests: 1_000_000,
            when_full: WhenFull::Fail,
            max_pending_bytes: 64 << 20,
            request_timeout: None,
            session: None,
            max_watch_events: 1000,
            read_only: false,
            credentials: Vec::new(),
            #[cfg(feature = "sasl")]
            sasl: None,
            seed: None,
        })
    }

    /// Sets [`session_timeout`](Self::session_timeout).
    #[must_use]
    pub const fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets [`connection_timeout`](Self::connection_timeout).
    #[must_use]
    pub const fn with_connection_timeout(mut self, timeout: Duration) -> Self {
        self.connection_timeout = timeout;
        self
    }

    /// Adds credentials that each server is told before anything else.
    #[must_use]
    pub fn with_auth(mut self, scheme: &str, auth: &[u8]) -> Self {
        self.credentials.push(Credential::new(scheme, auth));
        self
    }

    /// Sets [`read_only`](Self::read_only).
    #[must_use]
    pub const fn with_read_only(mut self, allowed: bool) -> Self {
        self.read_only = allowed;
        self
    }

    /// Sets [`request_timeout`](Self::request_timeout).
    #[must_use]
    pub const fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = Some(timeout);
        self
    }

    /// Sets [`when_full`](Self::when_full).
    #[must_use]
    pub const fn with_when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Goes on with an existing session. While another client has it, each throws the other off.
    #[must_use]
    pub fn with_session(mut self, session: SessionToken) -> Self {
        self.session = Some(session);
        self
    }

    /// Sets [`backoff`](Self::backoff).
    #[must_use]
    pub const fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets [`seed`](Self::seed).
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}

/// What becomes of a request when there are as many as the configuration allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// It fails with [`TooManyRequests`](ErrorKind::TooManyRequests), not applied. The limits are those of
    /// all that wait, sent or not: of the client's memory.
    #[default]
    Fail,
    /// It waits in its turn until enough of those before it are answered. The limits are those of what is in
    /// flight, sent and not answered: of what a server has to do at once.
    ///
    /// As everywhere, the request is queued by its call and goes out whether or not its future is kept. So
    /// the memory of the line is its callers' own: who awaits each call has one request in it, who never
    /// awaits has all. A request that waits fails as any other that was not sent: after the connection
    /// timeout without a connection, after the [request timeout](Config::request_timeout), or with the
    /// session.
    Wait,
}

/// The pauses between attempts to connect.
///
/// A lost connection is tried again after at most `first`; then all servers in turn; then there are pauses
/// that double from `first` to `max`, of which up to half is taken off at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The shortest. Default 100 ms.
    pub first: Duration,
    /// The longest. Default 5 s.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

/// All it takes to go on with a session. Who has it can end the session; `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken {
    pub(crate) id: i64,
    pub(crate) password: Box<[u8]>,
    pub(crate) last_zxid: i64,
    pub(crate) session_timeout: Option<Duration>,
}

impl SessionToken {
    /// From its parts. `last_zxid` keeps a server that is behind from being believed; 0 is any.
    #[must_use]
    pub fn new(session_id: i64, password: &[u8], last_zxid: i64) -> Self {
        Self { id: session_id, password: password.into(), last_zxid, session_timeout: None }
    }

    /// Says which timeout was asked for when the session was made. Who goes on with it asks for the same,
    /// whatever its own [`session_timeout`](Config::session_timeout) is: servers take another one at first,
    /// and go back to that of the creation after a change of leader. The tokens that a client gives have it.
    #[must_use]
    pub const fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    /// The timeout that was asked for when the session was made, if that is known.
    #[must_use]
    pub const fn session_timeout(&self) -> Option<Duration> {
        self.session_timeout
    }

    /// The session's id.
    #[must_use]
    pub const fn session_id(&self) -> i64 {
        self.id
    }

    /// The password: a secret.
    #[must_use]
    pub fn password(&self) -> &[u8] {
        &self.password
    }

    /// The highest zxid that was seen in it.
    #[must_use]
    pub const fn last_zxid(&self) -> i64 {
        self.last_zxid
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionToken")
            .field("id", &format_args!("{:#x}", self.id))
            .field("last_zxid", &format_args!("{:#x}", self.last_zxid))
            .field("session_timeout", &self.session_timeout)
            .finish_non_exhaustive()
    }
}

/// A scheme and its proof. `Debug` does not show the proof.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub(crate) scheme: Box<str>,
    pub(crate) auth: Box<[u8]>,
}

impl Credential {
    /// For `digest`, `auth` is `user:password`.
    #[must_use]
    pub fn new(scheme: &str, auth: &[u8]) -> Self {
        Self { scheme: scheme.into(), auth: auth.into() }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}
