//! Runs plans, one or many, and shortens those that break a rule.

pub mod batch;
pub mod diagram;
pub mod own;
pub mod shrink;
mod simulate;
pub mod specification;

use std::sync::Arc;

use crate::{
    checks::orphans::Orphans,
    recipes::{
        self,
        step::{Plan, Step},
    },
    world::{PossibleFault, check::Checks, director::Director},
};
use simulate::{Main, Program, Until};
pub use simulate::{Outcome, Watch};

/// Runs a plan.
///
/// # Panics
///
/// As [`run_watched`].
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    run_watched(plan, &Watch::default())
}

/// Runs a plan, which another thread can watch.
///
/// # Panics
///
/// If no tokio runtime can be made (the world uses only its random numbers), or if the plan names a version that the
/// embedded server does not imitate.
#[must_use]
pub fn run_watched(plan: &Plan, watch: &Watch) -> Outcome {
    simulate::simulate(plan, watch, program()).0
}

/// Runs a plan whose choices a director takes, with faults that it may choose.
pub(crate) fn run_directed(
    plan: &Plan,
    watch: &Watch,
    director: Director,
    faults: Vec<PossibleFault>,
) -> (Outcome, Box<Director>) {
    let program = Program { director: Some(Box::new(director)), faults, ..program() };
    let (outcome, director) = simulate::simulate(plan, watch, program);
    (outcome, director.unwrap_or_default())
}

fn program() -> Program<Step> {
    let main = |world, pid, process| Box::pin(recipes::main(world, pid, process)) as Main;
    let checks = recipes::checks(Checks::default().with(Orphans::default()));
    Program::new(Arc::new(main), checks, Until::Settled)
}
