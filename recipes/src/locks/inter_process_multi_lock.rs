//! Several locks as one.

use std::{fmt, sync::Arc, time::Duration};

use docent_session::Client;

use super::{InterProcessLock, InterProcessMutex, LockFuture, LockGuard, LockOptions};
use crate::Error;

/// Several locks, of whatever kinds, that are held together or not at all.
///
/// They are acquired in the order of the list, so two multi locks that share locks must name them in the same
/// order, or they can wait for each other for ever. When one cannot be had, those before it are released, the
/// last one first.
///
/// Not mirrored (N5): Curator goes on to the next lock after an error, gives each lock the whole time, and
/// keeps the last error. Here the first failure ends the attempt, the time is that of the whole call, and the
/// first error is told; errors of the roll-back are not (the nodes go in the background then).
///
/// # Example
///
/// ```
/// # async fn example(client: docent_session::Client) -> Result<(), docent_recipes::Error> {
/// use docent_recipes::locks::InterProcessMultiLock;
///
/// let accounts = InterProcessMultiLock::new(&client, &["/locks/alice", "/locks/bob"])?;
/// let guard = accounts.acquire().await?;
/// assert_eq!(guard.lock_paths().count(), 2);
/// guard.release().await
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent_session::Client::connect(&server.connect_string()).await?;
/// # Ok(example(client).await?)
/// # }
/// ```
///
/// Source: Curator's `InterProcessMultiLock`.
#[derive(Clone)]
pub struct InterProcessMultiLock {
    locks: Vec<Arc<dyn InterProcessLock>>,
}

impl InterProcessMultiLock {
    /// A mutex at each of these paths, with the default [`LockOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when one is no path, or `/`.
    pub fn new(client: &Client, paths: &[&str]) -> Result<Self, Error> {
        Self::with_options(client, paths, &LockOptions::default())
    }

    /// A mutex at each of these paths. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when one is no path, or `/`.
    pub fn with_options(
        client: &Client,
        paths: &[&str],
        options: &LockOptions,
    ) -> Result<Self, Error> {
        let mutex = |path: &&str| -> Result<Arc<dyn InterProcessLock>, Error> {
            Ok(Arc::new(InterProcessMutex::with_options(client, path, options.clone())?))
        };
        Ok(Self::of(paths.iter().map(mutex).collect::<Result<_, _>>()?))
    }

    /// These locks.
    #[must_use]
    pub const fn of(locks: Vec<Arc<dyn InterProcessLock>>) -> Self {
        Self { locks }
    }

    /// Waits for all locks, one after the other.
    ///
    /// # Errors
    ///
    /// That of the first lock which fails; those before it are released then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases what it has got.
    ///
    /// Source: `InterProcessMultiLock.acquire()`.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        let mut all = LockGuard::of_none();
        for lock in &self.locks {
            match lock.acquire().await {
                Ok(guard) => all.absorb(guard),
                Err(error) => {
                    roll_back(all).await;
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// Waits for all locks, and returns `None` when they were not got within `wait`, all together. A lock for
    /// which no time is left is still tried.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessMultiLock.acquire(long, TimeUnit)`.
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        let until = tokio::time::Instant::now() + wait;
        let mut all = LockGuard::of_none();
        for lock in &self.locks {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            match lock.acquire_timeout(left).await {
                Ok(Some(guard)) => all.absorb(guard),
                Ok(None) => {
                    roll_back(all).await;
                    return Ok(None);
                }
                Err(error) => {
                    roll_back(all).await;
                    return Err(error);
                }
            }
        }
        Ok(Some(all))
    }

    /// Whether all locks are held through these objects, as far as this process can know.
    ///
    /// Source: `InterProcessMultiLock.isAcquiredInThisProcess`.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.locks.iter().all(|lock| lock.is_acquired_in_this_process())
    }
}

/// Releases what was got; the last one first.
async fn roll_back(all: LockGuard) {
    if let Err(error) = all.release().await {
        tracing::debug!(%error, "while rolling back a multi lock");
    }
}

impl InterProcessLock for InterProcessMultiLock {
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

impl fmt::Debug for InterProcessMultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMultiLock")
            .field("locks", &self.locks.len())
            .finish_non_exhaustive()
    }
}
