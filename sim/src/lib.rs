//! A simulator: full clients with the real driver and the real recipes, on the embedded ensemble, in one thread and in
//! virtual time. A seed decides everything. docs/SIMULATION.md is the guide.

mod checks;
pub mod exhaust;
pub mod faults;
pub mod plan;
pub mod recipes;
pub mod run;
pub mod world;

pub use recipes::step::Plan;
pub use run::own::{Process, run_plan, run_program};
pub use world::check::{Check, Checks, Findings, View};
