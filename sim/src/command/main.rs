//! The command of the simulator. `cargo xtask sim` builds and runs it; docs/SIMULATION.md is its guide.

mod arguments;
mod output;
mod plants;
mod shrink;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    arguments::run(std::env::args_os())
}
