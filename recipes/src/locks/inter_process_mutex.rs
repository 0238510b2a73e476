//! A re-entrant mutex across processes.

use std::{fmt, sync::Arc, time::Duration};

use docent_session::Client;

use super::{
    InterProcessLock, LockFuture, LockGuard, LockInternalsDriver, LockOptions, Owner,
    StandardLockInternalsDriver,
    hold::{Acquired, Hold},
    inter_process_read_write_lock::ReadLockDriver,
    lock_internals::{LOCK_NAME, LockInternals},
    owners::Owners,
};
use crate::Error;

/// A mutex that any number of processes, docent or Curator, share by its path. First come, first served.
///
/// Each [`acquire`](Self::acquire) is a contender of its own: a task that holds the lock and acquires it again waits
/// for itself. What may be entered again is acquired with an [`Owner`], which stands for Curator's thread.
///
/// Clones are the same lock object.
///
/// # Example
///
/// ```
/// use docent_recipes::locks::InterProcessMutex;
/// use docent_session::Client;
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
    kind: Kind,
}

/// By what rule the lock is given.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// The same for everybody.
    Driver(Arc<dyn LockInternalsDriver>),
    /// A read lock's, which asks who holds the write lock.
    Read(Arc<Owners>),
}

impl InterProcessMutex {
    /// A lock at this path, with the default [`LockOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    pub fn new(client: &Client, path: &str) -> Result<Self, Error> {
        Self::with_options(client, path, LockOptions::default())
    }

    /// A lock at this path. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    pub fn with_options(client: &Client, path: &str, options: LockOptions) -> Result<Self, Error> {
        Self::with_driver(client, path, options, StandardLockInternalsDriver)
    }

    /// A lock at this path whose order, or whose nodes, are others than usual. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    ///
    /// Source: `InterProcessMutex(CuratorFramework, String, LockInternalsDriver)`.
    pub fn with_driver(
        client: &Client,
        path: &str,
        options: LockOptions,
        driver: impl LockInternalsDriver,
    ) -> Result<Self, Error> {
        let internals = LockInternals::new(client, path, LOCK_NAME, 1, options)?;
        Ok(Self::of(internals, Kind::Driver(Arc::new(driver))))
    }

    pub(super) fn of(internals: LockInternals, kind: Kind) -> Self {
        Self { internals: Arc::new(internals), owners: Arc::default(), kind }
    }

    pub(super) const fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }

    /// Waits for the lock. What is sent is told in [`lock_internals`](super::lock_internals).
    ///
    /// # Errors
    ///
    /// * What broke the session for longer than the retry policy allows: `ConnectionLoss`, `SessionExpired`. As
    ///   with Curator, waiting alone is not proof against an outage.
    /// * `NoNode` when the own node vanished more often than the retry policy allows.
    /// * `NoAuth`, `Closed`.
    /// * [`Error::SequenceExhausted`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; no node stays behind while the client lives.
    ///
    /// Source: `InterProcessMutex.acquire()`.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        loop {
            if let Some(guard) = self.attempt(None).await? {
                return Ok(guard);
            }
        }
    }

    /// Waits for the lock, and returns `None` when it was not got within `wait`.
    ///
    /// With no time at all a free lock is still got: the server is asked once. The time bounds the whole call,
    /// but for a step that is under way when it is up, which may take a second more; without a connection,
    /// too.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessMutex.acquire(long, TimeUnit)`. Not mirrored: there, an outage takes as long as the
    /// retry policy likes, and ends in an error (N8).
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        self.attempt(Some(wait)).await
    }

    /// Waits for the lock, or enters it again if `owner` holds it already: then nothing is sent, and the lock is
    /// given up with the last of the owner's guards.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::LockLost`] when `owner` has guards of a hold that is lost:
    /// release them first. (Curator would let it in.)
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessMutex.internalLock`.
    pub async fn acquire_as(&self, owner: &Owner) -> Result<LockGuard, Error> {
        loop {
            if let Some(guard) = self.attempt_as(owner, None).await? {
                return Ok(guard);
            }
        }
    }

    /// As [`acquire_as`](Self::acquire_as), within `wait` as [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Errors
    ///
    /// As [`acquire_as`](Self::acquire_as).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_as_timeout(
        &self,
        owner: &Owner,
        wait: Duration,
    ) -> Result<Option<LockGuard>, Error> {
        self.attempt_as(owner, Some(wait)).await
    }

    /// Whether `owner` holds it, as far as this process can know.
    ///
    /// Source: `InterProcessMutex.isOwnedByCurrentThread`; honest after the loss of the session, unlike there.
    #[must_use]
    pub fn is_owned_by(&self, owner: &Owner) -> bool {
        self.owners.hold(owner).is_some_and(|hold| hold.is_held())
    }

    /// Whether it is held through this object, by anybody, as far as this process can know.
    ///
    /// Source: `InterProcessLock.isAcquiredInThisProcess`; honest after the loss of the session, unlike there.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.owners.any_held()
    }

    /// Makes this object's next hold revocable: `listener` is called whenever somebody asks for the lock with
    /// [`Revoker`](super::Revoker), from the acquire to the release, by a task of the client's runtime. What
    /// becomes of that is up to the holder. To be called before each acquire: a release ends it.
    ///
    /// The lock node of a revocable lock is empty, and watched: an acquire sends getData (4) of it as well.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # async fn example(client: docent_session::Client) -> Result<(), docent_recipes::Error> {
    /// use std::sync::Arc;
    /// use docent_recipes::locks::InterProcessMutex;
    ///
    /// let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
    /// let wanted = Arc::new(tokio::sync::Notify::new());
    /// let tell = Arc::clone(&wanted);
    /// mutex.make_revocable(move || tell.notify_one());
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

    /// All who hold it or wait for it, first come first, as paths of their nodes. Sends getChildren2 (12).
    ///
    /// # Errors
    ///
    /// Those of the session; a path that does not exist has no participants.
    ///
    /// Source: `InterProcessMutex.getParticipantNodes`; children that are no lock nodes are left out, unlike there.
    pub async fn participants(&self) -> Result<Vec<String>, Error> {
        match &self.kind {
            Kind::Driver(driver) => self.internals.participants(&**driver).await,
            Kind::Read(writers) => {
                let driver = ReadLockDriver::new(Arc::clone(writers), None);
                self.internals.participants(&driver).await
            }
        }
    }

    /// The path it was made with; with its namespace in front, if it has one.
    #[must_use]
    pub fn path(&self) -> &str {
        self.internals.base_path()
    }

    async fn attempt(&self, wait: Option<Duration>) -> Result<Option<LockGuard>, Error> {
        let acquired = self.attempt_lock(None, wait).await?;
        Ok(acquired.map(|acquired| self.hold(None, acquired)))
    }

    async fn attempt_as(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>, Error> {
        let client = self.internals.client();
        let began = client.now();
        let turn = self.owners.turn(owner);
        let Some(turn) = &turn.turn else { return Ok(None) };
        let _turn = match wait {
            None => turn.lock().await,
            Some(wait) => match tokio::time::timeout(wait, turn.lock()).await {
                Ok(turn) => turn,
                Err(_) => return Ok(None),
            },
        };
        if let Some(hold) = self.owners.hold(owner) {
            let held = hold.is_held();
            match LockGuard::enter(&hold) {
                Some(guard) if held => return Ok(Some(guard)),
                Some(_) => return Err(Error::LockLost { path: self.path().to_owned() }),
                // Its last guard is just being released: it is waited for in the queue.
                None => {}
            }
        }
        let wait = wait.map(|wait| wait.saturating_sub(client.now().since(began)));
        let acquired = self.attempt_lock(Some(owner), wait).await?;
        Ok(acquired.map(|acquired| self.hold(Some(owner), acquired)))
    }

    async fn attempt_lock(
        &self,
        owner: Option<&Owner>,
        wait: Option<Duration>,
    ) -> Result<Option<Acquired>, Error> {
        match &self.kind {
            Kind::Driver(driver) => self.internals.attempt_lock(&**driver, wait).await,
            Kind::Read(writers) => {
                let driver = ReadLockDriver::new(Arc::clone(writers), owner.cloned());
                self.internals.attempt_lock(&driver, wait).await
            }
        }
    }

    fn hold(&self, owner: Option<&Owner>, acquired: Acquired) -> LockGuard {
        let (owners, id) = (Arc::downgrade(&self.owners), owner.map(Owner::id));
        let forget = Box::new(move |hold: &Hold| {
            if let (Some(owners), Some(id)) = (owners.upgrade(), id) {
                owners.forget(id, hold);
            }
        });
        let hold = Hold::new(self.internals.releaser(), acquired, forget);
        self.owners.enter(owner, &hold);
        LockGuard::new(hold)
    }
}

impl InterProcessLock for InterProcessMutex {
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
