//! The part of a step that a plan needs.

use super::client::ClientPlan;

/// A step of a worker. The defaults are those of a step that holds nothing.
pub trait PlanStep {
    /// The longest time for which it holds something or waits, in milliseconds.
    fn lasts_ms(&self) -> u64 {
        0
    }

    /// Whether it sends no request without a cause.
    fn is_quiet(&self) -> bool {
        false
    }

    /// The duration of its hold of a lock, in milliseconds.
    fn hold_ms(&mut self) -> Option<&mut u64> {
        None
    }

    /// The interval at which it renews the proven bound of a hold or leadership, in milliseconds; `None`: never.
    fn renew_ms(&mut self) -> Option<&mut Option<u64>> {
        None
    }

    /// Makes it give up at the first failed request.
    fn never_retry(&mut self) {}

    /// The client that it starts.
    fn client(&mut self) -> Option<&mut ClientPlan> {
        None
    }
}

/// The step of a program that does not read its steps from a plan.
impl PlanStep for () {}
