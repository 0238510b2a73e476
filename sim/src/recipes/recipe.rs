//! A recipe under test.

use fastrand::Rng;

use super::{step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

/// A recipe under test: its steps, how they are drawn, what they do, and what must hold.
pub(super) trait Recipe {
    /// What a worker does with it, as data.
    type Step;

    /// How often it takes part in plans, compared with the other recipes.
    const WEIGHT: u32;

    /// Adds processes to a plan.
    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting);

    /// Changes a plan in which it takes part, with all its processes and faults.
    fn adjust(_rng: &mut Rng, _plan: &mut Plan) {}

    /// Does one step. It reports by `Worker::say`, and a broken rule by `Worker::violation` or to a check.
    fn run(worker: &Worker, step: Self::Step) -> impl Future<Output = ()> + Send;

    /// Judges what a worker has kept, after its last step.
    fn finish(_worker: &Worker) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Adds what is checked during the run, and at its end.
    fn checks(checks: Checks) -> Checks {
        checks
    }
}
