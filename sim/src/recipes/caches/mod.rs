//! Caches: they never show what never was, their events replay to their nodes, and in peace they have the servers' data.

mod draw;
mod run;
mod snapshots;
pub mod steps;
mod tree;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

pub(super) struct Caches;

impl Recipe for Caches {
    type Step = steps::Step;

    const WEIGHT: u32 = 4;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    fn adjust(rng: &mut Rng, plan: &mut Plan) {
        draw::adjust(rng, plan);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        match step {
            steps::Step::Cache(step) => run::run(worker, &step).await,
            steps::Step::Tree(steps) => tree::run(worker, &steps).await,
        }
    }

    async fn finish(worker: &Worker) {
        run::judge_kept(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(snapshots::Snapshots::default())
    }
}
