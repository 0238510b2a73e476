//! `cargo xtask guide`: plays the guide's scenes, writes their diagrams, and builds the book.

use std::process::{Command, ExitCode};

use xtask::Result;

use crate::{
    packages::succeeds,
    workspace::{cargo, root},
};

/// Fails when a scene does, or when mdbook is there and cannot build the book.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if !arguments.is_empty() {
        return Ok(crate::usage());
    }
    let mut scenes = cargo();
    scenes.args(["test", "--quiet", "--test", "guide"]).env("DOCENT_BLESS", "1");
    if !scenes.status()?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let book = root().join("docs/guide");
    if !succeeds(Command::new("mdbook").arg("--version")) {
        println!("diagrams written; without mdbook (cargo install mdbook), no book was built");
        return Ok(ExitCode::SUCCESS);
    }
    let built = Command::new("mdbook").arg("build").arg(&book).status()?.success();
    Ok(if built { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
