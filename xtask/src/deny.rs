//! The dependencies, checked by cargo-deny as `deny.toml` says, if it is installed.
//!
//! It is not installed here: compiling it takes longer than all other checks. Licences, sources and versions are also
//! checked by `tests/repository/dependencies.rs`; only the advisories need cargo-deny, and a download.

use xtask::Result;

use crate::check::cargo_with;
use crate::packages::succeeds;

/// Returns what failed. A check that cannot run is skipped, and says so.
pub(crate) fn run() -> Result<Vec<&'static str>> {
    println!("== dependencies");
    if !succeeds(&mut cargo_with(&["deny", "--version"])) {
        println!(
            "SKIPPED: the advisories, because cargo-deny is not installed (cargo install --locked cargo-deny)"
        );
        return Ok(Vec::new());
    }
    let mut failed = Vec::new();
    let rules = ["--all-features", "check", "bans", "licenses", "sources"];
    if !cargo_with(&[&["deny"][..], &rules].concat()).status()?.success() {
        failed.push("dependencies");
    }
    // A machine without this download, or a failure of its server, says nothing about the dependencies.
    if !cargo_with(&["deny", "fetch", "db"]).status()?.success() {
        println!("SKIPPED: the advisories, because their database could not be downloaded");
        return Ok(failed);
    }
    let advisories = ["deny", "--all-features", "--offline", "check", "advisories"];
    if !cargo_with(&advisories).status()?.success() {
        failed.push("advisories");
    }
    Ok(failed)
}
