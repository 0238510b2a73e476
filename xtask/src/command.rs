//! Runs commands to their end.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Result;

/// Finds a program in `PATH`, or in the directories of administration programs.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Whether a command can be started and succeeds. Its output is discarded.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command and returns its standard output. The error contains its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{}: {error}", name(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}: {}", name(command), output.status, errors.trim()).into())
}

/// Runs a command, whose output is shown. Fails if the command fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{}: {error}", name(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", name(command)).into()) }
}

/// The program and its arguments, without the environment variables that `Debug` shows.
fn name(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
