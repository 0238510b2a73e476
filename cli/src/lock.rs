//! `docent lock`: runs a command only while a lock is held. The module `supervisor` runs the command.

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use clap::Args;
use docent::{
    Client,
    locks::{
        InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockGuard,
        LockOptions, StrictMutex,
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    duration,
    exit::{self, CommandResult, Failure},
    nodes::validate_path,
    supervisor::{
        CommandArgs, Run, Session, Signals, Subject, UNCONTENDED, show_progress, stop_with_terminal,
    },
};

/// Run a command only while a lock is held
///
/// Acquires the lock, runs the command, releases the lock, and exits with the
/// exit code of the command. If the lock may be lost, the command is ended in
/// time: before another client can acquire the lock.
#[derive(Args)]
#[command(verbatim_doc_comment,
    after_help = "See `docent lock --help` for examples, exit codes and guarantees.",
    after_long_help = HELP)]
pub(crate) struct Lock {
    /// Longest time to wait for the lock: 10s, 500ms, 2m; a number without a unit is seconds
    #[arg(short, long, value_name = "TIME", visible_short_alias = 'w', value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Fail at once if the lock is not free
    #[arg(short, long, visible_alias = "nonblock", conflicts_with = "timeout")]
    no_wait: bool,
    /// Hold the lock at least this long, also after the command has exited: no machine with a later clock runs it again
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    at_least: Option<Duration>,
    /// Acquire one of N leases instead of a mutex; all contenders must use the same N
    #[arg(long, value_name = "N", value_parser = leases)]
    semaphore: Option<NonZeroU16>,
    /// Acquire the read lock of a read/write lock: it is shared with other readers
    #[arg(long, conflicts_with_all = ["semaphore", "write"])]
    read: bool,
    /// Acquire the write lock of a read/write lock
    #[arg(long, conflicts_with = "semaphore")]
    write: bool,
    /// Acquire a mutex whose holds are proven not to overlap; all contenders must use this option
    #[arg(long, conflicts_with_all = ["semaphore", "read", "write", "revocable"])]
    strict: bool,
    /// End the command and release the lock when it is revoked with `docent revoke`
    #[arg(long, conflicts_with = "semaphore")]
    revocable: bool,
    /// Description of this contender for `docent locks` [default: user, host, process ID and command name]
    #[arg(long, value_name = "TEXT", conflicts_with = "revocable")]
    data: Option<String>,
    /// Exit code if the lock was not acquired, as in flock(1)
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::NOT_ACQUIRED)]
    conflict_exit_code: u8,
    /// Path of the lock, such as /locks/backup
    path: String,
    #[command(flatten)]
    command: CommandArgs,
}

const HELP: &str = "\
Examples:
  docent lock /locks/backup -- ./backup.sh              wait without limit
  docent lock -n --at-least 5m /locks/cron -- ./hourly.sh
                              once an hour, on one of many machines, if their
                              clocks differ by less than 5 minutes
  docent lock --timeout 30s /locks/db -- psql -f x.sql
  docent lock --semaphore 3 /locks/licences -- ./solve  three at a time
  docent lock --read /locks/tree -- tar c tree          shared; writers wait
  docent lock --strict /locks/disk -- ./format.sh       never two at once
  docent lock /l -- sh -c './write --token $DOCENT_FENCING_TOKEN'

Environment of the command:
  DOCENT_FENCING_TOKEN  a number that is greater for each later holder. Pass it
                        to the resource with every write, and let the resource
                        reject a number smaller than one it has seen: only this
                        protects against delayed writes. (With --semaphore, the
                        tokens have no order.)
  DOCENT_LOCK_PATH      the lock node; `docent multi` can check that it exists
                        in one transaction with a write
  DOCENT_CONNECT        the servers

Exit codes:
  that of the command, or 128 + the signal that ended it
  124      another client holds the lock: --timeout, --no-wait (-E changes it)
  125      the lock was lost or revoked, and the command was ended; or the lock
           was lost before --at-least was over
  126      the command cannot be executed
  127      the command was not found
  128 + N  signal N arrived during the acquire; no node is left in the queue
  64       wrong usage; nothing was done
  65       with --strict: the path has a node of another lock
  69       no server, or no reply in time: whether the lock is free is unknown
  77       not allowed by an ACL, or the credentials were rejected
  78       the configuration file is invalid
  70, 71, 74  other errors; of the operating system; of a file

How the command is ended (TERM, then KILL, for every process it started):
  the session is lost, or     KILL at once: another client may hold the lock
  the lock node is deleted
  no server responds          it is stopped (SIGSTOP), and continued after a
                              reconnect; TERM and KILL before the session can
                              expire
  docent lock is killed       at once, by its watchdog: a second process
  docent lock is stopped      by its watchdog, before the session can expire
  (SIGSTOP, Ctrl-Z)
  the command exits, but not  at once: no process runs without the lock, so no
  processes it started        daemon does either

With --strict the command is ended by the time until which no other client can
acquire the lock, whatever happens to servers, network and sessions: KILL a
tenth of the session timeout (at most 2 s) before it, TERM before that. After a
hold that was lost, the next one waits for one session timeout.

HUP, INT, QUIT, TERM, USR1 and USR2 are forwarded to the process group of the
command. docs/CLI.md lists the limits of these guarantees.";

fn leases(text: &str) -> Result<NonZeroU16, String> {
    text.parse().map_err(|_| format!("the number of leases must be from 1 to {}", u16::MAX))
}

/// The recipe that the options select.
enum Recipe {
    Mutex(InterProcessMutex),
    Strict(StrictMutex),
    Semaphore(InterProcessSemaphoreV2),
}

impl Lock {
    pub(crate) fn run(self) -> CommandResult {
        validate_path(&self.path)?;
        self.command.run(async |session, signals| self.lock(session, signals).await)
    }

    async fn lock(&self, session: &Session, signals: &mut Signals) -> CommandResult {
        let client = &session.client;
        let revoked = Arc::new(Notify::new());
        let recipe = self.recipe(client)?;
        let acquire = async {
            let was_free = self.appears_free(session).await;
            let acquire_start = Instant::now();
            let guard = self.acquire(client, &recipe, session.start, &revoked).await?;
            // A strict lock is granted only after the previous hold has ended.
            let is_uncontended = self.strict || was_free && acquire_start.elapsed() < UNCONTENDED;
            Ok::<_, Failure>((guard, is_uncontended))
        };
        let (guard, is_uncontended) = tokio::select! {
            biased;
            // This drops the acquire, which deletes its node.
            signal = signals.next() => return Ok(exit::from_signal(signal.as_raw())),
            acquired = acquire => acquired?,
            () = show_progress(Subject::Lock.command_name(), client, &self.path) => {
                return Ok(exit::SOFTWARE);
            }
        };
        let Some(guard) = guard else {
            let why = self.not_acquired(session, &recipe).await;
            return Err(Failure::with_chosen_code(self.conflict_exit_code, why));
        };
        let kept_until = self.at_least.map(|time| Instant::now() + time);
        let subject = if self.strict { Subject::StrictLock } else { Subject::Lock };
        let run = self
            .command
            .run_while_held(subject, session, &guard, &revoked, is_uncontended, signals)
            .await;
        let result = match (run, kept_until) {
            (Ok(Run::Exited(code)), Some(until)) if until > Instant::now() => {
                keep(&guard, until, &revoked, signals, code).await
            }
            (run, _) => run.and_then(|run| run.into_result(subject)),
        };
        // An error is ignored: a lost lock has been reported, and the session that ends next deletes the node.
        let _ = timeout(session.cleanup_timeout(), guard.release()).await;
        result
    }

    fn recipe(&self, client: &Client) -> Result<Recipe, Failure> {
        // A semaphore creates two nodes for a contender; both get the data.
        let data = self.data.clone().unwrap_or_else(|| self.command.description());
        let options = LockOptions::default().with_data(data.clone()).with_default_data(data);
        Ok(match self.semaphore {
            Some(leases) => Recipe::Semaphore(InterProcessSemaphoreV2::with_options(
                client,
                &self.path,
                leases.get().into(),
                options,
            )?),
            None if self.strict => {
                Recipe::Strict(StrictMutex::with_options(client, &self.path, options)?)
            }
            None if self.read || self.write => {
                let pair = InterProcessReadWriteLock::with_options(client, &self.path, options)?;
                let lock = if self.read { pair.read_lock() } else { pair.write_lock() };
                Recipe::Mutex(lock.clone())
            }
            None => Recipe::Mutex(InterProcessMutex::with_options(client, &self.path, options)?),
        })
    }

    async fn appears_free(&self, session: &Session) -> bool {
        match self.semaphore {
            Some(_) => session.appears_free(&format!("{}/leases", self.path)).await,
            None => session.appears_free(&self.path).await,
        }
    }

    /// Acquires the lock. Returns `None` if another client held it for all of `--timeout`, or at once with `--no-wait`.
    async fn acquire(
        &self,
        client: &Client,
        recipe: &Recipe,
        start: Instant,
        revoked: &Arc<Notify>,
    ) -> Result<Option<LockGuard>, Failure> {
        let limit = if self.no_wait { Some(Duration::ZERO) } else { self.timeout };
        loop {
            let remaining = limit.map(|limit| limit.saturating_sub(start.elapsed()));
            let acquired = match recipe {
                Recipe::Mutex(mutex) => {
                    if self.revocable {
                        let revoked = Arc::clone(revoked);
                        mutex.make_revocable(move || revoked.notify_one());
                    }
                    match remaining {
                        Some(remaining) => mutex.acquire_timeout(remaining).await,
                        None => mutex.acquire().await.map(Some),
                    }
                }
                Recipe::Strict(mutex) => match remaining {
                    Some(remaining) => mutex.acquire_timeout(remaining).await,
                    None => mutex.acquire().await.map(Some),
                },
                Recipe::Semaphore(semaphore) => match remaining {
                    Some(remaining) => semaphore.acquire_timeout(remaining).await,
                    None => semaphore.acquire().await.map(Some),
                },
            };
            match acquired {
                Ok(guard) => return Ok(guard),
                // No server for longer than the recipe's retry policy allows: reconnect and acquire again.
                Err(error)
                    if error.is_retryable()
                        && limit.is_none_or(|limit| start.elapsed() < limit) =>
                {
                    client.wait_until_connected(client.config().connection_timeout()).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The message that the lock was not acquired in time, with its reason.
    async fn not_acquired(&self, session: &Session, recipe: &Recipe) -> String {
        let path = &self.path;
        if let Recipe::Strict(mutex) = recipe
            && let Ok(Ok(Some(claim))) =
                timeout(session.cleanup_timeout(), mutex.lost_claim()).await
        {
            let wait = claim.as_millis().div_ceil(1_000) + 1;
            return format!(
                "{path} is not held, but the claim of a lost holder is not over; wait for it with --timeout {wait}s or \
                 more: a process that only polls never acquires it"
            );
        }
        match self.timeout {
            None => format!("{path} is held by another client; `docent locks {path}` shows which"),
            Some(time) => format!(
                "{path} was not acquired within {time:?}: another client holds it, or is ahead in the queue; \
                 `docent locks {path}` shows which"
            ),
        }
    }
}

/// Keeps the lock after the command has exited with this code. A signal or a revocation ends that; a loss is reported
/// as if the command were still running.
async fn keep(
    guard: &LockGuard,
    until: Instant,
    revoked: &Notify,
    signals: &mut Signals,
    code: u8,
) -> CommandResult {
    tokio::select! {
        biased;
        signal = signals.next() => Ok(exit::from_signal(signal.as_raw())),
        () = guard.lost() => Err(Failure::new(exit::LOST, format_args!(
            "the lock was lost before --at-least was over, after the command had exited with {code}; \
             another machine may run its command again"
        ))),
        () = sleep_until(until) => Ok(code),
        () = revoked.notified() => Ok(code),
        () = stop_with_terminal() => Ok(code),
    }
}
