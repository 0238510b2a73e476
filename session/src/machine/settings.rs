//! The settings of a session machine: the part of the configuration that it reads.

use std::{fmt, time::Duration};

use docent_protocol::{FrameTooLarge, frame};

use super::connect_string::ConnectString;
use crate::{Error, ErrorKind, SessionToken, backoff::Backoff};

/// The size of the reply to a handshake, in bytes: three numbers, a password of 16 bytes with its length, and a flag.
///
/// Source: `ConnectResponse` in `zookeeper.jute`, `SessionTrackerImpl`.
const HANDSHAKE_REPLY_SIZE: usize = 37;

/// The size of a read of `/`, in bytes: the header, the path with its length, and the watch flag.
const READ_OF_ROOT_SIZE: usize = 14;

/// The size of the longest password of a session that fits into a handshake, in bytes: beside it are four numbers, its
/// length, and a flag.
///
/// Source: `ConnectRequest` in `zookeeper.jute`.
const LONGEST_PASSWORD: usize = frame::DEFAULT_LIMIT - 29;

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
    pub(crate) failback: Option<Duration>,
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
            failback: None,
            credentials: Vec::new(),
            #[cfg(feature = "sasl")]
            sasl: None,
        }
    }

    /// Checks that every setting has an allowed value; an error names the first one that has not.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let percent = self.session_expiration_percent;
        if self.request_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(invalid("request_timeout is 0: expected more, or `None` for no limit"));
        }
        if percent > 100 {
            let text = format_args!("session_expiration_percent is {percent}: expected 0 to 100");
            return Err(invalid(text));
        }
        if let Some(within) = self.failback.filter(|within| *within < Duration::from_secs(1)) {
            return Err(invalid(format_args!("failback is {within:?}: expected at least 1 s")));
        }
        let (requests, replies) = (self.max_request_bytes, self.max_reply_bytes);
        let handshake = "the size of the reply to a handshake";
        at_least("max_request_bytes", requests, READ_OF_ROOT_SIZE, "the size of a read of `/`")?;
        at_least("max_reply_bytes", replies, HANDSHAKE_REPLY_SIZE, handshake)?;
        at_least("max_requests", self.max_requests, 1, "or every call would be refused")?;
        at_least("max_pending_bytes", self.max_pending_bytes, 1, "or every call would wait")?;
        for credential in &self.credentials {
            credential.check_size(requests).map_err(|FrameTooLarge { len, limit }| {
                let scheme = credential.scheme();
                invalid(format_args!(
                    "the credentials of the scheme \"{scheme}\" make a request of {len} bytes: \
                     expected at most {limit}, max_request_bytes"
                ))
            })?;
        }
        if let Some(session) = &self.session {
            let len = session.password().len();
            if len > LONGEST_PASSWORD {
                return Err(invalid(format_args!(
                    "the password of the session has {len} bytes: expected at most {LONGEST_PASSWORD}, \
                     and 16 of a session that a server has created"
                )));
            }
        }
        Ok(())
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

fn at_least(setting: &str, value: usize, least: usize, why: &str) -> Result<(), Error> {
    if value < least {
        return Err(invalid(format_args!(
            "{setting} is {value}: expected at least {least}, {why}"
        )));
    }
    Ok(())
}

fn invalid(detail: impl fmt::Display) -> Error {
    Error::refused(ErrorKind::InvalidConfig, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn config() -> Config {
        Config::new("one:1").unwrap()
    }

    // Case (Found in docent itself): a limit of 0 requests, requests of 0 bytes and a request
    // timeout of 0 refused every call, while `ready` succeeded; with 0 pending bytes `ready` never
    // returned; a limit of replies below the size of a handshake was reported as "no ZooKeeper
    // handshake".
    #[test]
    fn a_setting_that_allows_no_request_is_refused() {
        let (time, no_time) = (Duration::from_nanos(1), Duration::ZERO);
        let allowed = [
            config(),
            config().with_session_expiration_percent(0),
            config().with_session_expiration_percent(100),
            config().with_max_reply_bytes(HANDSHAKE_REPLY_SIZE),
            config().with_max_request_bytes(READ_OF_ROOT_SIZE),
            config().with_request_timeout(time),
            config().with_failback(Duration::from_secs(1)),
            config().with_max_requests(1).with_max_pending_bytes(1),
            // The last value of a setting is the one that counts.
            config().with_max_requests(0).with_max_requests(1),
        ];
        for config in allowed {
            config.validate().unwrap();
        }
        for (config, text) in [
            (config().with_max_requests(0), "max_requests is 0: expected at least 1"),
            (config().with_max_pending_bytes(0), "max_pending_bytes is 0: expected at least 1"),
            (config().with_max_reply_bytes(36), "max_reply_bytes is 36: expected at least 37"),
            (config().with_max_request_bytes(0), "max_request_bytes is 0: expected at least 14"),
            (config().with_max_request_bytes(13), "max_request_bytes is 13: expected at least 14"),
            (config().with_request_timeout(no_time), "request_timeout is 0: expected more"),
            (
                config().with_failback(Duration::from_millis(999)),
                "failback is 999ms: expected at least 1 s",
            ),
            (
                config().with_session_expiration_percent(101),
                "session_expiration_percent is 101: expected 0 to 100",
            ),
        ] {
            let error = config.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    // Case (Found in docent itself): credentials above the servers' limit were sent on each connection, which each server
    // closed; a session's password that fits into no handshake was an attempt that timed out, for ever. `connect` or the
    // calls failed with "the server closed the connection" or "the attempt timed out".
    #[test]
    fn credentials_and_passwords_that_no_server_reads_are_refused() {
        // Header, type, and two lengths.
        let beside = 8 + 4 + 4 + 4;
        let with = |len| config().with_max_request_bytes(100).with_auth("digest", &vec![b'x'; len]);
        with(100 - beside - "digest".len()).validate().unwrap();
        let error = with(100 - beside - "digest".len() + 1).validate().unwrap_err();
        let text = "the scheme \"digest\" make a request of 101 bytes: expected at most 100";
        assert!(error.to_string().contains(text), "{error}");
        let with = |len| config().with_session(SessionToken::new(1, &vec![0; len], 0));
        with(LONGEST_PASSWORD).validate().unwrap();
        let error = with(LONGEST_PASSWORD + 1).validate().unwrap_err();
        assert!(error.to_string().contains("password of the session has 1048547 bytes"), "{error}");
        for error in [error, with(2_000_000).validate().unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        }
    }
}
