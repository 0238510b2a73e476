//! Steps of protected creates and of ensembles whose members change, as data.

use serde::{Deserialize, Serialize};

use super::Retry;

/// A `create_protected_with` below `/protected`. The node stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtectedStep {
    /// The number of its parent.
    pub parent: u8,
    /// Its mode.
    pub mode: ProtectedMode,
    /// The retry policy.
    #[serde(default)]
    pub retry: Retry,
    /// After which time its future is dropped; `None`: never.
    #[serde(default)]
    pub cancel_ms: Option<u64>,
}

/// The mode of a protected node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtectedMode {
    /// A persistent node.
    Persistent,
    /// A persistent sequential node.
    PersistentSequential,
    /// An ephemeral node.
    Ephemeral,
    /// An ephemeral sequential node.
    EphemeralSequential,
}

/// A change of the members of an ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// It leaves.
    Leave,
    /// It joins, and votes.
    Join,
    /// It joins as an observer.
    Observe,
}
