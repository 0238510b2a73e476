//! [`Session`]: its fields, getters and outputs.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use docent_protocol::OpCode;

use super::{
    answers::{Answers, Completion, Reply},
    buffer_pool::BufferPool,
    connect_string::Host,
    connection::Connection,
    connection_state::{ConnectionState, ConnectionStates},
    hosts::Hosts,
    identity::Identity,
    lease::SessionLease,
    metrics::Metrics,
    operations::Operations,
    relocation::Relocation,
    renewal::Renewal,
    requests::Requests,
    settings::Settings,
    timeouts::Timeouts,
    unset::Unset,
    watch_table::{WatchBatch, WatchedEvent, Watches},
};
use crate::{Error, ErrorKind, Outcome, SessionToken, planted, time::Instant};

/// A ZooKeeper session without IO.
///
/// A token of type `T` identifies a request, and a `W` identifies a watcher; the machine only stores and returns them. A
/// driver, which moves the bytes, calls in this order:
///
/// 1. [`poll_connect`](Self::poll_connect) for the server to connect to, and the time;
/// 2. [`handle_connected`](Self::handle_connected), or [`handle_disconnected`](Self::handle_disconnected)
///    when the attempt failed;
/// 3. [`poll_transmit`](Self::poll_transmit) and [`handle_input`](Self::handle_input) in any order, until either
///    the socket breaks (`handle_disconnected`) or [`wants_disconnect`](Self::wants_disconnect);
/// 4. at any stage, [`handle_timeout`](Self::handle_timeout) at the instant of [`poll_timeout`](Self::poll_timeout);
/// 5. after each call, [`poll_completion`](Self::poll_completion) and [`poll_event`](Self::poll_event) until
///    they are empty; and `poll_sasl_step`, if the configuration has a SASL mechanism that may block.
///
/// Answers are put into an `A`: by default a queue for [`poll_completion`](Self::poll_completion), or any other
/// [`Answers`] given to [`with_answers`](Self::with_answers).
pub struct Session<T, W, A = VecDeque<Completion<T>>> {
    pub(super) config: Settings,
    pub(super) hosts: Hosts,
    pub(super) timeouts: Timeouts,
    pub(super) connection: Connection,
    pub(super) closing: Closing<T>,

    /// The id and password of the session; `None` before there is one and after it was lost.
    pub(super) identity: Option<Identity>,
    /// The highest zxid of a reply. Sent with the handshake, so that no server with older data is accepted.
    pub(super) last_zxid: i64,

    /// The requests without a reply, sent or not.
    pub(super) requests: Requests<T, W>,
    pub(super) last_xid: i32,
    /// The unanswered credentials, in the order of their answers.
    pub(super) auth_pending: VecDeque<PendingAuth<T>>,
    /// The setWatches in flight that were sent before the requests.
    pub(super) watches_pending: VecDeque<WatchBatch>,
    /// The watches that are wanted and missing on the server.
    pub(super) unset: Unset,

    pub(super) watches: Watches<W>,
    pub(super) states: ConnectionStates,
    pub(super) answers: A,
    pub(super) buffers: BufferPool,
    pub(super) events: VecDeque<Event<W>>,
    /// What is known of the operations that the servers lack. All sessions share it.
    pub(super) operations: Arc<Operations>,

    /// When the connection to the quorum was lost. Used for the expiration of a session whose last contact is unknown.
    pub(super) suspended_at: Option<Instant>,
    /// The state of the renewal of the proven bound.
    pub(super) renewal: Renewal,
    /// The planned move to another server.
    pub(super) relocation: Relocation<T>,
    /// The base of a proof whose reply is being received.
    pub(super) proof: Option<Instant>,
    pub(super) metrics: Metrics,
    /// How the last attempt or connection failed.
    pub(super) last_failure: Option<Error>,
    /// Whether connections are made by TLS, if that is known.
    pub(super) is_tls: Option<bool>,
    #[cfg(feature = "sasl")]
    pub(super) nonces: super::sasl::Nonces,
    #[cfg(feature = "sasl")]
    pub(super) sasl_steps: super::sasl::SaslSteps,
}

/// Credentials without a reply on this connection.
#[derive(Debug)]
pub(super) struct PendingAuth<T> {
    /// The caller's; `None` for credentials whose caller has its reply, or never waited.
    pub(super) token: Option<T>,
    /// When the caller's wait fails; [`NEVER`](crate::time::NEVER) while there is a usable connection.
    pub(super) expires: Instant,
    /// When it fails by the request timeout or its own limit; `NEVER` without one.
    pub(super) deadline: Instant,
    /// Its own limit, if that ends it.
    pub(super) limit: Option<Duration>,
    /// The number below 0 by which its time can be limited; 0 without a caller.
    pub(super) number: i32,
}

/// Whether and how the session is being closed.
#[derive(Debug)]
pub(super) enum Closing<T> {
    No,
    /// closeSession is the last request on this connection or the next, and its reply is pending.
    Requested {
        /// The tokens of all calls to close.
        tokens: Vec<T>,
        until: Instant,
    },
}

/// An output of the machine that is not a reply.
#[derive(Debug)]
pub enum Event<W> {
    /// The connection state has changed.
    State(ConnectionState),
    /// A new session was created or taken over.
    Session(Arc<SessionLease>),
    /// The session is lost, or a server has granted it a shorter timeout than before, or has replied when the deadline of
    /// the lease had passed. Tasks waiting for the end of a claim must check again. Drivers without such tasks can ignore it.
    Lease(Arc<SessionLease>),
    /// The servers do not support an operation: found out now, for the session.
    MissingOperation(Arc<SessionLease>, OpCode),
    /// Ask this server whether it is read-write (`isro`), on a separate connection, and pass the result to
    /// [`Session::handle_probe`]. Optional.
    Probe(Host),
    /// Ask this server for its status (`srvr`), on a separate connection, and pass the result to
    /// [`Session::handle_status`], with the number, within a second. Optional; only with
    /// [`Config::with_direct_servers`](crate::Config::with_direct_servers),
    /// [`Config::with_failback`](crate::Config::with_failback) or [`Session::reconnect`].
    ProbeStatus(Host, u64),
    /// A watch event, for a node or for the session of the watch.
    Watch {
        /// The watcher.
        watcher: W,
        /// The event.
        event: WatchedEvent,
    },
    /// The session has ended for good. The last event.
    Ended(ErrorKind),
}

/// The next action for the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connect {
    /// Connect to this server, and give up at this time. The port 0 means a name whose SRV records are the servers: look
    /// them up, and pass them to [`Session::handle_servers`].
    To(Host, Instant),
    /// Call again at this time.
    At(Instant),
    /// There is a connection, or one is being made.
    No,
    /// No connection will be made any more.
    Ended,
}

impl<T, W: Clone + Ord> Session<T, W> {
    /// A session without any requests, with the settings of a [`Config`](crate::Config). `seed` determines the
    /// shuffling, the jitter, and SASL's nonces unless they have their own secret.
    #[must_use]
    pub fn new(settings: impl Into<Settings>, seed: u64) -> Self {
        Self::with_answers(settings, seed, VecDeque::new())
    }

    /// The next reply.
    pub fn poll_completion(&mut self) -> Option<Completion<T>> {
        self.answers_mut().pop_front()
    }
}

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// As [`new`](Session::new), with a custom [`Answers`].
    #[must_use]
    pub fn with_answers(settings: impl Into<Settings>, seed: u64, answers: A) -> Self {
        let config = settings.into();
        let hosts = Hosts::new(config.connect_string.hosts(), config.backoff, seed);
        let session = config.session.as_ref();
        let asked =
            session.and_then(SessionToken::session_timeout).unwrap_or(config.session_timeout);
        let timeouts = Timeouts::new(asked, hosts.len(), config.session_expiration_percent);
        let operations = Arc::new(Operations::default());
        let identity = session.map(|session| Identity::handed_in(session, asked, &operations));
        let requests = Requests::new(&config);
        let last_zxid = config.session.as_ref().map_or(0, SessionToken::last_zxid);
        Self {
            config,
            hosts,
            timeouts,
            connection: Connection::new(),
            closing: Closing::No,
            identity,
            last_zxid,
            requests,
            last_xid: 0,
            auth_pending: VecDeque::new(),
            watches_pending: VecDeque::new(),
            unset: Unset::new(seed),
            watches: Watches::default(),
            states: ConnectionStates::default(),
            answers,
            buffers: BufferPool::default(),
            events: VecDeque::new(),
            operations,
            suspended_at: None,
            renewal: Renewal::default(),
            relocation: Relocation::default(),
            proof: None,
            metrics: Metrics::default(),
            last_failure: None,
            is_tls: None,
            #[cfg(feature = "sasl")]
            nonces: super::sasl::Nonces::new((u128::from(seed) << 64).to_be_bytes()),
            #[cfg(feature = "sasl")]
            sasl_steps: super::sasl::SaslSteps::default(),
        }
    }

    /// Says whether connections are made by TLS, for the errors.
    #[must_use]
    pub(crate) const fn with_tls(mut self, is_tls: Option<bool>) -> Self {
        self.is_tls = is_tls;
        self
    }

    // Getters.

    /// Whether [`poll_transmit`](Self::poll_transmit) would return bytes.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        // Nothing is written on a connection that is being closed, so that the outcome of unsent requests stays known.
        !self.is_broken() && (!self.connection.control().is_empty() || self.sends_requests())
    }

    /// Whether requests would be sent now.
    pub(super) fn sends_requests(&self) -> bool {
        self.is_connected() && !self.connection.is_migrating() && self.requests.can_send()
    }

    /// Whether a server has accepted the session and the connection is up.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    /// The server that accepted the session, while the connection to it is up.
    pub fn server(&self) -> Option<&Host> {
        self.connection.host().filter(|_| self.is_connected())
    }

    /// The servers that the session chooses from, in the order in which they are tried.
    pub fn servers(&self) -> &[Host] {
        self.hosts.list()
    }

    /// Whether the session has ended for good.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.connection.ended().is_some()
    }

    /// Why the session has ended for good, if it has: `Closed` or `AuthFailed`.
    #[must_use]
    pub const fn ended(&self) -> Option<ErrorKind> {
        self.connection.ended()
    }

    /// Why the connection is to be closed, if it is: pass this to [`handle_disconnected`](Self::handle_disconnected).
    #[must_use]
    pub fn wants_disconnect(&self) -> Option<Error> {
        match self.connection.failure() {
            Some(error) => Some(error.clone()),
            None => self.is_ready_to_migrate().then(|| {
                Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown)
                    .with_detail("moving to another server")
            }),
        }
    }

    /// Whether the connection is to be closed.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.connection.failure().is_some() || self.is_ready_to_migrate()
    }

    /// Whether [`poll_event`](Self::poll_event) would return an event.
    #[must_use]
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The number of requests without a reply, sent or not.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.requests.len()
    }

    /// The number of watches in the table.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// The current session.
    #[must_use]
    pub fn lease(&self) -> Option<&Arc<SessionLease>> {
        self.identity.as_ref().filter(|identity| identity.accepted).map(|identity| &identity.lease)
    }

    /// The token to resume the current session elsewhere.
    #[must_use]
    pub fn session_token(&self) -> Option<SessionToken> {
        let identity = self.identity.as_ref().filter(|identity| identity.accepted)?;
        let token = SessionToken::new(identity.id, &identity.password, self.last_zxid);
        Some(token.with_session_timeout(identity.asked_timeout))
    }

    /// A snapshot of the counters.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics {
            pending: self.requests.len(),
            pending_bytes: self.requests.bytes(),
            in_flight: self.requests.in_flight(),
            outgoing_bytes: self.connection.control().len() + self.requests.unsent_bytes(),
            watches: self.watches.len(),
            server: self.server().cloned(),
            ..self.metrics.clone()
        }
    }

    /// The state of the connection; `None` before the first change, and once the session is closed.
    #[must_use]
    pub const fn state(&self) -> Option<ConnectionState> {
        self.states.current()
    }

    /// How the last attempt to connect, or the last connection, failed.
    #[must_use]
    pub const fn last_failure(&self) -> Option<&Error> {
        self.last_failure.as_ref()
    }

    /// The text of the last failure, to be a part of another error.
    pub(super) fn last_failure_text(&self) -> Option<&str> {
        self.last_failure.as_ref().and_then(Error::detail)
    }

    /// The intervals in force.
    #[must_use]
    pub(crate) const fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    // Outputs.

    /// Moves all bytes to write into `out`; write all of them before the next call. `out` is passed empty and is
    /// swapped, so that both buffers are reused.
    ///
    /// All of these bytes count as sent at `now`: call this right before writing, and once they are written again, while
    /// [`wants_write`](Self::wants_write) is true. A long burst comes in several parts.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) {
        out.clear();
        if !self.wants_write() {
            return;
        }
        self.connection.note_sent(now);
        if self.sends_requests() {
            self.requests.transmit(now, self.connection.control_mut(), out);
        } else {
            std::mem::swap(out, self.connection.control_mut());
        }
        self.metrics.bytes_sent += out.len() as u64;
    }

    /// The replies not yet taken.
    pub fn answers_mut(&mut self) -> &mut A {
        if self.requests.has_ready_waiters() {
            self.notify_capacity();
        }
        &mut self.answers
    }

    /// The destination of replies. Unlike [`answers_mut`](Self::answers_mut), this completes no
    /// [`wait_for_capacity`](Self::wait_for_capacity).
    #[inline]
    pub(crate) const fn answer_sink(&mut self) -> &mut A {
        &mut self.answers
    }

    /// Whether there are replies.
    #[must_use]
    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty() || self.requests.has_ready_waiters()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event<W>> {
        self.events.pop_front()
    }

    // Helpers for the other files of this module.

    pub(super) fn complete(&mut self, token: Option<T>, result: Result<Reply<'_>, Error>) {
        let Some(token) = token else { return };
        if !planted::one_in("reply-lost", 500) {
            self.answers.put(token, result, false);
        }
    }

    /// The error of a call after the end, with its reason unless the client was closed.
    pub(crate) fn refusal(&self) -> Error {
        let kind = self.ended().unwrap_or(ErrorKind::Closed);
        match self.last_failure_text() {
            Some(why) if self.is_ended() => {
                Error::refused(kind, why).with_source_of(self.last_failure.as_ref())
            }
            _ => Error::new(kind, Outcome::NotApplied),
        }
    }

    pub(super) fn push_state(
        &mut self,
        change: impl FnOnce(&mut ConnectionStates) -> Option<ConnectionState>,
    ) {
        if let Some(state) = change(&mut self.states) {
            self.events.push_back(Event::State(state));
        }
    }
}

/// By hand, to keep the password and the contents of buffers out of logs.
impl<T, W, A> fmt::Debug for Session<T, W, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("phase", self.connection.phase())
            .field("identity", &self.identity)
            .field("last_zxid", &format_args!("{:#x}", self.last_zxid))
            .field("pending", &self.requests.len())
            .field("sent", &self.requests.in_flight())
            .field("state", &self.states.current())
            .finish_non_exhaustive()
    }
}
