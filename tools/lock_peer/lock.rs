//! The kinds of locks of `lock_peer`.

use std::time::Duration;

use docent::{
    Error, InterProcessMutex, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockGuard,
    Owner, StrictMutex,
};

/// A lock of any kind.
#[derive(Clone)]
pub(crate) enum Lock {
    /// Of the mutex and of the two that are one in a read/write lock.
    Mutex(InterProcessMutex),
    SemaphoreMutex(InterProcessSemaphoreMutex),
    Strict(StrictMutex),
    Semaphore(InterProcessSemaphoreV2),
}

impl Lock {
    /// Acquires the lock; of a semaphore this number of leases.
    pub(crate) async fn acquire(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
        leases: usize,
    ) -> Result<Option<Vec<LockGuard>>, Error> {
        if let Self::Semaphore(lock) = self {
            return match wait {
                None => lock.acquire_many(leases).await.map(Some),
                Some(wait) => lock.acquire_many_timeout(leases, wait).await,
            };
        }
        Ok(self.acquire_one(owner, wait).await?.map(|guard| vec![guard]))
    }

    async fn acquire_one(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>, Error> {
        match (self, wait) {
            (Self::Mutex(lock), None) => lock.acquire_as(owner).await.map(Some),
            (Self::Mutex(lock), Some(wait)) => lock.acquire_as_timeout(owner, wait).await,
            (Self::SemaphoreMutex(lock), None) => lock.acquire().await.map(Some),
            (Self::SemaphoreMutex(lock), Some(wait)) => lock.acquire_timeout(wait).await,
            (Self::Strict(lock), None) => lock.acquire().await.map(Some),
            (Self::Strict(lock), Some(wait)) => lock.acquire_timeout(wait).await,
            (Self::Semaphore(lock), None) => lock.acquire().await.map(Some),
            (Self::Semaphore(lock), Some(wait)) => lock.acquire_timeout(wait).await,
        }
    }

    pub(crate) async fn participants(&self) -> Result<Vec<String>, Error> {
        match self {
            Self::Mutex(lock) => lock.participants().await,
            Self::SemaphoreMutex(lock) => lock.participants().await,
            Self::Strict(lock) => lock.participants().await,
            Self::Semaphore(lock) => lock.participants().await,
        }
    }

    /// The result of an acquire.
    pub(crate) fn result(&self, guard: &LockGuard) -> String {
        match self {
            Self::Semaphore(_) => guard.lock_path().rsplit('/').next().unwrap_or("").to_owned(),
            _ => String::new(),
        }
    }
}
