//! Steps with caches, and with the tree that they hold, as data.

use serde::{Deserialize, Serialize};

use crate::{plan::PlanStep, recipes::common::CloseKind};

/// A step with caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Keeps a cache of the tree.
    Cache(CacheStep),
    /// Changes of the tree, sent at once.
    Tree(Vec<TreeStep>),
}

impl PlanStep for Step {}

/// A cache of a node below `/tree`, and of `/tree` itself.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheStep {
    /// The names below `/tree` that lead to the root of the cache.
    pub root: Vec<u8>,
    /// Which nodes it holds.
    pub kind: CacheKind,
    /// Whether it keeps no data.
    pub without_data: bool,
    /// Whether it starts with the nodes that another such cache, of any process, has seen last.
    pub initial: bool,
    /// The limit of its reads in flight.
    pub max_reads: usize,
    /// The number of events that its reader may be behind.
    pub max_events: usize,
    /// The pause of its reader after each event.
    pub pause_ms: u64,
    /// For how long it is used.
    pub for_ms: u64,
    /// How it ends.
    pub end: CloseKind,
}

/// Which nodes a cache holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheKind {
    /// All descendants.
    #[default]
    Tree,
    /// The children.
    Children,
    /// The node itself.
    Single,
}

/// A change of a node of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeStep {
    /// The names below `/tree` that lead to the node.
    pub path: Vec<u8>,
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
