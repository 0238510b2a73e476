//! A mutex across processes that is not re-entrant.

use std::{fmt, time::Duration};

use docent_session::{Client, runtime::Clock};

use super::{InterProcessLock, InterProcessSemaphoreV2, LockFuture, LockGuard, LockOptions};
use crate::Error;

/// A mutex that is not re-entrant: a semaphore with one lease. In Curator, its purpose is a release on another thread
/// than the acquire; here every guard can be released on any thread.
///
/// It does not exclude an [`InterProcessMutex`](super::InterProcessMutex) at the same path, and sends twice as many
/// requests. Clones are the same object.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use docent::InterProcessSemaphoreMutex;
///
/// let mutex = InterProcessSemaphoreMutex::new(&client, "/locks/printer")?;
/// let guard = mutex.acquire().await?;
/// tokio::spawn(guard.release());
/// # Ok(())
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent::Client::connect(&server.connect_string()).await?;
/// # Ok(example(client).await?)
/// # }
/// ```
///
/// Source: Curator's `InterProcessSemaphoreMutex`.
#[derive(Clone)]
pub struct InterProcessSemaphoreMutex(InterProcessSemaphoreV2);

impl InterProcessSemaphoreMutex {
    /// A lock at this path, with the default [`LockOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    pub fn new(client: &Client, path: &str) -> Result<Self, Error> {
        Self::with_options(client, path, LockOptions::default())
    }

    /// A lock at this path. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    pub fn with_options(client: &Client, path: &str, options: LockOptions) -> Result<Self, Error> {
        InterProcessSemaphoreV2::with_options(client, path, 1, options).map(Self)
    }

    /// Waits for the lock. The module [`lease`](super::lease) lists the requests.
    ///
    /// # Errors
    ///
    /// As [`InterProcessSemaphoreV2::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; no node is left behind while the client lives.
    ///
    /// Source: `InterProcessSemaphoreMutex.acquire()`.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        self.0.acquire().await
    }

    /// Waits for the lock, and returns `None` when it was not acquired within `wait`.
    ///
    /// # Errors
    ///
    /// As [`InterProcessSemaphoreV2::acquire_timeout`].
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessSemaphoreMutex.acquire(long, TimeUnit)`.
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        self.0.acquire_timeout(wait).await
    }

    /// Whether the lock is held through this object, as far as this process can know.
    ///
    /// Source: `InterProcessSemaphoreMutex.isAcquiredInThisProcess`.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.0.any_held()
    }

    /// The paths of the lease nodes of the holder and of the first waiter.
    ///
    /// # Errors
    ///
    /// Those of the session.
    pub async fn participants(&self) -> Result<Vec<String>, Error> {
        self.0.participants().await
    }

    /// The path of the lock, including its namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.path()
    }
}

impl InterProcessLock for InterProcessSemaphoreMutex {
    fn clock(&self) -> Clock {
        self.0.client().clock().clone()
    }

    fn acquire(&self) -> LockFuture<'_, LockGuard> {
        Box::pin(self.acquire())
    }

    fn acquire_timeout(&self, wait: Duration) -> LockFuture<'_, Option<LockGuard>> {
        Box::pin(self.acquire_timeout(wait))
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.is_acquired_in_this_process()
    }
}

impl fmt::Debug for InterProcessSemaphoreMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreMutex")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
