//! Closing a session: closeSession, behind all other requests; and what ends with the session.
//!
//! A close uses the time it has. With a connection, closeSession is sent behind all submitted requests. Without one,
//! every server is tried without a pause, and closeSession is sent on the next connection of the session. When the
//! connection breaks first, or the server sends nothing for its share of the time, closeSession is sent again on the
//! next connection. The result depends on what ends the close:
//!
//! | event | result of the close |
//! |---|---|
//! | a server answers closeSession | success |
//! | a server reports that the session has ended | success |
//! | no server knows of a session | success |
//! | the time is up, or the session has expired by the local clock | an error: the session may still exist |
//!
//! Callers of close are notified behind the last event.
//!
//! Source: `ZooKeeper.close`, which gives up at the first broken connection.

use std::sync::Arc;

use docent_protocol::{ErrorCode, KeeperState, frame, operation::CloseSession, xid};

use super::{
    answers::{Answers, Reply},
    connection_state::ConnectionStates,
    effect::Effect,
    session::{Closing, Event, Session},
};
use crate::{
    Error, ErrorKind, Outcome,
    time::{Instant, NEVER},
};

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Closes the session: sends closeSession behind all submitted requests, on this connection or the next. The reply
    /// is delivered with `token`, at `until` at the latest. Of several calls the earliest `until` applies, except for
    /// calls without a token. No more requests are accepted, and all claims of the session are void from here on.
    pub fn close(&mut self, token: Option<T>, until: Instant) {
        if self.is_ended() {
            return self.complete(token, Err(self.refusal()));
        }
        if let Closing::Requested { tokens, until: first } = &mut self.closing {
            if let Some(token) = token {
                tokens.push(token);
                *first = until.min(*first);
            }
            return;
        }
        self.closing = Closing::Requested { tokens: token.into_iter().collect(), until };
        // The server grants what the session holds to others before its reply arrives here.
        if let Some(identity) = &self.identity {
            self.lose(Arc::clone(&identity.lease));
        }
        self.requests.check_all();
        for token in self.requests.take_waiters() {
            self.complete(Some(token), Err(self.refusal()));
        }
        // A connection that was to be replaced is good enough.
        self.fail_callers(&self.refusal());
        self.keep_connection();
        if self.is_connected() {
            self.queue_close();
        } else if self.can_close() {
            self.hosts.hasten();
        } else {
            self.end_closed();
        }
    }

    /// Ends the session immediately, without informing a server: the driver has gone.
    pub fn abandon(&mut self) {
        self.end(ErrorKind::Closed, &Error::new(ErrorKind::Closed, Outcome::Unknown));
    }

    /// As [`abandon`](Self::abandon), with the reason for callers: the program has not closed the client.
    pub(crate) fn abandon_because(&mut self, why: &str) {
        let error = Error::new(ErrorKind::Closed, Outcome::Unknown);
        self.end(ErrorKind::Closed, &error.with_detail(why));
    }

    /// Writes a closeSession for a driver that can no longer send for the session, if there is a session to close and
    /// no close is in progress.
    pub fn put_close(&mut self, out: &mut Vec<u8>) {
        if self.is_connected() && !self.is_closing() {
            let xid = xid::next(self.last_xid);
            let _ = frame::put_operation(out, frame::DEFAULT_LIMIT, xid, &CloseSession);
        }
    }

    pub(super) const fn is_closing(&self) -> bool {
        matches!(self.closing, Closing::Requested { .. })
    }

    /// When a server that has sent nothing since the start of the close has exhausted its share of the time, as in an
    /// attempt to connect.
    pub(super) fn close_silent_at(&self) -> Instant {
        let Closing::Requested { until, .. } = self.closing else { return NEVER };
        let asked_at = until - self.config.connection_timeout;
        self.connection.last_heard().max(asked_at) + self.connection_share()
    }

    /// Whether there is a session for a server to close, or may be soon. A session of a read-only server is unknown to
    /// all others, and holds nothing.
    pub(super) fn can_close(&self) -> bool {
        self.connection.is_handshaking()
            || self.connection.is_authenticating()
            || self.identity.as_ref().is_some_and(|identity| !identity.local)
    }

    /// Queues closeSession behind all requests.
    pub(super) fn queue_close(&mut self) {
        let xid = xid::next(self.last_xid);
        self.last_xid = xid;
        // Eight bytes: below every limit.
        if let Ok(size) = self.requests.encode(frame::DEFAULT_LIMIT, xid, &CloseSession) {
            self.push_request(xid, size, None, Effect::Close);
        }
    }

    /// Handles the reply to closeSession.
    ///
    /// Source: `ReadOnlyRequestProcessor`, which refuses it for sessions that are not local to the server. Before
    /// ZooKeeper 3.7 it reports success, and the quorum is not informed.
    pub(super) fn close_answered(&mut self, err: ErrorCode) {
        let is_local = self.identity.as_ref().is_some_and(|identity| identity.local);
        match err {
            ErrorCode::SessionExpired => self.end_closed(),
            ErrorCode::Ok if !self.is_read_only() || is_local => self.end_closed(),
            ErrorCode::Ok => self.connection.give_up("a read-only server does not end the session"),
            err => self.connection.give_up(format_args!("the server refused closeSession: {err}")),
        }
    }

    /// The session is known to have ended, or never existed.
    pub(super) fn end_closed(&mut self) {
        let error = Error::new(ErrorKind::Closed, Outcome::Unknown);
        self.end_with(ErrorKind::Closed, &error, |zxid| Ok(Reply::empty(zxid)));
    }

    /// The time is up. The server keeps the session until its timeout, unless it has received the close.
    pub(super) fn end_unconfirmed(&mut self) {
        let error = if self.is_connected() || self.connection.is_authenticating() {
            Error::new(ErrorKind::OperationTimeout, Outcome::Unknown)
                .with_detail("no reply to closeSession")
        } else {
            let failures = self.failures();
            Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown)
                .with_detail(format_args!("no connection to end the session on; {failures}"))
                .with_source_of(self.last_failure.as_ref())
        };
        self.end(ErrorKind::Closed, &error);
    }

    // The end.

    /// Ends the session; a pending close fails with `error`.
    pub(super) fn end(&mut self, kind: ErrorKind, error: &Error) {
        self.end_with(kind, error, |_| Err(error.clone()));
    }

    /// As [`end`](Self::end), with another result for a pending close.
    pub(super) fn end_with(
        &mut self,
        kind: ErrorKind,
        error: &Error,
        closed: impl Fn(i64) -> Result<Reply<'static>, Error>,
    ) {
        if self.is_ended() {
            return;
        }
        // Callers need the reason of the end, unless it was requested.
        let detail = error.detail().filter(|_| error.kind() == kind);
        let failure = |outcome| match detail {
            Some(detail) => Error::new(kind, outcome).with_detail(detail),
            None => Error::new(kind, outcome),
        };
        // An earlier failure is not the reason.
        self.last_failure = detail.map(|_| failure(Outcome::Unknown).with_source_of(Some(error)));
        self.fail_sent(&failure(Outcome::Unknown));
        self.fail_unsent(&failure(Outcome::NotApplied));
        for token in self.requests.take_waiters() {
            self.complete(Some(token), Err(failure(Outcome::NotApplied)));
        }
        for pending in std::mem::take(&mut self.auth_pending) {
            self.complete(pending.token, Err(failure(Outcome::Unknown)));
        }
        self.fail_callers(&failure(Outcome::NotApplied));
        if let Some(identity) = self.identity.take() {
            self.lose(identity.lease);
        }
        self.end_watches(KeeperState::Closed);
        self.connection.end(kind);
        self.requests.check_all();
        if kind == ErrorKind::Closed {
            self.states.close();
        } else {
            self.push_state(ConnectionStates::expired);
        }
        self.events.push_back(Event::Ended(kind));
        // Behind the events, so that a closed client has no state any more.
        if let Closing::Requested { tokens, .. } = &mut self.closing {
            for token in std::mem::take(tokens) {
                self.answers.put(token, closed(self.last_zxid), true);
            }
        }
    }
}
