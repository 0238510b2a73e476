//! The shared part of the commands that connect to a server.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use docent::Client;

use crate::{
    connect::ServerArgs,
    exit::{self, CommandResult, Failure},
    finish, no_runtime, runtime,
};

// A command with the connection options. A doc comment here would become the description of each command.
#[derive(Args)]
pub(crate) struct Connected<C: Args> {
    #[command(flatten)]
    command: C,
    #[command(flatten)]
    server: ServerArgs,
}

/// A command that connects to a server.
pub(crate) trait Command {
    /// Whether `prepare` reads standard input.
    fn reads_input(&self) -> bool {
        false
    }

    /// Validates the arguments and reads the input, before the command connects.
    fn prepare(&mut self, server: &ServerArgs) -> Result<(), Failure>;

    /// Runs the command.
    async fn run(&self, client: &Client) -> CommandResult;
}

/// How long a command waits until the server has closed the session; after that, the session expires.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connects, runs a command, and prints its error in one line.
pub(crate) fn run<C: Command + Args>(name: &str, connected: Connected<C>) -> ExitCode {
    let Connected { mut command, server } = connected;
    let run = async {
        command.prepare(&server)?;
        let client = server.connect().await?;
        let result = run_on(&command, &client).await;
        // A failed close does not change the result; the session expires.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, client.close()).await;
        result
    };
    finish(name, runtime().map_err(no_runtime).and_then(|runtime| runtime.block_on(run)))
}

/// Runs a prepared command.
pub(crate) async fn run_on(command: &impl Command, client: &Client) -> CommandResult {
    let result = command.run(client).await;
    if let Err(failure) = &result
        && failure.code == exit::NO_NODE
        && let Some(missing) = missing_chroot(client).await
    {
        return Err(missing);
    }
    result
}

/// The failure to report for a missing node, if the chroot itself is missing.
pub(crate) async fn missing_chroot(client: &Client) -> Option<Failure> {
    let chroot = client.chroot()?;
    let root = client.exists("/").await.ok()?;
    root.is_none().then(|| Failure::missing_chroot(chroot))
}
