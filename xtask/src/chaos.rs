//! `cargo xtask chaos`: builds the program in `tools/chaos` and runs it. docs/CHAOS.md describes it.

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use xtask::Result;
use xtask::workspace::{build, root};

use crate::{packages, sim};

/// Passes the arguments and the exit code through.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let program = program()?;
    if !arguments.iter().any(|argument| argument == "--plan") {
        check(&program)?;
    }
    sim::code(Command::new(program).args(arguments).status()?)
}

/// Fails with what a run needs and this machine lacks.
pub(crate) fn requirements() -> Result<()> {
    check(&program()?)
}

/// Starts the short plan that is part of all tests. It succeeds if no rule was violated.
pub(crate) fn start() -> Result<Child> {
    let mut command = Command::new(program()?);
    command.args(["--minutes", "2", "--seed", "4", "--report"]);
    command.arg(root().join("target/chaos/test")).stdin(Stdio::null());
    Ok(command.spawn()?)
}

fn program() -> Result<PathBuf> {
    build(&["--package", "docent-chaos"])?;
    Ok(xtask::workspace::target()?.join("debug/docent-chaos"))
}

/// Checks the rights before it fetches packages, which are of no use without the rights.
fn check(program: &PathBuf) -> Result<()> {
    let output = Command::new(program).arg("--requirements").output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.trim().trim_start_matches("chaos: ").into());
    }
    packages::network_tools()?;
    packages::java().map(drop)
}
