//! The network between clients and servers: connections whose bytes arrive later, in pieces, never, or not all.
//!
//! A connection is two pipes. Bytes of one end arrive at the other after a drawn delay, in order. The link between
//! a process and a member can stall packets, lose them, or be slow; a trap acts on one certain delivery of a process.

use std::time::Duration;

use docent_protocol::{
    Decode as _, connect::ConnectResponse, dissect::Message, frame::LENGTH_SIZE, jute::Reader,
};
use docent_testing::server::{AppliedChange, Ensemble};

use super::{
    connections::{Arrival, Connection, Direction, Ending, Flow, Segment, Sides, State, Trap},
    core::{Core, Event, LONGEST_PUT_OFF},
    disturbances::Away,
    history::{What, Wire},
    process::address,
    time::{Nanos, Pid, nanos},
};

/// By how much a delivery may take longer than usual.
const LONGEST_SPIKE: u64 = 100;

impl Core {
    pub(super) fn send(
        &mut self,
        now: Nanos,
        connection: usize,
        direction: Direction,
        segment: Segment,
    ) {
        self.show_wire(now, connection, direction, &segment, None);
        if let Some(director) = &mut self.director {
            return director.send(connection, direction, segment);
        }
        let (delay, spikes) = (self.network.delay.max(2), self.network.spikes_one_in);
        let mut wait = self.rng.u64(delay / 2..=delay);
        if spikes > 0 && self.rng.u32(..spikes) == 0 {
            wait *= self.rng.u64(2..=LONGEST_SPIKE);
        }
        let c = &self.network.connections[connection];
        wait += self.network.link(c.pid, c.member).slower;
        let pipe = self.network.connections[connection].pipe(direction);
        let at = (now + wait).max(pipe.last_at + 1);
        pipe.last_at = at;
        self.schedule(at, Event::Arrival(Arrival { connection, direction, segment }));
    }

    /// The longest time that a request and its reply take without a fault.
    pub(crate) fn longest_round_trip(&self) -> Nanos {
        let spike = if self.network.spikes_one_in > 0 { LONGEST_SPIKE } else { 1 };
        2 * (self.network.delay * spike + LONGEST_PUT_OFF)
    }

    /// Handles an arrival at an end of a connection.
    pub(crate) fn arrive(&mut self, now: Duration, arrival: Arrival) {
        let Arrival { connection: id, direction, segment } = arrival;
        let c = &mut self.network.connections[id];
        let flow = self.network.links.get(&(c.pid, c.member)).copied().unwrap_or_default();
        let flow = if direction == Direction::ToServer { flow.to_server } else { flow.to_client };
        let pipe = c.pipe(direction);
        if pipe.is_broken {
            return;
        }
        match flow {
            Flow::Pass if pipe.stalled.is_empty() => self.deliver(now, id, direction, segment),
            Flow::Pass | Flow::Stall => pipe.stalled.push_back(segment),
            // The sender's TCP goes on repeating it; the connection does not survive the gap.
            Flow::Lose => pipe.is_broken = true,
        }
    }

    fn deliver(&mut self, now: Duration, id: usize, direction: Direction, mut segment: Segment) {
        if let Segment::Data(data) = &mut segment {
            let length = data.len();
            self.network.connections[id].delivery = self.network.count_delivery(id, direction);
            if let Some((keep, sides)) = self.network.sprung(id, direction) {
                let rest = data.split_to(keep.min(length));
                if !rest.is_empty() {
                    self.hand_over(now, id, direction, Segment::Data(rest));
                }
                return self.cut(now, id, sides);
            }
            self.network.connections[id].pipe(direction).in_flight -= length;
        }
        self.hand_over(now, id, direction, segment);
    }

    /// Adds bytes to the history that were sent, or that have arrived with a delivery.
    fn show_wire(
        &mut self,
        now: Nanos,
        connection: usize,
        direction: Direction,
        segment: &Segment,
        delivery: Option<u32>,
    ) {
        let Segment::Data(bytes) = segment else { return };
        if !self.shows_wire {
            return;
        }
        let (c, bytes) = (&self.network.connections[connection], bytes.clone());
        let (pid, member, to_server) = (c.pid, c.member, direction == Direction::ToServer);
        let wire = Wire { connection, pid, member, to_server, bytes, delivery };
        self.history.push(now, What::Wire(wire));
    }

    /// Adds the frames that are complete by now to the history.
    fn show_frames(&mut self, now: Duration, id: usize, direction: Direction, data: &[u8]) {
        use docent_protocol::dissect::Direction as Side;
        let c = &mut self.network.connections[id];
        let Some(dissector) = &mut c.dissector else { return };
        let to_server = direction == Direction::ToServer;
        let (side, mut data) = (if to_server { Side::ToServer } else { Side::ToClient }, data);
        while let Some(frame) = dissector.feed(side, &mut data) {
            let what = What::Frame {
                pid: c.pid,
                member: c.member,
                to_server,
                is_event: matches!(frame.message, Message::Event { .. }),
                text: frame.message.to_string(),
            };
            self.history.push(nanos(now), what);
        }
    }

    fn hand_over(&mut self, now: Duration, id: usize, direction: Direction, segment: Segment) {
        if let Segment::Data(data) = &segment {
            self.show_frames(now, id, direction, data);
            let delivery = self.network.connections[id].delivery;
            self.show_wire(nanos(now), id, direction, &segment, Some(delivery));
        }
        if let (Direction::ToClient, Some(director)) = (direction, &mut self.director) {
            let (pid, number) = self.network.number_of(id);
            director.note_input(pid, (nanos(now), number, format!("{segment:?}")));
        }
        let c = &mut self.network.connections[id];
        match (direction, segment) {
            (Direction::ToServer, Segment::Connect) => {
                let (member, peer) = (c.member, address(c.pid));
                let server = self.servers.ensemble.handle_connect(now, member, peer);
                let c = &mut self.network.connections[id];
                c.server = server;
                if let Some(server) = server {
                    self.network.by_server.insert(server, id);
                }
                let reply = Segment::Connected(server.is_some());
                self.send(nanos(now), id, Direction::ToClient, reply);
            }
            (Direction::ToServer, Segment::Data(data)) => {
                if let Some(waker) = c.writer.take() {
                    waker.wake();
                }
                if let Some(server) = c.server {
                    self.with_servers(now, |servers, now| servers.handle_input(now, server, &data));
                }
            }
            (Direction::ToServer, Segment::End(_)) => self.server_forgets(now, id),
            (Direction::ToClient, Segment::Connected(accepted)) => {
                c.state = if accepted { State::Open } else { State::Refused };
                c.wake();
            }
            (Direction::ToClient, Segment::Data(data)) => {
                if c.is_dropped {
                    // A closed socket answers data with a reset.
                    self.send(nanos(now), id, Direction::ToServer, Segment::End(Ending::Reset));
                } else {
                    self.network.attempts.insert(c.pid, (0, nanos(now)));
                    self.network.answers.insert((c.pid, c.member), nanos(now));
                    c.inbox.push_back(data);
                    c.wake();
                }
            }
            (Direction::ToClient, Segment::End(ending)) => {
                c.inbox_end.get_or_insert(ending);
                c.wake();
            }
            (Direction::ToClient, Segment::Connect)
            | (Direction::ToServer, Segment::Connected(_)) => {}
        }
    }

    fn server_forgets(&mut self, now: Duration, id: usize) {
        if let Some(server) = self.network.connections[id].server.take() {
            self.network.by_server.remove(&server);
            self.with_servers(now, |servers, now| servers.handle_disconnected(now, server));
        }
    }

    /// Cuts a connection. An end that does not notice goes on as if nothing had happened.
    fn cut(&mut self, now: Duration, id: usize, sides: Sides) {
        let (pid, member) = (self.network.connections[id].pid, self.network.connections[id].member);
        self.disturb(Some(pid), Away::Member(member), nanos(now));
        let c = &mut self.network.connections[id];
        // A stream has no gaps: behind a segment that is lost, the stalled ones do not arrive either.
        for pipe in [&mut c.to_server, &mut c.to_client] {
            pipe.is_broken = true;
            pipe.stalled.clear();
        }
        if sides != Sides::Server {
            if c.state == State::Connecting {
                c.state = State::Refused;
            }
            c.inbox_end.get_or_insert(Ending::Reset);
            c.wake();
        }
        if sides != Sides::Client {
            self.server_forgets(now, id);
        }
    }

    /// Cuts all connections of a process.
    pub(crate) fn cut_process(&mut self, now: Duration, pid: Pid, sides: Sides) {
        let of_process = |c: &Connection| c.pid == pid && !c.is_dropped;
        let connections = self.network.connections.iter().enumerate();
        let ids: Vec<_> = connections.filter(|(_, c)| of_process(c)).map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.cut(now, id, sides));
    }

    /// Sends the output of the servers to their clients.
    pub(crate) fn flush(&mut self, now: Duration) {
        let changes = self.servers.ensemble.take_changes();
        let granted = self.severed_by(&changes);
        if let Some(director) = &mut self.director {
            director.note_changes(nanos(now), &changes);
        }
        if self.shows_frames || self.shows_wire {
            changes.iter().for_each(|change| self.history.push(nanos(now), What::of(change)));
        }
        self.servers.truth.add(nanos(now), changes);
        while let Some(server) = self.servers.ensemble.poll_ready() {
            let id = self.network.by_server.get(&server).copied();
            while let Some(data) = self.servers.ensemble.poll_transmit(server) {
                let Some(id) = id else { continue };
                self.note_granted(nanos(now), id, &data);
                self.network.connections[id].to_client.in_flight += data.len();
                self.send(nanos(now), id, Direction::ToClient, Segment::Data(data));
            }
            if self.servers.ensemble.is_closed(server) {
                if let Some(id) = id {
                    if !self.network.connections[id].is_severed {
                        let end = Segment::End(Ending::Orderly);
                        self.send(nanos(now), id, Direction::ToClient, end);
                    }
                    self.network.connections[id].server = None;
                    self.network.by_server.remove(&server);
                }
                self.servers.ensemble.handle_disconnected(now, server);
            }
        }
        let moved = self.servers.ensemble.take_moved().into_iter();
        self.disturbances.moved_at.extend(moved.map(|session| (session, nanos(now))));
        if let Some(pid) = granted {
            self.sever(now, pid);
        }
    }

    /// Notes the session that the first output of the servers to a connection grants.
    fn note_granted(&mut self, now: Nanos, connection: usize, data: &[u8]) {
        let c = &mut self.network.connections[connection];
        if std::mem::replace(&mut c.is_answered, true) {
            return;
        }
        if let Some(payload) = data.get(LENGTH_SIZE..)
            && let Ok(granted) = ConnectResponse::decode(&mut Reader::new(payload))
        {
            let timeout = u64::try_from(granted.time_out).unwrap_or_default();
            let before = self.disturbances.granted_timeout(granted.session_id);
            // A client that does not hear of a shorter timeout keeps its session too long.
            if before.is_some_and(|before| before > Duration::from_millis(timeout)) {
                let pid = self.network.connections[connection].pid;
                self.disturb(Some(pid), Away::All, now);
            }
            self.disturbances.note_granted(granted.session_id, now, timeout);
        }
    }

    /// The process that one of these changes grants a strict mutex, if that is to be its last message.
    fn severed_by(&self, changes: &[AppliedChange]) -> Option<Pid> {
        let grants = changes.iter().filter(|of| of.path.starts_with("/strict-"));
        let records: Vec<_> = grants
            .filter_map(|of| Some(String::from_utf8_lossy(&of.node.as_ref()?.0)))
            .filter(|record| record.contains(" held "))
            .collect();
        let is_of = |session: i64| {
            let session = format!(" session={session:#x} ");
            records.iter().any(|record| record.contains(&session))
        };
        let mut pids = self.severed_at_grant.keys().filter(|_| !records.is_empty());
        pids.find(|pid| self.process(**pid).session.is_some_and(is_of)).copied()
    }

    /// Ends the session of a process at the servers. The process receives only the messages in flight, and its own
    /// messages are lost.
    fn sever(&mut self, now: Duration, pid: Pid) {
        let Some(lasts) = self.severed_at_grant.remove(&pid) else { return };
        let Some(session) = self.process(pid).session else { return };
        self.disturb(Some(pid), Away::All, nanos(now) + lasts);
        self.disturbances.expired.insert(session, nanos(now));
        for c in self.network.connections.iter_mut().filter(|c| c.pid == pid && !c.is_dropped) {
            c.is_severed = true;
            c.to_server.is_broken = true;
        }
        for member in 0..self.servers.count {
            self.network.links.entry((pid, member)).or_default().to_server = Flow::Lose;
        }
        self.with_servers(now, |servers, _| servers.expire_session(session));
    }

    /// Whether all that a process sends is lost.
    pub(crate) fn is_severed(&self, pid: Pid) -> bool {
        let link = |member| self.network.links.get(&(pid, member));
        (0..self.servers.count)
            .all(|member| link(member).is_some_and(|of| of.to_server == Flow::Lose))
    }

    /// Sets how the link between a process and a member is disturbed. Stalled bytes arrive when the link passes again;
    /// a connection that has lost bytes is reset then.
    pub(crate) fn set_link(
        &mut self,
        now: Duration,
        (pid, member): (Pid, usize),
        direction: Direction,
        flow: Flow,
    ) {
        let link = self.network.links.entry((pid, member)).or_default();
        match direction {
            Direction::ToServer => link.to_server = flow,
            Direction::ToClient => link.to_client = flow,
        }
        if flow != Flow::Pass {
            return;
        }
        for id in 0..self.network.connections.len() {
            let c = &mut self.network.connections[id];
            if (c.pid, c.member) != (pid, member) {
                continue;
            }
            if c.pipe(direction).is_broken && !c.is_dropped && c.inbox_end.is_none() {
                self.cut(now, id, Sides::Both);
                continue;
            }
            while let Some(segment) =
                self.network.connections[id].pipe(direction).stalled.pop_front()
            {
                self.deliver(now, id, direction, segment);
            }
        }
    }

    /// Makes a link slower by this much.
    pub(crate) fn slow_link(&mut self, (pid, member): (Pid, usize), slower: Nanos) {
        self.network.links.entry((pid, member)).or_default().slower = slower;
    }

    /// Sets a trap for a process.
    pub(crate) fn set_trap(&mut self, pid: Pid, trap: Trap) {
        self.network.traps.push((pid, trap));
    }

    /// Takes all traps away, and heals all links.
    pub(crate) fn heal_links(&mut self, now: Duration) {
        self.network.traps.clear();
        let links: Vec<_> = self.network.links.keys().copied().collect();
        for link in links {
            self.slow_link(link, 0);
            self.set_link(now, link, Direction::ToServer, Flow::Pass);
            self.set_link(now, link, Direction::ToClient, Flow::Pass);
        }
    }

    /// Draws how many bytes a read or write moves, of at most `most`.
    pub(super) fn short(&mut self, most: usize) -> usize {
        let one_in = self.network.short_one_in;
        if most > 1 && one_in > 0 && self.rng.u32(..one_in) == 0 {
            self.rng.usize(1..most.min(24))
        } else {
            most
        }
    }

    /// Calls the servers, and sends their output.
    pub(crate) fn with_servers<R>(
        &mut self,
        now: Duration,
        call: impl FnOnce(&mut Ensemble, Duration) -> R,
    ) -> R {
        let result = call(&mut self.servers.ensemble, now);
        self.servers.note_members(now);
        self.flush(now);
        result
    }
}
