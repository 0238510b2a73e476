//! The dependencies, checked by cargo-deny as `deny.toml` says.
//!
//! CI installs cargo-deny. It is not installed here: compiling it takes longer than all other checks. Licences, sources and
//! versions are also checked by `tests/repository/dependencies.rs`; only the advisories need cargo-deny, and a download.

use xtask::{Result, command::succeeds, workspace::cargo_with};

use crate::report::Report;

/// Adds the failed and the skipped checks to the report.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    println!("== dependencies");
    if !succeeds(&mut cargo_with(&["deny", "--version"])) {
        let reason = "cargo-deny is not installed (cargo install --locked cargo-deny)";
        report.leave_out("dependencies", reason);
        report.leave_out("advisories", reason);
        return Ok(());
    }
    let rules = ["--all-features", "check", "bans", "licenses", "sources"];
    if !cargo_with(&[&["deny"][..], &rules].concat()).status()?.success() {
        report.fail("dependencies");
    }
    // A machine without this download, or a failure of its server, says nothing about the dependencies.
    if !cargo_with(&["deny", "fetch", "db"]).status()?.success() {
        report.leave_out("advisories", "their database could not be downloaded");
        return Ok(());
    }
    let advisories = ["deny", "--all-features", "--offline", "check", "advisories"];
    if !cargo_with(&advisories).status()?.success() {
        report.fail("advisories");
    }
    Ok(())
}
