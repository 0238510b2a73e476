//! `docent completions`: completion scripts for shells.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{Cli, exit::CommandResult, output};

/// Print the completion script for a shell
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  docent completions bash > ~/.local/share/bash-completion/completions/docent
  docent completions zsh > ~/.zfunc/_docent
  docent completions fish > ~/.config/fish/completions/docent.fish")]
pub(crate) struct Completions {
    /// Name of the shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> CommandResult {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "docent", &mut text);
        output::print(&String::from_utf8_lossy(&text))?;
        Ok(0)
    }
}
