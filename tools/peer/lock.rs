//! The kinds of locks, and of holds.

use std::time::Duration;

use docent::{
    Client, Error, InterProcessMutex, InterProcessSemaphoreMutex, InterProcessSemaphoreV2,
    LeaderLatch, LeaderOptions, Leadership, LockGuard, Owner, StrictMutex, Transaction,
    runtime::Instant,
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
        if let Self::Semaphore(lock) = self {
            let leases = match wait {
                None => Some(lock.acquire_many(leases).await?),
                Some(wait) => lock.acquire_many_timeout(leases, wait).await?,
            };
            return Ok(leases.map(|leases| leases.into_iter().rev().map(Hold::Lock).collect()));
        }
        Ok(self.acquire_one(owner, wait).await?.map(|hold| vec![hold]))
    }

    async fn acquire_one(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
    ) -> Result<Option<Hold>, Error> {
        let guard = match (self, wait) {
            (Self::Mutex(lock), None) => lock.acquire_as(owner).await.map(Some),
            (Self::Mutex(lock), Some(wait)) => lock.acquire_as_timeout(owner, wait).await,
            (Self::SemaphoreMutex(lock), None) => lock.acquire().await.map(Some),
            (Self::SemaphoreMutex(lock), Some(wait)) => lock.acquire_timeout(wait).await,
            (Self::Strict(lock), None) => lock.acquire().await.map(Some),
            (Self::Strict(lock), Some(wait)) => lock.acquire_timeout(wait).await,
            (Self::Semaphore(lock), None) => lock.acquire().await.map(Some),
            (Self::Semaphore(lock), Some(wait)) => lock.acquire_timeout(wait).await,
            (Self::Latch(client, path, options), wait) => {
                let latch = LeaderLatch::start_with(client, path, "peer", options.clone())?;
                let leads = match wait {
                    None => latch.leadership().await.map(Some),
                    Some(wait) => timeout(wait, latch.leadership()).await.ok().transpose(),
                };
                if !matches!(leads, Ok(Some(_))) {
                    // If this fails, a background task deletes the node.
                    let _ = latch.close().await;
                }
                return Ok(leads?.map(|leadership| Hold::Leadership(latch, leadership)));
            }
        };
        Ok(guard?.map(Hold::Lock))
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

/// The guard of a lock, or a participation in an election that leads.
pub(super) enum Hold {
    Lock(LockGuard),
    Leadership(LeaderLatch, Leadership),
}

impl Hold {
    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_held(),
            Self::Leadership(_, leadership) => leadership.is_held(),
        }
    }

    pub(super) fn proven_until(&self) -> Instant {
        match self {
            Self::Lock(guard) => guard.proven_until(),
            Self::Leadership(_, leadership) => leadership.proven_until(),
        }
    }

    pub(super) async fn fencing_token(&self) -> Result<i64, Error> {
        match self {
            Self::Lock(guard) => guard.fencing_token().await,
            Self::Leadership(_, leadership) => leadership.fencing_token().await,
        }
    }

    pub(super) fn guarded(&self) -> Result<Transaction<'_>, Error> {
        match self {
            Self::Lock(guard) => guard.guarded(),
            Self::Leadership(_, leadership) => leadership.guarded(),
        }
    }

    pub(super) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Leadership(latch, _) => latch.close().await,
        }
    }
}
