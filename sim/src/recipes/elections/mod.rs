//! Elections: latches and selectors that take part, lead, write as leaders, and leave in every way.

mod check;
mod draw;
mod queues;
mod run;
pub mod steps;

use self::steps::Step;
use super::{
    recipe::{Draw, Recipe},
    worker::Worker,
};
use crate::world::check::Checks;

pub(super) struct Elections;

impl Recipe for Elections {
    type Step = Step;
    const WEIGHT: u32 = 8;
    const DRAW: Draw = draw::draw;

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Lead(step) => run::run(worker, &step).await,
            Step::DeleteLeader { election } => run::delete_leader(worker, election).await,
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Leaders::default())
    }
}
