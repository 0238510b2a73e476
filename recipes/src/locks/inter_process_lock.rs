//! The trait of all locks.

use std::{future::Future, pin::Pin, time::Duration};

use docent_session::runtime::Clock;

use super::{LockGuard, Owner};
use crate::Error;

/// The boxed future of an [`InterProcessLock`] method.
pub type LockFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A lock of any kind, for code that works with all of them, such as an
/// [`InterProcessMultiLock`](super::InterProcessMultiLock).
///
/// The methods are boxed versions of each lock's methods of the same names, which document errors and cancel safety.
///
/// Source: Curator's `InterProcessLock`.
pub trait InterProcessLock: Send + Sync {
    /// The clock by which a multi lock counts the time of its timed acquires; that of the client. Default: the system's.
    fn clock(&self) -> Clock {
        Clock::system()
    }

    /// Waits for the lock.
    fn acquire(&self) -> LockFuture<'_, LockGuard>;

    /// Waits for the lock, and returns `None` when another holder or contender was ahead for all of `wait`. A lock that
    /// cannot find out whether it is free returns [`Unanswered`](crate::ErrorKind::Unanswered).
    fn acquire_timeout(&self, wait: Duration) -> LockFuture<'_, Option<LockGuard>>;

    /// As [`acquire`](Self::acquire), but enters the lock again if `owner` holds it already. A lock that is not
    /// re-entrant ignores `owner`.
    fn acquire_as<'a>(&'a self, owner: &'a Owner) -> LockFuture<'a, LockGuard> {
        let _ = owner;
        self.acquire()
    }

    /// As [`acquire_as`](Self::acquire_as), and returns `None` when it was not acquired within `wait`.
    fn acquire_as_timeout<'a>(
        &'a self,
        owner: &'a Owner,
        wait: Duration,
    ) -> LockFuture<'a, Option<LockGuard>> {
        let _ = owner;
        self.acquire_timeout(wait)
    }

    /// Whether the lock is held through this object, as far as this process can know.
    fn is_acquired_in_this_process(&self) -> bool;
}
