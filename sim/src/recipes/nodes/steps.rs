//! Steps with kept nodes and groups, as data.

use serde::{Deserialize, Serialize};

use crate::{
    plan::PlanStep,
    recipes::common::{CloseKind, Retry},
};

/// A step with kept nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Keeps a node present.
    Keep(KeepStep),
    /// Deletes a kept node, as an operator would.
    DeleteKept { node: u8 },
}

impl PlanStep for Step {
    fn is_quiet(&self) -> bool {
        matches!(self, Self::Keep(_))
    }
}

/// A node that is kept present.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeepStep {
    /// The number of the node. Nodes of equal numbers have one path, if they are neither sequential nor protected.
    pub node: u8,
    /// The recipe and the mode.
    pub mode: KeepMode,
    /// Whether its name has a GUID.
    pub protected: bool,
    /// Whether it adopts a node that is not ephemeral.
    pub adopts: bool,
    /// Whether it is below a parent that does not exist, and creates none.
    pub without_parents: bool,
    /// The retry policy.
    pub retry: Retry,
    /// For how long it is kept.
    pub for_ms: u64,
    /// How often its data are set meanwhile.
    pub sets: u8,
    /// How it is closed.
    pub end: CloseKind,
}

/// A recipe that keeps a node, and its mode.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeepMode {
    /// A `PersistentNode`: a persistent node.
    #[default]
    Persistent,
    /// A `PersistentNode`: a persistent sequential node.
    PersistentSequential,
    /// A `PersistentNode`: an ephemeral node.
    Ephemeral,
    /// A `PersistentNode`: an ephemeral sequential node.
    EphemeralSequential,
    /// A `PersistentNode`: a container.
    Container,
    /// A `PersistentNode`: a node with this time to live, in milliseconds.
    Ttl(u64),
    /// A `PersistentTtlNode` with this time to live, in milliseconds.
    Touched(u64),
    /// A `GroupMember`.
    Member,
}
