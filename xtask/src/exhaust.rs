//! `cargo xtask exhaust`: the second mode of the simulator. docs/SIMULATION.md is its guide.

use std::process::ExitCode;

use xtask::Result;

use crate::sim;

/// Passes the arguments and the exit code through.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let mut passed = vec!["exhaust".to_owned()];
    for argument in arguments {
        let is_file = passed.last().is_some_and(|before| before == "--schedule");
        // The simulator runs in its own directory.
        let file = is_file.then(|| std::path::absolute(argument)).transpose()?;
        passed.push(file.map_or_else(|| argument.clone(), |file| file.display().to_string()));
    }
    sim::run(&passed)
}
