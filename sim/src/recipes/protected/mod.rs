//! Protected creates: a lost reply leaves no second node, and a create that fails or is dropped leaves none.

mod draw;
mod run;
pub mod steps;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::plan::draw::Setting;

pub(super) struct Protected;

impl Recipe for Protected {
    type Step = steps::Step;

    const WEIGHT: u32 = 2;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        run::run(worker, &step).await;
    }

    async fn finish(worker: &Worker) {
        run::judge(worker).await;
    }
}
