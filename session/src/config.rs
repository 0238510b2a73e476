//! The settings of a client, with their defaults and units.
//!
//! A [`Config`] has two parts. The machine takes `machine::Settings` only: it does not know the transport, the clock and
//! the runtime, which are in `driver::Settings`; their setters are in `client/config.rs`. No setter fails: one function,
//! [`Config::validate`], knows which values are allowed.

use std::{str::FromStr, time::Duration};

#[cfg(feature = "tokio")]
pub use crate::driver::Candidate;
use crate::{Error, ErrorKind, SessionToken, machine::Settings};
pub use crate::{
    backoff::Backoff,
    machine::{
        connect_string::{ConnectString, Host, InvalidConnectString},
        settings::{Credential, WhenFull},
    },
};

/// The configuration of a client: its servers, timeouts, limits and credentials.
///
/// Each setting has a setter, `with_` and its name, which cannot fail. `connect` and `start` make a `Client` of it (feature
/// `tokio`). They [validate](Self::validate) the settings first, and refuse an invalid one with its name, its value, and
/// what is allowed. A clone of `Client::config` makes another client with the same settings. The getters are those for
/// code that adapts to a client, such as recipes.
///
/// | setting | unit | default |
/// |---|---|---|
/// | [`connect_string`](Self::with_connect_string) | `host:port,host:port/chroot` | required |
/// | [`session_timeout`](Self::with_session_timeout) | time, requested from the server | 60 s |
/// | [`session_expiration_percent`](Self::with_session_expiration_percent) | percent of the session timeout | 100 |
/// | [`connection_timeout`](Self::with_connection_timeout) | time without a connection, of a request | 15 s |
/// | [`request_timeout`](Self::with_request_timeout) | time without a reply, of a request | none |
/// | [`backoff`](Self::with_backoff) | time between connection attempts | 100 ms to 5 s |
/// | [`max_request_bytes`](Self::with_max_request_bytes) | bytes of one request | 1,048,575 |
/// | [`max_reply_bytes`](Self::with_max_reply_bytes) | bytes of one reply | 16 MiB |
/// | [`max_requests`](Self::with_max_requests) | pending requests | 1,000,000 |
/// | [`max_pending_bytes`](Self::with_max_pending_bytes) | bytes of the pending requests | 64 MiB |
/// | [`when_full`](Self::with_when_full) | what happens above the two limits before | fail |
/// | [`session`](Self::with_session) | the session to resume | none: a new one |
/// | [`read_only`](Self::with_read_only) | whether read-only servers are accepted | no |
/// | [`direct_servers`](Self::with_direct_servers) | whether each address is one server | no |
/// | [`failback`](Self::with_failback) | time until the return to a better server | none |
/// | [`credentials`](Self::with_auth) | sent to each server, before any request | none |
/// | `sasl` | the user and password of DIGEST-MD5; feature `sasl` | none |
/// | `sasl_mechanism` | another mechanism, such as GSSAPI of `docent-gssapi`; feature `sasl` | none |
/// | `server_preference` | the cost of each server; feature `tokio` | all are equal |
/// | `transport`, `clock`, `runtime` | connections, time and tasks; feature `tokio` | TCP, and the tokio runtime of the start |
/// | `max_watch_events` | buffered events of a watcher; feature `tokio` | 1,000 |
/// | `seed` | of shuffling and jitter; feature `tokio` | from the operating system |
///
/// Creating and changing a `Config` sends nothing.
///
/// # Example
///
/// ```
/// # extern crate docent_session as docent;
/// use std::time::Duration;
/// use docent::Config;
///
/// let config = Config::new("zk1:2181,zk2:2181/app")?
///     .with_session_timeout(Duration::from_secs(10))
///     .with_max_requests(1000);
/// assert_eq!(config.connect_string().chroot(), Some("/app"));
/// let same: Config = "zk1:2181,zk2:2181/app".parse()?;
/// # drop(same);
/// # Ok::<(), docent::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) session: Settings,
    #[cfg(feature = "tokio")]
    pub(crate) driver: crate::driver::Settings,
    /// Why the user or password of the last `with_sasl` is not allowed.
    #[cfg(feature = "sasl")]
    invalid_sasl: Option<Error>,
}

/// As [`Config::new`]: the defaults, for the servers of a connect string.
impl FromStr for Config {
    type Err = Error;

    fn from_str(connect_string: &str) -> Result<Self, Error> {
        Self::new(connect_string)
    }
}

impl Config {
    /// The defaults, for these servers.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when the connect string is invalid; the text names the part and the rule. Also when it is of
    /// `dns-srv://` without the feature of that name: [`with_connect_string`](Self::with_connect_string) accepts it, for a
    /// transport that looks up servers by itself.
    pub fn new(connect_string: &str) -> Result<Self, Error> {
        let connect_string: ConnectString =
            connect_string.parse().map_err(|error: InvalidConnectString| {
                Error::refused(ErrorKind::InvalidConfig, &error).caused_by(error)
            })?;
        if cfg!(not(feature = "dns-srv")) && connect_string.hosts().iter().any(Host::is_dns_srv) {
            return Err(Error::refused(
                ErrorKind::InvalidConfig,
                format_args!("{connect_string} requires the feature dns-srv of docent"),
            ));
        }
        Ok(Self {
            session: Settings::new(connect_string),
            #[cfg(feature = "tokio")]
            driver: crate::driver::Settings::default(),
            #[cfg(feature = "sasl")]
            invalid_sasl: None,
        })
    }

    /// Replaces the servers and the chroot.
    #[must_use]
    pub fn with_connect_string(mut self, connect_string: ConnectString) -> Self {
        self.session.connect_string = connect_string;
        self
    }

    /// The servers and the chroot.
    #[must_use]
    pub const fn connect_string(&self) -> &ConnectString {
        &self.session.connect_string
    }

    /// Sets the session timeout to request; the server may grant another one. Default 60 s (Curator's). At most
    /// `i32::MAX` milliseconds are requested.
    ///
    /// A single reply that takes longer than this, less a twentieth, from its request to its last byte ends the session,
    /// even while its bytes keep arriving: no reply behind it can renew the session. So the timeout must exceed the transfer
    /// time of the largest reply: 16 MiB take 27 s at 5 Mbit/s.
    #[must_use]
    pub const fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session.session_timeout = timeout;
        self
    }

    /// The session timeout to request.
    #[must_use]
    pub const fn session_timeout(&self) -> Duration {
        self.session.session_timeout
    }

    /// Sets how long a request may wait for a connection before it fails with
    /// [`ConnectionLoss`](ErrorKind::ConnectionLoss), not applied. The time counts from the call, or from the loss of the
    /// last usable connection, if that is later. A connection is usable once the server has replied to a request or a ping:
    /// one that ends before changes nothing. Zero: a request without a connection fails at once, and so does
    /// `connect`. A close waits for its confirmation for at most the
    /// same time. One connection attempt takes at most this time divided by the number of servers. Default 15 s
    /// (Curator's).
    #[must_use]
    pub const fn with_connection_timeout(mut self, timeout: Duration) -> Self {
        self.session.connection_timeout = timeout;
        self
    }

    /// How long a request may wait for a connection.
    #[must_use]
    pub const fn connection_timeout(&self) -> Duration {
        self.session.connection_timeout
    }

    /// Sets how long a request may wait for its reply before it fails with
    /// [`OperationTimeout`](ErrorKind::OperationTimeout). The outcome is `NotApplied` if the request was unsent at that
    /// time, and `Unknown` if it was sent. Other requests are not affected, and the late reply is dropped. Default
    /// `None`: the connection, with its requests, is given up when nothing is received for two thirds of the session
    /// timeout.
    ///
    /// Zero, which would fail every request, is not allowed. For one call, see `Response::timeout`.
    ///
    /// Source: `zookeeper.request.timeout`, which gives up the connection in Java.
    #[must_use]
    pub fn with_request_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.session.request_timeout = timeout.into();
        self
    }

    /// How long a request may wait for its reply.
    #[must_use]
    pub const fn request_timeout(&self) -> Option<Duration> {
        self.session.request_timeout
    }

    /// Sets the part of the session timeout, in percent, after which a session without a connection becomes
    /// [`Lost`](crate::ConnectionState::Lost). Default 100 (Curator's). 0 stands for the whole timeout too, as in
    /// Curator's `ConnectionStateManager`. The time counts from the last contact with a server, as for the
    /// [`SessionLease`](crate::session::SessionLease), and never ends after the lease's deadline. Curator counts from SUSPENDED.
    /// More than 100 is not allowed.
    ///
    /// Source: `CuratorFrameworkFactory.Builder.simulatedSessionExpirationPercent`.
    #[must_use]
    pub const fn with_session_expiration_percent(mut self, percent: u8) -> Self {
        self.session.session_expiration_percent = percent;
        self
    }

    /// Sets the delays between connection attempts. While there is a session, no delay is longer than an eighth of its
    /// timeout, or longer than the rest of it.
    #[must_use]
    pub const fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.session.backoff = backoff;
        self
    }

    /// Sets the size of the largest request, in bytes: the `jute.maxbuffer` of the servers. A larger request fails with
    /// [`RequestTooLarge`](ErrorKind::RequestTooLarge) and is not sent. Default 1,048,575 (theirs).
    ///
    /// Less than 14, the size of a read of `/`, is not allowed: no node could be read or written. Nor are
    /// [credentials](Self::with_auth) whose request is larger.
    #[must_use]
    pub const fn with_max_request_bytes(mut self, bytes: usize) -> Self {
        self.session.max_request_bytes = bytes;
        self
    }

    /// Sets the size of the largest reply, in bytes. A larger reply fails its own request only, with
    /// [`ReplyTooLarge`](ErrorKind::ReplyTooLarge). Default 16 MiB, because servers do not limit replies. Events and the
    /// tokens of SASL are no replies: they are received up to 1,048,575 bytes in any case.
    ///
    /// A larger reply is still received, to be skipped. A reply of any size that takes longer than the [session
    /// timeout](Self::with_session_timeout) to arrive ends the session.
    ///
    /// Less than 37, the size of the reply to a handshake, is not allowed: no session would be possible.
    #[must_use]
    pub const fn with_max_reply_bytes(mut self, bytes: usize) -> Self {
        self.session.max_reply_bytes = bytes;
        self
    }

    /// Sets the limit of the number of pending requests, sent or unsent. A request above the limit fails with
    /// [`TooManyRequests`](ErrorKind::TooManyRequests), or [waits](Self::with_when_full). Default 1,000,000.
    ///
    /// 0, which would refuse every request, is not allowed. `usize::MAX` sets no limit.
    #[must_use]
    pub const fn with_max_requests(mut self, requests: usize) -> Self {
        self.session.max_requests = requests;
        self
    }

    /// The limit of the number of pending requests.
    #[must_use]
    pub const fn max_requests(&self) -> usize {
        self.session.max_requests
    }

    /// Sets the limit of the size of all pending requests, sent or unsent, in bytes. A request above the limit fails
    /// with [`TooManyRequests`](ErrorKind::TooManyRequests), unless it is the only one, or
    /// [waits](Self::with_when_full). Default 64 MiB.
    ///
    /// 0 is not allowed. `usize::MAX` sets no limit.
    #[must_use]
    pub const fn with_max_pending_bytes(mut self, bytes: usize) -> Self {
        self.session.max_pending_bytes = bytes;
        self
    }

    /// Checks that every setting has an allowed value. `connect` and `start` do so; a program that gives the settings to
    /// a [`machine::Session`](crate::machine::Session) calls it.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` for the first setting with another value; the text names it, its value, and what is allowed.
    pub fn validate(&self) -> Result<(), Error> {
        self.session.validate()?;
        #[cfg(feature = "sasl")]
        if let Some(error) = &self.invalid_sasl {
            return Err(error.clone());
        }
        #[cfg(feature = "tokio")]
        if let Some(transport) = &self.driver.transport {
            transport.validate()?;
        }
        Ok(())
    }

    /// Sets what happens to a request above [`max_requests`](Self::with_max_requests) or
    /// [`max_pending_bytes`](Self::with_max_pending_bytes). Default [`WhenFull::Fail`].
    #[must_use]
    pub const fn with_when_full(mut self, when_full: WhenFull) -> Self {
        self.session.when_full = when_full;
        self
    }

    /// Sets an existing session to resume, of this or another process. Default `None`: a new session is created. If
    /// another client uses the session, the two disconnect each other repeatedly. A password that fits into no handshake,
    /// of about a megabyte, is not allowed.
    #[must_use]
    pub fn with_session(mut self, session: impl Into<Option<SessionToken>>) -> Self {
        self.session.session = session.into();
        self
    }

    /// Sets whether the client may connect to a read-only server. Default no.
    #[must_use]
    pub const fn with_read_only(mut self, allowed: bool) -> Self {
        self.session.read_only = allowed;
        self
    }

    /// Whether the client may connect to a read-only server.
    #[must_use]
    pub const fn read_only(&self) -> bool {
        self.session.read_only
    }

    /// Sets whether each address of the connect string leads to one server process, and to the same one as long as the client
    /// runs: no load balancer, no service of Kubernetes, no name with the addresses of several servers, no name that moves to
    /// another server. Default no.
    ///
    /// This makes the renewal of proven bounds ([`Client::renew_proof`](crate::Client::renew_proof)) cheaper. The client
    /// then asks the server of its connection, by its name in the connect string, for its role: by the four-letter word
    /// `srvr` on another connection, at most once for each connection and only if bounds are renewed. On a leader, a renewal
    /// needs no reconnect. Behind a load balancer the answer may come from another server than the one of the connection, and
    /// the bound would be wrong. A server that does not answer (`4lw.commands.whitelist`) counts as a follower.
    #[must_use]
    pub const fn with_direct_servers(mut self, direct: bool) -> Self {
        self.session.direct_servers = direct;
        self
    }

    /// Sets the time within which a client returns to a better server that is reachable again: to one of lower cost, by
    /// `with_server_preference`, or among equals to one with fewer connections. Default `None`: a client stays at its
    /// server, and after a rolling restart the last server has no clients.
    ///
    /// At a random time in the second half of each such interval, the client asks every server of its list for its status, by
    /// the four-letter word `srvr` on another connection, which servers allow by default (`4lw.commands.whitelist`).
    /// A server that does not reply within a second gets no client by this. Among servers of equal cost, a client leaves one
    /// that has at least 5 % more connections than the mean, with a probability that makes up for the surplus: after one
    /// interval, no server has 10 % more than the mean, give or take one connection.
    ///
    /// A move keeps the session, with all that is held in it, and its watches, as any reconnect does; a persistent watch
    /// reports a [resync](crate::WatchedEvent::is_resync). It loses no request: those in flight are answered first, and
    /// those queued meanwhile are sent on the next connection. If the replies take longer than a sixth of the session timeout,
    /// the connection is kept. If the server is not reached in the same time, the client returns to the one that it left. The
    /// state of the connection changes only if that fails too. After each failed move, the interval is twice as long, up to 16
    /// times, until one succeeds or the connection is lost.
    ///
    /// A client does not move to a server that lags behind what it has read, while it is connected to a read-only server, while holds [renew their proven
    /// bound](crate::session::SessionLease::proven_until), or if its servers are ClickHouse Keepers, which resume no session. Behind a
    /// load balancer, which is one server to the client, it does not move either.
    ///
    /// Less than a second is not allowed.
    ///
    /// Source: for servers that are added, `StaticHostProvider.updateServerList`; Java clients do not return.
    #[must_use]
    pub fn with_failback(mut self, within: impl Into<Option<Duration>>) -> Self {
        self.session.failback = within.into();
        #[cfg(feature = "tokio")]
        {
            self.driver.failback_is_set = true;
        }
        self
    }

    /// Adds credentials, as [`Credential::new`], to those that are sent to each server after the handshake, before any
    /// request. If a server refuses them, the client ends, and its calls fail with [`AuthFailed`](ErrorKind::AuthFailed);
    /// the text names the scheme.
    #[must_use]
    pub fn with_auth(mut self, scheme: &str, auth: &[u8]) -> Self {
        self.session.credentials.push(Credential::new(scheme, auth));
        self
    }
}

#[cfg(feature = "sasl")]
impl Config {
    /// Authenticates the client to each server as this user with SASL's DIGEST-MD5, and requires the server to prove
    /// that it knows the password too. No other request is sent before that. Needs the feature `sasl`.
    ///
    /// A server that refuses the user, has no SASL, or fails to prove itself ends the client with
    /// [`AuthFailed`](ErrorKind::AuthFailed), as in Java. If a server accepts the session and then sends no valid
    /// reply, the client tries the next server. (3.4 closes the connection instead of refusing, which looks
    /// the same.) A server in FIPS mode has no DIGEST-MD5 (ZOOKEEPER-5043): use Kerberos, or a client certificate.
    ///
    /// A user or password that [`SaslCredential::new`](crate::sasl::SaslCredential::new) refuses is not allowed.
    ///
    /// # Example
    ///
    /// ```
    /// # extern crate docent_session as docent;
    /// use docent::Config;
    ///
    /// let config = Config::new("zk1:2181,zk2:2181")?.with_sasl("bob", "bob's password");
    /// # let _ = config;
    /// # Ok::<(), docent::Error>(())
    /// ```
    ///
    /// Source: `ZooKeeperSaslClient`, `DigestLoginModule`; op 102; RFC 2831.
    #[must_use]
    pub fn with_sasl(mut self, user: &str, password: &str) -> Self {
        match crate::sasl::SaslCredential::new(user, password) {
            Ok(credential) => self.with_sasl_mechanism(credential),
            Err(error) => {
                let refused = RefusedCredential(error.clone());
                self.session.sasl = Some(std::sync::Arc::new(refused));
                self.invalid_sasl = Some(error);
                self
            }
        }
    }

    /// Authenticates the client to each server by this mechanism, as [`with_sasl`](Self::with_sasl) does by DIGEST-MD5,
    /// and replaces an earlier one. Needs the feature `sasl`.
    ///
    /// A server that refuses the credential, and an error that the mechanism calls final, end the client with
    /// [`AuthFailed`](ErrorKind::AuthFailed). After any other error of the mechanism, the client tries the next server.
    #[must_use]
    pub fn with_sasl_mechanism(mut self, mechanism: impl crate::sasl::SaslMechanism) -> Self {
        self.session.sasl = Some(std::sync::Arc::new(mechanism));
        self.invalid_sasl = None;
        self
    }
}

/// Stands for a credential that SASL cannot send: a machine whose settings were not validated does not go on without one.
#[cfg(feature = "sasl")]
#[derive(Debug)]
struct RefusedCredential(Error);

#[cfg(feature = "sasl")]
impl crate::sasl::SaslMechanism for RefusedCredential {
    fn name(&self) -> &str {
        "DIGEST-MD5"
    }

    fn exchange(
        &self,
        _: &crate::sasl::SaslContext<'_>,
    ) -> Result<Box<dyn crate::sasl::SaslExchange>, crate::sasl::SaslError> {
        Err(crate::sasl::SaslError::fatal(&self.0))
    }
}

/// The part of a configuration that [`machine::Session::new`](crate::machine::Session::new) takes.
impl From<Config> for Settings {
    fn from(config: Config) -> Self {
        config.session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("one:1").unwrap()
    }

    #[test]
    fn each_setting_is_stored_and_no_secret_is_shown() {
        let token = SessionToken::new(7, b"hunter2", 9);
        let config = config()
            .with_connect_string("two:2/app".parse().unwrap())
            .with_session_timeout(Duration::from_secs(1))
            .with_connection_timeout(Duration::from_secs(2))
            .with_request_timeout(Duration::from_secs(3))
            .with_session_expiration_percent(50)
            .with_max_request_bytes(40)
            .with_max_reply_bytes(50)
            .with_max_requests(6)
            .with_max_pending_bytes(7)
            .with_when_full(WhenFull::Wait)
            .with_session(token.clone())
            .with_read_only(true)
            .with_direct_servers(true)
            .with_failback(Duration::from_secs(60))
            .with_auth("digest", b"user:hunter2");
        config.validate().unwrap();
        assert_eq!(config.connect_string().to_string(), "two:2/app");
        assert_eq!(config.session_timeout(), Duration::from_secs(1));
        assert_eq!(config.connection_timeout(), Duration::from_secs(2));
        assert_eq!(config.request_timeout(), Some(Duration::from_secs(3)));
        assert_eq!((config.max_requests(), config.read_only()), (6, true));
        let settings = &config.session;
        assert_eq!(settings.session_expiration_percent, 50);
        assert_eq!((settings.max_request_bytes, settings.max_reply_bytes), (40, 50));
        assert_eq!((settings.max_pending_bytes, settings.when_full), (7, WhenFull::Wait));
        assert_eq!((settings.session.as_ref(), settings.direct_servers), (Some(&token), true));
        assert_eq!(settings.failback, Some(Duration::from_secs(60)));
        let [credential] = &*settings.credentials else { panic!("{config:?}") };
        assert_eq!((credential.scheme(), credential.auth()), ("digest", &b"user:hunter2"[..]));
        let shown = format!("{config:?}");
        let secret = format!("{:?}", b"hunter2");
        let secret = secret.trim_matches(['[', ']']);
        assert!(!shown.contains("hunter2") && !shown.contains(secret), "{shown}");

        let without = config.with_request_timeout(None).with_session(None);
        assert_eq!((without.request_timeout(), without.session.session), (None, None));
    }

    // Case (Found in docent itself): a failback that was switched off was on again with a server preference.
    #[cfg(feature = "tokio")]
    #[test]
    fn a_failback_that_is_switched_off_stays_off() {
        let off = config().with_failback(None).with_server_preference(|_| 0);
        assert_eq!(off.session.failback, None);
        let unset = config().with_server_preference(|_| 0);
        assert_eq!(unset.session.failback, Some(Duration::from_secs(60)));
        assert_eq!(unset.with_failback(None).session.failback, None);
    }

    #[test]
    fn unreadable_connect_strings_are_refused() {
        let refused = |servers: &str, text: &str| {
            let error = Config::new(servers).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(text), "{error}");
        };
        refused("one:0x", "0x");
        #[cfg(not(feature = "dns-srv"))]
        refused("dns-srv://zk.example", "requires the feature dns-srv");
    }

    #[cfg(feature = "sasl")]
    #[test]
    fn a_user_that_sasl_cannot_send_is_refused_unless_it_is_replaced() {
        let bad = config().with_sasl("", "password");
        assert_eq!(bad.validate().unwrap_err().kind(), ErrorKind::InvalidConfig);
        // A machine of these settings does not connect without a credential.
        assert!(Settings::from(bad.clone()).sasl.is_some());
        bad.with_sasl("bob", "password").validate().unwrap();
    }
}
