//! What the program says about itself to shells and to man(1).

use std::{fs, io::Write as _, path::PathBuf};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{
    Cli,
    exit::{self, Ended, Failure},
};

/// Print completions for a shell
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  docent completions bash > ~/.local/share/bash-completion/completions/docent
  docent completions zsh > ~/.zfunc/_docent
  docent completions fish > ~/.config/fish/completions/docent.fish")]
pub(crate) struct Completions {
    /// For which one
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Ended {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "docent", &mut text);
        std::io::stdout().lock().write_all(&text)?;
        Ok(0)
    }
}

/// Write manual pages, one for each command
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  docent man ~/.local/share/man/man1 && man docent-lock")]
pub(crate) struct Man {
    /// Where; it is created if need be
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Ended {
        let failed = |error: std::io::Error| {
            let text = format!("cannot write to {}: {error}", self.directory.display());
            Failure::new(exit::IO, text)
        };
        fs::create_dir_all(&self.directory).map_err(failed)?;
        clap_mangen::generate_to(Cli::command(), &self.directory).map_err(failed)?;
        Ok(0)
    }
}
