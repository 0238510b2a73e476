//! `docent man`: manual pages.

use std::{fs, path::PathBuf};

use clap::{Args, CommandFactory as _};

use crate::{
    Cli,
    exit::{self, CommandResult, Failure},
};

/// Write a manual page for each command
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  docent man ~/.local/share/man/man1 && man docent-lock")]
pub(crate) struct Man {
    /// Target directory, created if it does not exist
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> CommandResult {
        let failed = |error: std::io::Error| {
            let text = format!("cannot write to {}: {error}", self.directory.display());
            Failure::new(exit::IO, text)
        };
        fs::create_dir_all(&self.directory).map_err(failed)?;
        clap_mangen::generate_to(Cli::command(), &self.directory).map_err(failed)?;
        Ok(0)
    }
}
