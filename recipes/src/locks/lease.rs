//! How a lease is got and waited for.
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
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use docent_protocol::{CreateMode, WatcherType};
use docent_session::{
    Client, Error as SessionError, Outcome, SessionClaim, Watcher, retry::RetryPolicy,
};
use tokio::sync::{OnceCell, watch};
use tracing::{debug, trace};

use super::{
    InterProcessMutex, LockGuard, LockOptions,
    hold::{Acquired, Hold, Releaser},
    inter_process_semaphore_v2::return_all,
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

/// Source: `InterProcessSemaphoreV2.LEASE_BASE_NAME`.
pub(super) const LEASE_BASE_NAME: &str = "lease-";

/// A semaphore, for all clones of its object.
pub(super) struct Inner {
    pub(super) client: Client,
    pub(super) path: String,
    pub(super) lock: InterProcessMutex,
    pub(super) leases_path: String,
    pub(super) max_leases: MaxLeases,
    pub(super) options: LockOptions,
    pub(super) default_data: OnceCell<Bytes>,
    pub(super) holds: Mutex<Vec<Weak<Hold>>>,
}

/// How many leases there may be.
pub(super) enum MaxLeases {
    Fixed(usize),
    Counted(watch::Receiver<VersionedValue>, SharedCount),
}

/// How a try to get a lease ended.
enum Try {
    Got(LockGuard),
    TimedOut,
    /// The lease vanished, or the mutex was lost.
    Retry(Error),
}

impl Inner {
    pub(super) fn policy(&self) -> &dyn RetryPolicy {
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
    pub(super) async fn acquire_1_lease(
        &self,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>, Error> {
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

    pub(super) fn any_held(&self) -> bool {
        let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.iter().filter_map(Weak::upgrade).any(|hold| hold.is_held())
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
