//! A recipe under test.

use std::ops::RangeInclusive;

use fastrand::Rng;

use super::{
    step::{Plan, Step},
    worker::Worker,
};
use crate::{
    plan::{
        ClientPlan,
        draw::{Setting, workers},
    },
    world::check::Checks,
};

/// A recipe under test: its steps, how they are drawn, what they do, and what must hold.
///
/// A value is the mix of steps of one plan. Each plan has only some kinds of steps, so that rare ones meet.
pub(super) trait Recipe: Sized {
    /// A step of a worker, as data.
    type Step;

    /// How often it takes part in plans, compared with the other recipes.
    const WEIGHT: u32;

    /// The number of steps of a worker.
    const STEPS: RangeInclusive<usize>;

    /// The longest pause between two steps, in milliseconds.
    const PAUSE_MS: u64 = 2_000;

    /// Draws the mix of a plan.
    fn draw(rng: &mut Rng) -> Self;

    /// Draws a step; `None`: a pause.
    fn step(&self, rng: &mut Rng, setting: &Setting) -> Option<Step>;

    /// Draws the settings of a client.
    fn client(&self, rng: &mut Rng, setting: &Setting) -> ClientPlan {
        setting.queueing_client(rng)
    }

    /// Draws the workers of a process.
    fn workers(&self, rng: &mut Rng, setting: &Setting) -> Vec<Vec<Step>> {
        workers(rng, Self::STEPS, |rng| self.step_or_pause(rng, setting))
    }

    /// Draws a step or a pause.
    fn step_or_pause(&self, rng: &mut Rng, setting: &Setting) -> Step {
        let step = self.step(rng, setting);
        step.unwrap_or_else(|| Step::Sleep { ms: rng.u64(..Self::PAUSE_MS) })
    }

    /// Adds its processes to a plan.
    fn add(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        let mix = Self::draw(rng);
        for _ in 0..setting.processes(rng) {
            let workers = mix.workers(rng, setting);
            let client = mix.client(rng, setting);
            plan.processes.push(setting.process(rng, client, workers));
        }
    }

    /// Changes a plan in which it takes part, with all its processes and faults.
    fn adjust(_rng: &mut Rng, _plan: &mut Plan) {}

    /// Does one step. It reports what it does with `Worker::say`, and a broken rule with `Worker::violation` or to a
    /// check.
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
