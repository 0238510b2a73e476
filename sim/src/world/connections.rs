//! The connections between clients and servers, as data: bytes in flight, and disturbances of the links.

use std::{
    collections::{BTreeMap, VecDeque},
    task::Waker,
};

use bytes::Bytes;
use docent_protocol::dissect::Dissector;
use docent_testing::server::ConnectionId;
use serde::{Deserialize, Serialize};

use super::time::{Nanos, Pid};

/// A direction on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies and events.
    ToClient,
}

/// How a link treats bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flow {
    /// They arrive.
    #[default]
    Pass,
    /// They arrive when the disturbance ends.
    Stall,
    /// They never arrive, and the connection is reset when the disturbance ends.
    Lose,
}

/// Which ends of a connection notice a cut at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sides {
    /// Both ends.
    Both,
    /// Only the client.
    Client,
    /// Only the server.
    Server,
}

/// Ends a connection at a certain delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trap {
    /// The direction of the delivery.
    pub direction: Direction,
    /// The number of deliveries that still pass.
    pub after: u32,
    /// How many bytes of that delivery still arrive: usually 0, or a part of a frame.
    pub keep_bytes: usize,
    /// Which ends notice.
    pub sides: Sides,
}

/// The number of bytes in flight in one direction at which the sender waits.
pub(super) const WINDOW: usize = 64 * 1024;

/// The state of all connections and links.
#[derive(Default)]
pub(crate) struct Network {
    pub(super) connections: Vec<Connection>,
    pub(super) by_server: BTreeMap<ConnectionId, usize>,
    pub(super) links: BTreeMap<(Pid, usize), Link>,
    pub(super) traps: Vec<(Pid, Trap)>,
    /// The number of deliveries from and to each process so far.
    deliveries: BTreeMap<(Pid, Direction), u32>,
    /// The attempts to connect of each process since the last answer of a server, and the time of that answer.
    pub(crate) attempts: BTreeMap<Pid, (u64, Nanos)>,
    /// The members to which the names of other servers lead; `None`: the name is unknown.
    pub(crate) names: BTreeMap<usize, Option<usize>>,
    /// When bytes of each member last arrived at each process.
    pub(super) answers: BTreeMap<(Pid, usize), Nanos>,
    /// The longest ordinary delay.
    pub(crate) delay: Nanos,
    /// One in this many deliveries takes up to a hundred times as long; 0: none.
    pub(crate) spikes_one_in: u32,
    /// One in this many reads and writes moves only a few bytes; 0: none.
    pub(crate) short_one_in: u32,
}

/// How the link between a process and a member is disturbed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Link {
    pub(super) to_server: Flow,
    pub(super) to_client: Flow,
    pub(super) slower: Nanos,
}

#[derive(Default)]
pub(super) struct Connection {
    pub(super) pid: Pid,
    pub(super) member: usize,
    /// Its number at the servers, from acceptance to its end there.
    pub(super) server: Option<ConnectionId>,
    pub(super) state: State,
    /// Whether the servers have sent something to it.
    pub(super) is_answered: bool,
    pub(super) to_server: Pipe,
    pub(super) to_client: Pipe,
    /// Bytes that have arrived at the client, unread.
    pub(super) inbox: VecDeque<Bytes>,
    /// The end of the stream or the error that follows the inbox.
    pub(super) inbox_end: Option<Ending>,
    /// Whether the client has dropped its end.
    pub(super) is_dropped: bool,
    /// The task that connects or reads.
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// Whether its end at the servers is hidden from the client.
    pub(super) is_severed: bool,
    /// The number of the last delivery.
    pub(super) delivery: u32,
    /// Decodes the arriving bytes for the history.
    pub(super) dissector: Option<Dissector>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Connecting,
    Refused,
    Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Orderly,
    Reset,
}

#[derive(Default)]
pub(super) struct Pipe {
    pub(super) last_at: Nanos,
    pub(super) in_flight: usize,
    pub(super) stalled: VecDeque<Segment>,
    /// Nothing more arrives.
    pub(super) is_broken: bool,
}

#[derive(Debug)]
pub(super) enum Segment {
    Connect,
    Connected(bool),
    Data(Bytes),
    End(Ending),
}

/// A segment that arrives.
pub(crate) struct Arrival {
    pub(super) connection: usize,
    pub(super) direction: Direction,
    pub(super) segment: Segment,
}

impl Network {
    pub(super) fn link(&self, pid: Pid, member: usize) -> Link {
        self.links.get(&(pid, member)).copied().unwrap_or_default()
    }

    /// The process of a connection, and the number of its connections before that one.
    pub(super) fn number_of(&self, id: usize) -> (Pid, usize) {
        let pid = self.connections[id].pid;
        (pid, self.connections[..id].iter().filter(|c| c.pid == pid).count())
    }

    /// Whether a process has a connection, as far as it knows.
    pub(crate) fn is_connected(&self, pid: Pid) -> bool {
        self.connections.iter().any(|c| c.pid == pid && !c.is_dropped && c.inbox_end.is_none())
    }

    /// Whether a process has a trap that has not sprung.
    pub(crate) fn has_trap(&self, pid: Pid) -> bool {
        self.traps.iter().any(|(of, _)| *of == pid)
    }

    /// Counts a delivery. Returns its number among those of its process and direction.
    pub(super) fn count_delivery(&mut self, id: usize, direction: Direction) -> u32 {
        let count = self.deliveries.entry((self.connections[id].pid, direction)).or_default();
        *count += 1;
        *count - 1
    }

    /// Springs the trap that is due at this delivery. Returns the number of bytes that still arrive, and the ends that
    /// notice the cut.
    pub(super) fn sprung(&mut self, id: usize, direction: Direction) -> Option<(usize, Sides)> {
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
    pub(super) const fn pipe(&mut self, direction: Direction) -> &mut Pipe {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    /// Wakes both tasks of the client: an end concerns both.
    pub(super) fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}
