//! Credentials: sent first on each connection, and answered out of turn.

use std::time::Duration;

use docent_protocol::{FrameTooLarge, frame, operation::Auth, request::AuthRequest, xid};

use super::{
    answers::Answers,
    requests::TimedOut,
    session::{PendingAuth, Session},
    settings::Credential,
};
use crate::{
    Error, ErrorKind, Outcome,
    time::{Instant, NEVER, earlier},
};

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Adds credentials: sends them to this server now, and to every later server before all else. The reply is
    /// delivered with `token`, or an error if there is no usable connection for the connection timeout; they are sent on
    /// the next one all the same, as after the request timeout. Credentials above
    /// [`max_request_bytes`](crate::Config::with_max_request_bytes) are refused: a server closes each connection that carries
    /// them. `now` is not asked for on a usable connection without a request timeout.
    pub fn add_auth(&mut self, credential: Credential, token: T, now: impl Fn() -> Instant) {
        if self.is_ended() || self.is_closing() {
            return self.complete(Some(token), Err(self.refusal()));
        }
        // Without a connection, it is sent with the other credentials on the next one.
        let mut unsent = Vec::new();
        let is_connected = self.is_connected();
        let out = if is_connected { self.connection.control_mut() } else { &mut unsent };
        if let Err(error) = put_auth(out, self.config.max_request_bytes, &credential) {
            self.refuse_too_large(Some(token), error);
            return;
        }
        let is_usable = self.connection.is_usable();
        let expires = if is_usable { NEVER } else { now() + self.config.connection_timeout };
        let deadline = self.config.request_timeout.map_or(NEVER, |timeout| now() + timeout);
        let number = i32::try_from(self.config.credentials.len()).map_or(i32::MIN, |len| -1 - len);
        self.answers.note_queued(&token, number);
        let (token, limit) = (Some(token), None);
        self.auth_pending.push_back(PendingAuth { token, expires, deadline, limit, number });
        self.config.credentials.push(credential);
    }

    /// Queues all credentials, on a new connection.
    pub(super) fn send_credentials(&mut self) {
        for credential in &self.config.credentials {
            // Those of the configuration were validated with it.
            let _ = put_auth(self.connection.control_mut(), usize::MAX, credential);
        }
        // Replies come in this order; the last ones are those whose callers still wait.
        while self.auth_pending.len() < self.config.credentials.len() {
            self.auth_pending.push_front(PendingAuth {
                token: None,
                expires: NEVER,
                deadline: NEVER,
                limit: None,
                number: 0,
            });
        }
    }

    /// The scheme of the credentials that the next reply is for, as an error names it.
    pub(super) fn credentials_in_question(&self) -> String {
        let answered = self.config.credentials.len().checked_sub(self.auth_pending.len());
        let credential = answered.and_then(|answered| self.config.credentials.get(answered));
        let scheme =
            credential.map(|credential| format!(" of the scheme \"{}\"", credential.scheme()));
        scheme.unwrap_or_default()
    }

    // Waits for a usable connection.

    /// Sets when all that waits for a usable connection fails.
    pub(super) fn set_expiry(&mut self, at: Instant) {
        self.requests.set_expiry(at);
        for pending in &mut self.auth_pending {
            pending.expires = at;
        }
    }

    /// When the first wait for a usable connection fails. While there is a connection, none does.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        if self.is_connected() {
            return None;
        }
        let waiting = self.auth_pending.iter().filter(|pending| pending.token.is_some());
        let first = waiting.map(|pending| pending.expires).min().filter(|at| *at != NEVER);
        earlier(first, self.requests.next_expiry())
    }

    /// Limits the time of the credentials with this number.
    pub(super) fn limit_auth(&mut self, number: i32, now: Instant, within: Duration) {
        let until = now + within;
        for pending in self.auth_pending.iter_mut().filter(|pending| pending.number == number) {
            if until < pending.deadline {
                (pending.deadline, pending.limit) = (until, Some(within));
            }
        }
    }

    /// When the first credentials fail by their limit of time.
    pub(super) fn next_auth_deadline(&self) -> Option<Instant> {
        let waiting = self.auth_pending.iter().filter(|pending| pending.token.is_some());
        waiting.map(|pending| pending.deadline).min().filter(|at| *at != NEVER)
    }

    /// Takes the callers of credentials whose deadline has come. The credentials keep their place: their reply may come.
    pub(super) fn time_out_auth(&mut self, now: Instant) -> TimedOut<T> {
        let overdue = self.auth_pending.iter_mut().filter(|pending| pending.deadline <= now);
        overdue.filter_map(|pending| Some((pending.token.take()?, pending.limit))).collect()
    }

    /// Fails what has waited for a usable connection for too long.
    pub(super) fn fail_overdue(&mut self, now: Instant) {
        if self.next_expiry().is_none_or(|at| at > now) {
            return;
        }
        let error = |outcome| {
            Error::new(ErrorKind::ConnectionLoss, outcome)
                .with_detail(format_args!(
                    "no usable connection for {:?}; {}",
                    self.config.connection_timeout,
                    self.failures()
                ))
                .with_source_of(self.last_failure.as_ref())
        };
        let (not_applied, unknown) = (error(Outcome::NotApplied), error(Outcome::Unknown));
        for request in self.requests.expire(now) {
            self.fail_alone(request, &not_applied);
        }
        let overdue = self.auth_pending.iter_mut().filter(|pending| pending.expires <= now);
        let tokens: Vec<_> = overdue.map(|pending| pending.token.take()).collect();
        for token in tokens {
            self.complete(token, Err(unknown.clone()));
        }
    }
}

impl Credential {
    /// Checks that its request has at most `limit` bytes.
    pub(crate) fn check_size(&self, limit: usize) -> Result<(), FrameTooLarge> {
        put_auth(&mut Vec::new(), limit, self)
    }
}

fn put_auth(out: &mut Vec<u8>, limit: usize, credential: &Credential) -> Result<(), FrameTooLarge> {
    let auth = Auth(AuthRequest {
        auth_type: 0,
        scheme: credential.scheme().into(),
        auth: Some(credential.auth()),
    });
    frame::put_operation(out, limit, xid::AUTH, &auth)
}
