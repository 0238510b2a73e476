//! Locks: the handle `KIND:PATH[#x]`. KIND is `mutex`, `semmutex`, `read`, `write`, `sem=N`, `strict`, `latch`, which
//! takes part in an election, or `renewed`, a mutex whose proven bound is renewed every two seconds.
//!
//! Handles that differ by `#x` are different owners of one lock object, and `read:P#x` and `write:P#x` are one owner.
//! `acquire HANDLE [WAIT_MS|- [LEASES]]` waits for at most that time, and acquires that number of leases of a
//! semaphore. `proven HANDLE` reports the proven bound of a hold, and `guarded HANDLE PATH DATA` writes a node while
//! the lock is held. `cpu` reports the CPU time of this process, in nanoseconds.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use docent::{
    Client, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LeaderOptions, LockGuard, Owner, Revoker,
    StrictMutex,
};
use tokio::sync::Notify;

use super::{
    Answer, Failure, Object, Peer, done, list, lock,
    lock::{Hold, Lock},
    millis,
    output::{HAS_TIMES, cpu_nanos, monotonic_nanos},
    parts, say,
};

/// The verbs that take a handle.
pub(super) const VERBS: [&str; 9] = [
    "acquire",
    "release",
    "drop",
    "held",
    "token",
    "proven",
    "guarded",
    "participants",
    "revocable",
];

/// The verbs without a handle, apart from [`cancel`].
pub(super) const OTHER_VERBS: [&str; 4] = ["cpu", "revoke", "multi", "multirelease"];

/// How often the proven bound of a `renewed` handle is renewed.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

/// The state that handles share.
#[derive(Default)]
pub(super) struct Locks {
    /// By kind and path: handles that differ only by their suffix share the lock object.
    objects: HashMap<String, Lock>,
    /// By path: the handles `read:P` and `write:P` share one.
    read_write: HashMap<String, InterProcessReadWriteLock>,
    /// By lock and suffix.
    owners: HashMap<String, Owner>,
    /// Notified to cancel the running acquire of a handle.
    running: HashMap<String, Arc<Notify>>,
}

impl Locks {
    fn object(&mut self, peer: &Peer, name: &str) -> Result<Lock, Failure> {
        if let Some(object) = self.objects.get(name) {
            return Ok(object.clone());
        }
        let Some((kind, path)) = name.split_once(':') else {
            return Err(Failure::command(format!("{name} is no handle: KIND:PATH")));
        };
        let (client, options) = (&peer.client, peer.leader_options.clone());
        let object = match kind {
            "mutex" => Lock::Mutex(InterProcessMutex::with_options(client, path, options)?),
            "renewed" => {
                let options = options.with_proven_renewal(RENEWAL_INTERVAL);
                Lock::Mutex(InterProcessMutex::with_options(client, path, options)?)
            }
            "strict" => Lock::Strict(StrictMutex::with_options(client, path, options)?),
            "semmutex" => Lock::SemaphoreMutex(InterProcessSemaphoreMutex::with_options(
                client, path, options,
            )?),
            "read" | "write" => {
                if !self.read_write.contains_key(path) {
                    let pair = InterProcessReadWriteLock::with_options(client, path, options)?;
                    self.read_write.insert(path.to_owned(), pair);
                }
                let pair = self.read_write.get(path);
                let pair = pair.ok_or_else(|| Failure::command("no such lock"))?;
                Lock::Mutex(
                    if kind == "read" { pair.read_lock() } else { pair.write_lock() }.clone(),
                )
            }
            "latch" => Lock::Latch(client.clone(), path.to_owned(), LeaderOptions::from(options)),
            _ => {
                let leases = kind.strip_prefix("sem=").and_then(|leases| leases.parse().ok());
                let unknown = || Failure::command(format!("unknown kind {kind}"));
                let leases = leases.ok_or_else(unknown)?;
                Lock::Semaphore(InterProcessSemaphoreV2::with_options(
                    client, path, leases, options,
                )?)
            }
        };
        self.objects.insert(name.to_owned(), object.clone());
        Ok(object)
    }
}

/// Cancels the running acquire of a handle.
pub(super) fn cancel(peer: &Peer, handle: &str) -> Answer {
    let running = lock(&peer.locks).running.remove(handle);
    running.ok_or_else(|| Failure::command("no acquire is running"))?.notify_one();
    done()
}

pub(super) async fn command(peer: &Peer, verb: &str, args: &[&str]) -> Answer {
    let client = &peer.client;
    match (verb, args) {
        ("cpu", []) => Ok(Some(cpu_nanos().to_string())),
        ("revoke", [path]) => {
            Revoker::attempt_revoke(client, &peer.leader_retries, path).await?;
            done()
        }
        ("multi", [wait, paths @ ..]) if !paths.is_empty() => {
            let wait = millis(wait)?;
            let multi = InterProcessMultiLock::with_options(client, paths, &peer.leader_options)?;
            let mut held = peer.multi.lock().await;
            let Some(guard) = multi.acquire_timeout(wait).await? else { return Ok(None) };
            *held = Some(guard);
            done()
        }
        ("multirelease", []) => {
            let guard = peer.multi.lock().await.take();
            guard.ok_or_else(not_owner)?.release().await?;
            done()
        }
        _ => Err(Failure::unknown(verb, args)),
    }
}

fn not_owner() -> Failure {
    Failure("NotOwner".to_owned(), "the lock is not held by this handle".to_owned())
}

pub(super) struct LockObject {
    peer: Arc<Peer>,
    handle: String,
    lock: Lock,
    owner: Owner,
    holds: Vec<Hold>,
    released: Arc<Released>,
}

impl LockObject {
    pub(super) fn new(peer: Arc<Peer>, handle: String) -> Result<Self, Failure> {
        let (name, suffix) = handle.split_once('#').unwrap_or((&handle, ""));
        let (kind, path) = parts(name);
        let family = if matches!(kind, "read" | "write") { "readwrite" } else { kind };
        let mut locks = lock(&peer.locks);
        let object = locks.object(&peer, name)?;
        let owner = locks.owners.entry(format!("{family}:{path}#{suffix}")).or_default().clone();
        drop(locks);
        let (holds, released) = (Vec::new(), Arc::default());
        Ok(Self { peer, handle, lock: object, owner, holds, released })
    }

    async fn acquire(&mut self, wait: Option<Duration>, leases: usize) -> Answer {
        if matches!(self.lock, Lock::Latch(..)) && !self.holds.is_empty() {
            return Err(Failure("NotOwner".to_owned(), "it takes part already".to_owned()));
        }
        let cancelled = Arc::new(Notify::new());
        lock(&self.peer.locks).running.insert(self.handle.clone(), Arc::clone(&cancelled));
        let result = tokio::select! {
            result = self.lock.acquire(&self.owner, wait, leases) => Some(result),
            () = cancelled.notified() => None,
        };
        lock(&self.peer.locks).running.remove(&self.handle);
        let Some(result) = result else {
            return Err(Failure("Cancelled".to_owned(), "the acquire was dropped".to_owned()));
        };
        let Some(holds) = result? else { return Ok(None) };
        let mut text = String::new();
        for hold in holds {
            if let Hold::Lock(guard) = &hold {
                if self.holds.is_empty() {
                    self.released = report_loss(&self.peer.client, &self.handle, guard);
                }
                if matches!(self.lock, Lock::Semaphore(_)) {
                    text = guard.path().rsplit('/').next().unwrap_or("").to_owned();
                }
            }
            self.holds.push(hold);
        }
        Ok(Some(text))
    }

    /// The server that the client is connected to; `-` for none.
    fn server(&self) -> String {
        self.peer.client.server().map_or_else(|| "-".to_owned(), |server| server.to_string())
    }

    /// Takes the guard to release. With the last one, the hold of the lock ends.
    fn last(&mut self) -> Result<Hold, Failure> {
        let hold = self.holds.pop().ok_or_else(not_owner)?;
        if self.holds.is_empty() {
            self.released.while_held.store(hold.held().is_held(), Ordering::Release);
            self.released.over.notify_one();
        }
        Ok(hold)
    }
}

impl Object for LockObject {
    async fn answer(&mut self, verb: &str, args: &[&str]) -> Answer {
        // The clock is read first: a process that is stopped after that replies late, but with the earlier time.
        let now = monotonic_nanos();
        let hold = self.holds.last();
        match (verb, args) {
            ("acquire", wait_and_leases) => {
                let wait = wait_and_leases.first().filter(|wait| **wait != "-");
                let leases = wait_and_leases.get(1).and_then(|leases| leases.parse().ok());
                self.acquire(wait.map(|wait| millis(wait)).transpose()?, leases.unwrap_or(1)).await
            }
            ("release", _) => {
                self.last()?.release().await?;
                done()
            }
            ("drop", _) => match self.last()? {
                Hold::Lock(guard) => {
                    drop(guard);
                    done()
                }
                leadership @ Hold::Leadership(..) => {
                    leadership.release().await?;
                    done()
                }
            },
            ("held", []) => {
                let held = hold.is_some_and(|hold| hold.held().is_held());
                let time =
                    if *HAS_TIMES { format!(" {now} {}", self.server()) } else { String::new() };
                Ok(Some(format!("{held}{time}")))
            }
            ("token", []) => {
                Ok(Some(hold.ok_or_else(not_owner)?.held().fencing_token().await?.to_string()))
            }
            ("proven", []) => {
                let bound = hold.ok_or_else(not_owner)?.held().proven_until();
                let at = self.peer.client.now();
                let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                let left = nanos(bound.saturating_duration_since(at));
                let past = nanos(at.saturating_duration_since(bound));
                Ok(Some(now.saturating_add(left).saturating_sub(past).to_string()))
            }
            ("guarded", [path, data]) => {
                let held = hold.ok_or_else(not_owner)?.held();
                let mut transaction = held.guarded().map_err(Failure::of_write)?;
                let written = transaction.set_data(path, data.as_bytes(), None).commit().await;
                written.map_err(Failure::of_write)?;
                done()
            }
            ("revocable", _) => {
                let Lock::Mutex(mutex) = &self.lock else {
                    return Err(Failure::command("only a mutex is revocable"));
                };
                let handle = self.handle.clone();
                mutex.make_revocable(move || say(&format!("! revoke {handle}")));
                done()
            }
            ("participants", _) => Ok(Some(list(self.lock.participants().await?))),
            _ => Err(Failure::unknown(verb, args)),
        }
    }
}

/// Whether a lock was still held when it was released: then it was not lost.
#[derive(Default)]
struct Released {
    while_held: AtomicBool,
    over: Notify,
}

/// Reports the loss of a hold from the claim on its session. `LockGuard::lost` would watch the lock node; Curator
/// does not, and its frames are compared with these.
fn report_loss(client: &Client, handle: &str, guard: &LockGuard) -> Arc<Released> {
    let session = client.session().filter(|lease| lease.session_id() == guard.session_id());
    let claim = session.map(|lease| lease.claim()).filter(|_| guard.is_held());
    let released = Arc::<Released>::default();
    let (handle, over) = (handle.to_owned(), Arc::clone(&released));
    tokio::spawn(async move {
        if let Some(claim) = claim {
            tokio::select! {
                () = claim.lost() => {}
                () = over.over.notified() => {}
            }
        }
        if !over.while_held.load(Ordering::Acquire) {
            say(&format!("! lost {handle}"));
        }
    });
    released
}
