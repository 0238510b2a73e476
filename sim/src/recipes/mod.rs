//! The recipes under test, each in its own module: its steps as data, how they are drawn, what they do, and what must
//! hold. A new recipe is a module, and a line in this list.

macro_rules! recipes {
    ($then:ident) => {
        $then! {
            Locks: locks,
            Registers: registers,
            SharedValues: shared_values,
            Elections: elections,
            Nodes: nodes,
            Caches: caches,
            Atomics: atomics,
            Barriers: barriers,
            Discovery: discovery,
            Protected: protected,
            Ensembles: ensembles,
        }
    };
}

pub mod atomics;
pub mod barriers;
pub mod caches;
pub mod discovery;
pub mod elections;
pub mod ensembles;
pub mod locks;
pub mod nodes;
pub mod protected;
pub mod registers;
pub mod shared_values;

mod calls;
pub mod common;
mod dispatch;
pub mod draw;
mod program;
mod recipe;
pub mod step;
mod worker;

use crate::{
    plan::ProcessPlan,
    world::{World, check::Checks, time::Pid},
};

/// Adds the checks of all recipes.
pub(crate) fn checks(checks: Checks) -> Checks {
    dispatch::checks(checks)
}

/// The main task of a process.
pub(crate) async fn main(world: World, pid: Pid, plan: ProcessPlan<step::Step>) {
    program::main(world, pid, plan).await;
}
