//! `cargo xtask sim`: builds the simulator and runs it. docs/SIMULATION.md describes it.

use std::{
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use xtask::{
    Result,
    workspace::{cargo, root},
};

/// Passes the arguments and the exit code through.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if !build()? {
        return Ok(ExitCode::FAILURE);
    }
    let status = simulator(arguments).status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Builds the simulator and returns whether that succeeded. Cargo is quiet, so that the error for
/// wrong usage is one line.
pub(crate) fn build() -> Result<bool> {
    let mut command = cargo_in_sim();
    let mut build = command.args(["build", "--release", "--locked", "--quiet"]).spawn()?;
    let (start, mut is_announced) = (Instant::now(), false);
    loop {
        if let Some(status) = build.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() > Duration::from_secs(3) && !is_announced {
            eprintln!("xtask: building the simulator, which takes a minute or two");
            is_announced = true;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A command that runs the simulator, which must have been built. It runs cargo, because only cargo
/// knows the path of the program.
pub(crate) fn simulator(arguments: &[String]) -> Command {
    let mut command = cargo_in_sim();
    command.args(["run", "--release", "--locked", "--quiet", "--"]).args(arguments);
    command
}

/// A cargo command in the workspace of the simulator, whose configuration has the compiler flags.
pub(crate) fn cargo_in_sim() -> Command {
    let mut command = cargo();
    command.current_dir(root().join("sim")).stdin(Stdio::null());
    // These would replace the flags of the configuration.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}
