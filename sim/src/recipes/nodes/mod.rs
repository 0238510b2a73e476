//! Kept nodes and groups.

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

pub(super) struct Nodes;

impl Recipe for Nodes {
    type Step = Step;
    const WEIGHT: u32 = 4;
    const DRAW: Draw = draw::draw;

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Keep(step) => run::run(worker, &step).await,
            Step::DeleteKept { node } => run::delete(worker, node).await,
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Kept::default())
    }
}
