//! A re-entrant mutex across processes.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use docent_session::{Client, retry::RetryLoop, runtime::Clock};

use super::{
    InterProcessLock, LockFuture, LockGuard, LockInternalsDriver, LockOptions, Owner,
    StandardLockInternalsDriver,
    hold::{Acquired, Hold},
    lock_internals::{LOCK_NAME, LockInternals},
    owners::Owners,
    renewal,
};
use crate::{
    Error,
    deadline::{Deadline, Ended},
    error,
    state_changes::is_read_write,
    sync::lock,
};

/// A mutex that any number of processes, docent or Curator, share by its path. First come, first served.
///
/// Each [`acquire`](Self::acquire) is a separate contender: a task that holds the lock and acquires it again waits
/// for itself, for ever. To re-enter the lock, call [`acquire_as`](Self::acquire_as) each time, with one [`Owner`], which
/// takes the place of Curator's thread.
///
/// Clones are the same lock object. One client serves any number of locks.
///
/// # Requests
///
/// A free lock is acquired by two requests, one after the other: create2 (15) of an ephemeral sequential node below
/// [`path`](Self::path), and getChildren2 (12) of the path. A contender that is not the first watches the node ahead of
/// its own, by getData (4), so that a release wakes one contender. The release sends delete (2).
/// [`lock_internals`](super::lock_internals) lists every step, also those after a failure.
///
/// # Outages
///
/// A hold ends with its session, and an acquire fails when the retry policy of its [`LockOptions`] gives up. A lock object
/// whose nodes other clients delete, one after the other, creates them with pauses of 100 ms to 5 s. Between
/// the loss and its discovery another client may hold the lock: [`LockGuard`] documents what protects against that.
///
/// # Example
///
/// ```
/// use docent::{Client, InterProcessMutex};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let connect_string = server.connect_string();
/// let client = Client::connect(&connect_string).await?;
/// let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
///
/// let guard = mutex.acquire().await?;
/// println!("held with fencing token {}", guard.fencing_token().await?);
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: Curator's `InterProcessMutex`.
#[derive(Clone)]
pub struct InterProcessMutex {
    internals: Arc<LockInternals>,
    owners: Arc<Owners>,
    driver_factory: DriverFactory,
}

/// Makes the driver of one acquire, which may depend on its owner.
pub(super) type DriverFactory =
    Arc<dyn Fn(Option<&Owner>, &WriteHold) -> Arc<dyn LockInternalsDriver> + Send + Sync>;

/// The write hold that the node of one acquire continues: the driver of a read lock sets it when it names the node.
/// Another task of the owner may acquire or release the write lock before and after.
pub(super) type WriteHold = Arc<Mutex<Option<Arc<Hold>>>>;

/// The same driver for every acquire.
pub(super) fn fixed_driver(driver: impl LockInternalsDriver) -> DriverFactory {
    let driver: Arc<dyn LockInternalsDriver> = Arc::new(driver);
    Arc::new(move |_, _| Arc::clone(&driver))
}

impl InterProcessMutex {
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
        Self::with_driver(client, path, options, StandardLockInternalsDriver)
    }

    /// A lock at this path with a custom driver, which decides the order of contenders and their nodes. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    ///
    /// Source: `InterProcessMutex(CuratorFramework, String, LockInternalsDriver)`.
    pub fn with_driver(
        client: &Client,
        path: &str,
        options: LockOptions,
        driver: impl LockInternalsDriver,
    ) -> Result<Self, Error> {
        let internals = LockInternals::new(client, path, LOCK_NAME, 1, options)?;
        Ok(Self::with_driver_factory(internals, fixed_driver(driver)))
    }

    pub(super) fn with_driver_factory(
        internals: LockInternals,
        driver_factory: DriverFactory,
    ) -> Self {
        let internals = Arc::new(internals);
        Self { internals, owners: Arc::default(), driver_factory }
    }

    pub(super) const fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }

    /// Waits for the lock. [`lock_internals`](super::lock_internals) lists the requests.
    ///
    /// # Errors
    ///
    /// * `ConnectionLoss` or `SessionExpired`, when the connection or session is lost for longer than the retry policy
    ///   allows. As with Curator, waiting does not by itself survive an outage.
    /// * `NoNode` when the own node is deleted more often than the retry policy allows.
    /// * `NoAuth`, `Closed`.
    /// * [`SequenceExhausted`](crate::ErrorKind::SequenceExhausted).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future deletes the own node in the background: no node is left behind while the client lives.
    ///
    /// Source: `InterProcessMutex.acquire()`.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        self.attempt(None, &self.deadline(None)).await.map_err(Ended::into_error)
    }

    /// Waits for the lock, and returns `None` when it was not acquired within `wait`.
    ///
    /// `None` means that another client or call holds the lock or is ahead in the queue. A zero timeout still acquires a
    /// free lock: the queue is listed once. The timeout bounds the whole call, also without a connection; only a step in
    /// progress at the deadline may take one second more.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Unanswered`](crate::ErrorKind::Unanswered) when no reply has shown within
    /// `wait` whether the lock is free.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessMutex.acquire(long, TimeUnit)`. Not mirrored: there, an outage lasts as long as the retry
    /// policy allows, and ends in an error (N8 in `docs/CURATOR.md`).
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        let deadline = self.deadline(Some(wait));
        deadline.answered(self.path(), self.attempt(None, &deadline).await).await
    }

    /// Waits for the lock, or enters it again if `owner` holds it already: then nothing is sent, and the lock is
    /// released with the last of the owner's guards.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`LockLost`](crate::ErrorKind::LockLost) when `owner` has guards of a lost hold: release them
    /// first. (Curator would grant the lock.)
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessMutex.internalLock`.
    pub async fn acquire_as(&self, owner: &Owner) -> Result<LockGuard, Error> {
        self.attempt(Some(owner), &self.deadline(None)).await.map_err(Ended::into_error)
    }

    /// As [`acquire_as`](Self::acquire_as), within `wait` as [`acquire_timeout`](Self::acquire_timeout). `None` also means
    /// that another acquire of `owner` is still waiting.
    ///
    /// # Errors
    ///
    /// As [`acquire_as`](Self::acquire_as) and [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_as_timeout(
        &self,
        owner: &Owner,
        wait: Duration,
    ) -> Result<Option<LockGuard>, Error> {
        let deadline = self.deadline(Some(wait));
        deadline.answered(self.path(), self.attempt(Some(owner), &deadline).await).await
    }

    /// Whether `owner` holds the lock, as far as this process can know.
    ///
    /// Source: `InterProcessMutex.isOwnedByCurrentThread`, which stays true after the session is lost.
    #[must_use]
    pub fn is_owned_by(&self, owner: &Owner) -> bool {
        self.owners.hold(owner).is_some_and(|hold| hold.is_held())
    }

    /// Whether the lock is held through this object, by any owner, as far as this process can know.
    ///
    /// Source: `InterProcessLock.isAcquiredInThisProcess`, which stays true after the session is lost.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.owners.any_held()
    }

    /// Makes this object's next hold revocable: from the acquire to the release, a task of the client's runtime calls
    /// `listener` for each revocation request of a [`Revoker`](super::Revoker). The holder decides how to respond.
    /// Call it before each acquire: a release ends it.
    ///
    /// The lock node of a revocable lock is empty and watched: an acquire also sends getData (4) for it.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
    /// use std::sync::Arc;
    /// use docent::InterProcessMutex;
    ///
    /// let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
    /// let wanted = Arc::new(tokio::sync::Notify::new());
    /// let notify = Arc::clone(&wanted);
    /// mutex.make_revocable(move || notify.notify_one());
    /// let guard = mutex.acquire().await?;
    /// wanted.notified().await;
    /// guard.release().await
    /// # }
    /// ```
    ///
    /// Source: `InterProcessMutex.makeRevocable`.
    pub fn make_revocable(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.internals.revocation().set(Arc::new(listener));
    }

    /// The paths of the lock nodes of all holders and waiters, in the order of the queue. Sends getChildren2 (12).
    ///
    /// # Errors
    ///
    /// Those of the session; a missing path has no participants.
    ///
    /// Source: `InterProcessMutex.getParticipantNodes`, which includes children that are no lock nodes.
    pub async fn participants(&self) -> Result<Vec<String>, Error> {
        let driver = (self.driver_factory)(None, &WriteHold::default());
        self.internals.participants(&*driver).await
    }

    /// The path of the lock, including its namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        self.internals.base_path()
    }

    fn deadline(&self, wait: Option<Duration>) -> Deadline<'_> {
        Deadline::after(self.internals.client(), wait)
    }

    /// Acquires the lock, or enters it again.
    pub(super) async fn attempt(
        &self,
        owner: Option<&Owner>,
        deadline: &Deadline<'_>,
    ) -> Result<LockGuard, Ended> {
        let Some(owner) = owner else { return self.attempt_lock(None, deadline).await };
        let client = self.internals.client();
        let (_entry, mutex) = self.owners.acquiring(owner);
        let mut serialized = None;
        deadline.wait_for(async { serialized = Some(mutex.lock().await) }).await;
        if serialized.is_none() {
            // The other acquire waits for the lock, or for a connection.
            if is_read_write(client.state().get()) {
                deadline.note_answer();
            }
            return Err(Ended::TimedOut);
        }
        if let Some(hold) = self.owners.hold(owner) {
            let held = hold.is_held();
            match LockGuard::reenter(&hold) {
                Some(guard) if held => return Ok(guard),
                Some(_) => return Err(error::lock_lost(self.path()).into()),
                // Its last guard is being released: acquire the lock anew, in the queue behind it.
                None => {}
            }
        }
        self.attempt_lock(Some(owner), deadline).await
    }

    async fn attempt_lock(
        &self,
        owner: Option<&Owner>,
        deadline: &Deadline<'_>,
    ) -> Result<LockGuard, Ended> {
        let options = self.internals.options();
        let mut retry = RetryLoop::new(self.internals.client(), options.retry_policy());
        // Read once: the end of a hold that is not returned clears it.
        let revocable = self.internals.revocation().listener();
        loop {
            let write = WriteHold::default();
            let driver = (self.driver_factory)(owner, &write);
            let acquired =
                self.internals.attempt_lock(&*driver, revocable.as_ref(), deadline).await?;
            let write = lock(&write).take();
            let guard = self.hold(owner, acquired, write);
            let Some(every) = options.proven_renewal else { return Ok(guard) };
            for hold in guard.holds() {
                renewal::begin(hold, every, deadline.remaining()).await;
            }
            if guard.is_held() {
                return Ok(guard);
            }
            // The first renewal has not found the node, for one.
            let lost = error::lock_lost(guard.path());
            drop(guard);
            deadline.note_answer();
            deadline.bound_by_end(retry.pause_after_any_error(lost)).await?;
        }
    }

    fn hold(
        &self,
        owner: Option<&Owner>,
        acquired: Acquired,
        write: Option<Arc<Hold>>,
    ) -> LockGuard {
        let (owners, id) = (Arc::downgrade(&self.owners), owner.map(Owner::id));
        let on_end = Box::new(move |hold: &Hold| {
            if let (Some(owners), Some(id)) = (owners.upgrade(), id) {
                owners.remove(id, hold);
            }
        });
        let hold = Hold::new(self.internals.releaser(), acquired, on_end).continuing(write);
        let hold = Arc::new(hold);
        self.owners.add(owner, &hold);
        LockGuard::new(hold)
    }
}

impl InterProcessLock for InterProcessMutex {
    fn clock(&self) -> Clock {
        self.internals.client().clock().clone()
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

impl fmt::Debug for InterProcessMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    #[tokio::test]
    async fn an_owner_whose_acquire_was_dropped_leaves_no_entry() {
        let server = docent_testing::TestingServer::start().await.unwrap();
        let client = Client::connect(&server.connect_string()).await.unwrap();
        let mutex = InterProcessMutex::new(&client, "/lock").unwrap();
        let owner = Owner::new();
        {
            let mut acquire = pin!(mutex.acquire_as(&owner));
            assert!(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(mutex.owners.len(), 1);
        }
        assert_eq!(mutex.owners.len(), 0);
        let guard = mutex.acquire_as(&owner).await.unwrap();
        assert_eq!(mutex.owners.len(), 1);
        guard.release().await.unwrap();
        assert_eq!(mutex.owners.len(), 0);
    }
}
