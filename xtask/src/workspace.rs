//! The source tree, and cargo commands in it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// The library crates that are published and need no C headers to build.
pub const LIBRARIES: [&str; 7] = [
    "docent",
    "docent-conform",
    "docent-discovery",
    "docent-protocol",
    "docent-recipes",
    "docent-session",
    "docent-testing",
];

/// Returns the root of the source tree that this program was built from.
#[must_use]
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Returns a command of the cargo that runs this program, in the root of the source tree.
///
/// Removes the variables that cargo sets for the programs it runs: with them, the build scripts of some
/// dependencies would run again, and everything that depends on these would be rebuilt.
#[must_use]
pub fn cargo() -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root());
    for (name, _) in env::vars_os() {
        let is_set_by_cargo = |prefix: &&str| name.to_string_lossy().starts_with(*prefix);
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_"].iter().any(is_set_by_cargo) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns a cargo command with these arguments.
#[must_use]
pub fn cargo_with(arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args(arguments);
    command
}

/// Runs `cargo build` in the source tree with these arguments.
pub fn build(arguments: &[&str]) -> Result<()> {
    crate::command::run(cargo().args(["build", "--quiet"]).args(arguments).stdin(Stdio::null()))
}

/// Returns cargo's target directory: the ancestor of the running program with a file that cargo writes there. It writes
/// CACHEDIR.TAG only into a directory that it makes, not into one that was there before, as a mounted one.
pub fn target() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let marks = ["CACHEDIR.TAG", ".rustc_info.json"];
    let is_marked = |of: &&Path| marks.iter().any(|mark| of.join(mark).is_file());
    let target = program.ancestors().skip(1).find(is_marked);
    Ok(target.ok_or("this program is not in a target directory of cargo")?.to_path_buf())
}

/// Whether this is a CI run, in which a skipped check or test is a failure.
#[must_use]
pub fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
