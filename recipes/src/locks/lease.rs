//! The semaphore algorithm: how a lease is acquired.
//!
//! Below the semaphore's path are a mutex (`locks`) and the leases (`leases`). Each lease is a node
//! `_c_` GUID `-lease-` and ten digits.
//!
//! | step | frames |
//! |---|---|
//! | 1. acquire the mutex | create2 (15), getChildren2 (12), and those of a waiter, below `locks` |
//! | 2. create a lease node | create2 (15) below `leases`, with parents like a lock node |
//! | 3. count the leases, with a watch | getChildren2 (12) with watch |
//! | 4. at most the maximum: the lease is ours | – |
//! | 5. more: wait for any change, and count again | – |
//! | 6. remove the watch, release the mutex | checkWatches (17) if the watch has not fired, delete (2) |
//! | timeout | delete (2) of the lease, then 6 |
//! | release | delete (2) of the lease |
//!
//! The mutex is held during the wait for a lease: so only the first in the queue watches the leases, and waiters
//! acquire leases in the order of the queue.
//!
//! Unlike in Curator, when the mutex is lost during the wait (its session ended), the lease node is deleted and the
//! acquire restarts. Two contenders that wait for leases at once would count each other's nodes, and neither would ever
//! acquire one.
//!
//! Source: `InterProcessSemaphoreV2`.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use docent_protocol::{CreateMode, WatcherType};
use docent_session::{
    Client, Error, ErrorKind, Outcome, SessionClaim, Watcher,
    retry::{RetryLoop, RetryPolicy},
};
use tokio::sync::{OnceCell, watch};
use tracing::{debug, trace};

use super::{
    InterProcessMutex, LockGuard, LockOptions,
    hold::{Acquired, Hold, Releaser},
    renewal,
    standard_lock_internals_driver::sequence_of,
};
use crate::{
    create::lacks_3_5_operations,
    deadline::Deadline,
    default_data::default_data,
    error, guaranteed_delete, planted,
    protection::{self, NewNode, OurNode, join},
    recreate_pause::SharedRecreatePause,
    select::select,
    shared::{SharedCount, VersionedValue, count_of},
    state_changes::StateChanges,
};

/// Source: `InterProcessSemaphoreV2.LEASE_BASE_NAME`.
pub(super) const LEASE_BASE_NAME: &str = "lease-";

/// The state of a semaphore, shared by all clones of its object.
pub(super) struct Semaphore {
    pub(super) client: Client,
    pub(super) path: String,
    pub(super) lock: InterProcessMutex,
    pub(super) leases_path: String,
    pub(super) max_leases: MaxLeases,
    pub(super) options: LockOptions,
    pub(super) default_data: OnceCell<Bytes>,
    pub(super) holds: Mutex<Vec<Weak<Hold>>>,
    pub(super) recreate: Arc<SharedRecreatePause>,
}

/// The maximum number of leases.
pub(super) enum MaxLeases {
    Fixed(usize),
    Counted(watch::Receiver<VersionedValue>, SharedCount),
}

/// The result of one attempt to acquire a lease.
enum Attempt {
    Acquired(LockGuard),
    TimedOut,
    /// The lease node was deleted, or the mutex was lost.
    Retry(Error),
}

impl Semaphore {
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
        deadline: &Deadline<'_>,
    ) -> Result<Option<LockGuard>, Error> {
        let mut retry = RetryLoop::new(&self.client, self.policy());
        loop {
            let error = match self.attempt(deadline).await? {
                Attempt::Acquired(lease) => {
                    if let (Some(every), [hold]) = (self.options.proven_renewal, lease.holds()) {
                        renewal::begin(hold, every, deadline.remaining()).await;
                    }
                    if lease.is_held() {
                        return Ok(Some(lease));
                    }
                    // The first renewal has not found the node.
                    error::lock_lost(lease.lock_path())
                }
                Attempt::TimedOut => return Ok(None),
                Attempt::Retry(error) => {
                    self.recreate.note_loss(&self.client);
                    error
                }
            };
            deadline.note_answer();
            match deadline.bound_by_end(retry.pause_after_any_error(error)).await {
                Some(allowed) => allowed?,
                None => return Ok(None),
            }
        }
    }

    async fn attempt(&self, deadline: &Deadline<'_>) -> Result<Attempt, Error> {
        if let Some(kind) = self.client.ended() {
            return Err(Error::new(kind, Outcome::NotApplied));
        }
        self.recreate.wait(&self.client, deadline).await;
        let acquired = deadline.bound_by_end(self.lock.attempt(None, deadline)).await;
        let Some(lock) = acquired.transpose()?.flatten() else { return Ok(Attempt::TimedOut) };
        let result = self.attempt_under_lock(&lock, deadline).await;
        // The mutex is released whatever the result.
        match (result, deadline.bound_by_end(lock.release()).await) {
            // The lease is dropped, and released in the background.
            (Ok(Attempt::Acquired(_)), Some(Err(error))) => Err(error),
            // The session may have ended during the release.
            (Ok(Attempt::Acquired(lease)), _) if !lease.is_held() => {
                Ok(Attempt::Retry(error::lock_lost(lease.lock_path())))
            }
            (result, _) => result,
        }
    }

    async fn attempt_under_lock(
        &self,
        lock: &LockGuard,
        deadline: &Deadline<'_>,
    ) -> Result<Attempt, Error> {
        let Some(data) = deadline.bound(self.data()).await else { return Ok(Attempt::TimedOut) };
        let node = NewNode {
            parent: &self.leases_path,
            name: LEASE_BASE_NAME,
            data: &data,
            parents: self.options.parents(),
            with_parents: true,
            search_after_parents: false,
            mode: CreateMode::EphemeralSequential,
            closing: None,
        };
        trace!(path = self.leases_path, "create the lease node");
        let create = protection::create(&self.client, self.policy(), &node);
        // Declared before the node: on cancellation, the node is deleted first.
        let mut watch = LeaseWatch { semaphore: self, watcher: None };
        let Some(created) = deadline.bound(create).await else { return Ok(Attempt::TimedOut) };
        let ours = OurNode::new(&self.client, created?);
        let waited = self.wait_for_lease(lock, &ours, &mut watch, deadline).await;
        let result = match waited {
            Ok(Some(claim)) => {
                let lease = ours.keep().map(|created| self.lease(created, claim));
                return Ok(lease.map_or(Attempt::TimedOut, Attempt::Acquired));
            }
            Ok(None) => Ok(Attempt::TimedOut),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(Attempt::Retry(error)),
            Err(error) => Err(error),
        };
        trace!(path = ours.path(), "delete the lease node");
        if let Some(Err(error)) = deadline.bound_by_end(ours.delete(self.policy())).await {
            debug!(%error, "lease node not deleted; retrying in the background");
        }
        result
    }

    /// Waits until there are at most the maximum number of leases; `None` after the deadline.
    async fn wait_for_lease(
        &self,
        lock: &LockGuard,
        ours: &OurNode<'_>,
        watch: &mut LeaseWatch<'_>,
        deadline: &Deadline<'_>,
    ) -> Result<Option<SessionClaim>, Error> {
        let mut count = match &self.max_leases {
            MaxLeases::Fixed(_) => None,
            MaxLeases::Counted(count, _) => Some(count.clone()),
        };
        loop {
            let claim = ours.claim()?;
            let mut state = StateChanges::subscribe(&self.client);
            if let Some(count) = &mut count {
                count.mark_unchanged();
            }
            trace!(path = ours.path(), "count the leases");
            let list = || self.client.get_children_with_stat_and_watch(&self.leases_path);
            let listing = self.client.retry_idempotent(self.policy(), list);
            let Some(listing) = deadline.bound(listing).await else { return Ok(None) };
            let ((children, _), watcher) = listing?;
            watch.watcher = Some(watcher);
            let (mut leases, mut present) = (0, false);
            for name in &children {
                if ours.is_duplicate(name) {
                    debug!(name, "deleting a duplicate of the lease node");
                    let path = join(&self.leases_path, name);
                    guaranteed_delete::delete_in_background(&self.client, &path);
                }
                present |= name == ours.name();
                // Other children are no leases (N7 in `docs/CURATOR.md`).
                leases += usize::from(sequence_of(name, LEASE_BASE_NAME).is_some());
            }
            if !present || !lock.is_held() {
                return Err(error::own_node_missing(ours.name()));
            }
            if leases <= self.max_leases() + usize::from(planted::is("one-lease-too-many")) {
                if claim.is_valid(self.client.now()) {
                    trace!(path = ours.path(), "lease acquired");
                    return Ok(Some(claim));
                }
                // The reply took longer than the claim is valid: count again.
                continue;
            }
            deadline.note_answer();
            if deadline.has_passed() {
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
            let woken = select(watch.changed(), select(state.changed(), counted));
            // After the deadline they are counted once more.
            deadline.wait_for(select(woken, lock.ended())).await;
        }
    }

    pub(super) fn any_held(&self) -> bool {
        let holds: Vec<_> = {
            let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
            holds.iter().filter_map(Weak::upgrade).collect()
        };
        // Not under the lock: the end of a claim wakes tasks.
        holds.iter().any(|hold| hold.is_held())
    }

    fn lease(&self, created: protection::Created, claim: SessionClaim) -> LockGuard {
        let releaser = Releaser {
            client: self.client.clone(),
            policy: Arc::clone(&self.options.retry_policy),
            watches: None,
            revocation: None,
            recreate: Some(Arc::clone(&self.recreate)),
        };
        let acquired = Acquired { node: created.into(), claim, state: Arc::default() };
        let hold = Arc::new(Hold::new(releaser, acquired, Box::new(|_| {})));
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

/// The watch of the leases. Dropping it sends Curator's checkWatches, which leaves the server's watch (N11).
struct LeaseWatch<'a> {
    semaphore: &'a Semaphore,
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
        let Semaphore { client, leases_path, .. } = self.semaphore;
        let is_set = self.watcher.as_mut().is_some_and(|watcher| watcher.try_changed().is_none());
        if is_set && !lacks_3_5_operations(client) {
            drop(client.check_watches(leases_path, WatcherType::Any));
        }
    }
}
