//! Atomic numbers and values.

mod check;
mod draw;
mod run;
pub mod steps;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

pub(super) struct Atomics;

impl Recipe for Atomics {
    type Step = steps::Step;

    const WEIGHT: u32 = 2;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        run::run(worker, &step).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Operations::default())
    }
}
