//! What can be chosen about a lock.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use docent_session::retry::{ExponentialBackoffRetry, RetryPolicy};

/// The choices of a lock.
///
/// ```
/// use std::time::Duration;
/// use docent_recipes::locks::LockOptions;
/// use docent_session::retry::RetryNTimes;
///
/// let options = LockOptions::default()
///     .with_retry_policy(RetryNTimes::new(5, Duration::from_millis(100)))
///     .with_data("who and why");
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
pub struct LockOptions {
    pub(crate) retry_policy: Arc<dyn RetryPolicy>,
    pub(crate) data: Option<Bytes>,
}

impl LockOptions {
    /// What is tried again, and when: operations on a broken connection, and the whole attempt when the
    /// lock node has vanished. Default: [`ExponentialBackoffRetry`] from one second, three retries, the
    /// usual choice of Curator's documentation (Curator itself has no default).
    #[must_use]
    pub fn with_retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Arc::new(policy);
        self
    }

    /// What the lock node has as its data. Default: the address of this host on its way to the server, as
    /// text; Curator's is the host's address too.
    ///
    /// Source: `LockInternals.getLockNodeBytes`, `CuratorFrameworkFactory.getLocalAddress`.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Self {
        self.data = Some(data.into());
        self
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        let retry_policy = ExponentialBackoffRetry::new(Duration::from_secs(1), 3);
        Self { retry_policy: Arc::new(retry_policy), data: None }
    }
}
