//! Steps with registers, and with the client that they read and write them with, as data.

use serde::{Deserialize, Serialize};

use crate::plan::PlanStep;

/// A step with registers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// One request of a register.
    Register(RegisterStep),
    /// Several requests at once.
    Burst(Vec<RegisterStep>),
    /// A watch.
    Watch(WatchStep),
    /// Something done with the client of the process.
    Client(ClientStep),
}

impl PlanStep for Step {}

/// One request of a register: a node below `/r`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegisterStep {
    /// The number of the register.
    pub node: u8,
    /// The request.
    pub op: RegisterOp,
    /// The minimum size of a written value, in bytes.
    pub size: usize,
    /// The time after which its future is dropped; `None`: never.
    pub cancel_ms: Option<u64>,
}

/// A request of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegisterOp {
    /// getData.
    Read,
    /// sync, and getData behind it.
    SyncRead,
    /// exists.
    Exists,
    /// setData, whatever the version.
    Set,
    /// setData, with the version seen last.
    CompareAndSet,
    /// create.
    Create,
    /// delete, whatever the version.
    Delete,
    /// delete, with the version seen last.
    CompareAndDelete,
    /// A multi: a check of the version seen last, a setData of the register, and a setData of another register.
    Multi(u8),
}

/// A watch, for a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchStep {
    /// The nodes that are watched, and the kind of the watch.
    pub target: WatchTarget,
    /// For how long.
    pub for_ms: u64,
    /// How it ends.
    pub end: WatchEnd,
}

/// The nodes that a watch is about, and its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchTarget {
    /// A register, by getData.
    Data(u8),
    /// A register, by exists.
    Exists(u8),
    /// The registers that exist, by getChildren.
    Children,
    /// A register, by a persistent watch.
    Persistent(u8),
    /// All registers, by a persistent recursive watch.
    Recursive,
}

/// How a watch that has not ended by itself is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchEnd {
    /// Its watcher is dropped.
    Drop,
    /// Its watcher is forgotten.
    Forget,
    /// It is removed from the server.
    Remove,
    /// It stays until the end of the run.
    Keep,
}

/// Something done with the client of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ClientStep {
    /// `update_server_list`, with these members.
    UpdateServerList(Vec<usize>),
    /// `close`.
    Close,
    /// `detach`.
    Detach,
    /// Checks that the client is at this member.
    IsAt(usize),
}
