//! Protected creates: a lost reply leaves no second node, and a create that fails or is dropped leaves none.

mod draw;
mod run;
pub mod steps;

use self::steps::Step;
use super::{
    recipe::{Draw, Recipe},
    worker::Worker,
};

pub(super) struct Protected;

impl Recipe for Protected {
    type Step = Step;
    const WEIGHT: u32 = 2;
    const DRAW: Draw = draw::draw;

    async fn run(worker: &Worker, step: Step) {
        run::run(worker, &step).await;
    }

    async fn finish(worker: &Worker) {
        run::judge(worker).await;
    }
}
