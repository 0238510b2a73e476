//! `cargo xtask guide`: records the guide's diagrams and builds the book.

use std::process::{Command, ExitCode};

use xtask::{
    Result,
    command::succeeds,
    workspace::{cargo, root},
};

/// Runs the command. It fails if a recording fails, or if mdbook is installed and cannot build the book.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if !arguments.is_empty() {
        return Ok(crate::usage());
    }
    let mut recordings = cargo();
    recordings
        .args(["test", "--quiet", "--test", "repository", "guide::"])
        .env("DOCENT_BLESS", "1");
    if !recordings.status()?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let book = root().join("docs/guide");
    if !succeeds(Command::new("mdbook").arg("--version")) {
        println!(
            "diagrams written; no book built, because mdbook is not installed (cargo install mdbook)"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let built = Command::new("mdbook").arg("build").arg(&book).status()?.success();
    Ok(if built { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
