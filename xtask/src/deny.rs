//! Checks the dependencies with cargo-deny, by the rules of `deny.toml`.
//!
//! CI installs cargo-deny. This program does not install it, because compiling it takes longer than all other checks.
//! `tests/repository/dependencies.rs` also checks licences, sources and versions; only the advisories need cargo-deny,
//! and a download.

use xtask::{Result, command::succeeds, workspace::cargo_with};

use crate::report::Report;

/// Runs the checks, and adds those that failed or were skipped to the report.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    println!("== dependencies");
    if !succeeds(&mut cargo_with(&["deny", "--version"])) {
        let reason = "cargo-deny is not installed (cargo install --locked cargo-deny)";
        report.skip_optional("dependencies", reason);
        report.skip_optional("advisories", reason);
        return Ok(());
    }
    let rules = ["--all-features", "check", "bans", "licenses", "sources"];
    if !cargo_with(&[&["deny"][..], &rules].concat()).status()?.success() {
        report.fail("dependencies");
    }
    // A failed download says nothing about the dependencies, so it is no failure.
    if !cargo_with(&["deny", "fetch", "db"]).status()?.success() {
        report.skip_optional("advisories", "their database could not be downloaded");
        return Ok(());
    }
    let advisories = ["deny", "--all-features", "--offline", "check", "advisories"];
    if !cargo_with(&advisories).status()?.success() {
        report.fail("advisories");
    }
    Ok(())
}
