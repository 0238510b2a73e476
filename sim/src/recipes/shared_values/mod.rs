//! `SharedValue`s: each version is replaced by one `try_set_value`, values never go back, and in peace all agree.

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

pub(super) struct SharedValues;

impl Recipe for SharedValues {
    type Step = Step;
    const WEIGHT: u32 = 2;
    const DRAW: Draw = draw::draw;

    async fn run(worker: &Worker, step: Step) {
        run::run(worker, &step).await;
    }

    async fn finish(worker: &Worker) {
        run::judge(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Swaps::default())
    }
}
