//! The lock objects and owners of a process, which its workers share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use docent::{
    Client, Error, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockOptions, Owner, SharedCount,
    StrictMutex, locks::InterProcessLock,
};

use super::{
    belief::{Mode, Part},
    steps::{LockName, LockSettings},
};
use crate::world::{core::Core, lock::lock};

/// The leases of a counted semaphore whose count no step has set.
const FIRST_COUNT: i32 = 2;

/// The lock objects that the workers of a process share.
#[derive(Default)]
pub(super) struct Objects {
    objects: Mutex<BTreeMap<(LockName, LockSettings), Object>>,
    counts: Mutex<BTreeMap<u8, SharedCount>>,
    owners: Mutex<BTreeMap<u8, Owner>>,
}

/// A lock object. Clones are the same object.
#[derive(Clone)]
pub(super) enum Object {
    Mutex(InterProcessMutex),
    SemaphoreMutex(InterProcessSemaphoreMutex),
    Semaphore(InterProcessSemaphoreV2),
    ReadWrite(InterProcessReadWriteLock),
    Multi(Arc<InterProcessMultiLock>),
    Strict(StrictMutex),
}

impl Objects {
    pub(super) fn owner(&self, number: u8) -> Owner {
        lock(&self.owners).entry(number).or_default().clone()
    }

    /// The zxid of the last change of a count that the process knows.
    pub(super) fn known_count(&self, number: u8) -> Option<i64> {
        lock(&self.counts).get(&number).map(|count| count.versioned_value().mzxid)
    }

    /// The count of a semaphore.
    pub(super) async fn count(&self, client: &Client, number: u8) -> Result<SharedCount, Error> {
        if let Some(count) = lock(&self.counts).get(&number) {
            return Ok(count.clone());
        }
        let started = SharedCount::start(client, &count_path(number), FIRST_COUNT).await?;
        // Another worker may have been faster.
        Ok(lock(&self.counts).entry(number).or_insert(started).clone())
    }

    /// The lock object of this name; a new one if `fresh`.
    pub(super) async fn object(
        &self,
        client: &Client,
        name: &LockName,
        settings: LockSettings,
        fresh: bool,
    ) -> Result<Object, Error> {
        // One object has the read lock and the write lock.
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
    pub(super) const fn mutex(&self, name: &LockName) -> Option<&InterProcessMutex> {
        match (self, name) {
            (Self::Mutex(mutex), _) => Some(mutex),
            (Self::ReadWrite(pair), LockName::Write(_)) => Some(pair.write_lock()),
            (Self::ReadWrite(pair), _) => Some(pair.read_lock()),
            _ => None,
        }
    }

    /// The nodes of the holders and waiters of the lock of this name, as docent reports them; a multi lock has none.
    pub(super) async fn participants(&self, name: &LockName) -> Option<Result<Vec<String>, Error>> {
        if let Some(mutex) = self.mutex(name) {
            return Some(mutex.participants().await);
        }
        Some(match self {
            Self::SemaphoreMutex(mutex) => mutex.participants().await,
            Self::Semaphore(semaphore) => semaphore.participants().await,
            Self::Strict(mutex) => mutex.participants().await,
            _ => return None,
        })
    }

    /// # Panics
    ///
    /// For a semaphore, which cannot be part of a multi lock.
    pub(super) fn inter_process_lock(&self, name: &LockName) -> Arc<dyn InterProcessLock> {
        match self {
            Self::SemaphoreMutex(mutex) => Arc::new(mutex.clone()),
            Self::Multi(multi) => Arc::clone(multi) as _,
            Self::Strict(mutex) => Arc::new(mutex.clone()),
            _ => Arc::new(self.mutex(name).expect("a lock of a multi lock").clone()),
        }
    }
}

fn options(name: &LockName, settings: LockSettings) -> LockOptions {
    let mut options = settings.retry.lock_options();
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
pub(super) fn count_path(number: u8) -> String {
    format!("/count-{number}")
}

/// The number of leases of a counted semaphore with this path, as the servers have it.
pub(super) fn count_of(core: &Core, path: &str) -> Option<usize> {
    let (data, _) = core.ensemble().node(&path.replacen("/counted-", "/count-", 1))?;
    let count = i32::from_be_bytes(*data.first_chunk().filter(|_| path.starts_with("/counted-"))?);
    usize::try_from(count).ok()
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
    pub(super) fn parts(&self) -> Vec<Part> {
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

    /// The paths of its locks.
    pub(super) fn paths(&self) -> Vec<String> {
        self.parts().into_iter().map(|part| part.lock).collect()
    }

    /// The path of the node that has its queue.
    pub(super) fn queue(&self) -> String {
        let path = self.parts().swap_remove(0).lock;
        match self {
            Self::Multi(names) => names[names.len() - 1].queue(),
            Self::SemaphoreMutex(_) | Self::Semaphore { .. } | Self::CountedSemaphore(_) => {
                path + "/leases"
            }
            _ => path,
        }
    }
}
