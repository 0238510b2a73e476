//! Registers: nodes below `/r` that are read, written and watched, by clients that come and go.

mod check;
mod client;
mod draw;
mod run;
pub mod steps;
mod watch;

use self::steps::Step;
use super::{
    recipe::{Adjust, Draw, Recipe},
    worker::Worker,
};
use crate::world::check::Checks;

pub(super) struct Registers;

impl Recipe for Registers {
    type Step = Step;
    const WEIGHT: u32 = 6;
    const DRAW: Draw = draw::draw;
    const ADJUST: Adjust = draw::adjust;

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Register(step) => run::run(worker, &step).await,
            Step::Burst(steps) => run::burst(worker, &steps).await,
            Step::Watch(step) => watch::run(worker, &step).await,
            Step::Client(step) => client::run(worker, &step).await,
        }
    }

    async fn finish(worker: &Worker) {
        watch::judge_kept(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Calls::default())
    }
}
