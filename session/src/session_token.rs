//! A session that a client can resume.

use std::{fmt, time::Duration};

/// Everything needed to resume a session. Its holder can end the session; `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken {
    id: i64,
    password: Box<[u8]>,
    last_zxid: i64,
    session_timeout: Option<Duration>,
}

impl SessionToken {
    /// A token from its parts. With `last_zxid`, servers that are behind that zxid are not accepted; with 0, any server
    /// is.
    #[must_use]
    pub fn new(session_id: i64, password: &[u8], last_zxid: i64) -> Self {
        Self { id: session_id, password: password.into(), last_zxid, session_timeout: None }
    }

    /// Sets the timeout that was requested when the session was created. A client that resumes the session requests the
    /// same timeout, whatever its own [`session_timeout`](crate::Config::with_session_timeout) is. Servers accept another timeout
    /// at first, but return to that of the creation after a leader election. The tokens that a client returns contain
    /// it.
    #[must_use]
    pub const fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    /// The timeout that was requested when the session was created, if it is known.
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

    /// The highest zxid that was seen in the session.
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
