//! Ensembles whose members change, and clients that follow them.

mod draw;
mod run;
pub mod steps;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::plan::draw::Setting;

pub(super) struct Ensembles;

impl Recipe for Ensembles {
    type Step = steps::Step;

    const WEIGHT: u32 = 1;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        match step {
            steps::Step::Track { for_ms, stays } => run::track(worker, for_ms, stays).await,
            steps::Step::Reconfigure { member, change } => {
                run::reconfigure(worker, member, change).await
            }
        }
    }

    async fn finish(worker: &Worker) {
        run::judge(worker).await;
    }
}
