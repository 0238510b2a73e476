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
    world::{check::Checks, directed::Director},
};
pub use simulate::{Outcome, Watch};
use simulate::{Program, Until};

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
    simulate::simulate(plan, watch, program(None)).0
}

/// Runs a plan whose choices a director takes.
pub(crate) fn run_directed(
    plan: &Plan,
    watch: &Watch,
    director: Director,
) -> (Outcome, Box<Director>) {
    let program = program(Some(Box::new(director)));
    let (outcome, director) = simulate::simulate(plan, watch, program);
    (outcome, director.unwrap_or_default())
}

fn program(director: Option<Box<Director>>) -> Program<Step> {
    Program {
        main: Arc::new(|world, pid, process| Box::pin(recipes::main(world, pid, process))),
        checks: recipes::checks(Checks::default().with(Orphans::default())),
        director,
        until: Until::Settled,
    }
}
