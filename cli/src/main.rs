//! The command line of docent: one file for each command.

use std::{io, process::ExitCode};

use clap::{Parser, Subcommand};

mod about;
mod command;
mod connect;
mod data;
mod decode;
mod duration;
mod exit;
#[cfg(unix)]
mod lock;
mod locks;
mod nodes;
mod queue;
mod serve;
mod tap;
mod usage;

use exit::{Ended, Failure};

/// A ZooKeeper client, Curator's locks, and tools for the wire.
#[derive(Parser)]
#[command(name = "docent", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(unix)]
    Lock(lock::Lock),
    /// Run a command only while a lock is held (on Unix only)
    #[cfg(not(unix))]
    Lock {
        /// What it would be told there.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    Locks(locks::Locks),
    Revoke(locks::Revoke),
    Get(nodes::read::Get),
    Set(nodes::write::Set),
    Create(nodes::write::Create),
    Delete(nodes::write::Delete),
    Ls(nodes::read::Ls),
    Stat(nodes::read::StatCommand),
    Watch(nodes::watch::Watch),
    Sync(nodes::read::SyncCommand),
    Multi(nodes::multi::Multi),
    Decode(decode::Decode),
    Serve(serve::Serve),
    Tap(tap::TapCommand),
    Completions(about::Completions),
    Man(about::Man),
}

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = hidden() {
        return ExitCode::from(code);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::told(&error),
    };
    match cli.command {
        #[cfg(unix)]
        Command::Lock(command) => ended("lock", command.run()),
        #[cfg(not(unix))]
        Command::Lock { .. } => {
            let text = "needs Unix: process groups, and signals; a program can take the lock with the crate docent";
            ended("lock", Err(Failure::usage(text)))
        }
        Command::Locks(command) => command::run("locks", command),
        Command::Revoke(command) => command::run("revoke", command),
        Command::Get(command) => command::run("get", command),
        Command::Set(command) => command::run("set", command),
        Command::Create(command) => command::run("create", command),
        Command::Delete(command) => command::run("delete", command),
        Command::Ls(command) => command::run("ls", command),
        Command::Stat(command) => command::run("stat", command),
        Command::Watch(command) => command::run("watch", command),
        Command::Sync(command) => command::run("sync", command),
        Command::Multi(command) => command::run("multi", command),
        Command::Completions(command) => ended("completions", command.run()),
        Command::Man(command) => ended("man", command.run()),
        Command::Decode(command) => command.run(),
        Command::Serve(command) => command.run(),
        Command::Tap(command) => command.run(),
    }
}

/// The processes that `docent lock` starts.
#[cfg(unix)]
fn hidden() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next()?;
    let rest: Vec<_> = arguments.collect();
    if name == lock::WATCHDOG {
        Some(lock::run_watchdog(&rest))
    } else if name == lock::STAGE {
        Some(lock::become_command(&rest))
    } else {
        None
    }
}

/// Says in one line why a command failed.
fn ended(command: &str, ended: Ended) -> ExitCode {
    let code = ended.unwrap_or_else(|failure| {
        if !failure.is_silent() {
            eprintln!("docent {command}: {failure}");
        }
        failure.code
    });
    ExitCode::from(code)
}

/// What commands run in that wait for sockets.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// A runtime that cannot be had.
fn no_runtime(error: io::Error) -> Failure {
    Failure::os("cannot wait for sockets", error)
}
