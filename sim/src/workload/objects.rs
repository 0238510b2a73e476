//! The lock objects and owners of a process, which its workers share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use docent::{
    Client, Error, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockOptions,
    Owner, SharedCount, StrictMutex, retry,
};

use super::{discovery::Served, kept::KeptNode, leader::KeptLatch};
use crate::{
    belief::{Held, Mode, Part},
    plan::{LockName, LockSettings, Retry},
};

/// The leases of a counted semaphore whose count no step has set.
const FIRST_COUNT: i32 = 2;

/// What the workers of a process share.
#[derive(Default)]
pub(crate) struct Shared {
    objects: Mutex<BTreeMap<(LockName, LockSettings), Object>>,
    counts: Mutex<BTreeMap<u8, SharedCount>>,
    owners: Mutex<BTreeMap<u8, Owner>>,
    /// The guards that are kept until the process ends.
    kept: Mutex<Vec<Held>>,
    kept_latches: Mutex<Vec<KeptLatch>>,
    kept_nodes: Mutex<Vec<KeptNode>>,
    served: Mutex<Vec<Served>>,
    /// The instances that are registered, by their paths: two discoveries of a client must not register the same one.
    instances: Mutex<BTreeSet<String>>,
}

/// A lock object. Clones are the same object.
#[derive(Clone)]
pub(crate) enum Object {
    Mutex(InterProcessMutex),
    SemaphoreMutex(InterProcessSemaphoreMutex),
    Semaphore(InterProcessSemaphoreV2),
    ReadWrite(InterProcessReadWriteLock),
    Multi(Arc<InterProcessMultiLock>),
    Strict(StrictMutex),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn owner(&self, number: u8) -> Owner {
        lock(&self.owners).entry(number).or_default().clone()
    }

    pub(crate) fn keep(&self, held: Held) {
        lock(&self.kept).push(held);
    }

    pub(crate) fn keep_latch(&self, latch: KeptLatch) {
        lock(&self.kept_latches).push(latch);
    }

    pub(crate) fn keep_node(&self, node: KeptNode) {
        lock(&self.kept_nodes).push(node);
    }

    pub(crate) fn keep_served(&self, served: Served) {
        lock(&self.served).push(served);
    }

    /// Whether no worker has registered this instance, which this one does now.
    pub(crate) fn takes_instance(&self, path: &str) -> bool {
        lock(&self.instances).insert(path.to_owned())
    }

    pub(crate) fn leaves_instance(&self, path: &str) {
        lock(&self.instances).remove(path);
    }

    /// Takes everything that was kept.
    pub(crate) fn take_kept(&self) -> (Vec<Held>, Vec<KeptLatch>, Vec<KeptNode>, Vec<Served>) {
        let held = std::mem::take(&mut *lock(&self.kept));
        let latches = std::mem::take(&mut *lock(&self.kept_latches));
        let nodes = std::mem::take(&mut *lock(&self.kept_nodes));
        (held, latches, nodes, std::mem::take(&mut *lock(&self.served)))
    }

    /// Forgets the lock objects, which keep the client.
    pub(crate) fn clear(&self) {
        let objects = std::mem::take(&mut *lock(&self.objects));
        let counts = std::mem::take(&mut *lock(&self.counts));
        drop((objects, counts));
    }

    /// The change of a count that the process knows.
    pub(crate) fn known_count(&self, number: u8) -> Option<i64> {
        lock(&self.counts).get(&number).map(|count| count.versioned_value().mzxid)
    }

    /// The count of a semaphore.
    pub(crate) async fn count(&self, client: &Client, number: u8) -> Result<SharedCount, Error> {
        if let Some(count) = lock(&self.counts).get(&number) {
            return Ok(count.clone());
        }
        let started = SharedCount::start(client, &count_path(number), FIRST_COUNT).await?;
        // Another worker may have been faster.
        Ok(lock(&self.counts).entry(number).or_insert(started).clone())
    }

    /// The lock object of this name, a new one if asked for.
    pub(crate) async fn object(
        &self,
        client: &Client,
        name: &LockName,
        settings: LockSettings,
        fresh: bool,
    ) -> Result<Object, Error> {
        // One object has both locks.
        let key = match name {
            LockName::Write(number) => LockName::Read(*number),
            name => name.clone(),
        };
        if !fresh && let Some(object) = lock(&self.objects).get(&(key.clone(), settings)) {
            return Ok(object.clone());
        }
        let made = self.make(client, &key, settings).await?;
        if fresh {
            return Ok(made);
        }
        Ok(lock(&self.objects).entry((key, settings)).or_insert(made).clone())
    }

    async fn make(
        &self,
        client: &Client,
        name: &LockName,
        settings: LockSettings,
    ) -> Result<Object, Error> {
        let options = options(name, settings);
        let path = object_path(name);
        Ok(match name {
            LockName::Mutex(_) | LockName::Namespaced(_) => {
                Object::Mutex(InterProcessMutex::with_options(client, &path, options)?)
            }
            LockName::SemaphoreMutex(_) => {
                let made = InterProcessSemaphoreMutex::with_options(client, &path, options)?;
                Object::SemaphoreMutex(made)
            }
            LockName::Semaphore { leases, .. } => {
                let leases = usize::from(*leases);
                let made = InterProcessSemaphoreV2::with_options(client, &path, leases, options)?;
                Object::Semaphore(made)
            }
            LockName::CountedSemaphore(number) => {
                let count = self.count(client, *number).await?;
                Object::Semaphore(InterProcessSemaphoreV2::with_count_and_options(
                    client, &path, &count, options,
                )?)
            }
            LockName::Read(_) | LockName::Write(_) => {
                let made = InterProcessReadWriteLock::with_options(client, &path, options)?;
                Object::ReadWrite(made)
            }
            LockName::Strict(_) => {
                Object::Strict(StrictMutex::with_options(client, &path, options)?)
            }
            LockName::Multi(names) => {
                let mut locks: Vec<Arc<dyn InterProcessLock>> = Vec::new();
                for name in names {
                    let object = Box::pin(self.object(client, name, settings, false)).await?;
                    locks.push(object.inter_process_lock(name));
                }
                Object::Multi(Arc::new(InterProcessMultiLock::from_locks(locks)))
            }
        })
    }
}

impl Object {
    /// The re-entrant lock of this name in the object.
    pub(crate) const fn mutex(&self, name: &LockName) -> Option<&InterProcessMutex> {
        match (self, name) {
            (Self::Mutex(mutex), _) => Some(mutex),
            (Self::ReadWrite(pair), LockName::Write(_)) => Some(pair.write_lock()),
            (Self::ReadWrite(pair), _) => Some(pair.read_lock()),
            _ => None,
        }
    }

    /// # Panics
    ///
    /// For a semaphore, which can be no part of a multi lock.
    pub(crate) fn inter_process_lock(&self, name: &LockName) -> Arc<dyn InterProcessLock> {
        match self {
            Self::SemaphoreMutex(mutex) => Arc::new(mutex.clone()),
            Self::Multi(multi) => Arc::clone(multi) as _,
            Self::Strict(mutex) => Arc::new(mutex.clone()),
            _ => Arc::new(self.mutex(name).expect("a lock of a multi lock").clone()),
        }
    }
}

/// Options with a retry policy.
pub(crate) fn lock_options(policy: Retry) -> LockOptions {
    let options = LockOptions::default();
    let pause = Duration::from_millis;
    match policy {
        Retry::Default => options,
        Retry::Never => options.with_retry_policy(retry::RetryNTimes::new(0, Duration::ZERO)),
        Retry::ThreeTimes => options.with_retry_policy(retry::RetryNTimes::new(3, pause(100))),
        Retry::Forever => {
            options.with_retry_policy(retry::RetryForever { retry_interval: pause(50) })
        }
    }
}

fn options(name: &LockName, settings: LockSettings) -> LockOptions {
    let mut options = lock_options(settings.retry);
    if let Some(ms) = settings.renew_ms {
        options = options.with_proven_renewal(Duration::from_millis(ms));
    }
    if settings.pipelined {
        options = options.with_pipelined_listing();
    }
    if let LockName::Namespaced(number) = name {
        options = options.with_namespace(&format!("space-{number}"));
    }
    options
}

/// The path of the count of a semaphore.
pub(crate) fn count_path(number: u8) -> String {
    format!("/count-{number}")
}

/// The path that a lock object is made with, without its namespace.
fn object_path(lock: &LockName) -> String {
    match lock {
        LockName::Mutex(number) => format!("/mutex-{number}"),
        LockName::Namespaced(_) => "/mutex".to_owned(),
        LockName::SemaphoreMutex(number) => format!("/semaphore-mutex-{number}"),
        LockName::Semaphore { number, leases } => format!("/semaphore-{number}-of-{leases}"),
        LockName::CountedSemaphore(number) => format!("/counted-{number}"),
        LockName::Read(number) | LockName::Write(number) => format!("/read-write-{number}"),
        LockName::Strict(number) => format!("/strict-{number}"),
        LockName::Multi(_) => String::new(),
    }
}

impl LockName {
    /// The locks that it consists of: the path of each, and how it is held.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let mode = match self {
            Self::Multi(names) => return names.iter().flat_map(Self::parts).collect(),
            Self::Read(_) => Mode::Shared,
            Self::Semaphore { leases, .. } => Mode::Lease(usize::from(*leases)),
            Self::CountedSemaphore(_) => Mode::Lease(usize::MAX),
            Self::Strict(_) => Mode::Strict,
            _ => Mode::Exclusive,
        };
        let path = match self {
            Self::Namespaced(number) => format!("/space-{number}/mutex"),
            name => object_path(name),
        };
        vec![Part { lock: path, mode }]
    }

    /// The node below which its queue is.
    pub(crate) fn queue(&self) -> String {
        let path = self.parts().swap_remove(0).lock;
        match self {
            Self::Multi(names) => names[0].queue(),
            Self::SemaphoreMutex(_) | Self::Semaphore { .. } | Self::CountedSemaphore(_) => {
                path + "/leases"
            }
            _ => path,
        }
    }
}
