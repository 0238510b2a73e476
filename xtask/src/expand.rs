//! The source of the libraries with all macros expanded, for the list of the public API.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use crate::{Result, command::output, workspace::cargo};

/// The variable that makes `xtask` a wrapper of rustc, which also writes the expanded source of libraries.
const EXPAND: &str = "DOCENT_XTASK_EXPAND";

/// The variable that makes `xtask` rustdoc, with unstable features.
const RUSTDOC: &str = "DOCENT_XTASK_RUSTDOC";

/// Permits a cargo command to write documentation with unstable features of rustdoc. `RUSTC_BOOTSTRAP` is set for rustdoc
/// alone: some build scripts read it, so for cargo it would mean that most dependencies are built again, before and behind.
///
/// # Errors
///
/// The path of this program is unknown.
pub fn permit_unstable_documentation(command: &mut Command) -> Result<()> {
    command.env("RUSTDOC", env::current_exe()?).env(RUSTDOC, "rustdoc");
    Ok(())
}

/// Returns the files with the expanded source of the libraries, with all features enabled.
///
/// The compiler prints it with `-Zunpretty=expanded`; `RUSTC_BOOTSTRAP` permits that on a stable toolchain. The
/// wrapper does this for the libraries only, so that their dependencies are shared with `cargo check`.
///
/// # Errors
///
/// Fails if cargo cannot be run, or a library does not compile.
pub fn expand(packages: &[&str]) -> Result<Vec<PathBuf>> {
    // A test program is in target/PROFILE/deps; the dependencies of a `cargo check` are in target/debug.
    let test = env::current_exe()?;
    let target = test.ancestors().nth(3).ok_or("a test program outside target")?;
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "xtask"]);
    output(build.arg("--target-dir").arg(target).stdin(Stdio::null()))?;
    let wrapper = target.join("debug").join(format!("xtask{}", env::consts::EXE_SUFFIX));
    let mut check = cargo();
    check.args(["check", "--quiet", "--lib", "--all-features"]);
    check.args(packages.iter().flat_map(|package| ["--package", package]));
    check.env("RUSTC_WORKSPACE_WRAPPER", wrapper).env(EXPAND, "1");
    output(check.arg("--target-dir").arg(target).stdin(Stdio::null()))?;
    let directory = target.join("debug/deps");
    Ok(packages.iter().map(|package| file(&directory, &package.replace('-', "_"))).collect())
}

/// The file with the expanded source of a crate.
fn file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}-expanded.rs"))
}

/// Runs rustc if `xtask RUSTC ARGUMENTS` was started as its wrapper, or rustdoc if `xtask ARGUMENTS` was started in its place,
/// with one of the variables set. Returns `None` otherwise.
pub fn as_wrapper(arguments: &[OsString]) -> Option<Result<ExitCode>> {
    if let Some(rustdoc) = env::var_os(RUSTDOC) {
        let status = Command::new(rustdoc).args(arguments).env("RUSTC_BOOTSTRAP", "1").status();
        let code = |is_good| if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        return Some(Ok(code(status.is_ok_and(|status| status.success()))));
    }
    env::var_os(EXPAND)?;
    let (rustc, arguments) = arguments.split_first()?;
    Some(wrap(rustc, arguments))
}

fn wrap(rustc: &OsString, arguments: &[OsString]) -> Result<ExitCode> {
    let status = Command::new(rustc).args(arguments).status()?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let is_library = value("--crate-type").is_some_and(|kind| kind == "lib");
    if let (true, Some(name), Some(directory)) =
        (is_library, value("--crate-name"), value("--out-dir"))
    {
        let file = file(Path::new(directory), &name.to_string_lossy());
        // Cargo reads the messages on standard error, and the first run has printed them.
        let expansion = Command::new(rustc)
            .args(arguments)
            .arg("-Zunpretty=expanded")
            .arg("-o")
            .arg(file)
            .env("RUSTC_BOOTSTRAP", "1")
            .stderr(Stdio::null())
            .status()?;
        if !expansion.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
