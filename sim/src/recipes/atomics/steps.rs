//! Steps with atomic numbers and values, as data.

use serde::{Deserialize, Serialize};

use crate::{plan::PlanStep, recipes::common::Retry};

/// An operation on an atomic number or value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The number of the node. Even numbers are of `DistributedAtomicLong`, odd ones of `DistributedAtomicInteger`; those of
    /// values are other nodes.
    pub number: u8,
    /// The operation.
    pub op: Op,
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

/// An operation on an atomic number or value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
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

impl PlanStep for Step {}
