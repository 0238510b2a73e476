//! The timeline of a run or of traffic: everything that the page shows. Times are in microseconds.

use serde::Serialize;
use serde_json::Value;

use crate::frames::Frame;

/// Everything that a run shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timeline {
    pub end: u64,
    pub clients: Vec<String>,
    pub members: usize,
    /// Whether the run was too long, and its end is left out.
    pub is_cut_off: bool,
    /// Whether it is traffic that goes on. Beliefs of traffic are those that its frames give reason for.
    pub is_live: bool,
    /// Whether the script may have further faults.
    pub takes_faults: bool,
    pub frames: Vec<Frame>,
    /// The nodes of recipes, after each change.
    pub queues: Vec<Queues>,
    pub watches: Vec<Watch>,
    pub beliefs: Vec<Belief>,
    /// What the servers say: which client holds.
    pub truths: Vec<Interval>,
    /// Two clients that believe in holds that exclude each other.
    pub overlaps: Vec<Overlap>,
    pub notes: Vec<Note>,
    pub writes: Vec<Write>,
    pub faults: Vec<Span>,
    pub sessions: Vec<Session>,
    /// Rules of the simulator that were broken, and panics.
    pub violations: Vec<String>,
    /// The steps of the recipes, with their documentation.
    pub steps: Vec<Value>,
}

/// The nodes of recipes at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Queues {
    pub at: u64,
    /// In the order of their paths; those of a queue in its order.
    pub nodes: Vec<Node>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    pub path: String,
    /// The client whose session owns it.
    pub client: Option<usize>,
    /// The transaction that created it: the fencing token of a lock node.
    pub zxid: i64,
    pub data: String,
}

/// A watch at the servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Watch {
    pub client: usize,
    pub path: String,
    /// Whether it is one of the children.
    pub of_children: bool,
    pub from: u64,
    pub to: u64,
    /// Whether it ended with its event.
    pub fired: bool,
}

/// A time in which a client believes that it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Belief {
    pub client: usize,
    pub path: String,
    pub from: u64,
    pub to: u64,
    /// How the bounds moved: when, the end of the belief (`None`: none), and that of the proof.
    pub bounds: Vec<(u64, Option<u64>, u64)>,
}

/// A time in which a client holds by its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interval {
    pub client: usize,
    pub path: String,
    pub from: u64,
    pub to: u64,
}

/// A time in which clients believe in holds that exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overlap {
    pub clients: Vec<usize>,
    pub from: u64,
    pub to: u64,
}

/// What a client does, or what has become of its connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    pub at: u64,
    pub client: usize,
    /// Whether it is a state of the connection.
    pub is_state: bool,
    pub text: String,
}

/// A write to the storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Write {
    pub at: u64,
    pub client: usize,
    pub token: i64,
    pub accepted: bool,
    /// Whether a greater token was seen before.
    pub is_late: bool,
}

/// A fault, and how long it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span {
    pub from: u64,
    pub to: u64,
    pub client: Option<usize>,
    pub member: Option<usize>,
    /// `stop` for a process that is stopped, or else the word of the script.
    pub kind: String,
    pub text: String,
}

/// A session at the servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Session {
    pub client: usize,
    pub id: String,
    pub from: u64,
}

impl Timeline {
    /// The number of a client.
    pub(crate) fn client(&self, name: &str) -> Option<usize> {
        self.clients.iter().position(|known| known == name)
    }
}
