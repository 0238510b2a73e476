//! `docent lead`: runs a command only while this process leads. The module `supervisor` runs the command.

use std::{sync::Arc, time::Duration};

use clap::Args;
use docent::{LeaderLatch, LeaderOptions, Leadership, leader::ConnectionStateErrorPolicy};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use crate::{
    duration,
    exit::{self, CommandResult, Failure},
    nodes::validate_path,
    output::report,
    supervisor::{
        CommandArgs, EndReason, Run, Session, Signals, Subject, UNCONTENDED, show_progress,
        stop_with_terminal,
    },
};

/// Run a command only while this process is the leader
///
/// Joins an election, waits until this process leads, runs the command, leaves
/// the election, and exits with the exit code of the command. If the leadership
/// may be lost, the command is ended in time: before another client can lead.
#[derive(Args)]
#[command(verbatim_doc_comment,
    after_help = "See `docent lead --help` for examples, exit codes and guarantees.",
    after_long_help = HELP)]
pub(crate) struct Lead {
    /// Stay in the election when the leadership is lost, and run the command again in the next one
    #[arg(short, long)]
    again: bool,
    /// Name of this participant, which others can read [default: user, host, process ID and command name]
    #[arg(short, long, value_name = "TEXT")]
    id: Option<String>,
    /// Longest time to wait for the first leadership: 10s, 500ms, 2m; a number without a unit is seconds
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Exit code if this process did not lead in time
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::NOT_ACQUIRED)]
    conflict_exit_code: u8,
    /// Path of the election, such as /election/scheduler
    path: String,
    #[command(flatten)]
    command: CommandArgs,
}

const HELP: &str = "\
Examples:
  docent lead /election/scheduler -- ./scheduler    one of many machines runs it
  docent lead --again /election/web -- ./publish    and again after each loss
  docent lead --id $HOSTNAME /election/db -- ./primary
  docent locks /election/scheduler                  the leader and the queue
  docent lead /e -- sh -c './write --token $DOCENT_FENCING_TOKEN'

The election is that of Curator's LeaderLatch: docent and Java programs can take
part in the same one.

Environment of the command:
  DOCENT_FENCING_TOKEN  a number that is greater for each later leader. Pass it
                        to the resource with every write, and let the resource
                        reject a number smaller than one it has seen: only this
                        protects against delayed writes
  DOCENT_LEADER_PATH    the leader's node; `docent multi` can check that it
                        exists in one transaction with a write
  DOCENT_CONNECT        the servers

Exit codes:
  that of the command, or 128 + the signal that ended it
  124      this process did not lead within --timeout (-E changes it)
  125      the leadership was lost, and the command was ended; with --again only
           if the watchdog was killed
  126      the command cannot be executed
  127      the command was not found
  128 + N  signal N arrived while no command was running; no node is left in the
           queue
  64       wrong usage; nothing was done
  69       no server
  77       not allowed by an ACL, or the credentials were rejected
  78       the configuration file is invalid
  65, 70, 71, 74  other errors: of the server, the operating system, a file

How the command is ended (TERM, then KILL, for every process it started):
  the session is lost, or     KILL at once: another client may lead
  the leader's node is
  deleted
  no server responds          it is stopped (SIGSTOP), and continued after a
                              reconnect; TERM and KILL before the session can
                              expire
  docent lead is killed       at once, by its watchdog: a second process
  docent lead is stopped      by its watchdog, before the session can expire
  (SIGSTOP, Ctrl-Z)
  the command exits, but not  at once: no process runs without the leadership,
  processes it started        so no daemon does either

HUP, INT, QUIT, TERM, USR1 and USR2 are forwarded to the process group of the
command. A command that exits by itself ends docent lead, also with --again.
docs/CLI.md lists the limits of these guarantees.";

impl Lead {
    pub(crate) fn run(self) -> CommandResult {
        validate_path(&self.path)?;
        self.command.run(async |session, signals| self.lead(session, signals).await)
    }

    async fn lead(&self, session: &Session, signals: &mut Signals) -> CommandResult {
        let was_free = session.appears_free(&self.path).await;
        // A lost connection does not end the leadership: the command is stopped until a reconnect, or ended at the
        // deadline of the session.
        let options =
            LeaderOptions::default().with_error_policy(ConnectionStateErrorPolicy::Session);
        let id = self.id.clone().unwrap_or_else(|| self.command.description());
        let latch = LeaderLatch::start_with(&session.client, &self.path, &id, options)?;
        let result = self.run_while_leading(session, &latch, was_free, signals).await;
        // An error is ignored: the session ends next, and deletes the node.
        let _ = timeout(session.cleanup_timeout(), latch.close()).await;
        result
    }

    async fn run_while_leading(
        &self,
        session: &Session,
        latch: &LeaderLatch,
        was_free: bool,
        signals: &mut Signals,
    ) -> CommandResult {
        let subject = Subject::Leadership;
        let never_revoked = Arc::new(Notify::new());
        let mut is_first = true;
        let start = Instant::now();
        loop {
            let limit = self.timeout.filter(|_| is_first);
            let leadership = tokio::select! {
                biased;
                signal = signals.next() => return Ok(exit::from_signal(signal.as_raw())),
                leadership = leadership(latch, limit.map(|limit| session.start + limit)) => leadership?,
                () = show_progress(subject.command_name(), &session.client, &self.path) => {
                    return Ok(exit::SOFTWARE);
                }
                () = stop_with_terminal() => return Ok(exit::SOFTWARE),
            };
            let Some(leadership) = leadership else {
                return Err(Failure::with_chosen_code(self.conflict_exit_code, self.not_leading()));
            };
            let is_uncontended = is_first && was_free && start.elapsed() < UNCONTENDED;
            let run = self
                .command
                .run_while_held(
                    subject,
                    session,
                    &leadership,
                    &never_revoked,
                    is_uncontended,
                    signals,
                )
                .await?;
            match run {
                // The latch keeps its place in the queue, or joins it again.
                Run::NotStarted => {}
                Run::Ended(reason) if self.again && reason != EndReason::WatchdogDied => {
                    report(format_args!(
                        "docent lead: {}; the command was ended; waiting to lead again",
                        reason.text(subject)
                    ));
                }
                run => return run.into_result(subject),
            }
            is_first = false;
        }
    }

    fn not_leading(&self) -> String {
        let (path, time) = (&self.path, self.timeout.unwrap_or_default());
        format!(
            "this process did not lead within {time:?}; `docent locks {path}` shows which one does"
        )
    }
}

/// Waits for the leadership; `None` once the deadline has passed.
async fn leadership(
    latch: &LeaderLatch,
    deadline: Option<Instant>,
) -> Result<Option<Leadership>, docent::Error> {
    match deadline {
        // At the deadline, a leadership that is already held is still returned.
        Some(deadline) => {
            tokio::time::timeout_at(deadline, latch.leadership()).await.ok().transpose()
        }
        None => latch.leadership().await.map(Some),
    }
}
