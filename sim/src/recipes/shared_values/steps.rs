//! Steps with `SharedValue`s, as data.

use serde::{Deserialize, Serialize};

use crate::plan::PlanStep;

/// A use of a `SharedValue` below `/shared`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The number of the value.
    pub number: u8,
    /// The operation.
    pub op: Op,
    /// After which time its future is dropped; `None`: never.
    pub cancel_ms: Option<u64>,
}

/// An operation on a `SharedValue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// `set_value`.
    Set,
    /// `try_set_value`, with the value seen last.
    TrySet,
    /// Waits for a change for this time.
    Wait(u64),
}

impl PlanStep for Step {}
