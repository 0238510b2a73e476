//! The command line of docent: one file for each command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod decode;
mod serve;
mod tap;

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
    Serve(serve::Serve),
    Tap(tap::TapCommand),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Decode(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Tap(command) => command.run(),
    }
}

/// What commands run in that wait for sockets.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
