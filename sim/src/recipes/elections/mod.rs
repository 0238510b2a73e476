//! Elections: latches and selectors that take part, lead, write as leaders, and leave in every way.

mod check;
mod draw;
mod queues;
mod run;
pub mod steps;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

pub(super) struct Elections;

impl Recipe for Elections {
    type Step = steps::Step;

    const WEIGHT: u32 = 7;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        match step {
            steps::Step::Lead(step) => run::run(worker, &step).await,
            steps::Step::DeleteLeader { election } => run::delete_leader(worker, election).await,
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Leaders::default())
    }
}
