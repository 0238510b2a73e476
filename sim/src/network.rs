//! The network between clients and servers: connections whose bytes arrive later, in pieces, never, or not all.
//!
//! A connection is two pipes. What one end sends arrives at the other after a drawn delay, in order. The link between
//! a process and a member can stall packets, lose them, or be slow; a trap acts on one certain delivery of a process.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use docent::{
    ByteStream, Connecting, Host, Transport,
    protocol::dissect::{Dissector, Message},
    session::planted,
};
use docent_testing::server::ConnectionId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    history::What,
    plan::{Direction, Flow, Sides, Trap},
    process::{Pid, ProcessState, address},
    world::{Core, Event, Nanos, World},
};

/// The bytes in flight in one direction, after which the sender waits.
const WINDOW: usize = 64 * 1024;

/// The state of all connections and links.
#[derive(Default)]
pub(crate) struct Network {
    connections: Vec<Connection>,
    by_server: BTreeMap<ConnectionId, usize>,
    links: BTreeMap<(Pid, usize), Link>,
    traps: Vec<(Pid, Trap)>,
    /// The longest ordinary delay.
    pub(crate) delay: Nanos,
    /// One in this many deliveries takes up to a hundred times as long; 0: none.
    pub(crate) spikes_one_in: u32,
    /// One in this many reads and writes moves only a few bytes; 0: none.
    pub(crate) short_one_in: u32,
}

/// How the link between a process and a member is disturbed.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    to_server: Flow,
    to_client: Flow,
    slower: Nanos,
}

struct Connection {
    pid: Pid,
    member: usize,
    /// Its number at the servers, from acceptance to its end there.
    server: Option<ConnectionId>,
    state: State,
    to_server: Pipe,
    to_client: Pipe,
    /// What has arrived at the client, unread.
    inbox: VecDeque<Bytes>,
    /// What follows the inbox: the end of the stream, or an error.
    inbox_end: Option<Ending>,
    /// Whether the client has dropped its end.
    is_dropped: bool,
    /// The task that connects or reads.
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Decodes what arrives, for the history.
    dissector: Option<Dissector>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Refused,
    Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Orderly,
    Reset,
}

#[derive(Default)]
struct Pipe {
    last_at: Nanos,
    in_flight: usize,
    stalled: VecDeque<Segment>,
    /// Nothing more arrives.
    is_broken: bool,
}

#[derive(Debug)]
enum Segment {
    Connect,
    Connected(bool),
    Data(Bytes),
    End(Ending),
}

/// A segment that arrives.
pub(crate) struct Arrival {
    connection: usize,
    direction: Direction,
    segment: Segment,
}

impl Core {
    fn send(&mut self, now: Nanos, connection: usize, direction: Direction, segment: Segment) {
        let (delay, spikes) = (self.network.delay.max(2), self.network.spikes_one_in);
        let mut wait = self.rng.u64(delay / 2..=delay);
        if spikes > 0 && self.rng.u32(..spikes) == 0 {
            wait *= self.rng.u64(2..=100);
        }
        let c = &self.network.connections[connection];
        wait += self.network.link(c.pid, c.member).slower;
        let pipe = self.network.connections[connection].pipe(direction);
        let at = (now + wait).max(pipe.last_at + 1);
        pipe.last_at = at;
        self.schedule(at, Event::Arrival(Arrival { connection, direction, segment }));
    }

    /// Handles what arrives at an end of a connection.
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
            if let Some((keep, sides)) = self.network.sprung(id, direction) {
                let pid = self.network.connections[id].pid;
                self.disturb(Some(pid), nanos(now));
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

    /// Adds the frames that are complete by now to the history.
    fn show_frames(&mut self, now: Duration, id: usize, direction: Direction, data: &[u8]) {
        use docent::protocol::dissect::Direction as Side;
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

    /// Sends what the servers have for their clients.
    pub(crate) fn flush(&mut self, now: Duration) {
        let changes = self.servers.ensemble.take_changes();
        self.servers.truth.add(nanos(now), changes);
        while let Some(server) = self.servers.ensemble.poll_ready() {
            let id = self.network.by_server.get(&server).copied();
            while let Some(data) = self.servers.ensemble.poll_transmit(server) {
                let Some(id) = id else { continue };
                self.network.connections[id].to_client.in_flight += data.len();
                self.send(nanos(now), id, Direction::ToClient, Segment::Data(data));
            }
            if self.servers.ensemble.is_closed(server) {
                if let Some(id) = id {
                    self.send(nanos(now), id, Direction::ToClient, Segment::End(Ending::Orderly));
                    self.network.connections[id].server = None;
                    self.network.by_server.remove(&server);
                }
                self.servers.ensemble.handle_disconnected(now, server);
            }
        }
    }

    /// Sets how the link between a process and a member is disturbed. What was stalled arrives when it passes again; a
    /// connection that has lost bytes is reset then.
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
    fn short(&mut self, most: usize) -> usize {
        let one_in = self.network.short_one_in;
        if most > 1 && one_in > 0 && self.rng.u32(..one_in) == 0 {
            self.rng.usize(1..most.min(24))
        } else {
            most
        }
    }
}

impl Network {
    fn link(&self, pid: Pid, member: usize) -> Link {
        self.links.get(&(pid, member)).copied().unwrap_or_default()
    }

    /// Whether a process has a trap that has not sprung.
    pub(crate) fn has_trap(&self, pid: Pid) -> bool {
        self.traps.iter().any(|(of, _)| *of == pid)
    }

    /// Whether a trap springs at this delivery: the bytes that still arrive, and who notices the cut.
    fn sprung(&mut self, id: usize, direction: Direction) -> Option<(usize, Sides)> {
        let pid = self.connections[id].pid;
        let concerned = |(of, trap): &(Pid, Trap)| *of == pid && trap.direction == direction;
        let at = self.traps.iter().position(concerned)?;
        let trap = &mut self.traps[at].1;
        if trap.after > 0 {
            trap.after -= 1;
            return None;
        }
        let (_, trap) = self.traps.remove(at);
        Some((trap.keep_bytes, trap.sides))
    }
}

impl Connection {
    const fn pipe(&mut self, direction: Direction) -> &mut Pipe {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    /// Wakes both tasks of the client: an end concerns both.
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

fn nanos(now: Duration) -> Nanos {
    Nanos::try_from(now.as_nanos()).unwrap_or(Nanos::MAX)
}

/// The transport of the clients of a process. A server's name is `s` and its number.
#[derive(Debug, Clone)]
pub(crate) struct SimTransport {
    pub(crate) world: World,
    pub(crate) pid: Pid,
}

impl Transport for SimTransport {
    fn connect<'a>(&'a self, host: &'a Host, _within: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let member = host.name.strip_prefix('s').and_then(|number| number.parse().ok());
            let unknown = || io::Error::new(io::ErrorKind::NotFound, "an unknown host");
            let member: usize = member.ok_or_else(unknown)?;
            let mut stream = self.open(member)?;
            std::future::poll_fn(|cx| stream.poll_connected(cx)).await?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }
}

impl SimTransport {
    fn open(&self, member: usize) -> io::Result<SimStream> {
        let (world, pid) = (&self.world, self.pid);
        let mut core = world.core();
        if member >= core.servers.count {
            return Err(io::Error::new(io::ErrorKind::NotFound, "an unknown host"));
        }
        let id = core.network.connections.len();
        // A load balancer gives each connection to the next server.
        let is_balanced = planted::is("servers-behind-one-address");
        let member = if is_balanced { (member + id) % core.servers.count } else { member };
        let dissector = core.shows_frames.then(Dissector::new);
        core.network.connections.push(Connection {
            pid,
            member,
            server: None,
            state: State::Connecting,
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            inbox: VecDeque::new(),
            inbox_end: None,
            is_dropped: false,
            reader: None,
            writer: None,
            dissector,
        });
        core.send(world.now(), id, Direction::ToServer, Segment::Connect);
        drop(core);
        Ok(SimStream { world: world.clone(), id, is_shut: false })
    }
}

/// The client's end of a connection.
struct SimStream {
    world: World,
    id: usize,
    is_shut: bool,
}

impl SimStream {
    fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut core = self.world.core();
        let c = &mut core.network.connections[self.id];
        match c.state {
            State::Open => Poll::Ready(Ok(())),
            State::Refused => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            State::Connecting => {
                c.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.is_shut, true) {
            let now = self.world.now();
            let mut core = self.world.core();
            let pid = core.network.connections[self.id].pid;
            if !core.process(pid).is_powered_off {
                core.send(now, self.id, Direction::ToServer, Segment::End(Ending::Orderly));
            }
        }
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.end();
        let mut core = self.world.core();
        let c = &mut core.network.connections[self.id];
        c.is_dropped = true;
        c.inbox.clear();
        let wakers = (c.reader.take(), c.writer.take());
        drop(core);
        drop(wakers);
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut core = self.world.core();
        let most = core.short(buf.remaining());
        let c = &mut core.network.connections[self.id];
        let Some(first) = c.inbox.front_mut() else {
            return match c.inbox_end {
                Some(Ending::Orderly) => Poll::Ready(Ok(())),
                Some(Ending::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => {
                    c.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        };
        let count = most.min(first.len());
        buf.put_slice(&first.split_to(count));
        if !first.has_remaining() {
            c.inbox.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let now = self.world.now();
        let mut core = self.world.core();
        let most = core.short(buf.len());
        let c = &mut core.network.connections[self.id];
        if c.inbox_end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = most.min(WINDOW.saturating_sub(c.to_server.in_flight));
        if count == 0 && !buf.is_empty() {
            c.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let pid = c.pid;
        if core.process(pid).state == ProcessState::Dead {
            // A killed process writes nothing, whatever its destructors try.
            return Poll::Ready(Ok(count));
        }
        core.network.connections[self.id].to_server.in_flight += count;
        let data = Bytes::copy_from_slice(&buf[..count]);
        core.send(now, self.id, Direction::ToServer, Segment::Data(data));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}
