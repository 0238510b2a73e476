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
use docent_protocol::{Perms, Text};

use super::{
    acl,
    config::{Config, millis},
    connection::{Connection, Input, State},
    digest, prep,
    sessions::Sessions,
    tree::{Applied, Tree, Txn},
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
    const fn serves(self) -> bool {
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
    lags: bool,
    /// Sessions that only it knows, with their timeouts in milliseconds.
    pub(crate) local_sessions: BTreeMap<i64, u64>,
    /// The connection of each session that is attached here.
    pub(crate) attached: BTreeMap<i64, ConnectionId>,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// A change in the log.
#[derive(Debug)]
struct Entry {
    zxid: i64,
    wall_ms: i64,
    txn: Txn,
}

/// One or several servers.
#[derive(Debug)]
pub struct Ensemble {
    pub(crate) config: Config,
    pub(crate) members: Vec<Member>,
    pub(crate) sessions: Sessions,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    /// Connections with something to send, or to be closed.
    ready: BTreeSet<ConnectionId>,
    /// What some member has not applied yet, oldest first.
    log: VecDeque<Entry>,
    zxid: i64,
    /// Connections that had said nothing when they were accepted, oldest first, with that time.
    silent: VecDeque<(u64, ConnectionId)>,
    next_connection: ConnectionId,
    next_session: i64,
    next_reaping: u64,
    /// Of the last input, in milliseconds.
    pub(crate) now: u64,
}

/// After how many milliseconds a connection that says nothing is closed.
const GREETING_TIMEOUT: u64 = 16_000;

/// How much may wait to be sent to a client that does not read before its connection is cut, in bytes.
const OUTPUT_LIMIT: usize = 256 << 20;

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

    // What tests do to servers.

    /// Ends a session as if its time were over: no reply, its connection is closed, its ephemeral nodes
    /// go. Whether there was one.
    pub fn expire_session(&mut self, session_id: i64) -> bool {
        let known = self.sessions.expire_now(session_id);
        if known && self.leader().is_some() {
            self.end_session(session_id);
        }
        known
    }

    /// The sessions there are, by id.
    #[must_use]
    pub fn session_ids(&self) -> Vec<i64> {
        self.sessions.ids().collect()
    }

    /// Cuts a session's connections; the session goes on. How many there were.
    pub fn cut_session(&mut self, session_id: i64) -> usize {
        let of_session = |c: &Connection| c.session_id() == Some(session_id);
        self.close_all(of_session)
    }

    /// Cuts all connections of a member; `None`: of all. How many there were.
    pub fn cut_connections(&mut self, member: Option<usize>) -> usize {
        self.close_all(|c| member.is_none_or(|member| c.member == member))
    }

    /// Sets the number that the next sequential child of a node gets. Whether there is such a node.
    pub fn set_sequence_counter(&mut self, path: &str, next: i32) -> bool {
        let set = self.members.iter_mut().map(|member| member.tree.set_counter(path, next));
        set.filter(|done| *done).count() > 0
    }

    /// Stops a member: its connections end, and nobody listens. A majority must be left, or the others
    /// become read-only.
    pub fn stop_member(&mut self, now: Duration, member: usize) {
        self.set_now(now);
        self.cut_connections(Some(member));
        if let Some(member) = self.members.get_mut(member) {
            member.role = Role::Down;
        }
        self.elect();
    }

    /// Starts a stopped member.
    pub fn start_member(&mut self, now: Duration, member: usize) {
        self.set_now(now);
        if let Some(member) = self.members.get_mut(member).filter(|m| m.role == Role::Down) {
            member.role = Role::Looking;
        }
        self.elect();
    }

    /// Makes a member apply changes only when it has to: for its own clients' writes, and for `sync`. Its
    /// clients read old values meanwhile. `false` lets it catch up.
    pub fn set_lag(&mut self, now: Duration, member: usize, lags: bool) {
        self.set_now(now);
        if let Some(member) = self.members.get_mut(member) {
            member.lags = lags;
        }
        if !lags {
            self.catch_up(member);
        }
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

    fn set_now(&mut self, now: Duration) {
        self.now = self.now.max(millis(now));
    }

    /// The wall clock, in milliseconds since 1970.
    fn wall_ms(&self) -> i64 {
        self.config.epoch().saturating_add(i64::try_from(self.now).unwrap_or(i64::MAX))
    }

    /// Decides who leads. Everybody whose role changes loses its connections.
    fn elect(&mut self) {
        let up = self.members.iter().filter(|m| m.role != Role::Down).count();
        let total = self.members.len();
        let standalone = total == 1;
        let leader = if up * 2 <= total || self.config.read_only {
            None
        } else {
            self.leader().or_else(|| self.most_recent())
        };
        let is_new = leader.is_some() && self.leader() != leader;
        if is_new {
            // A new leader's time begins when everybody has what the old one's time has left.
            for at in 0..total {
                if self.role(at) != Role::Down {
                    self.catch_up(at);
                }
            }
        }
        if is_new && !standalone {
            self.zxid = ((self.zxid >> 32) + 1) << 32;
            self.log.clear();
            for member in self.members.iter_mut().filter(|m| m.role != Role::Down) {
                member.tree.last_zxid = self.zxid;
            }
        }
        for at in 0..total {
            let Some(member) = self.members.get(at) else { continue };
            let role = match (member.role, leader) {
                (Role::Down, _) => Role::Down,
                (_, Some(_)) if standalone => Role::Standalone,
                (_, Some(leader)) if leader == at => Role::Leader,
                (_, Some(_)) => Role::Follower,
                _ if self.config.read_only || self.config.read_only_mode_enabled => Role::ReadOnly,
                _ => Role::Looking,
            };
            let joins = role == Role::Follower && member.role != Role::Follower;
            if role != member.role || is_new {
                self.cut_connections(Some(at));
            }
            if joins {
                self.copy_tree(leader, at);
            }
            if let Some(member) = self.members.get_mut(at) {
                member.role = role;
            }
        }
        if is_new {
            // A new leader gives every session its full time again.
            for id in self.session_ids() {
                self.sessions.touch(id, self.now);
            }
        }
    }

    /// Who of those that are up has applied most; the log belongs to all, so it only has to be up.
    fn most_recent(&self) -> Option<usize> {
        (0..self.members.len()).filter(|at| self.role(*at) != Role::Down).max_by_key(|at| {
            (self.members.get(*at).map(|m| m.tree.last_zxid), std::cmp::Reverse(*at))
        })
    }

    fn copy_tree(&mut self, from: Option<usize>, to: usize) {
        let tree = from.and_then(|from| self.members.get(from)).map(|member| member.tree.clone());
        if let (Some(tree), Some(member)) = (tree, self.members.get_mut(to)) {
            member.tree = tree;
            member.local_sessions.clear();
        }
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

    fn close_all(&mut self, concerned: impl Fn(&Connection) -> bool) -> usize {
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
    fn unregister(&mut self, id: ConnectionId, member: usize, session_id: i64) {
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

    fn reap(&mut self) {
        self.next_reaping = self.now + millis(self.config.container_check_interval).max(1);
        let Some(leader) = self.leader() else { return };
        let wall_ms = self.wall_ms();
        let Some(member) = self.members.get(leader) else { return };
        for path in member.tree.reapable(wall_ms) {
            let tree = self.members.get(leader).map(|member| &member.tree);
            let txn = tree.map(|tree| prep::delete_container(Text::new(&path), tree));
            let txn = txn.and_then(Result::ok).unwrap_or(Txn::Error);
            self.commit(leader, txn);
        }
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

    /// Appends a change to the log and applies it wherever it is due, in any case at `origin`. The zxid,
    /// and what it has done.
    pub(crate) fn commit(&mut self, origin: usize, txn: Txn) -> (i64, Applied) {
        self.zxid += 1;
        let zxid = self.zxid;
        self.log.push_back(Entry { zxid, wall_ms: self.wall_ms(), txn });
        let mut applied = Applied::Nothing;
        for at in 0..self.members.len() {
            let due = self.members.get(at).is_some_and(|member| {
                matches!(member.role, Role::Leader | Role::Standalone | Role::Follower)
                    && (!member.lags || at == origin)
            });
            if due {
                let last = self.catch_up(at);
                if at == origin {
                    applied = last;
                }
            }
        }
        self.trim_log();
        (zxid, applied)
    }

    /// Uses up a number without a change.
    pub(crate) const fn skip_zxid(&mut self) {
        self.zxid += 1;
    }

    /// Applies all of the log that a member has not applied. What the last change has done.
    pub(crate) fn catch_up(&mut self, at: usize) -> Applied {
        let Some(member) = self.members.get_mut(at) else { return Applied::Nothing };
        let has = member.tree.last_zxid;
        let from = self.log.partition_point(|entry| entry.zxid <= has);
        let mut last = Applied::Nothing;
        let mut notices = Vec::new();
        for entry in self.log.range(from..) {
            let mut changes = Vec::new();
            last = member.tree.apply(&entry.txn, entry.zxid, entry.wall_ms, &mut changes);
            let events = changes.iter().flat_map(|change| member.watches.trigger(change));
            notices.extend(events.map(|notice| (entry.zxid, notice)));
        }
        let version = self.config.version;
        for (zxid, notice) in notices {
            let zxid = if version.events_have_zxid() { zxid } else { -1 };
            for id in notice.to {
                let Some(connection) = self.connections.get_mut(&id) else { continue };
                let hears = !version.filters_events()
                    || acl::allows(&notice.acl, Perms::READ, &connection.ids);
                if hears && connection.state != State::Closing {
                    connection.notify(zxid, notice.event, &notice.path);
                    if connection.output.len() > OUTPUT_LIMIT {
                        connection.output.clear();
                        connection.close();
                    }
                    self.ready.insert(id);
                }
            }
        }
        last
    }

    /// Forgets what every running member has applied.
    fn trim_log(&mut self) {
        let needed = self.members.iter().filter(|m| m.role.serves() || m.role == Role::Looking);
        let Some(oldest) = needed.map(|member| member.tree.last_zxid).min() else { return };
        while self.log.front().is_some_and(|entry| entry.zxid <= oldest) {
            self.log.pop_front();
        }
    }

    /// The error a member's role gives to everything, if it does.
    pub(crate) fn serves(&self, member: usize) -> bool {
        self.role(member).serves()
    }
}
