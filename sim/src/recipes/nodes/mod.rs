//! Kept nodes and groups.

mod check;
mod draw;
mod run;
pub mod steps;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

pub(super) struct Nodes;

impl Recipe for Nodes {
    type Step = steps::Step;

    const WEIGHT: u32 = 4;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        match step {
            steps::Step::Keep(step) => run::run(worker, &step).await,
            steps::Step::DeleteKept { node } => run::delete(worker, node).await,
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Kept::default())
    }
}
