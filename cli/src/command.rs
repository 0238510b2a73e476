//! What all commands have in common that talk to a server.

use std::{process::ExitCode, time::Duration};

use docent::Client;

use crate::{
    connect::ServerArgs,
    ended,
    exit::{Ended, Failure},
    no_runtime, runtime,
};

/// A command that talks to a server.
pub(crate) trait Command {
    /// Which server.
    fn server(&self) -> &ServerArgs;

    /// Looks at everything that can be wrong without a server, before anything is done.
    fn prepare(&mut self) -> Result<(), Failure>;

    /// Does it.
    async fn run(&self, client: &Client) -> Ended;
}

/// How long the server may take to hear that the session is over: it ends by itself, too.
const GOODBYE: Duration = Duration::from_secs(1);

/// Runs a command and says in one line why it failed.
pub(crate) fn run(name: &str, mut command: impl Command) -> ExitCode {
    let run = async {
        command.prepare()?;
        let client = command.server().connect().await?;
        let ended = command.run(&client).await;
        // The outcome is known; a session that is not closed is only untidy.
        let _ = tokio::time::timeout(GOODBYE, client.close()).await;
        ended
    };
    ended(name, runtime().map_err(no_runtime).and_then(|runtime| runtime.block_on(run)))
}
