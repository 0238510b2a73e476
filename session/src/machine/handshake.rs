//! Connecting and disconnecting: the handshake, the first messages on a connection, the effects of a lost connection,
//! and the expiry of the session.
//!
//! On each connection, SASL is sent first and completes; then follow credentials, then setWatches, then requests.
//! setWatches has the xid -8, and SASL is complete before requests begin, so the pending requests are those of callers.
//!
//! An attempt (TCP, TLS, handshake, SASL) has one deadline. Every server of the list gets an attempt before a call
//! fails or the session is lost.

use docent_protocol::{
    Decode, DecodeError, ErrorCode, EventType, KeeperState,
    connect::{ConnectRequest, ConnectResponse, HandshakeReply, PASSWORD_SIZE},
    frame,
    jute::Reader,
};
use std::{sync::Arc, time::Duration};

use super::{
    answers::Answers,
    connect_string::Host,
    connection::{Phase, Role},
    connection_state::ConnectionStates,
    identity::Identity,
    lease::SessionLease,
    session::{Connect, Event, Session},
    timeouts::{MIN_PAUSE, Timeouts, proven},
    watch_table::WatchedEvent,
};
use crate::{Error, ErrorKind, Outcome, planted, time::Instant};

/// The password sent when there is no session yet.
const NO_PASSWORD: [u8; PASSWORD_SIZE] = [0; PASSWORD_SIZE];

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Returns the server to connect to, if there is no connection.
    pub fn poll_connect(&mut self, now: Instant) -> Connect {
        match self.connection.phase() {
            Phase::Ended(_) => Connect::Ended,
            Phase::Disconnected if self.hosts.not_before() > now => {
                Connect::At(self.hosts.not_before())
            }
            Phase::Disconnected => {
                let deadline = now + self.attempt_timeout(now);
                let host = self.hosts.advance();
                self.metrics.attempts += 1;
                self.connection.connect(host.clone(), deadline);
                Connect::To(host, deadline)
            }
            _ => Connect::No,
        }
    }

    /// The limit of the next attempt, such that every server is tried before a caller gives up.
    fn attempt_timeout(&self, now: Instant) -> Duration {
        let left = self.expires_at().map(|at| at.duration_since(now) / count(self.hosts.untried()));
        let attempt = self.timeouts.attempt(self.connection_share(), left);
        // The state of the connection does not show a planned reconnect, which has to be short for that.
        if self.renewal.is_moving() { attempt.min(self.timeouts.reattach) } else { attempt }
    }

    /// One server's share of the connection timeout.
    pub(super) fn connection_share(&self) -> Duration {
        self.config.connection_timeout / count(self.hosts.len())
    }

    /// Starts the handshake on a new connection.
    pub fn handle_connected(&mut self, now: Instant) {
        let is_closing = self.is_closing();
        let Some(control) = self.connection.begin_handshake(now) else { return };
        let is_new = planted::is("move-loses-session") && self.relocation.has_left();
        let known = self.identity.as_ref().filter(|known| !known.local && !is_new);
        let (session_id, password, asked) = match known {
            Some(identity) => (identity.id, &*identity.password, identity.asked_timeout),
            None => (0, &NO_PASSWORD[..], self.config.session_timeout),
        };
        if known.is_some() {
            self.renewal.note_attempt(now);
        }
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: if planted::is("zxid-not-sent") { 0 } else { self.last_zxid },
            // The same at every re-attach: a server keeps the timeout of the creation.
            time_out: millis(asked),
            session_id,
            passwd: Some(password),
            // A read-only server cannot end a session of the quorum.
            read_only: Some(self.config.read_only && !is_closing),
        };
        let _ = frame::put_record(control, frame::DEFAULT_LIMIT, &request);
    }

    /// Handles the loss of the connection to `host`, or a failed attempt. `why` is the error for the callers of sent
    /// requests.
    pub fn handle_disconnected(&mut self, now: Instant, host: &Host, why: &Error) {
        if self.is_ended() {
            // The session may have ended while the connection was being closed.
            return self.connection.disconnect();
        }
        let by_server = self.connection.failure().is_none();
        let is_planned =
            self.is_ready_to_migrate() && self.connection.is_reattaching() && by_server;
        self.hosts.note_silent(host, by_server && self.connection.is_handshaking());
        self.hosts.note_tls_mismatch(host, why.is_tls_mismatch());
        if !is_planned {
            self.last_failure = Some(self.explained(host, why));
        }
        let (was_connected, was_usable) = (self.is_connected(), self.connection.is_usable());
        let next = self.next_of_plan(host, is_planned);
        let stays = next.as_ref() == Some(host);
        let role = if stays { self.connection.role() } else { Role::Unknown };
        self.renewal.note_disconnect(next.is_some(), role);
        self.connection.disconnect();
        if is_planned {
            self.hosts.hasten();
        } else {
            self.hosts.failed(now, self.longest_pause(now));
        }
        if let Some(next) = &next {
            self.hosts.prefer(next);
        }
        self.requests.forget_taken();
        if by_server {
            self.note_closed();
        }
        if planted::is("loss-not-applied") {
            self.fail_sent(&Error::new(ErrorKind::ConnectionLoss, Outcome::NotApplied));
        }
        self.fail_sent(why);
        self.drop_internal();
        if was_connected {
            self.forget_server_watches();
        }
        if self.is_closing() && !self.can_close() {
            // No server knows the session.
            return self.end_closed();
        }
        if was_usable {
            self.set_expiry(now + self.config.connection_timeout);
        }
        if self.suspended_at.is_none() {
            self.suspended_at = Some(now);
        }
        // A planned reconnect is no loss, unless it fails, and the return to the server before it.
        if next.is_none() {
            self.push_state(ConnectionStates::disconnected);
        }
        self.expire_if_due(now);
        // A connection without one reply extended no wait.
        self.fail_overdue(now);
    }

    /// The loss of the connection to the host, with what is known of its cause.
    fn explained(&self, host: &Host, why: &Error) -> Error {
        let detail = why.detail().unwrap_or("the connection was lost");
        let is_unexplained = self.connection.failure().is_none() && !why.is_about_tls();
        let handshake = if is_unexplained { self.unanswered() } else { String::new() };
        Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown)
            .with_detail(format_args!("{host}: {detail}{handshake}"))
            .with_source_of(Some(why))
    }

    /// Describes why there is no usable connection: the last failure, and how far the attempt in progress is.
    #[must_use]
    pub(crate) fn failures(&self) -> String {
        let pending = match self.connection.phase() {
            Phase::Disconnected | Phase::Connected | Phase::Ended(_) => None,
            Phase::Connecting { .. } => Some("not connected yet"),
            Phase::Handshaking { .. } => Some("no reply to the handshake yet"),
            #[cfg(feature = "sasl")]
            Phase::Authenticating { .. } if self.connection.is_computing_sasl() => {
                Some("the client has not computed its SASL token yet")
            }
            #[cfg(feature = "sasl")]
            Phase::Authenticating { .. } => Some("no reply to SASL yet"),
        };
        let attempt = pending.zip(self.connection.host());
        match (self.last_failure_text(), attempt) {
            (Some(last), Some((pending, host))) => format!("last: {last}; now: {host}: {pending}"),
            (Some(last), None) => format!("last: {last}"),
            (None, Some((pending, host))) => format!("{host}: {pending}"),
            (None, None) => "no attempt was made".to_owned(),
        }
    }

    /// Describes why a server may have closed the connection without replying.
    fn unanswered(&self) -> String {
        #[cfg(feature = "sasl")]
        if self.connection.is_computing_sasl() {
            return " (before the client has sent its SASL token)".to_owned();
        }
        #[cfg(feature = "sasl")]
        if self.connection.is_authenticating() {
            let mechanism = self.config.sasl.as_deref().map(|mechanism| mechanism.name());
            return match mechanism {
                // ZOOKEEPER-5043.
                Some("DIGEST-MD5") => {
                    " (no reply to SASL: refused, not serving, or a server in FIPS mode, which has no DIGEST-MD5?)"
                }
                _ => " (no reply to SASL: refused, or not serving?)",
            }
            .to_owned();
        }
        // None of these is an expiry; servers do not report which one it was.
        match (self.connection.phase(), self.ahead_of_servers()) {
            (Phase::Handshaking { .. }, Some(zxid)) => format!(
                " (no reply to the handshake from any server: none serves, or all are behind our last \
                 zxid {zxid:#x})"
            ),
            (Phase::Handshaking { .. }, None) if self.last_zxid > 0 => format!(
                " (no reply to the handshake: not serving, or behind our last zxid {:#x})",
                self.last_zxid
            ),
            // A server that speaks TLS does not read it.
            (Phase::Handshaking { .. }, None)
                if self.is_tls == Some(false) && self.metrics.sessions == 0 =>
            {
                " (no reply to the handshake: not serving, or does the port require TLS?)"
                    .to_owned()
            }
            (Phase::Handshaking { .. }, None) => {
                " (no reply to the handshake: not serving?)".to_owned()
            }
            _ => String::new(),
        }
    }

    /// Handles the server's reply to the handshake.
    pub(super) fn receive_handshake(&mut self, now: Instant, payload: &[u8]) {
        let Phase::Handshaking { sent_at, deadline } = *self.connection.phase() else { return };
        self.connection.note_heard(now);
        match HandshakeReply::decode(&mut Reader::new(payload)) {
            Ok(HandshakeReply::Response(response)) => {
                self.accept(now, sent_at, deadline, &response);
            }
            Ok(HandshakeReply::Refused(header)) if header.err == ErrorCode::NotReadOnly => {
                self.connection.give_up("the server is read-only and grants no session");
            }
            Ok(HandshakeReply::Refused(header)) => {
                self.connection
                    .give_up(format_args!("the server refused the handshake: {}", header.err));
            }
            Err(error) => self.connection.give_up(format_args!("no ZooKeeper handshake: {error}")),
        }
    }

    /// Handles an accepted session. `deadline` is that of the whole attempt.
    #[cfg_attr(
        not(feature = "sasl"),
        expect(unused_variables, reason = "only SASL goes on with it")
    )]
    fn accept(
        &mut self,
        now: Instant,
        sent_at: Instant,
        deadline: Instant,
        response: &ConnectResponse<'_>,
    ) {
        let asked_for = self.identity.as_ref().filter(|known| !known.local).map(|known| known.id);
        let other_session = asked_for.is_some_and(|id| id != response.session_id);
        let read_only = response.read_only.unwrap_or(false);
        if response.is_refused() || other_session {
            return self.handle_refusal(response, asked_for.is_some(), read_only);
        }
        if read_only && (!self.config.read_only || self.is_closing()) {
            return self.connection.give_up("the server is read-only");
        }
        let mut granted = Duration::from_millis(u64::try_from(response.time_out).unwrap_or(0));
        let known = self.identity.as_ref().filter(|known| asked_for == Some(known.id));
        if let Some(known) = known {
            granted = granted.min(known.shortest_timeout);
        }
        self.timeouts =
            Timeouts::new(granted, self.hosts.len(), self.config.session_expiration_percent);
        if asked_for.is_none()
            && let Some(local) = self.identity.take()
        {
            // Only the read-only server that created it knows this session, and nothing can be held in it.
            self.lose(local.lease);
        }
        self.hosts.forget_silent();
        if let Some(host) = self.connection.host() {
            self.hosts.note_tls_mismatch(host, false);
        }
        self.metrics.connections += 1;
        self.connection.set_read_only(now, read_only);
        self.plan_survey(now);
        self.identify(now, sent_at, granted, response);
        self.attached(sent_at, asked_for.is_some());
        #[cfg(feature = "sasl")]
        if self.config.sasl.is_some() {
            // No ping renews the session during the exchange: the next handshake must come in time to do so.
            return self.begin_sasl(deadline.min(now + self.timeouts.read));
        }
        self.admit();
    }

    /// The server refuses to create a session, does not know the one that was asked for, or replaces it.
    fn handle_refusal(
        &mut self,
        response: &ConnectResponse<'_>,
        is_resumed: bool,
        read_only: bool,
    ) {
        if is_resumed && read_only {
            // Cut off from the quorum, the server does not know sessions created since.
            return self.connection.give_up("the read-only server does not know the session");
        }
        if is_resumed && response.is_refused() && self.relocation.has_left() {
            // It may be local to the server that was left (ZOOKEEPER-1147). If it has ended, that one will say so.
            return self.connection.give_up("the server of a move does not know the session");
        }
        if is_resumed {
            // ClickHouse Keeper.
            if !response.is_refused() {
                self.operations.note_replacement();
            }
            self.expire(&self.since_the_loss("the server does not know the session"));
            if self.is_closing() {
                // The session has ended, which was the purpose of the close.
                return self.end_closed();
            }
        }
        self.connection.give_up("the server refused the session");
    }

    /// The server is ready for requests.
    pub(super) fn admit(&mut self) {
        self.connection.admit();
        self.prime();
        let read_only = self.is_read_only();
        // A planned reconnect that succeeded was no loss.
        if !self.renewal.end_move() || read_only {
            self.push_state(|states| states.connected(read_only));
        }
        self.arrive();
        self.probe_role();
        if self.is_closing() {
            self.queue_close();
        }
    }

    /// Records the identity of the session, and its lease.
    fn identify(
        &mut self,
        now: Instant,
        sent_at: Instant,
        granted: Duration,
        response: &ConnectResponse<'_>,
    ) {
        let deadline = sent_at + self.lasts();
        let read_only = self.is_read_only();
        self.operations.note_connection();
        self.operations.review(now);
        if let Some(identity) = &mut self.identity {
            // A read-only server proves nothing: the quorum may have expired the session in the meantime.
            if !read_only {
                self.suspended_at = None;
                if identity.lease.reattach(now, deadline) {
                    self.events.push_back(Event::Lease(Arc::clone(&identity.lease)));
                }
            } else if self.suspended_at.is_none() {
                self.suspended_at = Some(now);
            }
            identity.shortest_timeout = granted;
            identity.lease.shorten_proof(identity.proven_base + proven(granted));
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
        self.suspended_at = None;
        let (deadline, proven_until) = if read_only {
            (Instant::ZERO, Instant::ZERO)
        } else {
            (deadline, sent_at + proven(granted))
        };
        let operations = &self.operations;
        operations.begin_session();
        let lease = SessionLease::new(response.session_id, deadline, proven_until, operations);
        self.identity = Some(Identity {
            id: response.session_id,
            password: response.passwd.unwrap_or_default().into(),
            lease: lease.clone(),
            proven_base: sent_at,
            shortest_timeout: granted,
            created_here: true,
            asked_timeout: self.config.session_timeout,
            accepted: true,
            local: read_only,
        });
        self.metrics.sessions += 1;
        self.events.push_back(Event::Session(lease));
    }

    /// Queues the messages that precede all requests: credentials, then watches.
    ///
    /// Source: `ClientCnxn.SendThread.primeConnection`.
    fn prime(&mut self) {
        self.send_credentials();
        self.replay_watches();
    }

    /// The highest zxid seen, if every server closed the last handshake that sent it without replying: either none
    /// serves, or all are behind it.
    #[must_use]
    pub fn ahead_of_servers(&self) -> Option<i64> {
        Some(self.last_zxid).filter(|&zxid| zxid > 0 && self.hosts.are_all_silent())
    }

    /// Whether the last attempt with every server failed because client and server do not agree on TLS. Further attempts
    /// fail too, until a certificate or a setting has changed.
    #[must_use]
    pub(crate) fn has_tls_mismatch(&self) -> bool {
        !self.is_connected() && self.hosts.are_all_mismatched()
    }

    /// When the session counts as lost, unless a server of the quorum replies or accepts it before. This counts from the
    /// last contact of its lease, as servers do, and is no later than the lease's deadline. A connection on which replies
    /// arrive, although to requests so old that they renew nothing, keeps the session beyond it: as long as a whole one
    /// was received within two thirds of the timeout, and a part of one within a sixth.
    ///
    /// Curator's `ConnectionStateManager` counts from `SUSPENDED`, by which time two thirds of the timeout may have
    /// passed.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        let deadline = self.identity.as_ref()?.lease.deadline();
        if self.is_connected() && !self.is_read_only() {
            let busy = self.connection.last_heard() + self.timeouts.read / 4;
            return Some(deadline.max(busy.min(self.connection.replied_at() + self.timeouts.read)));
        }
        if deadline == Instant::ZERO {
            return Some(self.suspended_at? + self.timeouts.expiration);
        }
        Some(deadline - self.lasts().saturating_sub(self.timeouts.expiration))
    }

    /// The limit of the pause before the next attempt: the session does not expire within it.
    fn longest_pause(&self, now: Instant) -> Duration {
        if self.identity.is_none() {
            return Duration::MAX;
        }
        let left = self.expires_at().map_or(Duration::MAX, |end| end.duration_since(now));
        self.timeouts.pause.min((left / 2).max(MIN_PAUSE))
    }

    /// Ends the session if there was no contact with the quorum for too long.
    pub(super) fn expire_if_due(&mut self, now: Instant) {
        if self.expires_at().is_none_or(|at| at > now) {
            return;
        }
        let without = if self.is_connected() && !self.is_read_only() {
            "no request or ping of the last session timeout has a reply"
        } else {
            "there was no connection for the session timeout"
        };
        match self.ahead_of_servers() {
            // The ensemble was restored from a backup, or is a different one: no server reports that.
            Some(zxid) => self.expire(&format!(
                "{without}: none of the servers serves, or all are behind the last zxid {zxid:#x}"
            )),
            None => self.expire(&self.since_the_loss(without)),
        }
        if self.is_closing() {
            self.end_unconfirmed();
        }
    }

    /// Why the session has ended, with the last failure: the reason of the failures, which the end follows from.
    fn since_the_loss(&self, why: &str) -> String {
        // The last failure is older than a connection, and a planned reconnect is none.
        let is_stale = self.is_connected() || self.renewal.is_moving();
        match self.last_failure_text().filter(|_| !is_stale) {
            Some(last) => format!("{why} (before: {last})"),
            None => why.to_owned(),
        }
    }

    /// Voids all claims of a session.
    pub(super) fn lose(&mut self, lease: Arc<SessionLease>) {
        lease.lose();
        self.events.push_back(Event::Lease(lease));
    }

    /// How long a session counts as alive after its last contact with the quorum.
    pub(super) fn lasts(&self) -> Duration {
        let lasts = self.timeouts.session.saturating_sub(self.timeouts.margin);
        if planted::is("lease-too-short") { lasts / 2 } else { lasts }
    }

    /// Whether the server that accepted the session last is read-only: it serves its own data, outside the quorum.
    pub(super) const fn is_read_only(&self) -> bool {
        self.connection.is_read_only()
    }

    /// Handles the end of the session. Its ephemeral nodes are deleted now or soon. A new session is created.
    pub(super) fn expire(&mut self, why: &str) {
        let Some(identity) = self.identity.take() else { return };
        identity.lease.lose();
        let error = |outcome| Error::new(ErrorKind::SessionExpired, outcome).with_detail(why);
        self.fail_sent(&error(Outcome::Unknown));
        // The request was for the old session: an ephemeral node of the new session is not what the caller requested.
        self.fail_unsent(&error(Outcome::NotApplied));
        self.relocation.take_left();
        self.fail_callers(&error(Outcome::NotApplied));
        self.last_zxid = 0;
        self.unset.forget();
        self.hosts.forget_silent();
        self.suspended_at = None;
        self.renewal.forget();
        self.timeouts = Timeouts::new(
            self.config.session_timeout,
            self.hosts.len(),
            self.config.session_expiration_percent,
        );
        if !self.connection.is_disconnected() {
            // The connection would continue with the session that ends here.
            self.connection.give_up(why);
        }
        self.push_state(ConnectionStates::expired);
        // After the state event: tasks woken by the lease see the new state.
        self.events.push_back(Event::Lease(identity.lease));
        self.end_watches(KeeperState::Expired);
    }

    /// When the next attempt to connect may begin, if there is neither a connection nor an attempt.
    pub(crate) fn connects_at(&self) -> Option<Instant> {
        self.connection.is_disconnected().then(|| self.hosts.not_before())
    }

    /// Notifies every watcher that no more events follow.
    pub(super) fn end_watches(&mut self, state: KeeperState) {
        for (path, watcher) in self.watches.drain() {
            let (event_type, path) = (EventType::None, path.into());
            let event = WatchedEvent { event_type, state, path, zxid: None };
            self.events.push_back(Event::Watch { watcher, event });
        }
        // Watchers whose request has no reply yet are notified by its failure.
    }

    /// Closes the connection: the stream can no longer be trusted.
    pub(super) fn broken_stream(&mut self, error: DecodeError) {
        self.connection.give_up(error);
    }
}

/// A divisor; never 0.
fn count(servers: usize) -> u32 {
    u32::try_from(servers).unwrap_or(u32::MAX).max(1)
}

/// The timeout in milliseconds, as the handshake encodes it.
fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
