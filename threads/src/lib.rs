//! Runs the threads of small scenarios in every order: docs/SIMULATION.md.

mod race;
pub mod scenarios;
mod search;
mod world;

pub use search::{Found, Report, Which, quiet, search};
