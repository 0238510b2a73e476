//! The command line of docent. Each command has a module of the same name.

use std::{io, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod command;
mod completions;
mod conform;
mod connect;
mod data;
mod decode;
mod duration;
mod exit;
mod file;
mod lab;
#[cfg(unix)]
mod lead;
#[cfg(unix)]
mod lock;
mod locks;
mod man;
mod nodes;
mod output;
mod prompt;
mod queue;
mod serve;
mod shell;
#[cfg(unix)]
mod supervisor;
mod tap;
mod tap_json;
mod usage;
mod words;

use command::Connected;
use exit::{CommandResult, Failure};

/// A ZooKeeper client with Curator's locks, and tools for the ZooKeeper protocol.
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
        /// The arguments of `docent lock` on Unix
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    #[cfg(unix)]
    Lead(lead::Lead),
    /// Run a command only while this process is the leader (on Unix only)
    #[cfg(not(unix))]
    Lead {
        /// The arguments of `docent lead` on Unix
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    Locks(Connected<locks::Locks>),
    Revoke(Connected<locks::Revoke>),
    Get(Connected<nodes::read::Get>),
    Set(Connected<nodes::write::Set>),
    Create(Connected<nodes::write::Create>),
    Delete(Connected<nodes::write::Delete>),
    Ls(Connected<nodes::read::Ls>),
    Stat(Connected<nodes::read::StatCommand>),
    Tree(Connected<nodes::tree::Tree>),
    Watch(Connected<nodes::watch::Watch>),
    Sync(Connected<nodes::read::SyncCommand>),
    Multi(Connected<nodes::multi::Multi>),
    Shell(shell::Shell),
    Decode(decode::Decode),
    Conform(conform::Conform),
    Serve(serve::Serve),
    Tap(tap::TapCommand),
    Lab(lab::Lab),
    Completions(completions::Completions),
    Man(man::Man),
}

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = run_hidden_command() {
        return ExitCode::from(code);
    }
    let parsed = with_negative_values(Cli::command()).try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    match cli.command {
        #[cfg(unix)]
        Command::Lock(command) => finish("lock", command.run()),
        #[cfg(unix)]
        Command::Lead(command) => finish("lead", command.run()),
        #[cfg(not(unix))]
        Command::Lock { .. } => {
            let text = "requires Unix (process groups, signals); use the crate docent to acquire the lock in a program";
            finish("lock", Err(Failure::usage(text)))
        }
        #[cfg(not(unix))]
        Command::Lead { .. } => {
            let text = "requires Unix (process groups, signals); use the crate docent to take part in an election";
            finish("lead", Err(Failure::usage(text)))
        }
        Command::Locks(command) => command::run("locks", command),
        Command::Revoke(command) => command::run("revoke", command),
        Command::Get(command) => command::run("get", command),
        Command::Set(command) => command::run("set", command),
        Command::Create(command) => command::run("create", command),
        Command::Delete(command) => command::run("delete", command),
        Command::Ls(command) => command::run("ls", command),
        Command::Stat(command) => command::run("stat", command),
        Command::Tree(command) => command::run("tree", command),
        Command::Watch(command) => command::run("watch", command),
        Command::Sync(command) => command::run("sync", command),
        Command::Multi(command) => command::run("multi", command),
        Command::Shell(command) => finish("shell", command.run()),
        Command::Completions(command) => finish("completions", command.run()),
        Command::Man(command) => finish("man", command.run()),
        Command::Conform(command) => finish("conform", command.run()),
        Command::Decode(command) => finish("decode", command.run()),
        Command::Serve(command) => finish("serve", command.run()),
        Command::Tap(command) => finish("tap", command.run()),
        Command::Lab(command) => finish("lab", command.run()),
    }
}

/// Lets options for times and numbers accept `-1`, so that the error is about the value.
fn with_negative_values(command: clap::Command) -> clap::Command {
    let is_number = |arg: &clap::Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| matches!(name.as_str(), "TIME" | "N" | "PORT" | "MIN..MAX"))
    };
    let command = command.mut_subcommands(with_negative_values);
    command.mut_args(|arg| if is_number(&arg) { arg.allow_hyphen_values(true) } else { arg })
}

/// Runs the hidden commands, which are the processes that `docent lock` and `docent lead` start.
#[cfg(unix)]
fn run_hidden_command() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next()?;
    let rest: Vec<_> = arguments.collect();
    if name == supervisor::WATCHDOG_COMMAND {
        Some(supervisor::run_watchdog(&rest))
    } else if name == supervisor::EXEC_COMMAND {
        Some(supervisor::exec_command(&rest))
    } else {
        None
    }
}

/// Prints an error in one line and returns the exit code.
fn finish(command: &str, result: CommandResult) -> ExitCode {
    let code = result.unwrap_or_else(|failure| {
        if !failure.is_silent() {
            output::report(format_args!("docent {command}: {failure}"));
        }
        failure.code
    });
    ExitCode::from(code)
}

/// Creates the runtime of the commands that use sockets.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn no_runtime(error: io::Error) -> Failure {
    Failure::os("cannot create the I/O runtime", error)
}
