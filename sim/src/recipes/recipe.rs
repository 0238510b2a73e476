//! A recipe under test.

use fastrand::Rng;

use super::{step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

/// Draws the processes of a recipe.
pub(super) type Draw = fn(&mut Rng, &mut Plan, &Setting);

/// Changes a plan.
pub(super) type Adjust = fn(&mut Rng, &mut Plan);

/// A recipe under test: its steps, how they are drawn, what they do, and what must hold.
pub(super) trait Recipe {
    /// A step of a worker, as data.
    type Step;

    /// How often it takes part in plans, compared with the other recipes.
    const WEIGHT: u32;

    /// Adds processes to a plan.
    const DRAW: Draw;

    /// Changes a plan in which it takes part, with all its processes and faults.
    const ADJUST: Adjust = |_, _| {};

    /// Does one step. It reports by `Worker::say`, and a broken rule by `Worker::violation` or to a check.
    fn run(worker: &Worker, step: Self::Step) -> impl Future<Output = ()> + Send;

    /// Judges the objects that a worker has kept, after its last step.
    fn finish(_worker: &Worker) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Adds its checks.
    fn checks(checks: Checks) -> Checks {
        checks
    }
}
