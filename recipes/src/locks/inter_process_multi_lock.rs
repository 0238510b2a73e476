//! Several locks that are acquired as one.
//!
//! An acquire succeeds only if all locks are held at one moment, the last one before the return.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use docent_session::{Client, runtime::Clock};

use super::{InterProcessLock, InterProcessMutex, LockFuture, LockGuard, LockOptions, Owner};
use crate::{Error, deadline::STEP_GRACE, error, planted, timer};

/// Several locks, of any kinds, that are held together or not at all.
///
/// They are acquired in the order of the list. Two multi locks that share locks must list them in the same order, or
/// they can wait for each other for ever. When one lock cannot be acquired, those before it are released in the
/// background, the last one first.
///
/// Each acquire is a separate contender. For all locks of the list it is one [`Owner`], as a thread is in Curator: a
/// lock that is listed twice, or a read lock after its write lock, is entered again. Locks that an owner already holds
/// are entered again with [`acquire_as`](Self::acquire_as).
///
/// Not mirrored (N5 in `docs/CURATOR.md`): Curator continues with the next lock after an error, gives each lock the
/// whole timeout, and throws the last error. Here the first failure ends the acquire, the timeout is that of the whole
/// call, and the first error is returned. Also, Curator does not check that it still holds the first lock after it has
/// acquired the last.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use docent::InterProcessMultiLock;
///
/// let accounts = InterProcessMultiLock::new(&client, &["/locks/alice", "/locks/bob"])?;
/// let guard = accounts.acquire().await?;
/// assert_eq!(guard.paths().count(), 2);
/// guard.release().await
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent::Client::connect(&server.connect_string()).await?;
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
    /// A mutex at each of these paths, with the default [`LockOptions`]. A path that is listed twice is one mutex.
    /// Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    pub fn new(client: &Client, paths: &[&str]) -> Result<Self, Error> {
        Self::with_options(client, paths, &LockOptions::default())
    }

    /// A mutex at each of these paths. A path that is listed twice is one mutex. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    pub fn with_options(
        client: &Client,
        paths: &[&str],
        options: &LockOptions,
    ) -> Result<Self, Error> {
        let mut mutexes: HashMap<&str, Arc<dyn InterProcessLock>> = HashMap::new();
        let mut locks = Vec::with_capacity(paths.len());
        for path in paths {
            let lock = match mutexes.get(path) {
                Some(lock) => Arc::clone(lock),
                None => Arc::new(InterProcessMutex::with_options(client, path, options.clone())?),
            };
            mutexes.insert(path, Arc::clone(&lock));
            locks.push(lock);
        }
        Ok(Self::from_locks(locks))
    }

    /// A multi lock of these locks. They may have different clients, but [`guarded`](LockGuard::guarded) requires that
    /// all clients use one ensemble.
    #[must_use]
    pub const fn from_locks(locks: Vec<Arc<dyn InterProcessLock>>) -> Self {
        Self { locks }
    }

    /// Waits for all locks, one after the other.
    ///
    /// # Errors
    ///
    /// That of the first lock that fails, and [`LockLost`](crate::ErrorKind::LockLost) when a lock was lost during the wait for the others:
    /// acquire them again. The acquired locks are then released in the background. `BadArguments` for an empty list.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the acquired locks.
    ///
    /// Source: `InterProcessMultiLock.acquire()`.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        self.acquire_as(&Owner::new()).await
    }

    /// Waits for all locks, and returns `None` when they were not all acquired within `wait`. Each lock is tried, also
    /// with no time remaining.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Unanswered`](crate::ErrorKind::Unanswered) when no reply has shown in time
    /// whether one of the locks is free.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessMultiLock.acquire(long, TimeUnit)`.
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        self.acquire_as_timeout(&Owner::new(), wait).await
    }

    /// As [`acquire`](Self::acquire), each lock under `owner`: re-entrant locks that it holds already are entered again
    /// (see [`InterProcessMutex::acquire_as`]).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_as(&self, owner: &Owner) -> Result<LockGuard, Error> {
        self.check_not_empty()?;
        let mut all = LockGuard::empty();
        for lock in &self.locks {
            all.append(lock.acquire_as(owner).await?);
            #[cfg(docent_sim)]
            if let Some(hold) = all.holds().first() {
                planted::delay("multi-granted-late", hold.client(), 30).await;
            }
        }
        check_all_held(all)
    }

    /// As [`acquire_as`](Self::acquire_as), within `wait` as [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_as_timeout(
        &self,
        owner: &Owner,
        wait: Duration,
    ) -> Result<Option<LockGuard>, Error> {
        self.check_not_empty()?;
        let clock = self.clock();
        // A deadline beyond the clock's range is none.
        let deadline = clock.now().checked_add(wait);
        let remaining = |grace| match deadline {
            Some(deadline) => (deadline + grace).duration_since(clock.now()),
            None => wait,
        };
        let mut all = LockGuard::empty();
        for lock in &self.locks {
            let acquire = lock.acquire_as_timeout(owner, remaining(Duration::ZERO));
            let acquired = match all.holds().first().map(|hold| hold.client().clone()) {
                None => acquire.await?,
                // Each lock has its own grace. Together they have one.
                Some(client) => match timer::timeout(&client, remaining(STEP_GRACE), acquire).await
                {
                    Some(acquired) => acquired?,
                    None => return Err(error::unanswered(&client, None).await),
                },
            };
            match acquired {
                Some(guard) => all.append(guard),
                None => return Ok(None),
            }
        }
        check_all_held(all).map(Some)
    }

    /// Whether all locks are held through these objects, as far as this process can know.
    ///
    /// Source: `InterProcessMultiLock.isAcquiredInThisProcess`.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        !self.locks.is_empty() && self.locks.iter().all(|lock| lock.is_acquired_in_this_process())
    }

    fn check_not_empty(&self) -> Result<(), Error> {
        if self.locks.is_empty() {
            return Err(error::bad_arguments("the list of locks is empty"));
        }
        Ok(())
    }
}

/// Checks that all locks are held at one moment: an early one may be lost during the wait for a later one.
fn check_all_held(all: LockGuard) -> Result<LockGuard, Error> {
    match all.first_lost() {
        None => Ok(all),
        Some(_) if planted::is("multi-part-lost") => Ok(all),
        Some(path) => Err(error::lock_lost(path)),
    }
}

impl InterProcessLock for InterProcessMultiLock {
    fn clock(&self) -> Clock {
        self.locks.first().map_or_else(Clock::system, |lock| lock.clock())
    }

    fn acquire(&self) -> LockFuture<'_, LockGuard> {
        Box::pin(self.acquire())
    }

    fn acquire_timeout(&self, wait: Duration) -> LockFuture<'_, Option<LockGuard>> {
        Box::pin(self.acquire_timeout(wait))
    }

    fn acquire_as<'a>(&'a self, owner: &'a Owner) -> LockFuture<'a, LockGuard> {
        Box::pin(self.acquire_as(owner))
    }

    fn acquire_as_timeout<'a>(
        &'a self,
        owner: &'a Owner,
        wait: Duration,
    ) -> LockFuture<'a, Option<LockGuard>> {
        Box::pin(self.acquire_as_timeout(owner, wait))
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
