//! Barriers, and double barriers.

mod double;
mod draw;
mod run;
pub mod steps;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::plan::draw::Setting;

pub(super) struct Barriers;

impl Recipe for Barriers {
    type Step = steps::Step;

    const WEIGHT: u32 = 3;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        match step {
            steps::Step::Barrier(step) => run::run(worker, &step).await,
            steps::Step::Double(step) => double::run(worker, &step).await,
        }
    }
}
