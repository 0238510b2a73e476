//! Connections come and go: the handshake, what is sent first, what a lost connection means, and when the
//! session itself is lost.

use docent_protocol::{
    Decode, DecodeError, ErrorCode, EventType, KeeperState,
    connect::{ConnectRequest, ConnectResponse, HandshakeReply, PASSWORD_SIZE},
    frame,
    jute::Reader,
};
use std::{sync::Arc, time::Duration};

use super::{
    Answers, Closing, Connect, Event, Identity, NEVER, Phase, Session, WatchedEvent, moves::Search,
    put_auth,
};
use crate::{
    Error, ErrorKind, Host, Outcome, SessionLease, connection_state::ConnectionStates,
    time::Instant, timeouts::Timeouts,
};

/// What a session that is not there yet sends as its password.
const NO_PASSWORD: [u8; PASSWORD_SIZE] = [0; PASSWORD_SIZE];

impl<T, W: Clone + PartialEq, A: Answers<T>> Session<T, W, A> {
    /// Whom to connect to, if there is no connection.
    pub fn poll_connect(&mut self, now: Instant) -> Connect {
        match self.phase {
            Phase::Ended => Connect::Ended,
            Phase::Disconnected if self.hosts.not_before() > now => {
                Connect::At(self.hosts.not_before())
            }
            Phase::Disconnected => {
                self.broken = None;
                let host = self.hosts.advance();
                self.host = Some(host.clone());
                self.metrics.attempts += 1;
                let deadline = now + self.timeouts.connect;
                self.phase = Phase::Connecting { deadline };
                Connect::To(host, deadline)
            }
            _ => Connect::No,
        }
    }

    /// There is a connection: the handshake goes out on it.
    pub fn handle_connected(&mut self, now: Instant) {
        let Phase::Connecting { deadline } = self.phase else { return };
        let known = self.identity.as_ref().filter(|known| !known.local);
        let (session_id, password, asked) = match known {
            Some(identity) => (identity.id, &*identity.password, identity.asked_timeout),
            None => (0, &NO_PASSWORD[..], self.config.session_timeout),
        };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.last_zxid,
            // The same at every re-attach: a server keeps the one of the creation (lock-safety fact 7).
            time_out: millis(asked),
            session_id,
            passwd: Some(password),
            read_only: Some(self.config.read_only),
        };
        self.control.clear();
        let _ = frame::put_record(&mut self.control, frame::DEFAULT_LIMIT, &request);
        self.phase = Phase::Handshaking { deadline, sent_at: now };
        self.last_heard = now;
        self.last_sent = now;
    }

    /// The connection to `host` is gone, or was never made. `why` is what the callers of sent requests get.
    pub fn handle_disconnected(&mut self, now: Instant, host: &Host, why: &Error) {
        if self.is_ended() {
            return;
        }
        let detail = why.detail().unwrap_or("the connection was lost");
        self.speechless.retain(|other| other != host);
        if matches!(self.phase, Phase::Handshaking { .. }) && self.broken.is_none() {
            self.speechless.push(host.clone());
        }
        let handshake = if self.broken.is_none() { self.unanswered() } else { String::new() };
        self.last_failure = Some(format!("{host}: {detail}{handshake}").into());
        let was_connected = self.is_connected();
        self.moving = false;
        self.search = None;
        self.phase = Phase::Disconnected;
        self.hosts.failed(now);
        self.broken = None;
        self.control.clear();
        self.forget_taken();
        self.skip = 0;
        self.ping_sent_at = None;
        self.watches_pending.clear();
        self.resync = false;
        self.fail_sent(why);
        self.drop_internal();
        if !matches!(self.closing, Closing::No) {
            // closeSession was on its way, or answered by a server that was faster with its FIN.
            return self.end(ErrorKind::Closed, why);
        }
        if was_connected {
            let deadline = now + self.config.connection_timeout;
            for request in &mut self.pending {
                request.expires = deadline;
            }
        }
        if self.suspended_at.is_none() {
            self.suspended_at = Some(now);
        }
        self.push_state(ConnectionStates::disconnected);
    }

    /// What it may mean that the server has closed the connection instead of answering.
    fn unanswered(&self) -> String {
        if self.is_authenticating() {
            return " (no answer to SASL: refused, or not serving?)".to_owned();
        }
        // None of these is an expiry; which one it was, no server says.
        match (&self.phase, self.ahead_of_servers()) {
            (Phase::Handshaking { .. }, Some(zxid)) => format!(
                " (no answer to the handshake by any server: none serves, or all are behind our last \
                 zxid {zxid:#x})"
            ),
            (Phase::Handshaking { .. }, None) if self.last_zxid > 0 => format!(
                " (no answer to the handshake: not serving, or behind our last zxid {:#x})",
                self.last_zxid
            ),
            (Phase::Handshaking { .. }, None) => {
                " (no answer to the handshake: not serving?)".to_owned()
            }
            _ => String::new(),
        }
    }

    /// The server's answer to the handshake.
    pub(super) fn receive_handshake(&mut self, now: Instant, payload: &[u8]) {
        let Phase::Handshaking { sent_at, .. } = self.phase else { return };
        match HandshakeReply::decode(&mut Reader::new(payload)) {
            Ok(HandshakeReply::Response(response)) => self.accept(now, sent_at, &response),
            Ok(HandshakeReply::Refused(header)) if header.err == ErrorCode::NotReadOnly => {
                self.give_up("the server is read-only and grants no session");
            }
            Ok(HandshakeReply::Refused(header)) => {
                self.give_up(format_args!("the server refused the handshake: {}", header.err));
            }
            Err(error) => self.give_up(format_args!("no ZooKeeper handshake: {error}")),
        }
    }

    fn accept(&mut self, now: Instant, sent_at: Instant, response: &ConnectResponse<'_>) {
        let asked_for = self.identity.as_ref().filter(|known| !known.local).map(|known| known.id);
        let other_session = asked_for.is_some_and(|id| id != response.session_id);
        if response.is_refused() || other_session {
            if asked_for.is_some() {
                self.expire("the server said so");
            }
            return self.give_up("the server refused the session");
        }
        let read_only = response.read_only.unwrap_or(false);
        if read_only && !self.config.read_only {
            return self.give_up("the server is read-only");
        }
        let granted = Duration::from_millis(u64::try_from(response.time_out).unwrap_or(0));
        self.timeouts =
            Timeouts::new(granted, self.hosts.len(), self.config.session_expiration_percent);
        if asked_for.is_none()
            && let Some(local) = self.identity.take()
        {
            // Nobody but the read-only server that made it knows it, and nothing can be held in it.
            local.lease.lose();
        }
        self.speechless.clear();
        self.metrics.connections += 1;
        self.search = read_only.then(|| Search::begin(now));
        self.suspended_at = None;
        self.identify(now, sent_at, granted, response);
        #[cfg(feature = "sasl")]
        if self.config.sasl.is_some() {
            return self.begin_sasl(now);
        }
        self.admit();
    }

    /// The server is ready for requests.
    pub(super) fn admit(&mut self) {
        self.hosts.accepted();
        self.phase = Phase::Connected;
        self.prime();
        for request in &mut self.pending {
            request.expires = NEVER;
        }
        let read_only = self.search.is_some();
        self.push_state(|states| states.connected(read_only));
    }

    /// Takes note of who the session is, and how long it may be believed in.
    fn identify(
        &mut self,
        now: Instant,
        sent_at: Instant,
        granted: Duration,
        response: &ConnectResponse<'_>,
    ) {
        let lasts = granted.saturating_sub(self.timeouts.margin);
        let read_only = self.search.is_some();
        if let Some(identity) = &mut self.identity {
            identity.lease.renew(now, sent_at, lasts);
            let shorter = granted.min(identity.created_timeout);
            identity.lease.shorten_proof(identity.created_at + proven(shorter));
            if let Some(password) = response.passwd {
                identity.password = password.into();
            }
            if !std::mem::replace(&mut identity.accepted, true) {
                self.metrics.sessions += 1;
                let lease = Arc::clone(&identity.lease);
                self.events.push_back(Event::Session(lease));
            }
            return;
        }
        let lease =
            SessionLease::new(response.session_id, sent_at + lasts, sent_at + proven(granted));
        self.identity = Some(Identity {
            id: response.session_id,
            password: response.passwd.unwrap_or_default().into(),
            lease: lease.clone(),
            created_at: sent_at,
            created_timeout: granted,
            asked_timeout: self.config.session_timeout,
            accepted: true,
            local: read_only,
        });
        self.metrics.sessions += 1;
        self.events.push_back(Event::Session(lease));
    }

    /// What goes out before any request: credentials, then watches.
    ///
    /// Source: `ClientCnxn.SendThread.primeConnection`.
    fn prime(&mut self) {
        for credential in &self.config.credentials {
            put_auth(&mut self.control, credential);
        }
        // Answers come in this order; the last ones are those whose callers still wait.
        while self.auth_pending.len() < self.config.credentials.len() {
            self.auth_pending.push_front(None);
        }
        self.replay_watches();
    }

    /// The highest zxid that was seen, if every server has closed the last handshake with it without a word:
    /// none serves, or all are behind it.
    #[must_use]
    pub fn ahead_of_servers(&self) -> Option<i64> {
        let speechless = self.hosts.iter().all(|host| self.speechless.contains(host));
        Some(self.last_zxid).filter(|&zxid| zxid > 0 && speechless)
    }

    /// When the session is taken as lost, if no connection comes.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        let since = self.suspended_at.filter(|_| self.identity.is_some())?;
        Some(since + self.timeouts.expiration)
    }

    /// The session has ended. What it held is gone, or will be soon; a new one is made.
    pub(super) fn expire(&mut self, why: &str) {
        let Some(identity) = self.identity.take() else { return };
        identity.lease.lose();
        let error = |outcome| Error::new(ErrorKind::SessionExpired, outcome).with_detail(why);
        self.fail_sent(&error(Outcome::Unknown));
        // Meant for the old session: an ephemeral node of the new one is not what was asked for.
        self.fail_queued(&error(Outcome::NotApplied));
        self.last_zxid = 0;
        self.speechless.clear();
        self.suspended_at = None;
        self.timeouts = Timeouts::new(
            self.config.session_timeout,
            self.hosts.len(),
            self.config.session_expiration_percent,
        );
        if matches!(self.phase, Phase::Connecting { .. } | Phase::Handshaking { .. }) {
            // It would go on with the session that is given up here.
            self.give_up(why);
        }
        self.push_state(ConnectionStates::expired);
        self.end_watches(KeeperState::Expired);
    }

    /// Tells every watcher that nothing more will come.
    pub(super) fn end_watches(&mut self, state: KeeperState) {
        for (path, watcher) in self.watches.drain() {
            let event = WatchedEvent { event_type: EventType::None, state, path, zxid: None };
            self.events.push_back(Event::Watch { watcher, event });
        }
        // Those whose replies have not come are told by the requests' failure.
    }

    /// The stream cannot be trusted any more.
    pub(super) fn broken_stream(&mut self, error: DecodeError) {
        self.give_up(error);
    }
}

/// As the handshake has it: milliseconds.
fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

/// How long a proof lasts by our clock, if both run at rates that differ by less than 1 %.
fn proven(timeout: Duration) -> Duration {
    timeout - timeout / 100
}
