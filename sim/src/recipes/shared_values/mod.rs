//! `SharedValue`s: each version is replaced by one `try_set_value`, values never go back, and in peace all agree.

mod check;
mod draw;
mod run;
pub mod steps;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

pub(super) struct SharedValues;

impl Recipe for SharedValues {
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

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Swaps::default())
    }
}
