//! Caches: they never show what never was, their events replay to their nodes, and in peace they have the servers' data.

mod draw;
mod run;
mod snapshots;
pub mod steps;
mod tree;

use self::steps::Step;
use super::{
    recipe::{Adjust, Draw, Recipe},
    worker::Worker,
};
use crate::world::check::Checks;

pub(super) struct Caches;

impl Recipe for Caches {
    type Step = Step;
    const WEIGHT: u32 = 4;
    const DRAW: Draw = draw::draw;
    const ADJUST: Adjust = draw::adjust;

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Cache(step) => run::run(worker, &step).await,
            Step::Tree(steps) => tree::run(worker, &steps).await,
        }
    }

    async fn finish(worker: &Worker) {
        run::judge_kept(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(snapshots::Snapshots::default())
    }
}
