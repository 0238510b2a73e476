//! The command of the simulator. `cargo xtask sim` builds and runs it, and `cargo xtask exhaust` with `exhaust` as its first
//! argument; docs/SIMULATION.md is its guide.

mod arguments;
mod exhaust;
mod output;
mod plants;
mod shrink;
mod usage;

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    if env::args_os().nth(1).is_some_and(|first| first == "exhaust") {
        return exhaust::run(env::args_os().skip(1));
    }
    arguments::run(env::args_os())
}
