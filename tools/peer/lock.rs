//! The kinds of locks, and of holds.

use std::time::Duration;

use docent::{
    Client, Error, InterProcessMutex, InterProcessSemaphoreMutex, InterProcessSemaphoreV2,
    LeaderLatch, LeaderOptions, Leadership, LockGuard, Owner, StrictMutex,
    locks::{Held, InterProcessLock},
};
use tokio::time::timeout;

/// A lock of any kind.
#[derive(Clone)]
pub(super) enum Lock {
    /// The mutex, and both locks of a read/write lock.
    Mutex(InterProcessMutex),
    SemaphoreMutex(InterProcessSemaphoreMutex),
    Strict(StrictMutex),
    Semaphore(InterProcessSemaphoreV2),
    /// An election: its leader holds the lock.
    Latch(Client, String, LeaderOptions),
}

impl Lock {
    /// Acquires the lock. Of a semaphore, acquires this number of leases; the last one is released first.
    pub(super) async fn acquire(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
        leases: usize,
    ) -> Result<Option<Vec<Hold>>, Error> {
        let guard = match self {
            Self::Mutex(lock) => acquire(lock, owner, wait).await?,
            Self::SemaphoreMutex(lock) => acquire(lock, owner, wait).await?,
            Self::Strict(lock) => acquire(lock, owner, wait).await?,
            Self::Semaphore(lock) => {
                let leases = match wait {
                    None => Some(lock.acquire_many(leases).await?),
                    Some(wait) => lock.acquire_many_timeout(leases, wait).await?,
                };
                return Ok(leases.map(|leases| leases.into_iter().rev().map(Hold::Lock).collect()));
            }
            Self::Latch(client, path, options) => {
                let latch = LeaderLatch::start_with(client, path, "peer", options.clone())?;
                let leads = match wait {
                    None => latch.leadership().await.map(Some),
                    Some(wait) => timeout(wait, latch.leadership()).await.ok().transpose(),
                };
                if !matches!(leads, Ok(Some(_))) {
                    // If this fails, a background task deletes the node.
                    let _ = latch.close().await;
                }
                return Ok(leads?.map(|leadership| vec![Hold::Leadership(latch, leadership)]));
            }
        };
        Ok(guard.map(|guard| vec![Hold::Lock(guard)]))
    }

    pub(super) async fn participants(&self) -> Result<Vec<String>, Error> {
        match self {
            Self::Mutex(lock) => lock.participants().await,
            Self::SemaphoreMutex(lock) => lock.participants().await,
            Self::Strict(lock) => lock.participants().await,
            Self::Semaphore(lock) => lock.participants().await,
            Self::Latch(client, path, _) => Ok(client.get_children(path).await?.to_vec()),
        }
    }
}

async fn acquire(
    lock: &dyn InterProcessLock,
    owner: &Owner,
    wait: Option<Duration>,
) -> Result<Option<LockGuard>, Error> {
    match wait {
        None => lock.acquire_as(owner).await.map(Some),
        Some(wait) => lock.acquire_as_timeout(owner, wait).await,
    }
}

/// The guard of a lock, or a participation in an election that leads.
pub(super) enum Hold {
    Lock(LockGuard),
    Leadership(LeaderLatch, Leadership),
}

impl Hold {
    pub(super) fn held(&self) -> &dyn Held {
        match self {
            Self::Lock(guard) => guard,
            Self::Leadership(_, leadership) => leadership,
        }
    }

    pub(super) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Leadership(latch, _) => latch.close().await,
        }
    }
}
