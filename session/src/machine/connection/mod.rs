//! The connection: its phase, the messages sent before requests, and its timers.
//!
//! ```text
//!   Disconnected ─► Connecting ─► Handshaking ─► Authenticating ─► Connected
//!        ▲              │              │               │               │
//!        └──────────────┴──────────────┴───────────────┴───────────────┘
//! ```
//!
//! Without SASL, Handshaking is followed by Connected. Each phase can be followed by Ended, which is final.
//! [`disconnect`](Connection::disconnect) keeps nothing of a connection that could affect the next one.
//!
//! A connection is usable from the first reply to a request or a ping on: the handshake, SASL, credentials and
//! setWatches count for nothing. Only a usable connection begins anew what counts the time without one: the back-off,
//! and the time that unsent requests may wait, which otherwise counts from their submit.
//!
//! Only replies keep a connection alive; events, replies to nothing, and bytes that had already arrived prove nothing.
//! The header of a reply renews the lease, and the rest of it has until the lease ends. Whole replies to earlier requests
//! keep the connection and the session beyond that, although the claims end with the lease: a burst may take longer than
//! the session timeout. One write takes 256 KiB of
//! requests at most, because a lease is renewed from the time of the write: the end of a long burst counts from when
//! the socket takes it.

use std::{collections::VecDeque, fmt, time::Duration};

use bytes::{Buf, BytesMut};
use docent_protocol::{frame, operation::Ping, xid};

#[cfg(feature = "sasl")]
mod exchange;
mod search;

#[cfg(feature = "sasl")]
pub(super) use self::exchange::{Exchange, Sent};
pub(super) use self::search::Search;
use super::{connect_string::Host, timeouts::Timeouts};
use crate::{
    Error, ErrorKind, Outcome,
    error::TlsFailure,
    time::{Instant, NEVER},
};

/// The maximum number of unanswered pings recorded.
const MAX_PINGS: usize = 64;

/// The phase of the connection.
#[derive(Debug)]
pub(super) enum Phase {
    /// No connection; [`Session::poll_connect`](super::Session::poll_connect) returns when to make one.
    Disconnected,
    /// An attempt is being made.
    Connecting { deadline: Instant },
    /// The handshake was sent and has no reply yet.
    Handshaking { deadline: Instant, sent_at: Instant },
    /// The session is accepted, and SASL is in progress.
    #[cfg(feature = "sasl")]
    Authenticating { deadline: Instant, exchange: Exchange },
    /// The session is accepted, and requests are sent.
    Connected,
    /// The session has ended for this reason; no connection will be made.
    Ended(ErrorKind),
}

/// What is known of the server at the other end. It cannot change during a connection: a server closes all connections
/// before it looks for another leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Unknown,
    /// It leads the ensemble, or stands alone.
    Leader,
    Other,
}

/// Whether the connection is to be closed once all sent requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Migration {
    No,
    /// The server is to be left.
    Required,
    /// A planned reconnect: it can be given up, and changes no state.
    Planned,
}

/// A timer of the connection that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// The attempt to connect has taken too long.
    Attempt,
    /// SASL has taken too long.
    #[cfg(feature = "sasl")]
    Authentication,
    /// No reply was received for too long.
    Silence,
    /// Replies to the requests in flight did not come in time for a migration.
    Replies,
    /// Nothing was sent for the ping interval.
    Ping,
}

/// See the [module](self).
pub(super) struct Connection {
    phase: Phase,
    /// The server of the current or last attempt.
    host: Option<Host>,
    /// The bytes to send before requests: the handshake, credentials, watches, pings.
    control: Vec<u8>,
    /// When the last reply, or a part of one, was received. An event does not prove that the server hears the client.
    last_heard: Instant,
    /// When the last whole reply to a request or a ping was received.
    replied_at: Instant,
    last_sent: Instant,
    /// The send times of unanswered pings; a server answers them in order.
    pings: VecDeque<Instant>,
    /// The number of unanswered pings sent after those in `pings`. While it is above 0, no later ping is recorded.
    unrecorded_pings: u64,
    /// The number of received bytes of an incomplete frame.
    partial: usize,
    /// The number of bytes still to be skipped of a reply above the limit.
    skip: usize,
    /// Whether the server has replied to a request or a ping.
    usable: bool,
    /// Why the connection is to be closed.
    broken: Option<Error>,
    migration: Migration,
    /// When a planned reconnect is given up, or the callers of a migration are, because sent requests have no reply;
    /// [`NEVER`] without a limit.
    migrates_until: Instant,
    /// The time from which a write on this connection renews the proven bound: when its connect request was sent, or an
    /// earlier one that has no reply.
    attached_at: Instant,
    role: Role,
    /// When bytes were last sent before the role was known.
    role_since: Instant,
    /// Whether the server serves its own data, outside the quorum.
    read_only: bool,
    /// The search for another server: for a read-write one while connected to a read-only one, or for a better one.
    search: Option<Search>,
}

impl Connection {
    pub(super) const fn new() -> Self {
        Self {
            phase: Phase::Disconnected,
            host: None,
            control: Vec::new(),
            last_heard: Instant::ZERO,
            replied_at: Instant::ZERO,
            last_sent: Instant::ZERO,
            pings: VecDeque::new(),
            unrecorded_pings: 0,
            partial: 0,
            skip: 0,
            usable: false,
            broken: None,
            migration: Migration::No,
            migrates_until: NEVER,
            attached_at: Instant::ZERO,
            role: Role::Unknown,
            role_since: Instant::ZERO,
            read_only: false,
            search: None,
        }
    }

    // Phases.

    pub(super) const fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The server of the current or last attempt.
    pub(super) const fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    pub(super) const fn is_disconnected(&self) -> bool {
        matches!(self.phase, Phase::Disconnected)
    }

    pub(super) const fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::Handshaking { .. })
    }

    /// Whether the session is accepted, but no request may be sent yet.
    #[cfg_attr(
        not(feature = "sasl"),
        expect(clippy::unused_self, reason = "has it with the feature")
    )]
    pub(super) const fn is_authenticating(&self) -> bool {
        #[cfg(feature = "sasl")]
        return matches!(self.phase, Phase::Authenticating { .. });
        #[cfg(not(feature = "sasl"))]
        false
    }

    pub(super) const fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Connected)
    }

    /// Whether the server has replied to a request or a ping. What it says before that is no sign that it serves.
    pub(super) const fn is_usable(&self) -> bool {
        self.usable
    }

    /// Records that the server has replied to a request or a ping.
    pub(super) const fn set_usable(&mut self) {
        self.usable = true;
    }

    /// Why the session has ended, if it has.
    pub(super) const fn ended(&self) -> Option<ErrorKind> {
        match self.phase {
            Phase::Ended(kind) => Some(kind),
            _ => None,
        }
    }

    /// Starts an attempt.
    pub(super) fn connect(&mut self, host: Host, deadline: Instant) {
        self.host = Some(host);
        self.phase = Phase::Connecting { deadline };
    }

    /// Starts the handshake, if an attempt is being made, and returns the empty buffer for it.
    pub(super) fn begin_handshake(&mut self, now: Instant) -> Option<&mut Vec<u8>> {
        let Phase::Connecting { deadline } = self.phase else { return None };
        self.phase = Phase::Handshaking { deadline, sent_at: now };
        self.last_heard = now;
        self.replied_at = Instant::ZERO;
        self.last_sent = now;
        Some(&mut self.control)
    }

    /// Waits for the reply to a SASL token.
    #[cfg(feature = "sasl")]
    pub(super) fn authenticate(&mut self, deadline: Instant, exchange: Exchange) {
        self.phase = Phase::Authenticating { deadline, exchange };
    }

    /// The deadline of the attempt and the SASL exchange in progress.
    #[cfg(feature = "sasl")]
    pub(super) const fn exchange_mut(&mut self) -> Option<(Instant, &mut Exchange)> {
        match &mut self.phase {
            Phase::Authenticating { deadline, exchange } => Some((*deadline, exchange)),
            _ => None,
        }
    }

    /// Whether SASL waits for a computation of its mechanism, not for the server.
    #[cfg(feature = "sasl")]
    pub(super) const fn is_computing_sasl(&self) -> bool {
        matches!(&self.phase, Phase::Authenticating { exchange, .. } if exchange.is_computing())
    }

    /// The server is ready for requests.
    pub(super) fn admit(&mut self) {
        self.phase = Phase::Connected;
    }

    /// The connection is gone, unless the session has ended.
    pub(super) fn disconnect(&mut self) {
        self.broken = None;
        if self.ended().is_some() {
            return;
        }
        self.phase = Phase::Disconnected;
        self.control.clear();
        self.pings.clear();
        self.unrecorded_pings = 0;
        self.partial = 0;
        self.skip = 0;
        self.usable = false;
        self.cancel_migration();
        self.attached_at = Instant::ZERO;
        self.role = Role::Unknown;
        self.read_only = false;
        self.search = None;
    }

    /// The session has ended.
    pub(super) fn end(&mut self, kind: ErrorKind) {
        self.phase = Phase::Ended(kind);
        self.control.clear();
    }

    // Failures.

    /// Marks the connection to be closed; the first reason counts.
    pub(super) fn give_up(&mut self, why: impl fmt::Display) {
        if self.broken.is_none() {
            self.broken =
                Some(Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown).with_detail(why));
        }
    }

    /// As [`give_up`](Self::give_up), with the error that is the cause.
    #[cfg(feature = "sasl")]
    pub(super) fn give_up_because(
        &mut self,
        why: impl fmt::Display,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) {
        if self.broken.is_none() {
            self.give_up(why);
            self.broken = self.broken.take().map(|broken| broken.caused_by(cause));
        }
    }

    /// Marks the connection to be closed because the server speaks TLS.
    pub(super) fn give_up_for_tls(&mut self, why: impl fmt::Display) {
        self.give_up(why);
        let broken = self.broken.take();
        self.broken = broken.map(|broken| broken.with_tls_failure(TlsFailure::Mismatch));
    }

    /// Why the connection is to be closed, unless that is for a migration.
    pub(super) const fn failure(&self) -> Option<&Error> {
        self.broken.as_ref()
    }

    // Migration.

    /// The connection is to be closed once all sent requests are answered. The limit of a planned reconnect stays one of
    /// its callers.
    pub(super) const fn migrate(&mut self) {
        self.migration = Migration::Required;
    }

    /// As [`migrate`](Self::migrate), planned: given up at `until`, and without a change of state.
    pub(super) const fn reattach(&mut self, until: Instant) {
        self.migration = Migration::Planned;
        self.migrates_until = until;
    }

    /// Sets when the callers of a migration are given up, unless that is set already or `until` is [`NEVER`].
    pub(super) fn limit_migration(&mut self, until: Instant) {
        if self.migrates_until == NEVER || until == NEVER {
            self.migrates_until = until;
        }
    }

    pub(super) const fn cancel_migration(&mut self) {
        self.migration = Migration::No;
        self.migrates_until = NEVER;
    }

    /// Whether the connection is to be replaced by a planned reconnect.
    pub(super) const fn is_reattaching(&self) -> bool {
        matches!(self.migration, Migration::Planned)
    }

    pub(super) const fn is_migrating(&self) -> bool {
        !matches!(self.migration, Migration::No)
    }

    // The proven bound.

    /// The time from which a write on this connection renews the proven bound; [`Instant::ZERO`] if it does not.
    pub(super) const fn attached_at(&self) -> Instant {
        self.attached_at
    }

    pub(super) const fn set_attached_at(&mut self, at: Instant) {
        self.attached_at = at;
    }

    pub(super) const fn role(&self) -> Role {
        self.role
    }

    pub(super) const fn set_role(&mut self, role: Role) {
        self.role = role;
        self.role_since = self.last_sent;
    }

    /// Whether a request sent at `sent_at` was sent to the leader, and after that was known.
    pub(super) fn was_at_leader(&self, sent_at: Instant) -> bool {
        self.role == Role::Leader && sent_at > self.role_since
    }

    /// Whether the server is read-only: it serves its own data, outside the quorum.
    pub(super) const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Records whether the server is read-only; if so, a read-write one is searched for.
    pub(super) fn set_read_only(&mut self, now: Instant, read_only: bool) {
        self.read_only = read_only;
        self.search = read_only.then(|| Search::begin(now));
    }

    /// Searches for a better server from this time on.
    pub(super) fn search_better(&mut self, at: Instant) -> &mut Search {
        self.search.insert(Search::at(at))
    }

    /// Ends the search for a better server.
    pub(super) fn end_search(&mut self) {
        if !self.read_only {
            self.search = None;
        }
    }

    pub(super) const fn search(&self) -> Option<&Search> {
        self.search.as_ref()
    }

    pub(super) const fn search_mut(&mut self) -> Option<&mut Search> {
        self.search.as_mut()
    }

    // Output.

    /// The bytes to send before requests.
    pub(super) const fn control(&self) -> &Vec<u8> {
        &self.control
    }

    pub(super) const fn control_mut(&mut self) -> &mut Vec<u8> {
        &mut self.control
    }

    /// Records that bytes are sent at `now`.
    pub(super) const fn note_sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    /// Adds a ping to the output. It counts as sent at `now`: otherwise the next ping would be due immediately if the
    /// socket accepts no bytes.
    pub(super) fn ping(&mut self, now: Instant) {
        let _ = frame::put_operation(&mut self.control, frame::DEFAULT_LIMIT, xid::PING, &Ping);
        self.last_sent = now;
        // Limits the memory used for a server that answers no pings. The reply to a ping that is not recorded renews
        // nothing.
        if self.unrecorded_pings == 0 && self.pings.len() < MAX_PINGS {
            self.pings.push_back(now);
        } else {
            self.unrecorded_pings += 1;
        }
    }

    /// Whether a ping has no reply yet.
    pub(super) fn has_pings(&self) -> bool {
        !self.pings.is_empty() || self.unrecorded_pings > 0
    }

    /// The send time of the ping that is answered now, if it was recorded.
    pub(super) fn answer_ping(&mut self) -> Option<Instant> {
        let sent_at = self.pings.pop_front();
        if sent_at.is_none() {
            self.unrecorded_pings = self.unrecorded_pings.saturating_sub(1);
        }
        sent_at
    }

    // Input.

    /// Whether the input has grown by a part of the incomplete frame at its front.
    pub(super) const fn has_grown(&self, input: &[u8]) -> bool {
        input.len() > self.partial
    }

    /// Records the length of the incomplete frame that is left of the input.
    pub(super) const fn note_partial(&mut self, rest: &[u8]) {
        self.partial = rest.len();
    }

    /// Skips this number of bytes of the input.
    pub(super) const fn begin_skip(&mut self, len: usize) {
        self.skip = len;
    }

    /// Drops the bytes to be skipped from the front of the input, and returns whether all have arrived.
    pub(super) fn skip(&mut self, input: &mut BytesMut) -> bool {
        let skipped = self.skip.min(input.len());
        input.advance(skipped);
        self.skip -= skipped;
        self.skip == 0
    }

    pub(super) const fn is_skipping(&self) -> bool {
        self.skip > 0
    }

    /// Records that a reply, or a part of one, was received at `now`.
    pub(super) const fn note_heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// Records that a whole reply to a request or a ping was received at `now`.
    pub(super) const fn note_replied(&mut self, now: Instant) {
        self.note_heard(now);
        self.replied_at = now;
    }

    pub(super) const fn replied_at(&self) -> Instant {
        self.replied_at
    }

    pub(super) const fn last_heard(&self) -> Instant {
        self.last_heard
    }

    // Timers.

    /// When the connection counts as dead because no reply came.
    pub(super) fn silent_at(&self, timeouts: &Timeouts) -> Instant {
        self.last_heard + timeouts.read
    }

    /// When a timer is due next. `ping` is the ping interval; `silent_at` is when silence ends the connection.
    pub(super) fn next_timeout(&self, ping: Duration, silent_at: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Connecting { deadline } | Phase::Handshaking { deadline, .. } => Some(deadline),
            #[cfg(feature = "sasl")]
            Phase::Authenticating { deadline, .. } => Some(deadline),
            Phase::Connected => Some(silent_at.min(self.last_sent + ping).min(self.migrates_until)),
            Phase::Disconnected | Phase::Ended(_) => None,
        }
    }

    /// The timer that is due at `now`, if any; the arguments are those of [`next_timeout`](Self::next_timeout).
    pub(super) fn due(&self, now: Instant, ping: Duration, silent_at: Instant) -> Option<Due> {
        if self.next_timeout(ping, silent_at).is_none_or(|at| at > now) {
            return None;
        }
        match self.phase {
            #[cfg(feature = "sasl")]
            Phase::Authenticating { .. } => Some(Due::Authentication),
            Phase::Connected if silent_at <= now => Some(Due::Silence),
            Phase::Connected if self.migrates_until <= now => Some(Due::Replies),
            Phase::Connected => Some(Due::Ping),
            _ => Some(Due::Attempt),
        }
    }

    /// Frees the memory of a burst that an idle session does not need.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.control.shrink_to(bytes);
    }
}

#[cfg(test)]
impl Connection {
    /// Panics unless a connection that does not exist has left nothing behind.
    pub(super) fn check(&self) {
        if !self.is_disconnected() && !matches!(self.phase, Phase::Connecting { .. }) {
            return;
        }
        assert!(self.control.is_empty() && self.pings.is_empty());
        assert_eq!((self.unrecorded_pings, self.partial, self.skip), (0, 0, 0));
        assert!(
            !self.is_migrating()
                && self.migrates_until == NEVER
                && self.search.is_none()
                && !self.usable
        );
        assert!(!self.read_only);
        assert_eq!((self.attached_at, self.role), (Instant::ZERO, Role::Unknown));
    }
}

#[cfg(test)]
mod tests;
