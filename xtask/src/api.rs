//! `cargo xtask api`: writes the lists of the public API.

use std::process::ExitCode;

use xtask::{Result, workspace::cargo};

/// Runs the test that writes the lists. It fails if a library does not compile.
pub(crate) fn run() -> Result<ExitCode> {
    let mut test = cargo();
    test.args(["test", "--quiet", "--package", "docent-tests", "--test", "repository", "api::"]);
    let written = test.env("DOCENT_BLESS", "1").status()?.success();
    Ok(if written { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
