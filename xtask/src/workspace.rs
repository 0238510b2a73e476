//! The checkout, and running cargo in it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the checkout that this program was built from.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// The cargo that runs us, in the root of the checkout.
pub(crate) fn cargo() -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root());
    command
}

/// Whether this is a CI system, where nothing may be skipped.
pub(crate) fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
