//! Steps with barriers, as data.

use serde::{Deserialize, Serialize};

use crate::{plan::PlanStep, recipes::common::Retry};

/// A step with barriers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// An operation on a `DistributedBarrier`.
    Barrier(BarrierStep),
    /// Rounds of a `DistributedDoubleBarrier`.
    Double(DoubleStep),
}

impl PlanStep for Step {
    fn lasts_ms(&self) -> u64 {
        match self {
            Self::Barrier(step) => step.cancel_ms,
            Self::Double(step) => u64::from(step.rounds) * (2 * step.cancel_ms + step.hold_ms),
        }
    }
}

/// An operation on a `DistributedBarrier`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BarrierStep {
    /// The number of the barrier.
    pub number: u8,
    pub op: BarrierOp,
    /// The retry policy.
    #[serde(default)]
    pub retry: Retry,
    /// The time after which its future is dropped.
    pub cancel_ms: u64,
}

/// An operation on a barrier.
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
    /// The number of its members. Barriers with different numbers of members are different barriers.
    pub members: u8,
    /// The number of rounds.
    pub rounds: u8,
    /// How long the member waits for the others, in milliseconds; `None`: until `cancel_ms`.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    /// The time after which the futures of enter and leave are dropped.
    pub cancel_ms: u64,
    /// How long the member stays inside.
    pub hold_ms: u64,
    /// Whether the object is dropped inside.
    #[serde(default)]
    pub drops: bool,
}
