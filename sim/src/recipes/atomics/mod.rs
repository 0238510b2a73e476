//! Atomic numbers and values.

mod check;
mod draw;
mod run;
pub mod steps;

use self::steps::Step;
use super::{
    recipe::{Draw, Recipe},
    worker::Worker,
};
use crate::world::check::Checks;

pub(super) struct Atomics;

impl Recipe for Atomics {
    type Step = Step;
    const WEIGHT: u32 = 2;
    const DRAW: Draw = draw::draw;

    async fn run(worker: &Worker, step: Step) {
        run::run(worker, &step).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Operations::default())
    }
}
