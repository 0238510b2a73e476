//! The guard of a held lock.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{
    Error, Instant,
    blocking::{
        Transaction,
        context::Context,
        wait::{check, wait},
    },
};

/// A held lock of any kind. [`release`](Self::release) releases it and returns the result; dropping it releases it in the
/// background, on any thread, without waiting. A guard that is dropped after its client has ended sends nothing.
///
/// [`docent::LockGuard`](crate::LockGuard#what-a-guard-guarantees) explains what a guard guarantees.
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    pub(super) inner: crate::LockGuard,
    pub(super) context: Context,
}

debug_as_inner!(LockGuard);

impl LockGuard {
    pub(super) const fn new(inner: crate::LockGuard, context: Context) -> Self {
        Self { inner, context }
    }

    forward! { LockGuard;
        /// Releases the lock, if this is the last guard of its owner, and waits for the reply. A call that is refused
        /// releases it in the background.
        async fn release(self) -> Result<(), Error>;
        /// A number that is greater for every later holder of this lock.
        async fn fencing_token(&self) -> Result<i64, Error>;
        /// Whether the lock is still held, as far as this process can know. Once false, it stays false.
        #[must_use]
        fn is_held(&self) -> bool;
        /// The time until which no other client can acquire the lock.
        #[must_use]
        fn proven_until(&self) -> Instant;
        /// A token that is cancelled when work under the lock has to stop: ask it with `is_cancelled`.
        #[must_use]
        fn cancellation_token(&self) -> CancellationToken;
        /// The path of the lock node.
        #[must_use]
        fn lock_path(&self) -> &str;
        /// The paths of all lock nodes, in the order in which they were acquired.
        fn lock_paths(&self) -> impl Iterator<Item = &str>;
        /// The id of the session that holds the lock.
        #[must_use]
        fn session_id(&self) -> i64;
    }

    /// As [`release`](Self::release), but waits for at most `wait`; false if the lock node was not deleted by then. The
    /// background then deletes it.
    pub fn release_timeout(self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.release()).transpose()?.is_some())
    }

    /// Waits until the lock is lost. Another thread waits here, or with [`lost_timeout`](Self::lost_timeout), while one
    /// works: a guard is `Sync`.
    ///
    /// Blocking [`LockGuard::lost`](crate::LockGuard::lost).
    pub fn lost(&self) -> Result<(), Error> {
        check()?;
        wait(self.inner.lost());
        Ok(())
    }

    /// As [`lost`](Self::lost), for at most `wait`; false if the lock is still held then.
    pub fn lost_timeout(&self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.lost()).is_some())
    }

    /// Begins a transaction that the server applies only while the lock is ours.
    ///
    /// As [`LockGuard::guarded`](crate::LockGuard::guarded).
    pub fn guarded(&self) -> Result<Transaction<'_>, Error> {
        Ok(Transaction { inner: self.inner.guarded()? })
    }
}
