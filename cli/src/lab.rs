//! `docent lab`: runs the program `docent-lab`, which is not part of docent: it contains the simulator.

use std::{ffi::OsString, io, path::PathBuf, process::Command};

use clap::Args;

use crate::exit::{self, CommandResult, Failure};

/// Watch, wind back and break a lock, on a page in the browser
///
/// Runs the program docent-lab, which lies beside docent or on the PATH; `docent lab --help` is its help.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Lab {
    /// The arguments of docent-lab
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

const PROGRAM: &str = if cfg!(windows) { "docent-lab.exe" } else { "docent-lab" };

const MISSING: &str = "the program docent-lab is neither beside docent nor on the PATH; \
                       `cargo install --locked --path lab` installs it from docent's source tree";

impl Lab {
    pub(crate) fn run(self) -> CommandResult {
        let beside = std::env::current_exe().ok().map(|docent| docent.with_file_name(PROGRAM));
        let program = beside.filter(|path| path.is_file());
        let mut command = Command::new(program.unwrap_or_else(|| PathBuf::from(PROGRAM)));
        command.args(self.arguments);
        let error = match replace(command) {
            Ok(code) => return Ok(code),
            Err(error) => error,
        };
        Err(if error.kind() == io::ErrorKind::NotFound {
            Failure::new(exit::NO_SERVER, MISSING)
        } else {
            Failure::os(PROGRAM, error)
        })
    }
}

/// Becomes another program: returns only if that fails.
#[cfg(unix)]
fn replace(mut command: Command) -> io::Result<u8> {
    Err(std::os::unix::process::CommandExt::exec(&mut command))
}

#[cfg(not(unix))]
fn replace(mut command: Command) -> io::Result<u8> {
    let code = command.status()?.code();
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::SOFTWARE))
}
