//! Runs a command while a lock or a leadership is held: the common part of `docent lock` and `docent lead`.
//!
//! | module | contents |
//! |---|---|
//! | this | the options of both commands, the contender's description |
//! | `hold` | running the command while the lock or leadership is held |
//! | `watchdog` | the second process, which ends the command when this one cannot |
//! | `schedule` | when the command must be ended |
//! | `process_tree` | the processes of the command |
//!
//! There are three processes. `docent` holds the session. Its watchdog, a second process of the same program, controls
//! the command. The command leads a process group. Either of the first two suffices to end the third. The lock is
//! released only when no process of the command is left.

mod clock;
mod hold;
mod process_tree;
mod progress;
mod schedule;
mod signals;
mod terminal;
mod watchdog;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use docent::{Client, ConnectionState, ErrorKind, locks::Held};
use rustix::process::{Signal, getpid, kill_process};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use self::{hold::Hold, signals::TerminalStops};
pub(crate) use self::{
    hold::{EndReason, Run, Subject},
    process_tree::{ProcessTree, adopt_orphans},
    progress::show as show_progress,
    signals::Signals,
    watchdog::{EXEC_COMMAND, WATCHDOG_COMMAND, exec_command, run as run_watchdog},
};
use crate::{
    connect::{ServerArgs, Settings},
    duration,
    exit::{self, CommandResult, Failure},
};

/// The command, and the options for running it.
#[derive(Args)]
pub(crate) struct CommandArgs {
    /// Longest time between TERM and KILL when the command is ended; shorter if the session ends sooner
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = duration::parse)]
    kill_after: Duration,
    /// Keep the command running while there is no connection, instead of stopping it
    #[arg(long)]
    run_suspended: bool,
    /// Command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    server: ServerArgs,
}

/// A client, and when it began to wait.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The connect string as given by the user.
    connect: String,
    pub(crate) start: Instant,
}

impl CommandArgs {
    /// Reports all errors of the command line, then connects and calls `body`.
    pub(crate) fn run(
        &self,
        body: impl AsyncFnOnce(&Session, &mut Signals) -> CommandResult,
    ) -> CommandResult {
        let settings = self.server.settings_of_a_guard()?;
        find_program(self.command.first().map(OsString::as_os_str).unwrap_or_default())?;
        let runtime = crate::runtime().map_err(crate::no_runtime)?;
        runtime.block_on(connected(settings, body)).map_err(Failure::of_a_guard)
    }

    /// Runs the command while `held` is held. `is_uncontended` means that no other client held it shortly before.
    pub(crate) async fn run_while_held(
        &self,
        subject: Subject,
        session: &Session,
        held: &dyn Held,
        revoked: &Arc<Notify>,
        is_uncontended: bool,
        signals: &mut Signals,
    ) -> Result<Run, Failure> {
        let token = tokio::select! {
            biased;
            signal = signals.next() => return Ok(Run::interrupted(signal)),
            token = held.fencing_token() => token?,
        };
        let path = match subject {
            Subject::Lock | Subject::StrictLock => "DOCENT_LOCK_PATH",
            Subject::Leadership => "DOCENT_LEADER_PATH",
        };
        let client = &session.client;
        let hold = Hold {
            subject,
            client,
            held,
            command: &self.command,
            environment: vec![
                (path, held.path().to_owned()),
                ("DOCENT_FENCING_TOKEN", token.to_string()),
                ("DOCENT_CONNECT", session.connect.clone()),
            ],
            kill_after: self.kill_after,
            run_suspended: self.run_suspended,
            revoked: Arc::clone(revoked),
            delay: if is_uncontended {
                Duration::ZERO
            } else {
                handover_delay(client.session_timeout())
            },
        };
        hold.run(signals).await
    }

    /// Describes this contender. The arguments of the command are left out, because they may be secret and every
    /// client can read the node.
    pub(crate) fn description(&self) -> String {
        let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let program = self.command.first().map(Path::new).and_then(Path::file_name);
        let program = program.unwrap_or_default().to_string_lossy();
        format!("{user}@{host} pid {} {program}", std::process::id())
    }
}

async fn connected(
    settings: Settings,
    body: impl AsyncFnOnce(&Session, &mut Signals) -> CommandResult,
) -> CommandResult {
    let mut signals =
        Signals::listen().map_err(|error| Failure::os("cannot handle signals", error))?;
    let (start, connect) = (Instant::now(), settings.connect.clone());
    let client = tokio::select! {
        biased;
        signal = signals.next() => return Ok(exit::from_signal(signal.as_raw())),
        client = settings.connect() => client?,
    };
    let session = Session { client, connect, start };
    let result = body(&session, &mut signals).await;
    // Requests are sent in order, so the deletes of a dropped acquire precede the close.
    let _ = timeout(session.cleanup_timeout(), session.client.close()).await;
    result
}

impl Session {
    /// The time limit for the release and the close. It is short without a connection, since they cannot succeed then.
    pub(crate) fn cleanup_timeout(&self) -> Duration {
        let connected = self.client.state().get().is_some_and(ConnectionState::is_connected);
        let limit = if connected { Duration::from_secs(5) } else { Duration::from_millis(100) };
        self.client.session_timeout().min(limit)
    }

    /// Whether a lock or an election currently has neither a holder nor a waiter. If the server replies later than an
    /// uncontended acquire would take, this is not known and the result is `false`.
    pub(crate) async fn appears_free(&self, path: &str) -> bool {
        match timeout(UNCONTENDED, self.client.get_children(path)).await {
            Ok(Ok(children)) => children.is_empty(),
            Ok(Err(error)) => error.kind() == ErrorKind::NoNode,
            Err(_) => false,
        }
    }
}

/// Stops this process on Ctrl-Z, like the signal's default action, which no longer applies once a command has
/// run. Does not return.
pub(crate) async fn stop_with_terminal() {
    let mut stops = TerminalStops::listen();
    loop {
        stops.next().await;
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

/// How long the command is delayed after a contended acquire, so that the previous holder's command has stopped.
///
/// When a session is killed, the servers delete its lock node before its client is notified. The client is
/// disconnected at once and stops its command a few milliseconds later; the delay is longer than that.
fn handover_delay(session_timeout: Duration) -> Duration {
    (session_timeout / 10).min(MAX_HANDOVER_DELAY)
}

/// An acquire that found no other contender and took less time than this had no previous holder.
pub(crate) const UNCONTENDED: Duration = Duration::from_millis(50);

const MAX_HANDOVER_DELAY: Duration = Duration::from_millis(250);

/// Finds the program as the shell does, so that a wrong name is reported before the lock is acquired.
fn find_program(program: &OsStr) -> Result<PathBuf, Failure> {
    let name = program.to_string_lossy().into_owned();
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = if is_path {
        vec![PathBuf::from(program)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        std::env::split_paths(&path).map(|directory| directory.join(program)).collect()
    };
    let mut found = false;
    for candidate in candidates.into_iter().filter(|candidate| candidate.is_file()) {
        if rustix::fs::access(&candidate, rustix::fs::Access::EXEC_OK).is_ok() {
            return Ok(candidate);
        }
        found = true;
    }
    if found || (is_path && Path::new(program).is_dir()) {
        let text = format!(
            "{name} cannot be executed; check that it is a program and has the permission (chmod +x)"
        );
        return Err(Failure::new(exit::NOT_EXECUTABLE, text));
    }
    let text = format!("{name}: no such command; check the name and PATH");
    Err(Failure::new(exit::NOT_FOUND, text))
}
