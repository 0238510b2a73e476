//! `cargo xtask threads`: builds and runs the scenarios of threads. docs/SIMULATION.md is its guide.

use std::process::{Command, ExitCode};

use xtask::Result;

use crate::sim;

/// Passes the arguments and the exit code through.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let arguments = sim::with_absolute_schedule(arguments)?;
    let mut command = cargo_in_threads();
    command.args(["run", "--release", "--locked", "--quiet", "--"]).args(arguments);
    sim::code(command.status()?)
}

/// A cargo command in the workspace of the scenarios, whose configuration has the compiler flags.
pub(crate) fn cargo_in_threads() -> Command {
    sim::cargo_in("threads")
}
