//! Service discovery: instances are registered and found.

mod check;
mod draw;
mod find;
mod run;
pub mod steps;

use self::steps::Step;
use super::{
    recipe::{Draw, Recipe},
    worker::Worker,
};
use crate::world::check::Checks;

pub(super) struct Discovery;

impl Recipe for Discovery {
    type Step = Step;
    const WEIGHT: u32 = 3;
    const DRAW: Draw = draw::draw;

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Serve(step) => run::serve(worker, &step).await,
            Step::Find(step) => find::find(worker, &step).await,
        }
    }

    async fn finish(worker: &Worker) {
        find::judge_kept(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Services::default())
    }
}
