//! Ensembles whose members change, and clients that follow them.

mod draw;
mod run;
pub mod steps;

use self::steps::Step;
use super::{
    recipe::{Draw, Recipe},
    worker::Worker,
};

pub(super) struct Ensembles;

impl Recipe for Ensembles {
    type Step = Step;
    const WEIGHT: u32 = 1;
    const DRAW: Draw = draw::draw;

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Track { for_ms, stays } => run::track(worker, for_ms, stays).await,
            Step::Reconfigure { member, change } => run::reconfigure(worker, member, change).await,
        }
    }

    async fn finish(worker: &Worker) {
        run::judge(worker).await;
    }
}
