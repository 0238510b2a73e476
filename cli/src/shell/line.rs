//! A line of `docent shell`: a client's name, and a command with its options.

use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::clients::Clients;
use crate::{
    duration,
    exit::Failure,
    nodes::{multi, read, tree, watch, write},
    usage,
    words::split_words,
};

/// The client of a line that names none.
const FIRST: &str = "A";

/// The longest name of a client.
const MAX_NAME: usize = 32;

pub(super) enum Line {
    Nothing,
    Quit,
    Help(String),
    /// Connects a client of this name.
    Client(String),
    /// The command of a client.
    Action(String, Box<Action>),
}

#[derive(Parser)]
#[command(name = "", no_binary_name = true, disable_help_subcommand = true)]
struct Words {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
pub(super) enum Action {
    Get(Watched<read::Get>),
    Set(write::Set),
    Create(Created),
    Delete(write::Delete),
    Ls(Watched<read::Ls>),
    Stat(Watched<read::StatCommand>),
    Tree(tree::Tree),
    Watch(watch::Watch),
    Sync(read::SyncCommand),
    Multi(multi::Multi),
    Wait(Wait),
    /// Close the session
    Close,
    /// End the client without closing its session, as a crash does
    Kill,
    /// End the session on the servers, as they do after a long pause of the client
    Expire,
}

// A read that may leave a watch. A doc comment here would become the description of each command.
#[derive(Args)]
pub(super) struct Watched<C: Args> {
    #[command(flatten)]
    pub(super) command: C,
    /// Leave a watch; its event is printed with the client's name
    #[arg(short, long)]
    pub(super) watch: bool,
}

// As above.
#[derive(Args)]
pub(super) struct Created {
    #[command(flatten)]
    pub(super) command: write::Create,
    /// Create an ephemeral node, which is deleted with the session of this client
    #[arg(short, long)]
    pub(super) ephemeral: bool,
}

/// Wait until an event of this client is printed that no `wait` has waited for
#[derive(Args)]
pub(super) struct Wait {
    /// Longest time to wait
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse)]
    pub(super) timeout: Option<Duration>,
}

impl Line {
    /// Parses a line of these clients. The error is that of a wrong line.
    pub(super) fn parse(line: &str, clients: &Clients) -> Result<Self, Failure> {
        let words = split_words(line).map_err(Failure::usage)?;
        let command = crate::with_negative_values(Words::command());
        let names_a_command = |word: &str| command.find_subcommand(word).is_some();
        let (name, rest) = match words.as_slice() {
            [] => return Ok(Self::Nothing),
            [quit] if quit == "quit" => return Ok(Self::Quit),
            [help] if ["help", "-h", "--help"].contains(&help.as_str()) => {
                return Ok(Self::Help(format!("{}\n", super::HELP)));
            }
            [client, name] if client == "client" => {
                let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
                if !is_name
                    || !(1..=MAX_NAME).contains(&name.len())
                    || name == "client"
                    || names_a_command(name)
                {
                    let text = "a client's name has 1 to 32 letters and digits, and is no command";
                    return Err(Failure::usage(format_args!("\"{name}\": {text}")));
                }
                return Ok(Self::Client(name.clone()));
            }
            [client, ..] if client == "client" => {
                return Err(Failure::usage("client takes one name: client B"));
            }
            [first, ..] if names_a_command(first) => (FIRST, words.as_slice()),
            [name, rest @ ..] => (name.as_str(), rest),
        };
        clients.get(name)?;
        if rest.is_empty() {
            let text = "takes a command, such as `ls /`; `help` lists the commands";
            return Err(Failure::usage(format_args!("client {name} {text}")));
        }
        let parsed = command.try_get_matches_from(rest);
        match parsed.and_then(|matches| Words::from_arg_matches(&matches)) {
            Ok(words) => Ok(Self::Action(name.to_owned(), Box::new(words.action))),
            Err(error) if !error.use_stderr() => Ok(Self::Help(error.to_string())),
            Err(error) => {
                let text = usage::one_line(&error.to_string());
                Err(Failure::usage(format_args!("{text}; `help` lists the commands")))
            }
        }
    }
}
