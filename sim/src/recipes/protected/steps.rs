//! Steps with protected creates, as data.

use serde::{Deserialize, Serialize};

use crate::{plan::PlanStep, recipes::common::Retry};

/// A `create_protected_with` below `/protected`. The node stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The number of its parent.
    pub parent: u8,
    /// Its mode.
    pub mode: Mode,
    /// The retry policy.
    #[serde(default)]
    pub retry: Retry,
    /// After which time its future is dropped; `None`: never.
    #[serde(default)]
    pub cancel_ms: Option<u64>,
}

/// The mode of a protected node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// A persistent node.
    Persistent,
    /// A persistent sequential node.
    PersistentSequential,
    /// An ephemeral node.
    Ephemeral,
    /// An ephemeral sequential node.
    EphemeralSequential,
}

impl PlanStep for Step {}
