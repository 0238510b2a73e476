//! The program of a client: the steps of its script, one after another.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use docent::{
    Client, CreateMode, Error, ErrorKind, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreV2, LeaderLatch, LockOptions, Owner, StrictMutex,
};
use docent_sim::Process;
use docent_steps::LOCK;

use crate::{
    belief::{Beliefs, Hold},
    script::{Kind, Step},
};

/// The time that clients have to connect, until their first step.
const CONNECTING: Duration = Duration::from_secs(1);

/// How often a holder asks whether it still holds the lock.
const PERIOD: Duration = Duration::from_millis(250);

/// How long a holder prepares a write to the storage, without asking again.
const WORK: Duration = Duration::from_millis(400);

/// How long a client waits after an error until it tries again.
const PAUSE: Duration = Duration::from_millis(500);

/// What the notes of a storage begin with.
pub(crate) const ACCEPTS: &str = "the storage accepts token ";
pub(crate) const REFUSES: &str = "the storage refuses token ";

/// A storage outside of ZooKeeper that holders write to.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    /// Whether it refuses a token smaller than one that it has seen.
    checks: bool,
    greatest: i64,
}

impl Storage {
    pub(crate) fn shared(checks: bool) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { checks, greatest: 0 }))
    }

    fn accepts(&mut self, token: i64) -> bool {
        let is_old = token < self.greatest;
        self.greatest = self.greatest.max(token);
        !(self.checks && is_old)
    }
}

/// What the clients of a run share, and their settings.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) beliefs: Beliefs,
    pub(crate) storage: Option<Arc<Mutex<Storage>>>,
    pub(crate) leases: usize,
}

/// Goes through the steps of a client.
pub(crate) async fn main(process: Process, name: String, steps: Vec<Step>, shared: Shared) {
    let client = process.start_client();
    let start = client.now();
    if client.ready().await.is_ok() {
        // All clients begin together, whichever is connected first.
        process.sleep(CONNECTING.saturating_sub(client.now().duration_since(start))).await;
    }
    let worker = Worker { process, client, name, shared };
    for step in steps {
        if worker.client.ended().is_some() {
            break;
        }
        match step {
            Step::Wait(ms) => worker.process.sleep(Duration::from_millis(ms)).await,
            Step::Hold(kind, ms) => worker.take_turn(kind, Duration::from_millis(ms)).await,
            Step::Delete(path) => worker.delete(path).await,
        }
    }
    let _ = worker.client.close().await;
}

struct Worker {
    process: Process,
    client: Client,
    name: String,
    shared: Shared,
}

impl Worker {
    /// Acquires a lock, holds it, and releases it.
    async fn take_turn(&self, kind: Kind, lasts: Duration) {
        self.process.say("acquires");
        let acquired = match kind {
            Kind::Naive => self.naive().await,
            Kind::Sequential => self.sequential().await,
            Kind::Latch => return self.lead(lasts).await,
            Kind::Downgrade => return self.downgrade(lasts).await,
            _ => self.guard(kind).await.map(Hold::Guard),
        };
        match acquired {
            Ok(hold) => self.hold(hold, lasts).await,
            Err(error) => self.process.say(format!("does not get the lock: {error}")),
        }
    }

    async fn guard(&self, kind: Kind) -> Result<docent::LockGuard, Error> {
        let (client, options) = (&self.client, LockOptions::default().with_data(self.name.clone()));
        match kind {
            Kind::Strict => StrictMutex::with_options(client, LOCK, options)?.acquire().await,
            Kind::Lease => {
                let leases = self.shared.leases;
                let semaphore =
                    InterProcessSemaphoreV2::with_options(client, LOCK, leases, options)?;
                semaphore.acquire().await
            }
            Kind::Read => {
                let lock = InterProcessReadWriteLock::with_options(client, LOCK, options)?;
                lock.read_lock().acquire().await
            }
            Kind::Write => {
                let lock = InterProcessReadWriteLock::with_options(client, LOCK, options)?;
                lock.write_lock().acquire().await
            }
            _ => InterProcessMutex::with_options(client, LOCK, options)?.acquire().await,
        }
    }

    /// The lock of the guide's chapter on the naive lock. After an error it tries again.
    async fn naive(&self) -> Result<Hold, Error> {
        loop {
            let created = self.client.create_with_stat(LOCK, b"", CreateMode::Ephemeral).await;
            match created {
                Ok((path, stat)) => {
                    return Ok(Hold::Simple { path, token: Some(stat.czxid) });
                }
                Err(error) if error.kind() == ErrorKind::NodeExists => {}
                Err(error) => {
                    self.try_again(&error).await?;
                    continue;
                }
            }
            match self.client.exists_and_watch(LOCK).await {
                Ok((Some(_), mut watcher)) => drop(watcher.next().await),
                Ok((None, _)) => {}
                Err(error) => self.try_again(&error).await?,
            }
        }
    }

    /// The lock of the guide's chapter on the sequential lock. After an error it tries again.
    async fn sequential(&self) -> Result<Hold, Error> {
        loop {
            match self.sequential_once().await {
                Ok(hold) => return Ok(hold),
                Err(error) => self.try_again(&error).await?,
            }
        }
    }

    async fn sequential_once(&self) -> Result<Hold, Error> {
        self.client.ensure_path(LOCK, CreateMode::Persistent).await?;
        let prefix = format!("{LOCK}/n-");
        let created = self.client.create_with_stat(&prefix, b"", CreateMode::EphemeralSequential);
        let (ours, stat) = created.await?;
        loop {
            let children = self.client.get_children(LOCK).await?;
            let mut queue: Vec<_> = children.iter().map(|name| format!("{LOCK}/{name}")).collect();
            queue.sort_unstable();
            let Some(ahead) = queue.into_iter().take_while(|node| *node < ours).last() else {
                return Ok(Hold::Simple { path: ours, token: Some(stat.czxid) });
            };
            match self.client.get_data_and_watch(&ahead).await {
                Ok((_, mut watcher)) => drop(watcher.next().await),
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Pauses after an error; returns it if the client has ended.
    async fn try_again(&self, error: &Error) -> Result<(), Error> {
        self.process.say(format!("{error}; tries again"));
        self.process.sleep(PAUSE).await;
        self.client.ended().map_or(Ok(()), |kind| Err(Error::new(kind, error.outcome())))
    }

    async fn downgrade(&self, lasts: Duration) {
        let options = LockOptions::default().with_data(self.name.clone());
        let acquired = async {
            let lock = InterProcessReadWriteLock::with_options(&self.client, LOCK, options)?;
            let owner = Owner::new();
            let write = lock.write_lock().acquire_as(&owner).await?;
            Ok::<_, Error>((lock, owner, write))
        };
        let (lock, owner, write) = match acquired.await {
            Ok(acquired) => acquired,
            Err(error) => return self.process.say(format!("does not get the lock: {error}")),
        };
        let write = self.begin(Hold::Guard(write));
        self.stay(&write, lasts / 2).await;
        match lock.read_lock().acquire_as(&owner).await {
            Ok(read) => {
                let read = self.begin(Hold::Guard(read));
                self.process.say("goes on as a reader");
                self.release(write).await;
                self.stay(&read, lasts / 2).await;
                self.release(read).await;
            }
            Err(error) => {
                self.process.say(format!("does not get the read lock: {error}"));
                self.release(write).await;
            }
        }
    }

    /// Takes part in an election until it has led for a time, or has lost the leadership.
    async fn lead(&self, lasts: Duration) {
        let latch = match LeaderLatch::start(&self.client, LOCK, &self.name) {
            Ok(latch) => latch,
            Err(error) => return self.process.say(format!("does not take part: {error}")),
        };
        match latch.leadership().await {
            Ok(leadership) => {
                let hold = self.begin(Hold::Leader(leadership));
                self.stay(&hold, lasts).await;
                drop(self.shared.beliefs.end(hold));
            }
            Err(error) => self.process.say(format!("does not lead: {error}")),
        }
        if let Err(error) = latch.close().await {
            self.process.say(format!("leaves the election: {error}"));
        }
    }

    fn begin(&self, hold: Hold) -> Arc<Hold> {
        self.process.say(format!("holds {}", hold.path()));
        self.shared.beliefs.begin(self.process.number(), &self.client, hold)
    }

    async fn hold(&self, hold: Hold, lasts: Duration) {
        let hold = self.begin(hold);
        self.stay(&hold, lasts).await;
        self.release(hold).await;
    }

    /// Does the work of a holder, until its time is over or the hold is lost.
    async fn stay(&self, hold: &Hold, lasts: Duration) {
        let mut left = lasts;
        while !left.is_zero() {
            if !hold.is_held() {
                return self.process.say("has lost the lock, and stops");
            }
            let mut slept = left.min(PERIOD);
            if let Some(storage) = &self.shared.storage {
                slept = WORK;
                self.process.sleep(slept).await;
                if let Some(token) = hold.token().await {
                    self.write(storage, token);
                }
            } else {
                self.process.sleep(slept).await;
            }
            left = left.saturating_sub(slept);
        }
    }

    fn write(&self, storage: &Mutex<Storage>, token: i64) {
        let accepted = storage.lock().unwrap_or_else(PoisonError::into_inner).accepts(token);
        let verb = if accepted { ACCEPTS } else { REFUSES };
        self.process.say(format!("{verb}{token}"));
    }

    async fn release(&self, hold: Arc<Hold>) {
        self.process.say(format!("releases {}", hold.path()));
        let released = match self.shared.beliefs.end(hold) {
            Some(Hold::Guard(guard)) => guard.release().await,
            Some(Hold::Simple { path, .. }) => self.client.delete(&path, None).await,
            Some(Hold::Leader(_)) | None => Ok(()),
        };
        if let Err(error) = released {
            self.process.say(format!("its release: {error}"));
        }
    }

    /// Deletes a node, as an operator does.
    async fn delete(&self, path: Option<String>) {
        let path = match path {
            Some(path) => Some(path),
            None => self.first().await,
        };
        let Some(path) = path else { return self.process.say("finds no node") };
        match self.client.delete(&path, None).await {
            Ok(()) => self.process.say(format!("has deleted {path}")),
            Err(error) => self.process.say(format!("deletes {path}: {error}")),
        }
    }

    /// The first node of the queue; the lock's own node if it has no queue.
    async fn first(&self) -> Option<String> {
        let children = self.client.get_children(LOCK).await.ok()?;
        let number = |name: &String| name.rsplit(['-', '_']).next().unwrap_or_default().to_owned();
        let first = children.into_iter().filter(|name| name.contains('-')).min_by_key(number);
        Some(first.map_or_else(|| LOCK.to_owned(), |name| format!("{LOCK}/{name}")))
    }
}
