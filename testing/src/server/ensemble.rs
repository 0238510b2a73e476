//! The machine: one server, or several over one log. Bytes and instants in, bytes out.
//!
//! [`Ensemble`] has no sockets, no clock, no tasks and no randomness. Somebody else moves the bytes
//! (`listen.rs`, or a simulation), and says what time it is; the same inputs always give the same outputs.
//!
//! ```text
//!   handle_input ─► Connection ─► request ─► prep (checks, on the leader's tree)
//!                                              │ Txn
//!                                             log ─► each member's tree ─► its watches ─► events
//!                                              │
//!   poll_transmit ◄─ Connection ◄─ reply ◄─────┘
//! ```
//!
//! Two invariants: a reply goes out after all events that its request caused on that connection; and a
//! member applies the log in order, so that what a client sees of one member never goes back.
//!
//! Methods follow the session machine's naming: `handle_*` takes an input, `poll_*` gives an output, and
//! time is always an argument, counted from the instant the machine was made.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    time::Duration,
};

use bytes::{Bytes, BytesMut};

use super::{
    config::{Config, millis},
    connection::{Connection, Input, State},
    digest,
    log::Entry,
    sessions::Sessions,
    tree::{Tree, Txn},
    watches::Watches,
};

/// A connection of an [`Ensemble`], by its number; numbers are not used again.
pub type ConnectionId = u64;

/// What a member of an ensemble is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// There is only one.
    Standalone,
    /// Orders all changes.
    Leader,
    /// Follows a leader.
    Follower,
    /// Has no quorum and answers reads.
    ReadOnly,
    /// Has no quorum and answers nothing.
    Looking,
    /// Is stopped.
    Down,
}

impl Role {
    pub(super) const fn serves(self) -> bool {
        !matches!(self, Self::Looking | Self::Down)
    }
}

/// One member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) role: Role,
    pub(crate) tree: Tree,
    pub(crate) watches: Watches,
    /// Whether it applies changes only when it has to.
    pub(super) lags: bool,
    /// Sessions that only it knows, with their timeouts in milliseconds.
    pub(crate) local_sessions: BTreeMap<i64, u64>,
    /// The connection of each session that is attached here.
    pub(crate) attached: BTreeMap<i64, ConnectionId>,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// One or several servers, as a machine without sockets, clock or randomness.
///
/// Methods `handle_*` take an input, `poll_*` give an output, and the others are what tests do to
/// servers. Time is always an argument, counted from the instant the machine was made. After any of them,
/// ask [`poll_ready`](Self::poll_ready) who has something to be sent.
#[derive(Debug)]
pub struct Ensemble {
    pub(crate) config: Config,
    pub(crate) members: Vec<Member>,
    pub(crate) sessions: Sessions,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    /// Connections with something to send, or to be closed.
    pub(super) ready: BTreeSet<ConnectionId>,
    /// What some member has not applied yet, oldest first.
    pub(super) log: VecDeque<Entry>,
    pub(super) zxid: i64,
    /// Connections that had said nothing when they were accepted, oldest first, with that time.
    silent: VecDeque<(u64, ConnectionId)>,
    /// How many requests are still to be refused as too many.
    pub(super) throttled: u32,
    next_connection: ConnectionId,
    next_session: i64,
    pub(super) next_reaping: u64,
    /// Of the last input, in milliseconds.
    pub(crate) now: u64,
}

/// After how many milliseconds a connection that says nothing is closed.
const GREETING_TIMEOUT: u64 = 16_000;

/// How much may wait to be sent to a client that does not read before its connection is cut, in bytes.
pub(super) const OUTPUT_LIMIT: usize = 256 << 20;

/// From how much on no more is read of a client, in bytes.
const OUTPUT_HIGH: usize = 8 << 20;

impl Ensemble {
    /// Servers without data, all running.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let count = config.servers.max(1);
        let member = || Member {
            role: Role::Looking,
            tree: Tree::new(config.version),
            watches: Watches::new(config.version),
            lags: false,
            local_sessions: BTreeMap::new(),
            attached: BTreeMap::new(),
            received: 0,
            sent: 0,
        };
        // As a real server's: the clock's milliseconds in the middle, the server's number in front.
        let clock = config.epoch().cast_unsigned().wrapping_add(config.seed);
        let next_session = ((clock << 24) >> 8).cast_signed();
        let mut ensemble = Self {
            members: std::iter::repeat_with(member).take(count).collect(),
            sessions: Sessions::new(millis(config.tick_time)),
            connections: BTreeMap::new(),
            ready: BTreeSet::new(),
            log: VecDeque::new(),
            zxid: 0,
            silent: VecDeque::new(),
            throttled: 0,
            next_connection: 1,
            next_session,
            next_reaping: millis(config.container_check_interval),
            now: 0,
            config,
        };
        ensemble.elect();
        ensemble
    }

    // Inputs.

    /// Somebody connects to a member; `None` when nobody listens there.
    pub fn handle_connect(
        &mut self,
        now: Duration,
        member: usize,
        peer: IpAddr,
    ) -> Option<ConnectionId> {
        self.set_now(now);
        if self.role(member) == Role::Down {
            return None;
        }
        let id = self.next_connection;
        self.next_connection += 1;
        let connection = Connection::new(member, peer, self.config.max_buffer);
        self.connections.insert(id, connection);
        self.silent.push_back((self.now + GREETING_TIMEOUT, id));
        Some(id)
    }

    /// Bytes of a client.
    pub fn handle_input(&mut self, now: Duration, id: ConnectionId, bytes: &[u8]) {
        self.set_now(now);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.take_input(bytes);
        loop {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            let (state, member) = (connection.state, connection.member);
            match connection.next_input() {
                Input::Partial => return,
                Input::Broken => return self.close(id),
                Input::Word(word) => return self.answer_word(id, word),
                Input::Frame(payload) => {
                    if let Some(member) = self.members.get_mut(member) {
                        member.received += 1;
                    }
                    match state {
                        State::Greeting => self.greet(id, &payload),
                        State::Open { session_id, local } => {
                            self.request(id, session_id, local, &payload);
                        }
                        State::Ignored | State::Closing => return,
                    }
                    self.ready.insert(id);
                }
            }
        }
    }

    /// A client's connection has ended. Its session goes on.
    pub fn handle_disconnected(&mut self, now: Duration, id: ConnectionId) {
        self.set_now(now);
        self.ready.remove(&id);
        let Some(connection) = self.connections.remove(&id) else { return };
        self.detach(id, &connection);
    }

    /// Time has passed: sessions expire, containers go.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.set_now(now);
        if self.leader().is_some() {
            for session_id in self.sessions.expired(self.now) {
                self.end_session(session_id);
            }
        }
        if self.now >= self.next_reaping {
            self.reap();
        }
        while let Some((_, id)) = self.silent.front().copied().filter(|due| due.0 <= self.now) {
            self.silent.pop_front();
            if self.connections.get(&id).is_some_and(|c| c.state == State::Greeting) {
                self.close(id);
            }
        }
    }

    // Outputs.

    /// The next connection that has something to send or is to be closed.
    pub fn poll_ready(&mut self) -> Option<ConnectionId> {
        self.ready.pop_first()
    }

    /// What is to be sent to a client; `None` when there is nothing.
    pub fn poll_transmit(&mut self, id: ConnectionId) -> Option<Bytes> {
        let connection = self.connections.get_mut(&id)?;
        if connection.output.is_empty() {
            return None;
        }
        let member = connection.member;
        let output = connection.output.split().freeze();
        if let Some(member) = self.members.get_mut(member) {
            member.sent += 1;
        }
        Some(output)
    }

    /// As [`poll_transmit`](Self::poll_transmit), into the caller's buffer; whether there was anything.
    pub fn poll_transmit_into(&mut self, id: ConnectionId, out: &mut BytesMut) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let any = !connection.output.is_empty();
        out.extend_from_slice(&connection.output);
        connection.output.clear();
        any
    }

    /// Whether the connection is to be closed once everything was sent.
    #[must_use]
    pub fn is_closed(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(|c| c.state == State::Closing)
    }

    /// Whether more should be read of a client; not while it does not read what it asked for.
    #[must_use]
    pub fn wants_input(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|c| c.output.len() < OUTPUT_HIGH)
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let greeting = self.silent.front().map(|(until, _)| *until);
        let expiry = self.leader().and_then(|_| self.sessions.next_expiry());
        [Some(self.next_reaping), expiry, greeting]
            .into_iter()
            .flatten()
            .min()
            .map(Duration::from_millis)
    }

    /// What a member is.
    #[must_use]
    pub fn role(&self, member: usize) -> Role {
        self.members.get(member).map_or(Role::Down, |member| member.role)
    }

    /// Who leads; the only server of a stand-alone one.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|m| matches!(m.role, Role::Leader | Role::Standalone))
    }

    /// The zxid of the last change.
    #[must_use]
    pub const fn last_zxid(&self) -> i64 {
        self.zxid
    }

    // Inside.

    pub(super) fn set_now(&mut self, now: Duration) {
        self.now = self.now.max(millis(now));
    }

    /// Marks a connection to be closed.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let was = connection.state;
            connection.close();
            if let State::Open { session_id, .. } = was {
                let member = connection.member;
                self.unregister(id, member, session_id);
            }
            self.ready.insert(id);
        }
    }

    pub(super) fn close_all(&mut self, concerned: impl Fn(&Connection) -> bool) -> usize {
        let open = |c: &Connection| c.state != State::Closing;
        let ids: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, c)| open(c) && concerned(c))
            .map(|(id, _)| *id)
            .collect();
        ids.iter().for_each(|id| self.close(*id));
        ids.len()
    }

    fn detach(&mut self, id: ConnectionId, connection: &Connection) {
        if let State::Open { session_id, .. } = connection.state {
            self.unregister(id, connection.member, session_id);
        }
    }

    /// A connection no longer speaks for its session, and its watches go.
    pub(super) fn unregister(&mut self, id: ConnectionId, member: usize, session_id: i64) {
        let Some(member) = self.members.get_mut(member) else { return };
        member.watches.forget(id);
        if member.attached.get(&session_id) == Some(&id) {
            member.attached.remove(&session_id);
        }
    }

    /// Ends a session everywhere, without a reply.
    pub(crate) fn end_session(&mut self, session_id: i64) {
        self.sessions.remove(session_id);
        let origin = self.leader().unwrap_or(0);
        self.commit(origin, Txn::CloseSession { session_id });
        self.cut_session(session_id);
    }

    /// A session id nobody has had.
    pub(crate) fn new_session_id(&mut self, member: usize) -> i64 {
        self.next_session = (self.next_session + 1) & 0x00FF_FFFF_FFFF_FFFF;
        let server = i64::try_from(member + 1).unwrap_or(1) << 56;
        server | self.next_session
    }

    pub(crate) fn passwd_of(session_id: i64) -> [u8; 16] {
        digest::session_passwd(session_id)
    }

    /// The error a member's role gives to everything, if it does.
    pub(crate) fn serves(&self, member: usize) -> bool {
        self.role(member).serves()
    }
}
