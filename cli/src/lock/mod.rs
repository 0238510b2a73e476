//! `docent lock`: runs a command only while a lock is held.
//!
//! | module | contents |
//! |---|---|
//! | this | options, acquiring the lock |
//! | `hold` | running the command while the lock is held |
//! | `watchdog` | the second process, which ends the command when this one cannot |
//! | `schedule` | when the command must be ended |
//! | `process_tree` | the processes of the command |

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
    num::NonZeroU16,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use docent::{
    Client, ConnectionState, ErrorKind,
    recipes::locks::{
        InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockGuard,
        LockOptions,
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

pub(crate) use self::watchdog::{
    EXEC_COMMAND, WATCHDOG_COMMAND, exec_command, run as run_watchdog,
};
use self::{hold::Hold, signals::Signals};
use crate::{
    connect::{ServerArgs, Settings},
    duration,
    exit::{self, CommandResult, Failure},
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
    /// Acquire one of N leases instead of a mutex; all contenders must use the same N
    #[arg(long, value_name = "N")]
    semaphore: Option<NonZeroU16>,
    /// Acquire the read lock of a read/write lock: it is shared with other readers
    #[arg(long, conflicts_with_all = ["semaphore", "write"])]
    read: bool,
    /// Acquire the write lock of a read/write lock
    #[arg(long, conflicts_with = "semaphore")]
    write: bool,
    /// End the command and release the lock when it is revoked with `docent revoke`
    #[arg(long, conflicts_with = "semaphore")]
    revocable: bool,
    /// Longest time between TERM and KILL when the command is ended; shorter if the lock is lost sooner
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = duration::parse)]
    kill_after: Duration,
    /// Keep the command running while there is no connection, instead of stopping it
    #[arg(long)]
    run_suspended: bool,
    /// Description of this contender for `docent locks` [default: user, host, process ID and command name]
    #[arg(long, value_name = "TEXT", conflicts_with = "revocable")]
    data: Option<String>,
    /// Exit code if the lock was not acquired, as in flock(1)
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::NOT_ACQUIRED)]
    conflict_exit_code: u8,
    /// Path of the lock, such as /locks/backup
    path: String,
    /// Command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    server: ServerArgs,
}

const HELP: &str = "\
Examples:
  docent lock /locks/backup -- ./backup.sh              wait without limit
  docent lock --no-wait /locks/cron -- ./hourly.sh      on one of many machines
  docent lock --timeout 30s /locks/db -- psql -f x.sql
  docent lock --semaphore 3 /locks/licences -- ./solve  three at a time
  docent lock --read /locks/tree -- tar c tree          shared; writers wait
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
  124      the lock was not acquired: --timeout, --no-wait (-E changes it)
  125      the lock was lost or revoked, and the command was ended
  126      the command cannot be executed
  127      the command was not found
  128 + N  signal N arrived during the acquire; no node is left in the queue
  64       wrong usage; nothing was done
  69       no server
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

HUP, INT, QUIT, TERM, USR1 and USR2 are forwarded to the process group of the
command. docs/CLI.md lists the limits of these guarantees.";

/// The recipe that the options select.
enum Recipe {
    Mutex(InterProcessMutex),
    Semaphore(InterProcessSemaphoreV2),
}

impl Lock {
    pub(crate) fn run(self) -> CommandResult {
        // All errors of the command line are reported before anything is done.
        let settings = self.server.settings()?;
        find_program(self.command.first().map(OsString::as_os_str).unwrap_or_default())?;
        crate::runtime().map_err(crate::no_runtime)?.block_on(self.lock(settings))
    }

    async fn lock(&self, settings: Settings) -> CommandResult {
        let mut signals =
            Signals::listen().map_err(|error| Failure::os("cannot handle signals", error))?;
        let (start, connect) = (Instant::now(), settings.connect.clone());
        let revoked = Arc::new(Notify::new());
        let client = tokio::select! {
            biased;
            signal = signals.next() => return Ok(exit::from_signal(signal.as_raw())),
            client = settings.connect() => client?,
        };
        let result = self.with_client(&client, &mut signals, start, &revoked, connect).await;
        // Requests are sent in order, so the deletes of a dropped acquire precede the close.
        let _ = timeout(Self::cleanup_timeout(&client), client.close()).await;
        result
    }

    /// How long the release and the close may take. Short without a connection, since they cannot succeed then.
    fn cleanup_timeout(client: &Client) -> Duration {
        let connected = client.state().borrow().is_some_and(ConnectionState::is_connected);
        let limit = if connected { Duration::from_secs(5) } else { Duration::from_millis(100) };
        client.session_timeout().min(limit)
    }

    async fn with_client(
        &self,
        client: &Client,
        signals: &mut Signals,
        start: Instant,
        revoked: &Arc<Notify>,
        connect: String,
    ) -> CommandResult {
        let recipe = self.recipe(client)?;
        let acquire = async {
            let was_free = self.appears_free(client).await;
            let acquire_start = Instant::now();
            let guard = self.acquire(client, &recipe, start, revoked).await?;
            let is_uncontended = was_free && acquire_start.elapsed() < UNCONTENDED;
            Ok::<_, Failure>((guard, is_uncontended))
        };
        let (guard, is_uncontended) = tokio::select! {
            biased;
            // This drops the acquire, which deletes its node.
            signal = signals.next() => return Ok(exit::from_signal(signal.as_raw())),
            acquired = acquire => acquired?,
            () = progress::show(client, &self.path) => return Ok(exit::SOFTWARE),
        };
        let Some(guard) = guard else {
            return Err(Failure::new(self.conflict_exit_code, self.not_acquired()));
        };
        let token = guard.fencing_token().await?;
        let environment = vec![
            ("DOCENT_LOCK_PATH", guard.lock_path().to_owned()),
            ("DOCENT_FENCING_TOKEN", token.to_string()),
            ("DOCENT_CONNECT", connect),
        ];
        let hold = Hold {
            client,
            guard: &guard,
            command: &self.command,
            environment,
            kill_after: self.kill_after,
            run_suspended: self.run_suspended,
            revoked: Arc::clone(revoked),
            delay: if is_uncontended {
                Duration::ZERO
            } else {
                handover_delay(client.session_timeout())
            },
        };
        let result = hold.run(signals).await;
        // An error is ignored: a lost lock was reported, and a node that cannot be deleted ends with the session.
        let _ = timeout(Self::cleanup_timeout(client), guard.release()).await;
        result
    }

    fn recipe(&self, client: &Client) -> Result<Recipe, Failure> {
        // A semaphore creates two nodes for a contender; both get the data.
        let data = self.node_data();
        let options = LockOptions::default().with_data(data.clone()).with_default_data(data);
        Ok(match self.semaphore {
            Some(leases) => Recipe::Semaphore(InterProcessSemaphoreV2::with_options(
                client,
                &self.path,
                leases.get().into(),
                options,
            )?),
            None if self.read || self.write => {
                let pair = InterProcessReadWriteLock::with_options(client, &self.path, options)?;
                let lock = if self.read { pair.read_lock() } else { pair.write_lock() };
                Recipe::Mutex(lock.clone())
            }
            None => Recipe::Mutex(InterProcessMutex::with_options(client, &self.path, options)?),
        })
    }

    /// Whether the lock has neither a holder nor a waiter at the moment.
    async fn appears_free(&self, client: &Client) -> bool {
        let path = match self.semaphore {
            Some(_) => format!("{}/leases", self.path),
            None => self.path.clone(),
        };
        match client.get_children(&path).await {
            Ok(children) => children.is_empty(),
            Err(error) => error.kind() == ErrorKind::NoNode,
        }
    }

    /// Acquires the lock. Returns `None` after `--timeout`, or if it is not free with `--no-wait`.
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
                Recipe::Semaphore(semaphore) => match remaining {
                    Some(remaining) => semaphore.acquire_timeout(remaining).await,
                    None => semaphore.acquire().await.map(Some),
                },
            };
            match acquired {
                Ok(guard) => return Ok(guard),
                // No server for longer than the recipe's retry policy allows: reconnect and acquire again.
                Err(error) if error.is_retryable() => {
                    client.wait_until_connected(client.config().connection_timeout()).await?;
                    if limit.is_some_and(|limit| start.elapsed() >= limit) {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn not_acquired(&self) -> String {
        let path = &self.path;
        match self.timeout {
            None => format!("{path} is held by another client; `docent locks {path}` shows which"),
            Some(time) => format!(
                "{path} was not acquired within {time:?}; `docent locks {path}` shows the holder"
            ),
        }
    }

    /// Describes this contender. Without the arguments of the command: they may be secret, and every client can read
    /// the node.
    fn node_data(&self) -> String {
        if let Some(data) = &self.data {
            return data.clone();
        }
        let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let program = self.command.first().map(Path::new).and_then(Path::file_name);
        let program = program.unwrap_or_default().to_string_lossy();
        format!("{user}@{host} pid {} {program}", std::process::id())
    }
}

/// How long the command is delayed after a contended acquire, so that the previous holder's command has stopped.
///
/// When a session is killed, the servers delete its lock node before its client is notified. The client is
/// disconnected at once and stops its command a few milliseconds later; the delay is longer than that.
fn handover_delay(session_timeout: Duration) -> Duration {
    (session_timeout / 10).min(MAX_HANDOVER_DELAY)
}

/// An acquire that found no other contender and took less than this had no previous holder.
const UNCONTENDED: Duration = Duration::from_millis(50);

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
