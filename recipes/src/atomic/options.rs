//! Options of atomic values.

use std::{sync::Arc, time::Duration};

use docent_session::retry::{ExponentialBackoffRetry, RetryNTimes, RetryPolicy};

use crate::options::LockOptions;

/// Options of a [`DistributedAtomicValue`](super::DistributedAtomicValue) and of numbers.
///
/// ```
/// use std::time::Duration;
/// use docent::{AtomicOptions, atomic::PromotedToLock, retry::RetryNTimes};
///
/// let lock = PromotedToLock::new("/counter-lock").with_timeout(Duration::from_secs(10));
/// let options = AtomicOptions::default()
///     .with_retry_policy(RetryNTimes::new(3, Duration::from_millis(10)))
///     .with_promotion(lock);
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
pub struct AtomicOptions {
    pub(super) retry_policy: Arc<dyn RetryPolicy>,
    pub(super) promotion: Option<PromotedToLock>,
    pub(super) lock_options: LockOptions,
}

impl AtomicOptions {
    /// Sets the policy for another attempt after another writer was faster. Its pauses begin with a read. Default:
    /// [`ExponentialBackoffRetry`] from 10 ms, at most 1 s, ten retries. (Curator has no default.)
    ///
    /// Source: the `retryPolicy` of `DistributedAtomicValue`.
    #[must_use]
    pub fn with_retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Arc::new(policy);
        self
    }

    /// Continues under a lock once the policy allows no further attempt. Default: the operation then has not succeeded.
    ///
    /// Source: the `promotedToLock` of `DistributedAtomicValue`.
    #[must_use]
    pub fn with_promotion(mut self, promotion: PromotedToLock) -> Self {
        self.promotion = Some(promotion);
        self
    }

    /// Sets the options for connection failures and new nodes: the retry policy for requests on a broken connection, the
    /// ACL provider, the mode of the parents, and the options of the lock of a promotion. The namespace applies to that
    /// lock only.
    #[must_use]
    pub fn with_lock_options(mut self, options: LockOptions) -> Self {
        self.lock_options = options;
        self
    }
}

impl Default for AtomicOptions {
    fn default() -> Self {
        let base = Duration::from_millis(10);
        let policy = ExponentialBackoffRetry::bounded(base, Duration::from_secs(1), 10);
        Self {
            retry_policy: Arc::new(policy),
            promotion: None,
            lock_options: LockOptions::default(),
        }
    }
}

/// The lock under which a writer continues that has lost too many races.
///
/// It excludes the other writers that were promoted, not those without the lock. So an attempt under the lock can lose a
/// race, too.
///
/// Source: Curator's `PromotedToLock`.
#[derive(Debug, Clone)]
pub struct PromotedToLock {
    pub(super) path: String,
    pub(super) timeout: Option<Duration>,
    pub(super) retry_policy: Arc<dyn RetryPolicy>,
}

impl PromotedToLock {
    /// An [`InterProcessMutex`](crate::locks::InterProcessMutex) at this path, without a limit for the wait, and one
    /// attempt under it.
    #[must_use]
    pub fn new(lock_path: &str) -> Self {
        let retry_policy = Arc::new(RetryNTimes::new(0, Duration::ZERO));
        Self { path: lock_path.to_owned(), timeout: None, retry_policy }
    }

    /// Limits the wait for the lock. When the lock is not acquired in time, the operation has not succeeded.
    ///
    /// Source: `PromotedToLock.Builder.timeout`.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the policy for another attempt under the lock. Default: none.
    ///
    /// Source: `PromotedToLock.Builder.retryPolicy`.
    #[must_use]
    pub fn with_retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Arc::new(policy);
        self
    }
}
