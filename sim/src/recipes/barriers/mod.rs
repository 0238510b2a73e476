//! Barriers, and double barriers.

mod double;
mod draw;
mod run;
pub mod steps;

use self::steps::Step;
use super::{
    recipe::{Draw, Recipe},
    worker::Worker,
};

pub(super) struct Barriers;

impl Recipe for Barriers {
    type Step = Step;
    const WEIGHT: u32 = 3;
    const DRAW: Draw = draw::draw;

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Barrier(step) => run::run(worker, &step).await,
            Step::Double(step) => double::run(worker, &step).await,
        }
    }
}
