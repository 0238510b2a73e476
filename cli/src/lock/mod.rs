//! `docent lock`: a command that runs only while a lock is held.
//!
//! | file | |
//! |---|---|
//! | this | options, waiting for the lock |
//! | `hold` | the time in which it is held |
//! | `watchdog` | the second process, for when this one cannot act |
//! | `schedule` | when a command must go |
//! | `family` | the processes of a command |

mod clock;
mod family;
mod hold;
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
    recipes::{
        self,
        locks::{
            InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockGuard,
            LockOptions,
        },
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

pub(crate) use self::watchdog::{STAGE, WATCHDOG, become_command, run as run_watchdog};
use self::{hold::Holding, signals::Signals};
use crate::{
    connect::{ServerArgs, Settings},
    duration,
    exit::{self, Ended, Failure},
};

/// Run a command only while a lock is held
///
/// Waits until the lock is ours, runs the command, gives the lock back, and ends
/// with the command's exit code. When the lock may be lost, the command is ended
/// in time: before the server can give the lock to somebody else.
#[derive(Args)]
#[command(verbatim_doc_comment,
    after_help = "See `docent lock --help` for examples, exit codes, and what is promised.",
    after_long_help = HELP)]
pub(crate) struct Lock {
    /// Wait so long for the lock: 10s, 500ms, 2m; a bare number is seconds
    #[arg(short, long, value_name = "TIME", visible_short_alias = 'w', value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Do not wait: the lock is free, or it is not
    #[arg(short, long, visible_alias = "nonblock", conflicts_with = "timeout")]
    no_wait: bool,
    /// One of N leases instead of a mutex; everybody must say the same N
    #[arg(long, value_name = "N")]
    semaphore: Option<NonZeroU16>,
    /// The reading side of a read/write lock: others may read too
    #[arg(long, conflicts_with_all = ["semaphore", "write"])]
    read: bool,
    /// The writing side of a read/write lock
    #[arg(long, conflicts_with = "semaphore")]
    write: bool,
    /// Give the lock up, and end the command, when somebody asks for it with `docent revoke`
    #[arg(long, conflicts_with = "semaphore")]
    revocable: bool,
    /// Between TERM and KILL when the command is ended; less when the lock ends sooner
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = duration::parse)]
    kill_after: Duration,
    /// Let the command run on while there is no connection; else it stands still
    #[arg(long)]
    run_suspended: bool,
    /// What `docent locks` shows of this holder [default: user, host, process and command's name]
    #[arg(long, value_name = "TEXT", conflicts_with = "revocable")]
    data: Option<String>,
    /// The exit code for a lock that was not got, as flock(1)
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::NOT_ACQUIRED)]
    conflict_exit_code: u8,
    /// The lock: a path such as /locks/backup
    path: String,
    /// The command and its arguments, behind --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    server: ServerArgs,
}

const HELP: &str = "\
Examples:
  docent lock /locks/backup -- ./backup.sh              as long as it takes
  docent lock --no-wait /locks/cron -- ./hourly.sh      one machine of many
  docent lock --timeout 30s /locks/db -- psql -f x.sql
  docent lock --semaphore 3 /locks/licences -- ./solve  three at a time
  docent lock --read /locks/tree -- tar c tree          a writer is alone
  docent lock /l -- sh -c './write --token $DOCENT_FENCING_TOKEN'

The command's environment:
  DOCENT_FENCING_TOKEN  a number that grows from holder to holder. Hand it to
                        what you write to, and let that refuse a number smaller
                        than it has seen: nothing else protects against a write
                        that is late. (In no order with --semaphore.)
  DOCENT_LOCK_PATH      the lock's node; `docent multi` can check that it is
                        there, in one step with a write
  DOCENT_CONNECT        the servers

Exit codes:
  the command's, or 128 + the signal that ended it
  124      the lock was not got: --timeout, --no-wait (-E makes it another)
  125      the lock was lost, or asked back: the command was ended
  126      the command cannot be executed
  127      there is no such command
  128 + N  signal N ended the waiting; nothing is left in the queue
  64       wrong usage; nothing was done
  69       no server
  77       not allowed by an ACL, or refused credentials
  78       the configuration file is wrong
  70, 71, 74  anything else; the operating system; a file

When the command is ended (TERM, then KILL, to everything it has started):
  the session is lost, or     KILL at once: the lock may be another's already
  the lock's node deleted
  no server is heard          it stands still (SIGSTOP), and goes on when the
                              session is there again; TERM and KILL before the
                              session can end
  docent lock is killed       at once, by its watchdog: a second process
  docent lock is stopped      by its watchdog, before the session can end
  (SIGSTOP, Ctrl-Z)
  the command has ended, but  at once: nothing runs on without the lock, so no
  what it has started has not daemon either

HUP, INT, QUIT, TERM, USR1 and USR2 are passed on to the command's process
group. What is not promised is in docs/CLI.md.";

/// A lock of any kind.
enum Kind {
    Mutex(InterProcessMutex),
    Semaphore(InterProcessSemaphoreV2),
}

impl Lock {
    pub(crate) fn run(self) -> Ended {
        // Before anything is done, everything is looked at.
        let settings = self.server.settings()?;
        find(self.command.first().map(OsString::as_os_str).unwrap_or_default())?;
        crate::runtime().map_err(crate::no_runtime)?.block_on(self.lock(settings))
    }

    async fn lock(&self, settings: Settings) -> Ended {
        let mut signals = Signals::listen().map_err(|error| Failure::os("signals", error))?;
        let (began, connect) = (Instant::now(), settings.connect.clone());
        let revoked = Arc::new(Notify::new());
        let client = tokio::select! {
            biased;
            signal = signals.next() => return Ok(exit::of_signal(signal.as_raw())),
            client = settings.connect() => client?,
        };
        let ended = self.with_client(&client, &mut signals, began, &revoked, connect).await;
        // Also what a dropped acquire has left in the queue goes before it.
        let _ = timeout(Self::patience(&client), client.close()).await;
        ended
    }

    /// How long the last words to the server may take; without a connection, nobody would hear them.
    fn patience(client: &Client) -> Duration {
        let connected = client.state().borrow().is_some_and(ConnectionState::is_connected);
        let limit = if connected { Duration::from_secs(5) } else { Duration::from_millis(100) };
        client.session_timeout().min(limit)
    }

    async fn with_client(
        &self,
        client: &Client,
        signals: &mut Signals,
        began: Instant,
        revoked: &Arc<Notify>,
        connect: String,
    ) -> Ended {
        let kind = self.kind(client)?;
        let acquire = async {
            let was_free = self.looks_free(client).await;
            let asked = Instant::now();
            let guard = self.acquire(client, &kind, began, revoked).await?;
            let at_once = was_free && asked.elapsed() < UNCONTENDED;
            Ok::<_, Failure>((guard, at_once))
        };
        let (guard, at_once) = tokio::select! {
            biased;
            // The acquire is dropped, and leaves the queue with that.
            signal = signals.next() => return Ok(exit::of_signal(signal.as_raw())),
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
        let holding = Holding {
            client,
            guard: &guard,
            command: &self.command,
            environment,
            kill_after: self.kill_after,
            run_suspended: self.run_suspended,
            revoked: Arc::clone(revoked),
            pause: if at_once { Duration::ZERO } else { hand_over(client.session_timeout()) },
        };
        let ended = holding.run(signals).await;
        // That it is not held any more was told; what cannot be deleted goes with the session.
        let _ = timeout(Self::patience(client), guard.release()).await;
        ended
    }

    fn kind(&self, client: &Client) -> Result<Kind, Failure> {
        // A semaphore has two nodes for each who waits: both say it.
        let data = self.data();
        let options = LockOptions::default().with_data(data.clone()).with_default_data(data);
        Ok(match self.semaphore {
            Some(leases) => Kind::Semaphore(InterProcessSemaphoreV2::with_options(
                client,
                &self.path,
                leases.get().into(),
                options,
            )?),
            None if self.read || self.write => {
                let pair = InterProcessReadWriteLock::with_options(client, &self.path, options)?;
                let side = if self.read { pair.read_lock() } else { pair.write_lock() };
                Kind::Mutex(side.clone())
            }
            None => Kind::Mutex(InterProcessMutex::with_options(client, &self.path, options)?),
        })
    }

    /// Whether nobody holds the lock or waits for it, as far as can be seen.
    async fn looks_free(&self, client: &Client) -> bool {
        let path = match self.semaphore {
            Some(_) => format!("{}/leases", self.path),
            None => self.path.clone(),
        };
        match client.get_children(&path).await {
            Ok(children) => children.is_empty(),
            Err(error) => error.kind() == ErrorKind::NoNode,
        }
    }

    /// Waits for the lock; `None` when the time is up.
    async fn acquire(
        &self,
        client: &Client,
        kind: &Kind,
        began: Instant,
        revoked: &Arc<Notify>,
    ) -> Result<Option<LockGuard>, Failure> {
        let time = if self.no_wait { Some(Duration::ZERO) } else { self.timeout };
        loop {
            let left = time.map(|time| time.saturating_sub(began.elapsed()));
            let acquired = match kind {
                Kind::Mutex(mutex) => {
                    if self.revocable {
                        let revoked = Arc::clone(revoked);
                        mutex.make_revocable(move || revoked.notify_one());
                    }
                    match left {
                        Some(left) => mutex.acquire_timeout(left).await,
                        None => mutex.acquire().await.map(Some),
                    }
                }
                Kind::Semaphore(semaphore) => match left {
                    Some(left) => semaphore.acquire_timeout(left).await,
                    None => semaphore.acquire().await.map(Some),
                },
            };
            match acquired {
                Ok(guard) => return Ok(guard),
                // The server was away for longer than the recipe has patience; we have more.
                Err(recipes::Error::Session(error)) if error.is_retryable() => {
                    client.wait_until_connected(client.config().connection_timeout).await?;
                    if time.is_some_and(|time| began.elapsed() >= time) {
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
            None => format!("{path} is taken (`docent locks {path}` shows by whom)"),
            Some(time) => format!(
                "{path} was not free within {time:?} (`docent locks {path}` shows by whom it is held)"
            ),
        }
    }

    /// Who we are. Not the command's arguments: those may be secret, and nodes can be read by anybody.
    fn data(&self) -> String {
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

/// How long the command waits for the end of another's, if there was another.
///
/// When the session of a holder is killed, the servers give its lock away before they tell it. It is told at once,
/// and its command stands still a few milliseconds later: so long the next one waits, and a little more.
fn hand_over(session_timeout: Duration) -> Duration {
    (session_timeout / 10).min(MAX_HAND_OVER)
}

/// Who has the lock so soon, and saw nobody before, had nobody before it.
const UNCONTENDED: Duration = Duration::from_millis(50);

const MAX_HAND_OVER: Duration = Duration::from_millis(250);

/// Whether there is such a command: looked for as the shell does, before anybody waits for it.
fn find(program: &OsStr) -> Result<PathBuf, Failure> {
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
        let text = format!("{name} cannot be executed: is it a program, and chmod +x?");
        return Err(Failure::new(exit::NOT_EXECUTABLE, text));
    }
    let text = format!("{name}: no such command; check its name, and PATH");
    Err(Failure::new(exit::NOT_FOUND, text))
}
