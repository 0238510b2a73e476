//! `cargo xtask sim`: builds the simulator and runs it. docs/SIMULATION.md describes it.

use std::{
    process::{Command, ExitCode, ExitStatus, Stdio},
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
    let mut simulator = cargo_in_sim();
    simulator.args(["run", "--release", "--locked", "--quiet", "--bin", "docent-sim", "--"]);
    code(simulator.args(arguments).status()?)
}

/// A command that runs a program that the tests of the simulator's workspace have built. Cargo alone would build it again:
/// without the tests, its dependencies have other features.
pub(crate) fn built_with_the_tests(program: &str) -> Command {
    let mut command = Command::new(root().join("sim/target/debug").join(program));
    command.current_dir(root().join("sim")).stdin(Stdio::null());
    // As in the configuration of cargo there.
    command.env("RUST_MIN_STACK", "16777216");
    command
}

/// The exit code of a program that was run.
pub(crate) fn code(status: ExitStatus) -> Result<ExitCode> {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The arguments with the whole path of the file of `--schedule`: programs of other workspaces run in their own directory.
pub(crate) fn with_absolute_schedule(arguments: &[String]) -> Result<Vec<String>> {
    let mut passed = Vec::new();
    for argument in arguments {
        let is_file = passed.last().is_some_and(|before| before == "--schedule");
        let file = is_file.then(|| std::path::absolute(argument)).transpose()?;
        passed.push(file.map_or_else(|| argument.clone(), |file| file.display().to_string()));
    }
    Ok(passed)
}

/// Builds the simulator and returns whether that succeeded. Cargo is quiet, so that the error for
/// wrong usage is one line.
fn build() -> Result<bool> {
    let mut command = cargo_in_sim();
    let build = ["build", "--release", "--locked", "--quiet", "--package", "docent-sim"];
    let mut build = command.args(build).spawn()?;
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

/// A cargo command in the workspace of the simulator, whose configuration has the compiler flags.
pub(crate) fn cargo_in_sim() -> Command {
    cargo_in("sim")
}

/// A cargo command in another workspace.
pub(crate) fn cargo_in(workspace: &str) -> Command {
    let mut command = cargo();
    command.current_dir(root().join(workspace)).stdin(Stdio::null());
    // These would replace the flags of the configuration.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}
