//! Steps of caches, atomic values and barriers, as data.

use serde::{Deserialize, Serialize};

use super::Retry;

/// A cache of a node below `/tree`, and of `/tree` itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheStep {
    /// The names below `/tree` that lead to the root of the cache.
    pub root: Vec<u8>,
    /// Which nodes it holds.
    pub kind: CacheKind,
    /// Whether it keeps no data.
    #[serde(default)]
    pub without_data: bool,
    /// Whether it starts with the nodes that another such cache, of any process, has seen last.
    #[serde(default)]
    pub initial: bool,
    /// The number of its reads in flight.
    pub max_reads: usize,
    /// The number of events that its reader may be behind.
    pub max_events: usize,
    /// The pause of its reader after each event.
    #[serde(default)]
    pub pause_ms: u64,
    /// For how long it is used.
    pub for_ms: u64,
    /// What becomes of it.
    pub end: CacheEnd,
}

/// Which nodes a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheKind {
    /// All descendants.
    Tree,
    /// The children.
    Children,
    /// The node itself.
    Single,
}

/// How a cache ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheEnd {
    /// `close().await`.
    Close,
    /// `close()` is called, and its future dropped.
    CancelledClose,
    /// It is dropped.
    Drop,
    /// It stays until the end of the run.
    Keep,
}

/// A change of a node of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeStep {
    /// The names below `/tree` that lead to the node.
    pub path: Vec<u8>,
    /// The request.
    pub op: TreeOp,
}

/// A change of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeOp {
    /// create.
    Create,
    /// create of an ephemeral node.
    CreateEphemeral,
    /// setData.
    Set,
    /// delete.
    Delete,
    /// delete, and create in the same transaction.
    Replace,
}

/// An operation on an atomic number or value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtomicStep {
    /// The number of the node. Even numbers are of `DistributedAtomicLong`, odd ones of `DistributedAtomicInteger`; those of
    /// values are other nodes.
    pub number: u8,
    /// What is done.
    pub op: AtomicOp,
    /// The number of further attempts after another writer was faster.
    pub attempts: u32,
    /// How long the lock of a promotion is waited for, in milliseconds; `None`: no promotion.
    #[serde(default)]
    pub promotion_ms: Option<u64>,
    /// The retry policy of requests.
    #[serde(default)]
    pub retry: Retry,
    /// After which time its future is dropped; `None`: never.
    #[serde(default)]
    pub cancel_ms: Option<u64>,
}

/// What is done with an atomic number or value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AtomicOp {
    /// Adds 1 to a number.
    Increment,
    /// Subtracts 1 from a number.
    Decrement,
    /// Adds a number that no other step adds.
    Add,
    /// `get` of a number.
    Get,
    /// `try_set` of a value.
    TrySet,
    /// `compare_and_set` of a value, with the one read last.
    CompareAndSet,
    /// `force_set` of a value.
    ForceSet,
    /// `initialize` of a value.
    Initialize,
}

/// An operation on a `DistributedBarrier`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BarrierStep {
    /// The number of the barrier.
    pub number: u8,
    /// What is done.
    pub op: BarrierOp,
    /// The retry policy.
    #[serde(default)]
    pub retry: Retry,
    /// After which time its future is dropped.
    pub cancel_ms: u64,
}

/// What is done with a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BarrierOp {
    /// `set_barrier`.
    Set,
    /// `remove_barrier`.
    Remove,
    /// `remove_barrier`, and `set_barrier` at once.
    Cycle,
    /// `wait_on_barrier`.
    Wait,
    /// `wait_on_barrier_timeout`, in milliseconds.
    WaitFor(u64),
}

/// Rounds of a `DistributedDoubleBarrier`: each enters, stays, and leaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DoubleStep {
    /// The number of the barrier.
    pub number: u8,
    /// The number of its members. Barriers of other numbers are other ones.
    pub members: u8,
    /// The number of rounds.
    pub rounds: u8,
    /// How long it is waited for the others, in milliseconds; `None`: until `cancel_ms`.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    /// After which time the futures of enter and leave are dropped.
    pub cancel_ms: u64,
    /// How long the member stays inside.
    pub hold_ms: u64,
    /// Whether the object is dropped inside.
    #[serde(default)]
    pub drops: bool,
}
