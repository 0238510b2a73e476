//! `cargo xtask chaos`: builds the program in `tools/chaos`, and runs it. docs/CHAOS.md is its guide.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use xtask::Result;
use xtask::workspace::{build, root};

use crate::packages;

/// Passes the arguments and the exit code through.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let program = program()?;
    if !arguments.iter().any(|argument| argument == "--plan") {
        check(&program)?;
    }
    let status = Command::new(program).args(arguments).status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// What a run needs and this machine lacks.
pub(crate) fn requirements() -> Result<()> {
    check(&program()?)
}

/// Runs the short plan that belongs to all tests, and returns whether it found no violation.
pub(crate) fn test() -> Result<bool> {
    let mut command = Command::new(program()?);
    command.args(["--minutes", "2", "--seed", "4", "--report"]);
    command.arg(root().join("target/chaos/test")).stdin(Stdio::null());
    Ok(command.status()?.success())
}

fn program() -> Result<PathBuf> {
    build(&["--package", "docent-chaos"])?;
    Ok(xtask::workspace::target()?.join("debug/docent-chaos"))
}

/// The rights first: without them, packages are of no use.
fn check(program: &PathBuf) -> Result<()> {
    let output = Command::new(program).arg("--requirements").output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.trim().trim_start_matches("chaos: ").into());
    }
    packages::network_tools()?;
    packages::java().map(drop)
}
