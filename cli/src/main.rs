//! The command line of docent: one file for each command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod decode;

/// A ZooKeeper client, Curator's locks, and tools for the wire.
#[derive(Parser)]
#[command(name = "docent", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Decode(decode::Decode),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Decode(command) => command.run(),
    }
}
