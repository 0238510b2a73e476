//! The session state machine: bytes and instants in, bytes and completions out.
//!
//! [`Session`] is what ZooKeeper's Java client keeps in `ClientCnxn`, without its socket, clock and threads.
//! Somebody else moves the bytes; this file decides what they mean. That is why every rule of a session
//! can be tested by feeding it frames, with no runtime and no waiting.
//!
//! ```text
//!   submit ─────► outgoing ─────► poll_transmit        requests, towards the socket
//!                    │
//!                 pending                              one entry per request, in wire order
//!                    │
//!   handle_input ─► match ──────► poll_completion      replies, towards the callers
//!                    └──────────► poll_event           states and watch events
//! ```
//!
//! Invariants:
//!
//! * `pending` is in wire order. The server answers numbered requests in that order, so a reply with a
//!   positive xid belongs to the front entry; any other number means the stream is broken, and the
//!   connection is given up. Negative xids (notification, ping, auth, setWatches) come out of turn and never
//!   touch `pending`.
//! * Every token that goes into [`submit`](Session::submit) comes out of
//!   [`poll_completion`](Session::poll_completion) exactly once, whatever happens to the connection.
//! * What was handed to the socket is never sent again. What was not goes out on the next connection of
//!   the *same* session; with the session it ends, not applied.
//!
//! Methods follow quinn-proto's naming: `handle_*` takes an input, `poll_*` gives an output, and time is
//! always an argument.
//!
//! Source: `ClientCnxn.java` (`readResponse`, `primeConnection`, `onConnected`), ZooKeeper 3.9.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use docent_protocol::{
    WatcherType,
    call::{Auth, CloseSession, Ping},
    frame,
    request::AuthRequest,
    xid,
};

use crate::{
    Config, ConnectionState, Error, ErrorKind, Host, Outcome, SessionLease, SessionToken,
    WatchKind, WhenFull, config::Credential, connection_state::ConnectionStates, hosts::Hosts,
    time::Instant, timeouts::Timeouts, watches::Watches,
};

mod answers;
mod blocks;
mod handshake;
mod metrics;
mod moves;
mod queue;
mod receive;
mod room;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(test)]
mod tests;
mod watching;

pub use self::{
    answers::{Answers, Body, Completion, Reply},
    metrics::{Latency, Metrics},
};
pub use crate::watches::Registration;
use crate::watches::WatchedEvent;

/// A ZooKeeper session without IO.
///
/// `T` is what the caller of a request gets its answer by, `W` what a watcher is told by; the machine only
/// carries them. The order of calls for who moves the bytes:
///
/// 1. [`poll_connect`](Self::poll_connect) says whom to connect to, and when;
/// 2. [`handle_connected`](Self::handle_connected), or [`handle_disconnected`](Self::handle_disconnected)
///    when that failed;
/// 3. [`poll_transmit`](Self::poll_transmit) and [`handle_input`](Self::handle_input) in any order, until either
///    the socket breaks (`handle_disconnected`) or [`wants_disconnect`](Self::wants_disconnect);
/// 4. at [`poll_timeout`](Self::poll_timeout), always, [`handle_timeout`](Self::handle_timeout);
/// 5. after each call, [`poll_completion`](Self::poll_completion) and [`poll_event`](Self::poll_event) until
///    they are empty.
///
/// `A` is where answers are put. A queue to be polled, unless told otherwise by
/// [`with_answers`](Self::with_answers).
pub struct Session<T, W, A = VecDeque<Completion<T>>> {
    config: Config,
    hosts: Hosts,
    timeouts: Timeouts,
    phase: Phase,
    closing: Closing<T>,

    /// Who the session is; `None` before there is one and after it was lost.
    identity: Option<Identity>,
    /// The highest zxid of a reply. Sent with the handshake, so that no server shows us the past.
    last_zxid: i64,

    /// What goes out before requests: the handshake, credentials, watches, pings.
    control: Vec<u8>,
    /// Encoded requests that were not handed to the socket, behind `taken` bytes of others.
    outgoing: Vec<u8>,
    /// How many bytes at the front of `outgoing` were handed to the socket: kept for a while, since a long
    /// line need not move for each request that leaves it.
    taken: usize,
    pending: VecDeque<Pending<T, W>>,
    /// How many entries at the front of `pending` were handed to the socket.
    sent: usize,
    /// How many of those have failed for want of an answer, and need not be looked at again.
    timed_out: usize,
    /// From how many on another one is looked at before it is taken; 0 when no more are.
    most_pending: usize,
    /// The size of all in `pending`.
    pending_bytes: usize,
    /// Who waits for room in the queue.
    waiting: VecDeque<T>,
    last_xid: i32,
    /// Credentials in the order of their answers to come; whose call each was.
    auth_pending: VecDeque<Option<T>>,
    /// setWatches in flight; whether persistent watches are among each one's.
    watches_pending: VecDeque<bool>,
    /// Whether persistent watches are to be told once all are answered.
    resync: bool,
    /// How many entries of `pending` are addWatch.
    adding: usize,
    /// When each batch was handed to the socket, and how many requests of it are unanswered.
    batches: VecDeque<Batch>,
    /// How many were answered by what is being read.
    answered: usize,
    ping_sent_at: Option<Instant>,

    watches: Watches<W>,
    states: ConnectionStates,
    answers: A,
    blocks: blocks::Blocks,
    events: VecDeque<Event<W>>,

    last_heard: Instant,
    last_sent: Instant,
    /// Since when there has been no connection, for the session's expiration.
    suspended_at: Option<Instant>,
    /// Bytes of a reply over the limit that are still to be thrown away.
    skip: usize,
    /// Why the connection is to be given up.
    broken: Option<Error>,
    /// The server tried or connected last.
    host: Option<Host>,
    /// Those that have closed the last handshake with them without a word, since one was answered.
    speechless: Vec<Host>,
    /// Whether the connection is to be given up once all that was sent is answered.
    moving: bool,
    /// The search for a read-write server, while connected to a read-only one.
    search: Option<moves::Search>,
    metrics: Metrics,
    /// Why there will be no connection again.
    ended: Option<ErrorKind>,
    /// What became of the last attempt or connection, for those who ask why there is none.
    last_failure: Option<Box<str>>,
    #[cfg(feature = "sasl")]
    nonces: crate::sasl::Nonces,
}

/// Where the connection is.
#[derive(Debug)]
enum Phase {
    /// None; [`Session::poll_connect`] says when to make one.
    Disconnected,
    /// Being made, until then.
    Connecting { deadline: Instant },
    /// Made, and waiting for the server's answer, until then.
    Handshaking { deadline: Instant, sent_at: Instant },
    /// The session is accepted, and each side proves to the other who it is, until then.
    #[cfg(feature = "sasl")]
    Authenticating { deadline: Instant, exchange: sasl::Exchange },
    /// The session is accepted, and requests may go out.
    Connected,
    /// For good.
    Ended,
}

/// Whether and how the session is being closed.
#[derive(Debug)]
enum Closing<T> {
    No,
    /// closeSession is the last request; until then its answer is waited for.
    Requested {
        token: Option<T>,
        until: Instant,
    },
}

/// What makes a session this one, and what it may be believed for.
struct Identity {
    id: i64,
    password: Box<[u8]>,
    lease: Arc<SessionLease>,
    /// For the proven bound: when its creation was asked for, and what was granted then.
    created_at: Instant,
    created_timeout: Duration,
    /// What was asked for then, and is asked for at each re-attach.
    asked_timeout: Duration,
    /// Whether a server has accepted it for us: one that was handed in is only hoped for until then.
    accepted: bool,
    /// Whether a read-only server made it, and no other knows it.
    local: bool,
}

impl Identity {
    fn handed_in(session: &SessionToken, asked_timeout: Duration) -> Self {
        Self {
            id: session.id,
            password: session.password.clone(),
            // Nothing is known of when it was last renewed, and nothing of its creation can be proved.
            lease: SessionLease::new(session.id, Instant::ZERO, Instant::ZERO),
            created_at: Instant::ZERO,
            created_timeout: Duration::ZERO,
            asked_timeout,
            accepted: false,
            local: false,
        }
    }
}

#[derive(Debug)]
struct Pending<T, W> {
    xid: i32,
    /// Of its frame, in bytes.
    size: u32,
    token: Option<T>,
    effect: Effect<W>,
    /// When it fails if it was not handed to a socket by then; [`NEVER`] while there is a connection.
    expires: Instant,
    /// When it fails in any case; [`NEVER`] without a request timeout.
    deadline: Instant,
}

/// An instant that does not come.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl<W> From<WatchEffect<W>> for Effect<W> {
    fn from(effect: WatchEffect<W>) -> Self {
        Self::Watches(Box::new(effect))
    }
}

impl<W> Effect<W> {
    const fn is_add_watch(&self) -> bool {
        match self {
            Self::Watches(effect) => matches!(**effect, WatchEffect::AddWatch { .. }),
            Self::None | Self::Close | Self::Internal => false,
        }
    }
}

impl<T, W> Pending<T, W> {
    /// Whether it is of no use on another connection.
    const fn is_internal(&self) -> bool {
        matches!(self.effect, Effect::Internal)
    }
}

/// What the reply to a request means for the watch table.
#[derive(Debug)]
enum Effect<W> {
    None,
    /// closeSession: the end.
    Close,
    /// The machine's own, about the watches of this connection.
    Internal,
    /// Boxed, for most requests have none, and all of them are moved.
    Watches(Box<WatchEffect<W>>),
}

/// What the reply to a request about watches means for their table.
#[derive(Debug)]
enum WatchEffect<W> {
    /// A read that leaves a watch. `covered`: sent without its flag, since a persistent watch tells its events.
    Watch { registration: Registration<W>, covered: bool },
    /// `watcher` is gone when nobody waits for it any more.
    AddWatch { kind: WatchKind, path: Arc<str>, watcher: Option<W> },
    /// The caller's own removeWatches.
    Remove { path: Arc<str>, watcher_type: WatcherType },
}

/// One hand-over to the socket.
#[derive(Debug)]
struct Batch {
    sent_at: Instant,
    unanswered: usize,
}

/// What is told without having been asked.
#[derive(Debug)]
pub enum Event<W> {
    /// The connection has another state.
    State(ConnectionState),
    /// There is a new session.
    Session(Arc<SessionLease>),
    /// Ask this server whether it is read-write (`isro`), on a connection of its own, and say so by
    /// [`Session::handle_probe`]. Can be left undone.
    Probe(Host),
    /// Something happened to a node, or to the session a watch was in.
    Watch {
        /// Who is to be told.
        watcher: W,
        /// What.
        event: WatchedEvent,
    },
    /// Nothing more will happen. The last event.
    Ended(ErrorKind),
}

/// What is to be done about the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connect {
    /// Connect to this server, and give up at that time.
    To(Host, Instant),
    /// Ask again at that time.
    At(Instant),
    /// There is a connection, or one is being made.
    No,
    /// Never again.
    Ended,
}

impl<T, W: Clone + PartialEq> Session<T, W> {
    /// A session that nobody has asked for yet. `seed` decides the shuffling, the jitter, and SASL's nonces
    /// unless they get a secret of their own.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self::with_answers(config, seed, VecDeque::new())
    }

    /// The next answer.
    pub fn poll_completion(&mut self) -> Option<Completion<T>> {
        self.answers_mut().pop_front()
    }
}

impl<T, W: Clone + PartialEq, A: Answers<T>> Session<T, W, A> {
    /// As [`new`](Session::new), with a place of one's own for the answers.
    #[must_use]
    pub fn with_answers(config: Config, seed: u64, answers: A) -> Self {
        let hosts = Hosts::new(config.connect_string.hosts(), config.backoff, seed);
        let session = config.session.as_ref();
        let asked =
            session.and_then(SessionToken::session_timeout).unwrap_or(config.session_timeout);
        let timeouts = Timeouts::new(asked, hosts.len(), config.session_expiration_percent);
        let identity = session.map(|session| Identity::handed_in(session, asked));
        let most_pending = match config.when_full {
            WhenFull::Fail => config.max_requests,
            WhenFull::Wait => usize::MAX,
        };
        let last_zxid = config.session.as_ref().map_or(0, |session| session.last_zxid);
        Self {
            config,
            hosts,
            timeouts,
            phase: Phase::Disconnected,
            closing: Closing::No,
            identity,
            last_zxid,
            control: Vec::new(),
            outgoing: Vec::new(),
            taken: 0,
            pending: VecDeque::new(),
            sent: 0,
            timed_out: 0,
            most_pending,
            pending_bytes: 0,
            waiting: VecDeque::new(),
            last_xid: 0,
            auth_pending: VecDeque::new(),
            watches_pending: VecDeque::new(),
            resync: false,
            adding: 0,
            batches: VecDeque::new(),
            answered: 0,
            ping_sent_at: None,
            watches: Watches::default(),
            states: ConnectionStates::default(),
            answers,
            blocks: blocks::Blocks::default(),
            events: VecDeque::new(),
            last_heard: Instant::ZERO,
            last_sent: Instant::ZERO,
            suspended_at: None,
            skip: 0,
            broken: None,
            host: None,
            speechless: Vec::new(),
            moving: false,
            search: None,
            metrics: Metrics::default(),
            ended: None,
            last_failure: None,
            #[cfg(feature = "sasl")]
            nonces: crate::sasl::Nonces::new((u128::from(seed) << 64).to_be_bytes()),
        }
    }

    // Getters.

    /// Whether [`poll_transmit`](Self::poll_transmit) would give something.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        // What is not written on a connection that is given up is not in doubt.
        self.broken.is_none() && (!self.control.is_empty() || self.sends_requests())
    }

    /// Whether requests would go out now.
    fn sends_requests(&self) -> bool {
        self.is_connected() && !self.moving && !self.outgoing.is_empty() && self.next_has_room()
    }

    /// Whether a server has accepted the session and the connection stands.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Connected)
    }

    /// Whether the session is accepted, but nothing may be sent yet.
    #[cfg_attr(
        not(feature = "sasl"),
        expect(clippy::unused_self, reason = "has it with the feature")
    )]
    const fn is_authenticating(&self) -> bool {
        #[cfg(feature = "sasl")]
        return matches!(self.phase, Phase::Authenticating { .. });
        #[cfg(not(feature = "sasl"))]
        false
    }

    /// The server that took the session, while there is a connection to it.
    pub fn server(&self) -> Option<&Host> {
        self.host.as_ref().filter(|_| self.is_connected())
    }

    /// Whether nothing more will happen.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Why nothing more will happen, if so: `Closed` or `AuthFailed`.
    #[must_use]
    pub const fn ended(&self) -> Option<ErrorKind> {
        self.ended
    }

    /// Why the connection is to be given up, if it is: call
    /// [`handle_disconnected`](Self::handle_disconnected) with it.
    #[must_use]
    pub fn wants_disconnect(&self) -> Option<Error> {
        self.broken.clone()
    }

    /// Whether the connection is to be given up.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Whether [`poll_event`](Self::poll_event) would give something.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Requests that wait for their replies, sent or not.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Watches in the table.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.watches.len()
    }

    /// The current session.
    #[must_use]
    pub fn lease(&self) -> Option<&Arc<SessionLease>> {
        self.identity.as_ref().filter(|identity| identity.accepted).map(|identity| &identity.lease)
    }

    /// All it takes to go on with the current session elsewhere.
    #[must_use]
    pub fn session_token(&self) -> Option<SessionToken> {
        let identity = self.identity.as_ref().filter(|identity| identity.accepted)?;
        let token = SessionToken::new(identity.id, &identity.password, self.last_zxid);
        Some(token.with_session_timeout(identity.asked_timeout))
    }

    /// What was counted.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics {
            pending: self.pending.len(),
            pending_bytes: self.pending_bytes,
            in_flight: self.sent,
            outgoing_bytes: self.control.len() + self.unsent().len(),
            watches: self.watches.len(),
            ..self.metrics.clone()
        }
    }

    /// The state of the connection; `None` before the first news.
    #[must_use]
    pub const fn state(&self) -> Option<ConnectionState> {
        self.states.current()
    }

    /// What became of the last attempt to connect, or of the last connection.
    #[must_use]
    pub fn last_failure(&self) -> Option<&str> {
        self.last_failure.as_deref()
    }

    /// The intervals in force.
    #[must_use]
    pub const fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    // Application commands.

    /// Adds credentials: told to this server now and to every other first. The answer comes by `token`.
    pub fn add_auth(&mut self, credential: Credential, token: T) {
        if self.is_ended() {
            return self.complete(Some(token), Err(self.refusal()));
        }
        if self.is_connected() {
            put_auth(&mut self.control, &credential);
        }
        // Unconnected, it goes with the others once there is a connection.
        self.auth_pending.push_back(Some(token));
        self.config.credentials.push(credential);
    }

    /// Ends the session: behind all that was submitted, closeSession. The answer comes by `token` and is
    /// waited for until `until`. Without a connection, there is nobody to tell: it ends at once, and the
    /// server keeps the session until its timeout.
    pub fn close(&mut self, token: Option<T>, until: Instant) {
        if self.is_ended() || !matches!(self.closing, Closing::No) {
            return self.complete(token, Err(self.refusal()));
        }
        self.closing = Closing::Requested { token, until };
        self.most_pending = 0;
        // There is nothing to move for any more.
        self.moving = false;
        if self.is_connected() || self.is_authenticating() {
            let start = self.outgoing.len();
            let xid = xid::next(self.last_xid);
            self.last_xid = xid;
            // Eight bytes: under every limit.
            let _ = frame::put_call(&mut self.outgoing, frame::DEFAULT_LIMIT, xid, &CloseSession);
            self.push_pending(xid, start, None, Effect::Close);
        } else if self.identity.is_some() {
            self.end(ErrorKind::Closed, &Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown));
        } else {
            self.end_closed();
        }
    }

    /// Ends at once, telling no server: who moves the bytes has gone.
    pub fn abandon(&mut self) {
        let error = Error::new(ErrorKind::Closed, Outcome::Unknown);
        self.end(ErrorKind::Closed, &error);
    }

    // Outputs.

    /// What is to be written, all of it, before asking again. `out` comes empty and is swapped, so that
    /// both buffers are used again.
    ///
    /// All that is given out counts as sent at `now`: call it right before writing.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) {
        out.clear();
        if !self.wants_write() {
            return;
        }
        self.last_sent = now;
        let requests = self.sends_requests();
        let (unanswered, bytes) = if requests { self.room() } else { (0, 0) };
        if self.control.is_empty() && bytes == self.outgoing.len() {
            std::mem::swap(out, &mut self.outgoing);
        } else {
            std::mem::swap(out, &mut self.control);
            self.take_front(bytes, out);
        }
        self.metrics.bytes_sent += out.len() as u64;
        if !requests {
            return;
        }
        self.sent += unanswered;
        self.batches.push_back(Batch { sent_at: now, unanswered });
    }

    /// The answers there are.
    pub fn answers_mut(&mut self) -> &mut A {
        if !self.waiting.is_empty() && self.has_much_room() {
            self.grant_room();
        }
        &mut self.answers
    }

    /// Where answers are put, for another reason than to look for some.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) const fn answers_to_come(&mut self) -> &mut A {
        &mut self.answers
    }

    /// Whether there are answers.
    #[must_use]
    #[inline]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty() || (!self.waiting.is_empty() && self.has_much_room())
    }

    /// The next piece of news.
    pub fn poll_event(&mut self) -> Option<Event<W>> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do. Changes with every other call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let connection = match self.phase {
            Phase::Connecting { deadline } | Phase::Handshaking { deadline, .. } => Some(deadline),
            #[cfg(feature = "sasl")]
            Phase::Authenticating { deadline, .. } => Some(deadline),
            Phase::Connected => Some(
                (self.last_heard + self.timeouts.read).min(self.last_sent + self.timeouts.ping),
            ),
            Phase::Disconnected => None,
            Phase::Ended => return None,
        };
        let closing = match self.closing {
            Closing::Requested { until, .. } => Some(until),
            Closing::No => None,
        };
        let queue = self.pending.get(self.sent).map(|request| request.expires);
        let queue = queue.filter(|at| *at != NEVER);
        let search = self.search.as_ref().map(|search| search.next_at);
        // By hand: an iterator over an array of options costs over a thousand instructions, in every call.
        let connection = earlier(connection, closing);
        let requests = earlier(queue, self.next_deadline());
        earlier(earlier(connection, requests), earlier(search, self.expires_at()))
    }

    /// Something is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Closing::Requested { until, .. } = self.closing
            && until <= now
        {
            return self.end(
                ErrorKind::Closed,
                &Error::new(ErrorKind::OperationTimeout, Outcome::Unknown)
                    .with_detail("closeSession was not answered"),
            );
        }
        match self.phase {
            Phase::Connected if self.last_heard + self.timeouts.read <= now => {
                self.give_up(format_args!("nothing heard for {:?}", now.since(self.last_heard)));
            }
            Phase::Connected if self.last_sent + self.timeouts.ping <= now => self.ping(now),
            Phase::Connecting { deadline } | Phase::Handshaking { deadline, .. }
                if deadline <= now =>
            {
                self.give_up("the server did not answer in time");
            }
            #[cfg(feature = "sasl")]
            Phase::Authenticating { deadline, .. } if deadline <= now => {
                self.give_up("the server did not answer SASL in time");
            }
            _ => {}
        }
        if self.expires_at().is_some_and(|at| at <= now) {
            let without = "there was no connection for the session timeout";
            match self.ahead_of_servers() {
                // Restored from a backup, or not the ensemble it was: no server says so.
                Some(zxid) => self.expire(&format!(
                    "{without}: none of the servers serves, or all are behind the last zxid {zxid:#x}"
                )),
                None => self.expire(without),
            }
        }
        self.fail_overdue(now);
        self.fail_timed_out(now);
        self.search_read_write(now);
    }

    fn ping(&mut self, now: Instant) {
        let _ = frame::put_call(&mut self.control, frame::DEFAULT_LIMIT, xid::PING, &Ping);
        self.metrics.pings += 1;
        if self.pending.is_empty() {
            self.give_back_memory();
        }
        // So that the next one is not due at once, should the socket take nothing.
        self.last_sent = now;
        // An unanswered one keeps its own, earlier time: its answer may be the one that comes.
        self.ping_sent_at.get_or_insert(now);
    }

    /// What a burst has made large and an idle session does not need.
    fn give_back_memory(&mut self) {
        self.outgoing.shrink_to(KEPT_BYTES);
        self.control.shrink_to(KEPT_BYTES);
        self.pending.shrink_to(KEPT_ENTRIES);
        self.answers.shrink_to(KEPT_ENTRIES);
        self.blocks.clear();
        self.events.shrink_to(KEPT_ENTRIES);
        self.batches.shrink_to(KEPT_ENTRIES);
        self.waiting.shrink_to(KEPT_ENTRIES);
    }

    // What others of this module use too.

    fn complete(&mut self, token: Option<T>, told: Result<Reply<'_>, Error>) {
        if let Some(token) = token {
            self.answers.put(token, told, false);
        }
    }

    /// Marks the connection as of no further use.
    fn give_up(&mut self, why: impl fmt::Display) {
        if self.broken.is_none() {
            self.broken =
                Some(Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown).with_detail(why));
        }
    }

    /// What is told to who comes too late: it was closed, or authentication was refused.
    pub(crate) fn refusal(&self) -> Error {
        let kind = self.ended.unwrap_or(ErrorKind::Closed);
        match self.last_failure() {
            Some(why) if kind != ErrorKind::Closed => Error::refused(kind, why),
            _ => Error::new(kind, Outcome::NotApplied),
        }
    }

    /// The proper end of a close.
    fn end_closed(&mut self) {
        if let Closing::Requested { token, .. } = &mut self.closing {
            let token = token.take();
            self.complete(token, Ok(Reply::empty(self.last_zxid)));
        }
        let error = Error::new(ErrorKind::Closed, Outcome::Unknown);
        self.end(ErrorKind::Closed, &error);
    }

    /// Ends everything; who waits for a close gets `error`.
    fn end(&mut self, kind: ErrorKind, error: &Error) {
        if self.is_ended() {
            return;
        }
        // Why it ends is what everybody wants to know, unless it was asked for.
        let detail = error.detail().filter(|_| error.kind() == kind);
        let failure = |outcome| match detail {
            Some(detail) => Error::new(kind, outcome).with_detail(detail),
            None => Error::new(kind, outcome),
        };
        if let Some(detail) = detail {
            self.last_failure = Some(detail.into());
        }
        self.fail_sent(&failure(Outcome::Unknown));
        self.fail_queued(&failure(Outcome::NotApplied));
        for token in std::mem::take(&mut self.waiting) {
            self.complete(Some(token), Err(failure(Outcome::NotApplied)));
        }
        for token in std::mem::take(&mut self.auth_pending) {
            self.complete(token, Err(failure(Outcome::Unknown)));
        }
        if let Closing::Requested { token, .. } = &mut self.closing {
            let token = token.take();
            self.complete(token, Err(error.clone()));
        }
        if let Some(identity) = self.identity.take() {
            identity.lease.lose();
        }
        self.end_watches(docent_protocol::KeeperState::Closed);
        self.control.clear();
        self.phase = Phase::Ended;
        self.most_pending = 0;
        self.ended = Some(kind);
        if kind != ErrorKind::Closed {
            self.push_state(ConnectionStates::expired);
        }
        self.events.push_back(Event::Ended(kind));
    }

    fn push_state(
        &mut self,
        change: impl FnOnce(&mut ConnectionStates) -> Option<ConnectionState>,
    ) {
        if let Some(state) = change(&mut self.states) {
            self.events.push_back(Event::State(state));
        }
    }
}

/// How much of a buffer an idle session keeps, in bytes.
const KEPT_BYTES: usize = 512;

/// How many entries of a queue.
const KEPT_ENTRIES: usize = 16;

/// By hand, so that neither the password nor what is in the buffers reaches a log.
impl<T, W, A> fmt::Debug for Session<T, W, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("phase", &self.phase)
            .field("identity", &self.identity)
            .field("last_zxid", &format_args!("{:#x}", self.last_zxid))
            .field("pending", &self.pending.len())
            .field("sent", &self.sent)
            .field("state", &self.states.current())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("id", &format_args!("{:#x}", self.id))
            .finish_non_exhaustive()
    }
}

/// The earlier of two instants that may not be set.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

fn put_auth(out: &mut Vec<u8>, credential: &Credential) {
    let auth = Auth(AuthRequest {
        auth_type: 0,
        scheme: credential.scheme.as_ref().into(),
        auth: Some(&credential.auth),
    });
    // A credential over the limit is the server's to refuse; it closes the connection.
    let _ = frame::put_call(out, usize::MAX, xid::AUTH, &auth);
}
