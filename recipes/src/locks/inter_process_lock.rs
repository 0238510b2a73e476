//! What all locks have in common.

use std::{future::Future, pin::Pin, time::Duration};

use super::LockGuard;
use crate::Error;

/// A future of a lock.
pub type LockFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A lock of any kind, for those who do not care which: an
/// [`InterProcessMultiLock`](super::InterProcessMultiLock) above all.
///
/// The methods are those of each lock by the same names, boxed; errors and cancel safety are told there.
///
/// Source: Curator's `InterProcessLock`.
pub trait InterProcessLock: Send + Sync {
    /// Waits for the lock.
    fn acquire(&self) -> LockFuture<'_, LockGuard>;

    /// Waits for the lock, and returns `None` when it was not got within `wait`.
    fn acquire_timeout(&self, wait: Duration) -> LockFuture<'_, Option<LockGuard>>;

    /// Whether it is held through this object, as far as this process can know.
    fn is_acquired_in_this_process(&self) -> bool;
}
