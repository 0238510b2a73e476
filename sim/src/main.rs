//! The command of the simulator. `cargo xtask sim` builds and runs it; docs/SIMULATION.md is its guide.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run(std::env::args_os())
}
