//! A re-entrant mutex across processes.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use docent_session::Client;

use super::{
    LockGuard, LockOptions, Owner,
    guard::Hold,
    lock_internals::{LOCK_NAME, LockInternals},
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
/// ```no_run
/// use docent_recipes::locks::InterProcessMutex;
/// use docent_session::Client;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("127.0.0.1:2181").await?;
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
}

/// Who holds this lock object, of those that have a name.
///
/// Source: `InterProcessMutex.threadData`.
#[derive(Default)]
struct Owners(Mutex<HashMap<u64, Entry>>);

#[derive(Default)]
struct Entry {
    hold: Option<Weak<Hold>>,
    /// One acquire of an owner at a time, as a thread would.
    turn: Arc<tokio::sync::Mutex<()>>,
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
        let internals = LockInternals::new(client, path, LOCK_NAME, 1, options)?;
        Ok(Self { internals: Arc::new(internals), owners: Arc::default() })
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

    /// All who hold it or wait for it, first come first, as paths of their nodes. Sends getChildren2 (12).
    ///
    /// # Errors
    ///
    /// Those of the session; a path that does not exist has no participants.
    ///
    /// Source: `InterProcessMutex.getParticipantNodes`; children that are no lock nodes are left out, unlike there.
    pub async fn participants(&self) -> Result<Vec<String>, Error> {
        self.internals.participants().await
    }

    /// The path it was made with.
    #[must_use]
    pub fn path(&self) -> &str {
        self.internals.base_path()
    }

    async fn attempt(&self, wait: Option<Duration>) -> Result<Option<LockGuard>, Error> {
        let acquired = self.internals.attempt_lock(wait).await?;
        Ok(acquired
            .map(|acquired| Hold::new(Arc::clone(&self.internals), acquired, Box::new(|| ())).1))
    }

    async fn attempt_as(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>, Error> {
        let result = self.attempt_in_turn(owner, wait).await;
        self.owners.forget_idle(owner.id());
        result
    }

    async fn attempt_in_turn(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>, Error> {
        let client = self.internals.client();
        let began = client.now();
        let turn = self.owners.turn(owner);
        let _turn = match wait {
            None => turn.lock().await,
            Some(wait) => match tokio::time::timeout(wait, turn.lock()).await {
                Ok(turn) => turn,
                Err(_) => return Ok(None),
            },
        };
        if let Some(hold) = self.owners.hold(owner) {
            let held = hold.is_held();
            match hold.guard() {
                Some(guard) if held => return Ok(Some(guard)),
                Some(_) => return Err(Error::LockLost { path: self.path().to_owned() }),
                // Its last guard is just being released.
                None => {}
            }
        }
        let wait = wait.map(|wait| wait.saturating_sub(client.now().since(began)));
        let Some(acquired) = self.internals.attempt_lock(wait).await? else { return Ok(None) };
        let (owners, id) = (Arc::downgrade(&self.owners), owner.id());
        let forget = Box::new(move || {
            if let Some(owners) = owners.upgrade() {
                owners.forget(id);
            }
        });
        let (hold, guard) = Hold::new(Arc::clone(&self.internals), acquired, forget);
        self.owners.enter(owner, &hold);
        Ok(Some(guard))
    }
}

impl Owners {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, owner: &Owner) -> Option<Arc<Hold>> {
        self.lock().get(&owner.id())?.hold.as_ref()?.upgrade()
    }

    fn turn(&self, owner: &Owner) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.lock().entry(owner.id()).or_default().turn)
    }

    fn enter(&self, owner: &Owner, hold: &Arc<Hold>) {
        self.lock().entry(owner.id()).or_default().hold = Some(Arc::downgrade(hold));
    }

    /// The hold is over.
    fn forget(&self, id: u64) {
        if let Some(entry) = self.lock().get_mut(&id) {
            entry.hold = None;
        }
        self.forget_idle(id);
    }

    /// An owner that neither holds nor acquires needs no entry.
    fn forget_idle(&self, id: u64) {
        let mut owners = self.lock();
        let idle = owners
            .get(&id)
            .is_some_and(|entry| entry.hold.is_none() && Arc::strong_count(&entry.turn) == 1);
        if idle {
            owners.remove(&id);
        }
    }
}

impl fmt::Debug for InterProcessMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}
