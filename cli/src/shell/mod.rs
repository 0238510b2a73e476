//! `docent shell`: the commands for nodes in sessions that stay open, several in one window.

mod clients;
mod line;

use clap::Args;
use tokio::signal;

use self::{
    clients::Clients,
    line::{Action, Line},
};
use crate::{
    command::{Command, run_on},
    connect::ServerArgs,
    exit::{self, CommandResult, Failure},
    output::{print, report},
    prompt::{self, Prompt},
};

/// Run commands for nodes in sessions that stay open, from a terminal or a script
///
/// Starts with a client A. `client B` connects another one, with a session of its own;
/// a line that begins with a name is a command of that client, any other one of A.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = HELP)]
pub(crate) struct Shell {
    /// Servers, as --connect
    #[arg(short, value_name = "SERVERS")]
    servers: Option<String>,
    /// Go on after a wrong line of a script, instead of exiting with code 64
    #[arg(short, long)]
    keep_going: bool,
    #[command(flatten)]
    server: ServerArgs,
}

const HELP: &str = "\
A lock by hand:
  A create -p /lock
  A create -e -s /lock/n-       ephemeral: deleted with the session of A
  client B
  B create -e -s /lock/n-
  B ls /lock
  B get -w /lock/n-0000000000   leaves a watch, which sends one event
  A close                       prints `B: NodeDeleted /lock/n-0000000000`

Commands of a client, with the options and the output of `docent` with the same name:
get, set, create, delete, ls, stat, tree, watch, sync, multi (`create --help`). And:
  create -e          an ephemeral node
  get -w, ls -w, stat -w
                     leave a watch; its event is a line with the client's name
  watch              prints its events in the background, until the client ends
  wait [-t TIME]     wait until an event of this client is printed that no `wait`
                     has waited for
  close              close the session
  kill               end the client as a crash does: its session stays until its
                     timeout
  expire             end the session on the servers, as they do after a long pause;
                     the client hears of it by its connection, and begins another
Commands of the shell: client NAME, help, quit. Words are quoted as in docent multi;
# begins a comment. Data is on the line, never -.

A wrong line is one line on standard error. If standard input is a terminal, the
shell goes on. In a script it ends the shell with code 64, unless -k is given. What
a server refuses is one line on standard error too, and ends nothing. The end of
the input, `quit` and an interrupt (code 130) close all sessions.

Exit codes:
  0    the end of the input
  64   wrong usage: an option, or a line of a script
  69   no server for the first client
  74   the output cannot be written
  130  interrupted";

/// What follows a line.
enum Next {
    Line,
    End,
}

impl Shell {
    pub(crate) fn run(self) -> CommandResult {
        let runtime = crate::runtime().map_err(crate::no_runtime)?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> CommandResult {
        let mut clients = Clients::new(self.server.with_servers(self.servers));
        clients.connect("A").await?;
        let ended = tokio::select! {
            ended = lines(&mut clients, self.keep_going) => ended,
            _ = signal::ctrl_c() => Ok(exit::from_signal(2)),
        };
        clients.close_all().await;
        ended
    }
}

async fn lines(clients: &mut Clients, keep_going: bool) -> CommandResult {
    let mut prompt = Prompt::start();
    let mut number = 0_u64;
    loop {
        prompt::show();
        let Some(line) = prompt.line().await else { return Ok(0) };
        number += 1;
        let done = match line {
            Ok(line) => execute(clients, &line).await,
            Err(error) => Err(Failure::usage(error)),
        };
        match done {
            Ok(Next::Line) => {}
            Ok(Next::End) => return Ok(0),
            Err(failure) if failure.code == exit::USAGE => {
                let failure = Failure::usage(format_args!("line {number}: {failure}"));
                if !prompt.is_visible() && !keep_going {
                    return Err(failure);
                }
                report(format_args!("docent shell: {failure}"));
            }
            Err(failure) if failure.code == exit::IO => return Err(failure),
            Err(failure) => report(failure),
        }
    }
}

async fn execute(clients: &mut Clients, line: &str) -> Result<Next, Failure> {
    let (name, action) = match Line::parse(line, clients)? {
        Line::Nothing => return Ok(Next::Line),
        Line::Quit => return Ok(Next::End),
        Line::Help(text) => return print(&text).map(|()| Next::Line),
        Line::Client(name) => return clients.connect(&name).await.map(|()| Next::Line),
        Line::Action(name, action) => (name, action),
    };
    let done = perform(clients, &name, *action).await;
    // A wrong line is shown with its number, everything else with its client.
    done.map(|()| Next::Line).map_err(|failure| match failure.code {
        exit::USAGE | exit::IO => failure,
        code => Failure::new(code, format_args!("{name}: {failure}")),
    })
}

async fn perform(clients: &mut Clients, name: &str, action: Action) -> Result<(), Failure> {
    match action {
        Action::Get(mut it) => {
            it.command.ends_line = true;
            it.command.watching = clients.watching(name, it.watch)?;
            run(clients, name, it.command).await
        }
        Action::Ls(mut it) => {
            it.command.watching = clients.watching(name, it.watch)?;
            run(clients, name, it.command).await
        }
        Action::Stat(mut it) => {
            it.command.watching = clients.watching(name, it.watch)?;
            run(clients, name, it.command).await
        }
        Action::Create(mut it) => {
            it.command.ephemeral = it.ephemeral;
            run(clients, name, it.command).await
        }
        Action::Set(command) => run(clients, name, command).await,
        Action::Delete(command) => run(clients, name, command).await,
        Action::Tree(command) => run(clients, name, command).await,
        Action::Sync(command) => run(clients, name, command).await,
        Action::Multi(command) => run(clients, name, command).await,
        Action::Watch(command) => clients.watch(name, command).await,
        Action::Wait(wait) => clients.wait(name, wait.timeout).await,
        Action::Close => clients.close(name).await,
        Action::Kill => clients.kill(name),
        Action::Expire => clients.expire(name).await,
    }
}

async fn run(clients: &Clients, name: &str, mut command: impl Command) -> Result<(), Failure> {
    if command.reads_input() {
        let text =
            "standard input has the lines of the shell: write data and operations on the line";
        return Err(Failure::usage(text));
    }
    let client = clients.get(name)?;
    command.prepare(clients.server())?;
    run_on(&command, client).await.map(|_| ())
}
