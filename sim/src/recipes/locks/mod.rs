//! Locks: acquired, held, released, in every way in which a program can.

mod belief;
mod check;
mod counts;
mod draw;
mod held;
mod objects;
mod run;
pub mod steps;
mod strict;
mod strict_draw;

use self::steps::Step;
use super::{
    recipe::{Adjust, Draw, Recipe},
    worker::Worker,
};
use crate::world::check::Checks;

pub(super) struct Locks;

impl Recipe for Locks {
    type Step = Step;
    const WEIGHT: u32 = 11;
    const DRAW: Draw = draw::draw;
    const ADJUST: Adjust = strict_draw::adjust;

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Lock(step) => run::run(worker, step).await,
            Step::Revoke { lock } => run::revoke(worker, &lock).await,
            Step::DeleteNode { lock } => run::delete_node(worker, &lock).await,
            Step::SetCount { number, count } => run::set_count(worker, number, count).await,
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Holds::default()).with(counts::Counts::default())
    }
}
