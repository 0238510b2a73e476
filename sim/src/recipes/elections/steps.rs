//! Steps in elections, as data.

use serde::{Deserialize, Serialize};

use crate::{
    plan::PlanStep,
    recipes::common::{CloseKind, HoldWatch, Retry},
};

/// A step in elections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Takes part in an election.
    Lead(LeadStep),
    /// Deletes the first node in the queue of an election, as an operator would.
    DeleteLeader { election: u8 },
}

impl PlanStep for Step {
    fn is_quiet(&self) -> bool {
        matches!(self, Self::Lead(_))
    }

    fn renew_ms(&mut self) -> Option<&mut Option<u64>> {
        if let Self::Lead(step) = self { Some(&mut step.options.renew_ms) } else { None }
    }
}

/// A participation in an election.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeadStep {
    /// The number of the election. Latches and selectors take part in different elections.
    pub election: u8,
    /// The recipe.
    pub by: LeadBy,
    /// Its options.
    pub options: LeadSettings,
    /// For how long it takes part.
    pub for_ms: u64,
    /// How long a term of a selector lasts.
    pub term_ms: u64,
    /// How the end of a leadership is noticed. With `Nothing`, the worker follows the changes of a latch.
    pub watch: HoldWatch,
    /// The time after which a wait for the leadership of a latch is dropped and begun again; `None`: never.
    pub cancel_ms: Option<u64>,
    /// The number of guarded writes to the register of the election, in each leadership.
    pub writes: u8,
    /// How a latch is closed.
    pub end: CloseKind,
}

/// A recipe of leader election.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeadBy {
    /// A `LeaderLatch`.
    #[default]
    Latch,
    /// `LeaderSelector::run`.
    Selector,
    /// `LeaderSelector::run_requeued`, for this number of terms.
    Requeued(u8),
}

/// Options of an election.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeadSettings {
    /// The retry policy.
    pub retry: Retry,
    /// The error policy: `Session`, not `Standard`.
    pub keeps_over_cuts: bool,
    /// The close mode: `NotifyLeader`, not `Silent`.
    pub notifies: bool,
    /// Whether the election is in a namespace.
    pub namespaced: bool,
    /// How often the proven bound of a leadership is renewed; `None`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_ms: Option<u64>,
}
