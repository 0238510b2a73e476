//! The state machine: one server, or several servers and the links between them. Bytes and instants go in, bytes come
//! out.
//!
//! [`Ensemble`] has no sockets, no clock, no tasks and no randomness. Its driver (`listen.rs`, or a simulation) moves
//! the bytes and supplies the time. The same inputs always give the same outputs.
//!
//! ```text
//!   handle_input ─► Connection ─► request ─► links ─► prep (checks, on the leader's tree)
//!                                                       │ Txn
//!                                              links ◄─ log (proposes, commits)
//!                                                │
//!                                                ├─► each member's tree ─► its watches ─► events
//!   poll_transmit ◄─ Connection ◄─ reply ◄───────┘
//! ```
//!
//! Two invariants hold:
//!
//! * On a connection, a reply follows all events that its request caused.
//! * A member applies the log in order, so a client never sees the state of one member go back.
//!
//! Methods are named as in the session machine: `handle_*` takes an input, `poll_*` returns an output. Time is always
//! an argument, counted from the creation of the machine.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};

use super::{
    config::{Config, millis},
    connection::{Connection, Input, State},
    member::{Member, Role},
    membership::Membership,
    messages::{ConnectionId, Links},
    session_passwd::session_passwd,
    sessions::Sessions,
    test_state::{Controls, Record},
    tree::{Tree, Txn},
};

/// One or several servers, as a state machine without sockets, clock or randomness.
///
/// Methods `handle_*` take an input, `poll_*` return an output; the others are controls for tests. Time is always an
/// argument, counted from the creation of the machine. After each call, drain [`poll_ready`](Self::poll_ready) for
/// the connections with pending output.
#[derive(Debug)]
pub struct Ensemble {
    pub(crate) config: Config,
    pub(crate) members: Vec<Member>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    /// Connections with pending output, or about to be closed.
    pub(super) ready: BTreeSet<ConnectionId>,
    pub(super) links: Links,
    /// Connections that have just received their session, or whose requests were delayed; they may have unread input.
    pub(super) opened: VecDeque<ConnectionId>,
    /// Whether messages are being delivered.
    pub(super) is_pumping: bool,
    /// Whether a member is applying changes.
    pub(super) is_applying: bool,
    /// Whether the member that applies changes must go on to apply all committed ones, because of a sync between two
    /// writes.
    pub(super) must_catch_up: bool,
    /// Whether members without a leader may find one that they have not looked for yet.
    pub(super) needs_leader_search: bool,
    /// When members without a leader looked for one last, in milliseconds.
    pub(super) searched_at: u64,
    /// The number of elections.
    pub(super) epoch: i64,
    /// Sessions that the next leader expires.
    pub(super) to_expire: BTreeSet<i64>,
    /// Accepted connections with their greeting deadline, oldest first.
    silent: VecDeque<(u64, ConnectionId)>,
    /// What a test has switched on.
    pub(super) controls: Controls,
    next_connection: ConnectionId,
    next_session: i64,
    pub(super) next_request: u64,
    pub(super) next_reaping: u64,
    /// The changes applied so far, if they are recorded.
    pub(super) record: Option<Record>,
    /// The instant of the last input, in milliseconds.
    pub(crate) now: u64,
}

/// The time after which a silent connection is closed, in milliseconds.
const GREETING_TIMEOUT: u64 = 16_000;

impl Ensemble {
    /// Creates servers without data, all running.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let count = config.servers.max(1);
        let mut tree = Tree::new(config.version);
        if config.is_ensemble() {
            tree.membership = Arc::new(Membership::initial(count));
            tree.show_membership(0, config.epoch());
        }
        // As in a real server: the clock's milliseconds in the middle, the server's number in the top byte.
        let clock = config.epoch().cast_unsigned().wrapping_add(config.seed);
        let next_session = ((clock << 24) >> 8).cast_signed();
        let mut ensemble = Self {
            members: (0..count).map(|_| Member::new(&config, tree.clone())).collect(),
            connections: BTreeMap::new(),
            ready: BTreeSet::new(),
            links: Links::default(),
            opened: VecDeque::new(),
            is_pumping: false,
            is_applying: false,
            must_catch_up: false,
            needs_leader_search: true,
            searched_at: 0,
            epoch: 0,
            to_expire: BTreeSet::new(),
            silent: VecDeque::new(),
            controls: Controls::default(),
            next_connection: 1,
            next_session,
            next_request: 0,
            next_reaping: millis(config.container_check_interval),
            record: None,
            now: 0,
            config,
        };
        ensemble.pump();
        ensemble
    }

    // Inputs.

    /// Accepts a connection to a member. Returns `None` if the member is not listening, or if a link between it and its
    /// clients is [cut](Self::cut).
    pub fn handle_connect(
        &mut self,
        now: Duration,
        member: usize,
        peer: IpAddr,
    ) -> Option<ConnectionId> {
        self.set_now(now);
        let is_reached = self
            .members
            .get(member)
            .is_some_and(|member| member.role != Role::Down && !member.deaf && !member.mute);
        if !is_reached {
            return None;
        }
        let id = self.next_connection;
        self.next_connection += 1;
        let mut connection = Connection::new(member, peer, self.config.max_buffer);
        connection.counts.since = self.now;
        self.connections.insert(id, connection);
        self.silent.push_back((self.now + GREETING_TIMEOUT, id));
        Some(id)
    }

    /// Handles bytes received from a client.
    pub fn handle_input(&mut self, now: Duration, id: ConnectionId, bytes: &[u8]) {
        self.set_now(now);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.take_input(bytes);
        self.process_input(id);
    }

    /// Handles the bytes received on a connection, unless its member hears nothing from its clients.
    pub(super) fn process_input(&mut self, id: ConnectionId) {
        loop {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            connection.is_held_back = !connection.is_read();
            if connection.is_held_back {
                return;
            }
            let (state, member) = (connection.state, connection.member);
            if state == State::Joining || self.members.get(member).is_none_or(Member::hears_nothing)
            {
                return;
            }
            match connection.next_input() {
                Input::Partial => return,
                Input::Broken => return self.close(id),
                Input::Word(word, mask) => return self.answer_word(id, word, mask),
                Input::Frame(payload) => {
                    connection.counts.received += 1;
                    connection.counts.last_at = self.now;
                    if let Some(member) = self.members.get_mut(member) {
                        member.received += 1;
                    }
                    match state {
                        State::Greeting => self.greet(id, &payload),
                        State::Open { session_id } => self.request(id, session_id, &payload),
                        State::Joining | State::Ignored | State::Closing => return,
                    }
                    self.ready.insert(id);
                    self.pump();
                }
            }
        }
    }

    /// Handles the end of a client's connection. Its session survives.
    pub fn handle_disconnected(&mut self, now: Duration, id: ConnectionId) {
        self.set_now(now);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.is_abandoned = true;
        if self.members.get(connection.member).is_none_or(|member| !member.hears_nothing()) {
            self.remove(id);
        }
    }

    /// Removes a connection that the client has closed.
    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.ready.remove(&id);
        let Some(connection) = self.connections.remove(&id) else { return };
        self.detach(id, &connection);
    }

    /// Handles the passage of time: pings between members, leaders and followers that give each other up, expired
    /// sessions, empty containers and expired TTL nodes, and connections that never sent anything.
    pub fn handle_timeout(&mut self, now: Duration) {
        let until = self.now.max(millis(now));
        // In the order of their instants, even if this call is late and several are due.
        loop {
            let due = [self.next_peer_timer(), self.next_expiry()].into_iter().flatten().min();
            let Some(due) = due.filter(|due| *due <= until) else { break };
            self.now = self.now.max(due);
            if self.next_peer_timer().is_some_and(|timer| timer <= due) {
                self.handle_peer_timers(due);
            }
            self.expire();
        }
        self.now = until;
        if self.next_vote().is_some_and(|due| due <= self.now) {
            self.needs_leader_search = true;
            self.pump();
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

    /// The next connection with pending output, or about to be closed.
    pub fn poll_ready(&mut self) -> Option<ConnectionId> {
        self.ready.pop_first()
    }

    /// Takes the pending output for a client; `None` if there is none.
    pub fn poll_transmit(&mut self, id: ConnectionId) -> Option<Bytes> {
        let connection = self.connections.get_mut(&id)?;
        let mute = self.members.get(connection.member).is_some_and(|member| member.mute);
        if connection.output.is_empty() || mute {
            return None;
        }
        let mut output = BytesMut::new();
        connection.take_output(&mut output);
        self.count_sent(id);
        self.resume(id);
        Some(output.freeze())
    }

    /// Like [`poll_transmit`](Self::poll_transmit), into the caller's buffer. Returns whether there was any output.
    pub(crate) fn poll_transmit_into(&mut self, id: ConnectionId, out: &mut BytesMut) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        if self.members.get(connection.member).is_some_and(|member| member.mute) {
            return false;
        }
        let any = !connection.output.is_empty();
        if any {
            connection.take_output(out);
            self.count_sent(id);
            self.resume(id);
        }
        any
    }

    /// Handles the delayed requests of a connection, if its client has read enough.
    pub(super) fn resume(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.is_held_back || !connection.has_room() {
            return;
        }
        self.flush(id);
        self.opened.push_back(id);
        self.pump();
    }

    fn count_sent(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let count = std::mem::take(&mut connection.unsent);
        if let Some(member) = self.members.get_mut(connection.member) {
            member.sent += count;
        }
    }

    /// Whether the connection is to be closed once its output has been sent.
    #[must_use]
    pub fn is_closed(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(|c| {
            let hears = self.members.get(c.member).is_none_or(|member| !member.mute);
            c.state == State::Closing && hears
        })
    }

    /// Whether to read more from a client. `false` while the client does not read its replies, or has very many
    /// requests that wait for a leader.
    #[must_use]
    pub fn wants_input(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(Connection::is_read)
    }

    /// The next instant at which [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let greeting = self.silent.front().map(|(until, _)| *until);
        let vote = self.next_vote().map(|due| due.max(self.now + 1));
        [Some(self.next_reaping), self.next_expiry(), self.next_peer_timer(), vote, greeting]
            .into_iter()
            .flatten()
            .min()
            .map(Duration::from_millis)
    }

    /// The role of a member.
    #[must_use]
    pub fn role(&self, member: usize) -> Role {
        self.members.get(member).map_or(Role::Down, |member| member.role)
    }

    /// The current leader; for a stand-alone server, the server itself. If there are two, because one is cut off and
    /// has not stepped down yet, the later one.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        let members = self.members.iter().enumerate().filter(|(_, m)| m.leading.is_some());
        members.max_by_key(|(_, member)| member.epoch).map(|(at, _)| at)
    }

    /// The zxid of the last change that the current leader has ordered. Without a leader, the highest zxid in the log
    /// of any member.
    #[must_use]
    pub fn last_zxid(&self) -> i64 {
        let leading = self.leader().and_then(|at| self.members.get(at)?.leading.as_ref());
        let last = || (0..self.members.len()).map(|at| self.last_accepted(at)).max();
        leading.map(|leading| leading.zxid).or_else(last).unwrap_or(0)
    }

    // Internals.

    /// Sets the time, after handling the timers between members that are due before it. Sessions expire in
    /// [`handle_timeout`](Self::handle_timeout) only.
    pub(super) fn set_now(&mut self, now: Duration) {
        let until = self.now.max(millis(now));
        while let Some(due) = self.next_peer_timer().filter(|due| *due <= until) {
            self.handle_peer_timers(due);
        }
        self.now = until;
    }

    /// `tickTime`, in milliseconds.
    pub(super) fn sessions_tick(&self) -> u64 {
        millis(self.config.tick_time).max(1)
    }

    /// The next instant at which a leader expires a session, or a member one of its local sessions.
    fn next_expiry(&self) -> Option<u64> {
        let running = self.members.iter().filter(|member| !member.paused);
        let tracked = running.flat_map(|member| {
            let leading = member.leading.as_ref().map(|leading| &leading.sessions);
            [Some(&member.local_sessions), leading].into_iter().flatten()
        });
        tracked.filter_map(Sessions::next_expiry).min()
    }

    /// Expires the sessions that are due. A leader that is cut off does so too; it takes effect only if it leads again.
    fn expire(&mut self) {
        for at in 0..self.members.len() {
            let Some(running) = self.members.get(at).filter(|member| !member.paused) else {
                continue;
            };
            let leading = running.leading.as_ref();
            let expired = leading.map(|leading| leading.sessions.expired(self.now));
            for session_id in running.local_sessions.expired(self.now) {
                self.end_local_session(at, session_id);
            }
            for session_id in expired.unwrap_or_default() {
                self.end_session(at, session_id);
            }
        }
        self.pump();
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
        if let Some(session_id) = connection.session_id().or(connection.left) {
            self.unregister(id, connection.member, session_id);
        }
    }

    /// Detaches a connection from its session and removes its watches.
    pub(super) fn unregister(&mut self, id: ConnectionId, member: usize, session_id: i64) {
        let Some(member) = self.members.get_mut(member) else { return };
        member.watches.forget(id);
        if member.attached.get(&session_id) == Some(&id) {
            member.attached.remove(&session_id);
        }
    }

    /// Ends a session, as the leader `at`. Each member closes the session's connection when it applies the change.
    pub(super) fn end_session(&mut self, at: usize, session_id: i64) {
        if let Some(leading) = self.members.get_mut(at).and_then(|m| m.leading.as_mut()) {
            leading.sessions.remove(session_id);
        }
        self.propose(at, Txn::CloseSession { session_id }, None);
    }

    /// Ends a local session of a member. Returns whether it existed.
    pub(super) fn end_local_session(&mut self, at: usize, session_id: i64) -> bool {
        let member = self.members.get_mut(at);
        let existed = member.is_some_and(|member| member.local_sessions.remove(session_id));
        if existed {
            self.cut_session(session_id);
        }
        existed
    }

    /// A new, unused session id.
    pub(crate) fn new_session_id(&mut self, member: usize) -> i64 {
        self.next_session = (self.next_session + 1) & 0x00FF_FFFF_FFFF_FFFF;
        let server = i64::try_from(member + 1).unwrap_or(1) << 56;
        server | self.next_session
    }

    pub(crate) fn passwd_of(session_id: i64) -> [u8; 16] {
        session_passwd(session_id)
    }

    /// Whether a member's role serves requests.
    pub(crate) fn serves(&self, member: usize) -> bool {
        self.role(member).serves()
    }
}
