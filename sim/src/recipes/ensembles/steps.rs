//! Steps with the members of the ensemble, as data.

use serde::{Deserialize, Serialize};

use crate::plan::PlanStep;

/// A step with the members of the ensemble.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Follows the members of the ensemble.
    Track {
        /// For how long.
        for_ms: u64,
        /// Whether it goes on then, until the worker has done its steps.
        stays: bool,
    },
    /// Changes the members of the ensemble, as an operator does.
    Reconfigure {
        /// Which member.
        member: u8,
        /// How it ends.
        change: MemberChange,
    },
}

impl PlanStep for Step {}

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
