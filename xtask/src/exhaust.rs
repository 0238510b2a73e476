//! `cargo xtask exhaust`: the second mode of the simulator. docs/SIMULATION.md is its guide.

use std::process::ExitCode;

use xtask::Result;

use crate::sim;

/// Passes the arguments and the exit code through.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let mut passed = vec!["exhaust".to_owned()];
    passed.extend(sim::with_absolute_schedule(arguments)?);
    sim::run(&passed)
}
