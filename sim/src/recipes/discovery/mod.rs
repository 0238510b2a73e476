//! Service discovery: instances are registered and found.

mod check;
mod draw;
mod find;
mod run;
pub mod steps;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

pub(super) struct Discovery;

impl Recipe for Discovery {
    type Step = steps::Step;

    const WEIGHT: u32 = 3;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        match step {
            steps::Step::Serve(step) => run::serve(worker, &step).await,
            steps::Step::Find(step) => find::find(worker, &step).await,
        }
    }

    async fn finish(worker: &Worker) {
        find::judge_kept(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Services::default())
    }
}
