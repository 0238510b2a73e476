//! Builds the examples that tests run as programs.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
};

use crate::{Result, workspace::cargo};

/// The environment variable that `cargo xtask test` sets after building all examples.
pub const EXAMPLES_BUILT: &str = "DOCENT_TEST_EXAMPLES_BUILT";

/// Returns the program of an example, to be run by a test or another program of the workspace.
///
/// `cargo test --test NAME` builds no examples, so an existing program may be outdated. Therefore this function builds
/// the example, once per process, unless `cargo xtask test` has built all of them.
///
/// # Errors
///
/// Fails if cargo cannot be run, or cannot build the example.
pub fn example(name: &str) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());

    // Held while cargo runs, so that the other tests of the process wait for the same build.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = built.get(name) {
        return Ok(program.clone());
    }
    // The examples are in a directory beside other programs, and beside that of the test programs.
    let program = env::current_exe()?;
    let directory = program.parent().ok_or("a program without a directory")?;
    let is_test = directory.ends_with("deps");
    let profile = if is_test { directory.parent() } else { Some(directory) };
    let profile = profile.ok_or("a test program outside target")?;
    if env::var_os(EXAMPLES_BUILT).is_none() {
        build(name, profile)?;
    }
    let program = profile.join("examples").join(format!("{name}{}", env::consts::EXE_SUFFIX));
    if !program.is_file() {
        let program = program.display();
        return Err(format!("{program} does not exist; cargo build --examples builds it").into());
    }
    built.insert(name.to_owned(), program.clone());
    Ok(program)
}

fn build(name: &str, profile: &Path) -> Result<()> {
    let target = profile.parent().ok_or("a test program outside target")?;
    let packages = ["docent", "docent-tests", "docent-discovery", "docent-ported"];
    let mut command = cargo();
    command.args(["build", "--quiet", "--example", name]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command.arg("--target-dir").arg(target);
    match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(profile) => {
            command.args(["--profile", profile]);
        }
    }
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("cannot build the example: cargo build --example {name}:\n{errors}").into())
}
