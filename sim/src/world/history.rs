//! The history of a run: all events in order, and the rules that were broken.

use std::{collections::BTreeSet, fmt};

use bytes::Bytes;
use docent::EventType;
use docent_testing::server::AppliedChange;

use super::time::{Nanos, Pid, SECOND};

/// A line of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// True time.
    pub at: Nanos,
    /// What happened.
    pub what: What,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A fault began or ended.
    Fault(String),
    /// A client's connection state changed.
    State(Pid, String),
    /// A step of a worker, or its result.
    Worker {
        /// The process.
        pid: Pid,
        /// The number of the worker in it.
        worker: usize,
        text: String,
    },
    /// A process ended by itself, all its workers done.
    Finished(Pid),
    /// An effect that no client can exclude, such as two holds within their naive bounds. Counted.
    Counted {
        /// Why the rule forgives it.
        excuse: &'static str,
        text: String,
    },
    /// A rule was broken.
    Violation(String),
    /// The hold of a strict mutex lasts until then, by its guard; recorded only if the run shows frames.
    HeldUntil {
        /// The process of the holder.
        pid: Pid,
        /// The path of its lock node.
        path: String,
        /// True time.
        until: Nanos,
    },
    /// The servers have applied a change; recorded only if the run shows frames.
    Applied {
        /// The path of the node.
        path: String,
        /// What has become of the node.
        event: EventType,
        /// Its data, unless it was deleted.
        data: Bytes,
        /// The session that owns it; 0: none, or it was deleted.
        owner: i64,
        /// The transaction.
        zxid: i64,
    },
    /// What a process believes of a hold; recorded only if the run shows the wire.
    Belief {
        pid: Pid,
        /// The path of its lock node.
        path: String,
        /// Until when, if nothing more arrives; `None`: it has ended.
        until: Option<Bounds>,
    },
    /// Bytes of a connection; recorded only if the run shows the wire.
    Wire(Wire),
    /// A message has arrived; recorded only if the run shows frames.
    Frame {
        /// The process of the client.
        pid: Pid,
        /// The server.
        member: usize,
        /// Whether it is a request.
        to_server: bool,
        /// Whether it is a watch event.
        is_event: bool,
        /// The message.
        text: String,
    },
}

/// The end of a hold as its holder sees it, in true time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// When its process stops believing in it.
    pub believed: Nanos,
    /// Until when no other can hold it; 0: that time has passed, or is unknown.
    pub proven: Nanos,
}

/// Bytes that were sent on a connection, or that have arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wire {
    /// The number of the connection in the run.
    pub connection: usize,
    /// The process of the client.
    pub pid: Pid,
    /// The server.
    pub member: usize,
    /// Whether they are of requests.
    pub to_server: bool,
    pub bytes: Bytes,
    /// For a [`Trap`](crate::faults::Trap): the number of the delivery among those from or to the process, beginning with 0;
    /// `None`: they were sent.
    pub delivery: Option<u32>,
}

impl What {
    pub(super) fn of(change: &AppliedChange) -> Self {
        let (path, event, zxid) = (change.path.clone(), change.event_type, change.zxid);
        let data = change.node.as_ref().map(|(data, _)| data.clone()).unwrap_or_default();
        let owner = change.node.as_ref().map_or(0, |(_, stat)| stat.ephemeral_owner);
        Self::Applied { path, event, data, owner, zxid }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(text) => write!(f, "fault: {text}"),
            Self::State(pid, state) => write!(f, "p{pid}: {state}"),
            Self::Worker { pid, worker, text } => write!(f, "p{pid}.{worker}: {text}"),
            Self::Finished(pid) => write!(f, "p{pid}: finished"),
            Self::Counted { text, excuse } => write!(f, "no client can exclude: {text} ({excuse})"),
            Self::Violation(text) => write!(f, "VIOLATION: {text}"),
            Self::HeldUntil { pid, path, until } => {
                write!(f, "p{pid}: {path} is held until {}.{:09}", until / SECOND, until % SECOND)
            }
            Self::Belief { pid, path, until: None } => {
                write!(f, "p{pid}: {path} is held no longer")
            }
            Self::Belief { pid, path, until: Some(Bounds { believed, .. }) } => {
                let (seconds, rest) = (believed / SECOND, believed % SECOND);
                write!(f, "p{pid}: {path} is believed until {seconds}.{rest:09}")
            }
            Self::Wire(Wire { pid, member, to_server, bytes, delivery, .. }) => {
                let arrow = if *to_server { "->" } else { "<-" };
                let moved = if delivery.is_some() { "arrived" } else { "sent" };
                write!(f, "p{pid} {arrow} s{member}: {} bytes {moved}", bytes.len())
            }
            Self::Applied { path, event, .. } => write!(f, "servers: {event:?} {path}"),
            Self::Frame { pid, member, to_server: true, text, .. } => {
                write!(f, "p{pid} -> s{member}: {text}")
            }
            Self::Frame { pid, member, text, .. } => write!(f, "p{pid} <- s{member}: {text}"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}.{:09} {}", self.at / SECOND, self.at % SECOND, self.what)
    }
}

/// All records of a run, oldest first.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct History {
    /// The records.
    pub records: Vec<Record>,
}

impl History {
    pub(crate) fn push(&mut self, at: Nanos, what: What) {
        self.records.push(Record { at, what });
    }

    /// The rules that were broken.
    pub fn violations(&self) -> impl Iterator<Item = &str> {
        self.records.iter().filter_map(|record| match &record.what {
            What::Violation(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The excuses that were used, each once.
    #[must_use]
    pub fn excuses(&self) -> BTreeSet<&'static str> {
        let excuse = |record: &Record| match record.what {
            What::Counted { excuse, .. } => Some(excuse),
            _ => None,
        };
        self.records.iter().filter_map(excuse).collect()
    }

    /// A hash of the text (FNV-1a): equal on every machine for equal histories.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.iter().try_for_each(|record| writeln!(f, "{record}"))
    }
}
