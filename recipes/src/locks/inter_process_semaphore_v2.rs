//! A number of leases, across processes.
//!
//! Below the semaphore's path are a mutex (`locks`) and the leases (`leases`), each lease a node
//! `_c_` GUID `-lease-` and ten digits.
//!
//! | step | frames |
//! |---|---|
//! | 1. acquire the mutex | create2 (15), getChildren2 (12), and waiting, below `locks` |
//! | 2. put a lease down | create2 (15) below `leases`, with parents as a lock node |
//! | 3. count the leases, watching | getChildren2 (12) with watch |
//! | 4. as many as there may be, or fewer: the lease is ours | – |
//! | 5. too many: wait for any change, and count again | – |
//! | 6. remove the watch, release the mutex | checkWatches (17) if the watch has not fired, delete (2) |
//! | out of time | delete (2) of the lease, then 6 |
//! | release | delete (2) of the lease |
//!
//! The mutex is held while a lease is waited for, so that only the first in the queue watches the leases, and
//! whoever came first gets the next one.
//!
//! Beyond Curator: when the mutex is lost on the way (its session ended), the lease is put back and everything
//! begins again. Two that wait for leases at once would count each other, and neither would ever get one.
//!
//! Source: `InterProcessSemaphoreV2`.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use docent_protocol::{CreateMode, WatcherType};
use docent_session::{
    Client, Error as SessionError, ErrorKind, Outcome, SessionClaim, Watcher, retry::RetryPolicy,
};
use tokio::sync::{OnceCell, watch};
use tracing::{debug, trace};

use super::{
    InterProcessMutex, LockGuard, LockOptions,
    hold::{Acquired, Hold, Releaser},
    standard_lock_internals_driver::sorted_contenders,
};
use crate::{
    Error,
    deadline::Deadline,
    default_data::default_data,
    guaranteed_delete,
    protection::{self, NewNode, OurNode, join},
    race::race,
    retry_loop::{RetryLoop, call_with_retry},
    shared::{SharedCount, VersionedValue, count_of},
    wake::Wake,
};

/// Source: `InterProcessSemaphoreV2.LOCK_PARENT`.
const LOCK_PARENT: &str = "locks";
/// Source: `InterProcessSemaphoreV2.LEASE_PARENT`.
const LEASE_PARENT: &str = "leases";
/// Source: `InterProcessSemaphoreV2.LEASE_BASE_NAME`.
const LEASE_BASE_NAME: &str = "lease-";

/// A semaphore that any number of processes, docent or Curator, share by its path. First come, first served.
///
/// How many leases there are is said by everybody who makes one ([`new`](Self::new)), and all must say the same;
/// or by a [`SharedCount`] ([`with_count`](Self::with_count)), which can change. When it is lowered, leases that are
/// out stay out.
///
/// A lease is a [`LockGuard`]: given back by [`release`](LockGuard::release) or by dropping it. Clones are the same
/// object.
///
/// # Example
///
/// ```no_run
/// # async fn example(client: docent_session::Client) -> Result<(), docent_recipes::Error> {
/// use docent_recipes::locks::InterProcessSemaphoreV2;
///
/// let semaphore = InterProcessSemaphoreV2::new(&client, "/licences", 6)?;
/// let one = semaphore.acquire().await?;
/// let two_more = semaphore.acquire_many(2).await?;
/// one.release().await?;
/// drop(two_more);
/// # Ok(())
/// # }
/// ```
///
/// Source: Curator's `InterProcessSemaphoreV2`.
#[derive(Clone)]
pub struct InterProcessSemaphoreV2(Arc<Inner>);

struct Inner {
    client: Client,
    path: String,
    lock: InterProcessMutex,
    leases_path: String,
    max_leases: MaxLeases,
    options: LockOptions,
    default_data: OnceCell<Bytes>,
    holds: Mutex<Vec<Weak<Hold>>>,
}

/// How many leases there may be.
enum MaxLeases {
    Fixed(usize),
    Counted(watch::Receiver<VersionedValue>, SharedCount),
}

impl InterProcessSemaphoreV2 {
    /// A semaphore at this path with so many leases, and the default [`LockOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    pub fn new(client: &Client, path: &str, max_leases: usize) -> Result<Self, Error> {
        Self::with_options(client, path, max_leases, LockOptions::default())
    }

    /// A semaphore at this path with so many leases. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    pub fn with_options(
        client: &Client,
        path: &str,
        max_leases: usize,
        options: LockOptions,
    ) -> Result<Self, Error> {
        Self::of(client, path, MaxLeases::Fixed(max_leases), options)
    }

    /// A semaphore at this path with as many leases as the count says, now and later. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    ///
    /// Source: `InterProcessSemaphoreV2(CuratorFramework, String, SharedCountReader)`; a waiter is woken by a change
    /// (CURATOR-75).
    pub fn with_count(client: &Client, path: &str, count: &SharedCount) -> Result<Self, Error> {
        Self::with_count_and_options(client, path, count, LockOptions::default())
    }

    /// As [`with_count`](Self::with_count), with options.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    pub fn with_count_and_options(
        client: &Client,
        path: &str,
        count: &SharedCount,
        options: LockOptions,
    ) -> Result<Self, Error> {
        let max_leases = MaxLeases::Counted(count.subscribe(), count.clone());
        Self::of(client, path, max_leases, options)
    }

    fn of(
        client: &Client,
        path: &str,
        max_leases: MaxLeases,
        options: LockOptions,
    ) -> Result<Self, Error> {
        super::lock_internals::check_base_path(path)?;
        // What the user says about data is about the leases.
        let of_lock = LockOptions { data: None, ..options.clone() };
        let lock = InterProcessMutex::with_options(client, &join(path, LOCK_PARENT), of_lock)?;
        // With the namespace.
        let path = lock.path().strip_suffix(LOCK_PARENT).unwrap_or_default();
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self(Arc::new(Inner {
            client: client.clone(),
            leases_path: join(&path, LEASE_PARENT),
            path,
            lock,
            max_leases,
            options,
            default_data: OnceCell::new(),
            holds: Mutex::default(),
        })))
    }

    /// Waits for a lease.
    ///
    /// # Errors
    ///
    /// * What broke the session for longer than the retry policy allows: `ConnectionLoss`, `SessionExpired`.
    /// * `NoNode` when the lease vanished more often than the retry policy allows.
    /// * `NoAuth`, `Closed`, and those of [`InterProcessMutex::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; no node stays behind while the client lives.
    ///
    /// Source: `InterProcessSemaphoreV2.acquire()`. Not mirrored: on a closed client that fails with a
    /// `NullPointerException` (N6).
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        loop {
            if let Some(lease) = self.0.acquire_1_lease(None).await? {
                return Ok(lease);
            }
        }
    }

    /// Waits for a lease, and returns `None` when it was not got within `wait`. The time is bounded as that of
    /// [`InterProcessMutex::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessSemaphoreV2.acquire(long, TimeUnit)`.
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        self.0.acquire_1_lease(Some(wait)).await
    }

    /// Waits for so many leases, one after the other. What it has got it keeps while it waits for the rest, as
    /// Curator does: two that want many can wait for each other for ever, unless they have a
    /// [time](Self::acquire_many_timeout).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); what was got before is given back then.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), and what was got is given back.
    ///
    /// Source: `InterProcessSemaphoreV2.acquire(int)`.
    pub async fn acquire_many(&self, quantity: usize) -> Result<Vec<LockGuard>, Error> {
        loop {
            if let Some(leases) = self.many(quantity, None).await? {
                return Ok(leases);
            }
        }
    }

    /// Waits for so many leases, and returns `None` when they were not got within `wait`, all together: then what
    /// was got is given back.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_many`](Self::acquire_many).
    ///
    /// Source: `InterProcessSemaphoreV2.acquire(int, long, TimeUnit)`.
    pub async fn acquire_many_timeout(
        &self,
        quantity: usize,
        wait: Duration,
    ) -> Result<Option<Vec<LockGuard>>, Error> {
        self.many(quantity, Some(wait)).await
    }

    /// The leases that are out, and the one that the first in the queue waits with, oldest first, as paths of
    /// their nodes. Sends getChildren2 (12).
    ///
    /// # Errors
    ///
    /// Those of the session; a semaphore that was never used has none.
    ///
    /// Source: `InterProcessSemaphoreV2.getParticipantNodes`, which tells names, in no order, and fails when nobody
    /// has used the semaphore.
    pub async fn participants(&self) -> Result<Vec<String>, Error> {
        let inner = &*self.0;
        let list = || inner.client.get_children2(&inner.leases_path);
        let children = match call_with_retry(&inner.client, inner.policy(), list).await {
            Ok((children, _)) => children.to_vec(),
            Err(error) if error.kind() == ErrorKind::NoNode => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let leases = sorted_contenders(children.iter().map(String::as_str), LEASE_BASE_NAME);
        Ok(leases.iter().map(|lease| join(&inner.leases_path, lease.name)).collect())
    }

    /// The path it was made with; with its namespace in front, if it has one.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    pub(super) fn any_held(&self) -> bool {
        let holds = self.0.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.iter().filter_map(Weak::upgrade).any(|hold| hold.is_held())
    }

    async fn many(
        &self,
        quantity: usize,
        wait: Option<Duration>,
    ) -> Result<Option<Vec<LockGuard>>, Error> {
        let time = Deadline::after(&self.0.client, wait);
        let mut leases = Vec::with_capacity(quantity);
        while leases.len() < quantity {
            match self.0.acquire_1_lease(time.left()).await {
                Ok(Some(lease)) => leases.push(lease),
                Ok(None) => {
                    return_all(leases).await;
                    return Ok(None);
                }
                Err(error) => {
                    return_all(leases).await;
                    return Err(error);
                }
            }
        }
        Ok(Some(leases))
    }
}

/// Gives leases back; errors are not told, and the nodes go in the background then.
///
/// Source: `InterProcessSemaphoreV2.returnAll`.
async fn return_all(leases: Vec<LockGuard>) {
    for lease in leases {
        if let Err(error) = lease.release().await {
            debug!(%error, "while a lease is given back");
        }
    }
}

/// How a try to get a lease ended.
enum Try {
    Got(LockGuard),
    TimedOut,
    /// The lease vanished, or the mutex was lost.
    Retry(Error),
}

impl Inner {
    fn policy(&self) -> &dyn RetryPolicy {
        &*self.options.retry_policy
    }

    fn max_leases(&self) -> usize {
        match &self.max_leases {
            MaxLeases::Fixed(max) => *max,
            MaxLeases::Counted(_, count) => {
                usize::try_from(count_of(&count.versioned_value())).unwrap_or(0)
            }
        }
    }

    /// Source: `InterProcessSemaphoreV2.internalAcquire1Lease` and the loop around it.
    async fn acquire_1_lease(&self, wait: Option<Duration>) -> Result<Option<LockGuard>, Error> {
        let time = Deadline::after(&self.client, wait);
        let mut retry = RetryLoop::new(&self.client, self.policy());
        loop {
            match self.try_to_acquire(&time).await? {
                Try::Got(lease) => return Ok(Some(lease)),
                Try::TimedOut => return Ok(None),
                Try::Retry(error) => match time.bound(retry.pause_whatever(error)).await {
                    Some(allowed) => allowed?,
                    None => return Ok(None),
                },
            }
        }
    }

    async fn try_to_acquire(&self, time: &Deadline<'_>) -> Result<Try, Error> {
        if let Some(kind) = self.client.ended() {
            return Err(SessionError::new(kind, Outcome::NotApplied).into());
        }
        let lock = match time.left() {
            None => self.lock.acquire().await?,
            Some(left) => match self.lock.acquire_timeout(left).await? {
                Some(lock) => lock,
                None => return Ok(Try::TimedOut),
            },
        };
        let result = self.try_under_lock(&lock, time).await;
        // Its node goes, whatever becomes of the lease.
        match (result, time.bound(lock.release()).await) {
            (Ok(Try::Got(lease)), Some(Err(error))) => {
                return_all(vec![lease]).await;
                Err(error)
            }
            (result, _) => result,
        }
    }

    async fn try_under_lock(&self, lock: &LockGuard, time: &Deadline<'_>) -> Result<Try, Error> {
        let Some(data) = time.bound(self.data()).await else { return Ok(Try::TimedOut) };
        let node = NewNode {
            parent: &self.leases_path,
            name: LEASE_BASE_NAME,
            data: &data,
            parents: self.options.parents(),
            mode: CreateMode::EphemeralSequential,
        };
        trace!(path = self.leases_path, "put a lease down");
        let create = protection::create(&self.client, self.policy(), &node);
        // Declared before the node: dropped on the way, the node goes first.
        let mut watch = LeaseWatch { inner: self, watcher: None };
        let Some(created) = time.bound(create).await else { return Ok(Try::TimedOut) };
        let ours = OurNode::new(&self.client, created?);
        let waited = self.wait_for_lease(lock, &ours, &mut watch, time).await;
        let result = match waited {
            Ok(Some(claim)) => {
                let lease = ours.keep().map(|created| self.lease(created, claim));
                return Ok(lease.map_or(Try::TimedOut, Try::Got));
            }
            Ok(None) => Ok(Try::TimedOut),
            Err(error) if error.is_no_node() => Ok(Try::Retry(error)),
            Err(error) => Err(error),
        };
        trace!(path = ours.path(), "put the lease back");
        if let Some(Err(error)) = time.bound(ours.delete(self.policy())).await {
            debug!(%error, "while a lease is put back");
        }
        result
    }

    /// Waits until there are no more leases than there may be; `None` when the time is up.
    async fn wait_for_lease(
        &self,
        lock: &LockGuard,
        ours: &OurNode<'_>,
        watch: &mut LeaseWatch<'_>,
        time: &Deadline<'_>,
    ) -> Result<Option<SessionClaim>, Error> {
        let mut count = match &self.max_leases {
            MaxLeases::Fixed(_) => None,
            MaxLeases::Counted(count, _) => Some(count.clone()),
        };
        loop {
            let claim = ours.claim()?;
            let mut wake = Wake::arm(&self.client);
            if let Some(count) = &mut count {
                count.mark_unchanged();
            }
            trace!(path = ours.path(), "count the leases");
            let list = || self.client.get_children2_and_watch(&self.leases_path);
            let listing = call_with_retry(&self.client, self.policy(), list);
            let Some(listing) = time.bound(listing).await else { return Ok(None) };
            let ((children, _), watcher) = listing?;
            watch.watcher = Some(watcher);
            let (mut leases, mut present) = (0, false);
            for name in children.iter() {
                if ours.is_twin(&name) {
                    debug!(%name, "a second node of one create is deleted");
                    let path = join(&self.leases_path, &name);
                    guaranteed_delete::delete_in_background(&self.client, &path);
                }
                present |= name == ours.name();
                // Others are no leases (N7).
                leases += usize::from(name.contains(LEASE_BASE_NAME));
            }
            if !present || !lock.is_held() {
                return Err(Error::own_node_missing(ours.name()));
            }
            if leases <= self.max_leases() {
                if claim.is_valid(self.client.now()) {
                    trace!(path = ours.path(), "ours");
                    return Ok(Some(claim));
                }
                // The answer took too long to be believed: count again.
                continue;
            }
            if time.is_up() {
                return Ok(None);
            }
            let counted = async {
                let changed = match &mut count {
                    Some(count) => count.changed().await.is_ok(),
                    None => false,
                };
                if !changed {
                    std::future::pending::<()>().await;
                }
            };
            let woken = race(watch.changed(), race(wake.changed(), counted));
            // Out of time, they are counted once more.
            time.wait_for(race(woken, lock.lost())).await;
        }
    }

    fn lease(&self, created: protection::Created, claim: SessionClaim) -> LockGuard {
        let releaser = Releaser {
            client: self.client.clone(),
            policy: Arc::clone(&self.options.retry_policy),
            watches: None,
            revocation: None,
        };
        let protection::Created { path, czxid, .. } = created;
        let acquired = Acquired { path, claim, czxid };
        let hold = Hold::new(releaser, acquired, Box::new(|_| {}));
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(&hold));
        LockGuard::new(hold)
    }

    async fn data(&self) -> Bytes {
        match &self.options.data {
            Some(data) => data.clone(),
            None => default_data(&self.default_data, &self.client, &self.options).await,
        }
    }
}

/// The watch of the leases. Dropped, it is removed as Curator does: the server is asked about it (N11).
struct LeaseWatch<'a> {
    inner: &'a Inner,
    watcher: Option<Watcher>,
}

impl LeaseWatch<'_> {
    async fn changed(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher.changed().await;
            self.watcher = None;
        }
    }
}

impl Drop for LeaseWatch<'_> {
    fn drop(&mut self) {
        if self.watcher.as_mut().is_some_and(|watcher| watcher.try_changed().is_none()) {
            let Inner { client, leases_path, .. } = self.inner;
            drop(client.check_watches(leases_path, WatcherType::Any));
        }
    }
}

impl fmt::Debug for InterProcessSemaphoreV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreV2")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
