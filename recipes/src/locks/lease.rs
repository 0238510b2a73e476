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

use std::sync::Arc;

use bytes::Bytes;
use docent_protocol::CreateMode;
use docent_session::{
    Client, Error, ErrorKind, Latest, Outcome, Watcher,
    retry::{RetryLoop, RetryPolicy},
    session::SessionClaim,
};
use tokio::sync::OnceCell;
use tracing::{debug, trace};

use super::{
    InterProcessMutex, LockGuard, LockOptions,
    hold::{Acquired, Hold, Releaser, seconds_left},
    node_watch::NodeState,
    owners::Owners,
    renewal,
    standard_lock_internals_driver::sequence_of,
};
use crate::{
    create::remove_unfired,
    deadline::{Deadline, Ended},
    default_data::lock_data,
    error, planted,
    protection::{self, NewNode, OurNode},
    recreate_pause::SharedRecreatePause,
    select::select,
    shared::{SharedCount, VersionedValue, count_of},
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
    /// Whose leases have no owners.
    pub(super) owners: Owners,
    pub(super) recreate: Arc<SharedRecreatePause>,
}

/// The maximum number of leases.
pub(super) enum MaxLeases {
    Fixed(usize),
    Counted(Latest<VersionedValue>, SharedCount),
}

/// The result of one attempt to acquire a lease.
enum Attempt {
    Acquired(LockGuard),
    /// The lease node was deleted, or the mutex was lost.
    Retry(Error),
    /// The lease node is in the way of another waiter's.
    BeginAgain,
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
    ) -> Result<LockGuard, Ended> {
        let mut retry = RetryLoop::new(&self.client, self.policy());
        loop {
            let error = match self.attempt(deadline).await? {
                Attempt::Acquired(lease) => {
                    if let (Some(every), [hold]) = (self.options.proven_renewal, lease.holds()) {
                        renewal::begin(hold, every, deadline.remaining()).await;
                    }
                    if lease.is_held() {
                        return Ok(lease);
                    }
                    // Its session has ended, or the first renewal has not found the node.
                    error::lock_lost(lease.path())
                }
                Attempt::Retry(error) => {
                    self.recreate.note_loss();
                    error
                }
                Attempt::BeginAgain => {
                    self.recreate.note_loss();
                    continue;
                }
            };
            deadline.note_answer();
            deadline.bound_by_end(retry.pause_after_any_error(error)).await?;
        }
    }

    async fn attempt(&self, deadline: &Deadline<'_>) -> Result<Attempt, Ended> {
        if let Some(kind) = self.client.ended() {
            return Err(Error::new(kind, Outcome::NotApplied).into());
        }
        self.recreate.wait(&self.client, deadline).await;
        let lock = deadline.bound_by_end(self.lock.attempt(None, deadline)).await?;
        let result = self.attempt_under_lock(&lock, deadline).await;
        // The mutex is released whatever the result.
        match (result, deadline.bound_by_end(lock.release()).await) {
            // The lease is dropped, and released in the background.
            (Ok(Attempt::Acquired(_)), Err(Ended::Failed(error))) => Err(error.into()),
            (result, _) => result,
        }
    }

    async fn attempt_under_lock(
        &self,
        lock: &LockGuard,
        deadline: &Deadline<'_>,
    ) -> Result<Attempt, Ended> {
        // Declared before the node: on cancellation, the node is deleted first.
        let mut watch = LeaseWatch { semaphore: self, watcher: None };
        let ours = deadline.bound(self.create_lease_node()).await?;
        let result = match self.wait_for_lease(lock, &ours, &mut watch, deadline).await {
            Ok(Some(claim)) => return Ok(Attempt::Acquired(self.lease(ours, claim))),
            Ok(None) => Ok(Attempt::BeginAgain),
            Err(Ended::Failed(error)) if error.kind() == ErrorKind::NoNode => {
                Ok(Attempt::Retry(error))
            }
            Err(ended) => Err(ended),
        };
        trace!(belief = "over", path = ours.path(), "delete the lease node");
        if let Err(Ended::Failed(error)) = deadline.bound_by_end(ours.delete(self.policy())).await {
            debug!(%error, "lease node not deleted; retrying in the background");
        }
        result
    }

    async fn create_lease_node(&self) -> Result<OurNode<'_>, Error> {
        let data = lock_data(&self.default_data, &self.client, &self.options).await;
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
        let created = protection::create(&self.client, self.policy(), &node).await?;
        Ok(OurNode::new(&self.client, created))
    }

    /// Waits until there are at most the maximum number of leases. `None`: begin again behind the others.
    async fn wait_for_lease(
        &self,
        lock: &LockGuard,
        ours: &OurNode<'_>,
        watch: &mut LeaseWatch<'_>,
        deadline: &Deadline<'_>,
    ) -> Result<Option<SessionClaim>, Ended> {
        let mut count = match &self.max_leases {
            MaxLeases::Fixed(_) => None,
            MaxLeases::Counted(count, _) => Some(count.clone()),
        };
        loop {
            let claim = ours.claim()?;
            let mut state = self.client.state();
            if let Some(count) = &mut count {
                count.get();
            }
            trace!(path = ours.path(), "count the leases");
            let list = || self.client.get_children_with_stat_and_watch(&self.leases_path);
            let listing = self.client.retry_idempotent(self.policy(), list);
            let ((children, _), watcher) = deadline.bound(listing).await?;
            watch.watcher = Some(watcher);
            let names = ours.without_duplicates(&children);
            if !names.contains(&ours.name()) || !lock.is_held() {
                return Err(error::own_node_missing(ours.name()).into());
            }
            // Other children are no leases (N7 in `docs/CURATOR.md`).
            let is_lease = |name: &&&str| sequence_of(name, LEASE_BASE_NAME).is_some();
            let leases = names.iter().filter(is_lease).count();
            if leases <= self.max_leases() + usize::from(planted::is("one-lease-too-many")) {
                if claim.is_valid(self.client.now()) {
                    let (path, left) = (ours.path(), || seconds_left(&claim, &self.client));
                    trace!(belief = "holds", left_s = left(), path, "lease acquired");
                    return Ok(Some(claim));
                }
                // The reply took longer than the claim is valid: count again.
                continue;
            }
            deadline.note_answer();
            // Another client has deleted the node of a waiter's mutex, ours or that of the waiter behind. Both would wait for
            // each other for ever.
            let sequence = |name| sequence_of(name, LEASE_BASE_NAME);
            if names.iter().any(|name| sequence(name) > sequence(ours.name())) {
                debug!(path = ours.path(), "makes room for a lease node behind");
                return Ok(None);
            }
            trace!(belief = "waits", path = ours.path(), "too many leases");
            deadline.check()?;
            let counted = async {
                let changed = match &mut count {
                    Some(_) if planted::is("raised-count-unseen") => None,
                    Some(count) => count.next().await,
                    None => None,
                };
                if changed.is_none() {
                    std::future::pending::<()>().await;
                }
            };
            let woken = select(watch.changed(), select(state.next(), counted));
            // After the deadline they are counted once more.
            deadline.wait_for(select(woken, lock.ended())).await;
        }
    }

    fn lease(&self, ours: OurNode<'_>, claim: SessionClaim) -> LockGuard {
        let releaser = Releaser::new(&self.client, &self.options);
        let state = NodeState::counted_by(&self.recreate);
        let acquired = Acquired { node: ours.keep(), claim, state };
        let hold = Arc::new(Hold::new(releaser, acquired, Box::new(|_| {})));
        self.owners.add(None, &hold);
        LockGuard::new(hold)
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
            watcher.next().await;
            self.watcher = None;
        }
    }
}

impl Drop for LeaseWatch<'_> {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            remove_unfired(&self.semaphore.client, watcher);
        }
    }
}
