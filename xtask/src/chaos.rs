//! `cargo xtask chaos`: builds the program in `tools/chaos` and runs it. docs/CHAOS.md describes it.

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use xtask::workspace::{build, root, target};
use xtask::{EXAMPLES_BUILT, Result};

use crate::{packages, sim};

/// Passes the arguments and the exit code through.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let program = program()?;
    if !arguments.iter().any(|argument| argument == "--plan") {
        check(&program)?;
    }
    sim::code(Command::new(program).args(arguments).status()?)
}

/// Fails with what a run needs and this machine lacks. `cargo xtask test` has built the program.
pub(crate) fn requirements() -> Result<()> {
    check(&path()?)
}

/// Starts the short plan that is part of all tests, whose programs are built with theirs: built alone, they would have
/// other features, and so would everything below them. It succeeds if no rule was violated.
pub(crate) fn start() -> Result<Child> {
    let mut command = Command::new(path()?);
    command.env(EXAMPLES_BUILT, "1").args(["--minutes", "2", "--seed", "4", "--report"]);
    command.arg(root().join("target/chaos/test")).stdin(Stdio::null());
    Ok(command.spawn()?)
}

fn program() -> Result<PathBuf> {
    build(&["--package", "docent-chaos"])?;
    path()
}

fn path() -> Result<PathBuf> {
    Ok(target()?.join("debug/docent-chaos"))
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
