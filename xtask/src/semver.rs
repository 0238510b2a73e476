//! Compares the public API with that of the last release, with cargo-semver-checks.

use std::process::Command;

use xtask::{
    Result,
    command::{output, succeeds},
    workspace::{LIBRARIES, cargo_with, root},
};

use crate::report::Report;

const CHECK: &str = "semantic versions";

/// Reports a break that the version of the tree does not announce, or the reason why nothing was compared.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    println!("== {CHECK}");
    let mut describe = Command::new("git");
    describe.args(["describe", "--tags", "--abbrev=0", "--match", "v*"]).current_dir(root());
    let Ok(tag) = output(&mut describe) else {
        report.skip_optional(CHECK, "the tree has no tag of a release to compare with");
        return Ok(());
    };
    if !succeeds(&mut cargo_with(&["semver-checks", "--version"])) {
        let install =
            "cargo-semver-checks is not installed (cargo install --locked cargo-semver-checks)";
        report.skip_optional(CHECK, install);
        return Ok(());
    }
    let mut compare = cargo_with(&["semver-checks", "--baseline-rev", tag.trim()]);
    compare.args(LIBRARIES.iter().flat_map(|library| ["--package", library]));
    if !compare.status()?.success() {
        report.fail(CHECK);
    }
    Ok(())
}
