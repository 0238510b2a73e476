//! Registers: nodes below `/r` that are read, written and watched, by clients that come and go.

mod check;
mod client;
mod draw;
mod run;
pub mod steps;
mod watch;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

pub(super) struct Registers;

impl Recipe for Registers {
    type Step = steps::Step;

    const WEIGHT: u32 = 6;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    fn adjust(rng: &mut Rng, plan: &mut Plan) {
        draw::adjust(rng, plan);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        match step {
            steps::Step::Register(step) => run::run(worker, &step).await,
            steps::Step::Burst(steps) => run::burst(worker, &steps).await,
            steps::Step::Watch(step) => watch::run(worker, &step).await,
            steps::Step::Client(step) => client::run(worker, &step).await,
        }
    }

    async fn finish(worker: &Worker) {
        watch::judge_kept(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Calls::default())
    }
}
