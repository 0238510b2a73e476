//! `cargo xtask check`: everything that is known without running a test.

use std::process::{Command, ExitCode};

use xtask::Result;

use crate::workspace::{cargo, root};

/// Runs every check, so that one run names every fault.
pub(crate) fn run() -> Result<ExitCode> {
    let mut failed = Vec::new();
    for (name, mut command) in checks() {
        println!("== {name}");
        if !command.status()?.success() {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        println!("all checks passed");
        return Ok(ExitCode::SUCCESS);
    }
    println!("failed: {}", failed.join("; "));
    Ok(ExitCode::FAILURE)
}

fn checks() -> Vec<(&'static str, Command)> {
    let mut checks = vec![
        ("format", cargo_with(&["fmt", "--all", "--check"])),
        ("lints", cargo_with(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
        (
            // The state machine must not come to need its driver.
            "lints of docent-session without a runtime",
            cargo_with(&[
                "clippy",
                "--package",
                "docent-session",
                "--no-default-features",
                "--",
                "-D",
                "warnings",
            ]),
        ),
        (
            "lints of docent-session without a runtime, with SASL",
            cargo_with(&[
                "clippy",
                "--package",
                "docent-session",
                "--no-default-features",
                "--features",
                "sasl",
                "--",
                "-D",
                "warnings",
            ]),
        ),
        ("documentation", documentation()),
    ];
    if root().join("fuzz/Cargo.toml").is_file() {
        // A workspace of its own, which nothing above builds.
        let fuzz = cargo_with(&["check", "--manifest-path", "fuzz/Cargo.toml"]);
        checks.push(("fuzz targets", fuzz));
    }
    checks
}

fn cargo_with(arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args(arguments);
    command
}

fn documentation() -> Command {
    // Libraries only: the program `docent` would overwrite the pages of the library `docent`.
    let features = "docent/tls,docent/sasl";
    let mut command =
        cargo_with(&["doc", "--workspace", "--no-deps", "--lib", "--features", features]);
    command.env("RUSTDOCFLAGS", "-Dwarnings");
    command
}
