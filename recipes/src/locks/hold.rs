//! A hold of a lock, shared by the guards of its owner.
//!
//! "Held" is computed from the clock on each call, never stored. A hold ends once its node is known to be deleted: from
//! the first read or event that shows it, in the session of the claim. Nothing is sent to find out, unless the
//! application asks.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use docent_session::{Client, retry::RetryPolicy, runtime::Instant, session::SessionClaim};
use tokio::sync::OnceCell;
use tracing::trace;

use super::{
    LockOptions,
    node_watch::{self, NodeIdentity, NodeState},
    watcher_removal::{RemovedWatches, WatcherRemovalManager},
};
use crate::{
    Error, error,
    guaranteed_delete::{self, Deleting},
    planted,
    select::select,
    state_changes::Connection,
};

/// The result of a successful acquire.
#[derive(Debug)]
pub(crate) struct Acquired {
    /// Without a `czxid` if the create returned no stat, or its reply was lost: then it is read from the node.
    pub(crate) node: NodeIdentity,
    pub(crate) claim: SessionClaim,
    /// Shared with the task that watches a revocable node.
    pub(crate) state: Arc<NodeState>,
}

/// Releases a lock node.
#[derive(Debug, Clone)]
pub(crate) struct Releaser {
    pub(crate) client: Client,
    pub(crate) policy: Arc<dyn RetryPolicy>,
    /// The watches to remove before the delete; none for a lease.
    pub(crate) watches: Option<Arc<WatcherRemovalManager>>,
    pub(crate) revocation: Option<Arc<super::revocation::Revocation>>,
}

impl Releaser {
    /// Without watches and without a revocation.
    pub(crate) fn new(client: &Client, options: &LockOptions) -> Self {
        let (client, policy) = (client.clone(), Arc::clone(&options.retry_policy));
        Self { client, policy, watches: None, revocation: None }
    }
}

/// What bounds a hold beside its session, and is released with its node.
pub(crate) trait Bound: fmt::Debug + Send + Sync {
    /// Whether the bound has not passed. Once false, it stays false.
    fn is_valid(&self, now: Instant) -> bool;

    /// When it passes, if nothing renews it. Once this is not after `now`, nothing renews it.
    fn until(&self, now: Instant) -> Instant;

    /// Queues the request that deletes the node, in the call itself.
    fn delete(&self, client: &Client, node: &str) -> Deleting;
}

/// Called when a hold ends, to remove it from its owner.
pub(crate) type OnEnd = Box<dyn Fn(&Hold) + Send + Sync>;

/// The seconds for which a claim is valid if no further request is answered, for the log.
pub(crate) fn seconds_left(claim: &SessionClaim, client: &Client) -> f64 {
    claim.lease().deadline().duration_since(client.now()).as_secs_f64()
}

/// A hold of a lock; re-entrant guards share it.
pub(crate) struct Hold {
    releaser: Releaser,
    node: NodeIdentity,
    claim: SessionClaim,
    /// The claim of the proven bound, once it is fixed: by the first renewal, or when a bound that lies ahead is reported
    /// first. Before that it is `claim`.
    proof: OnceLock<SessionClaim>,
    czxid: OnceCell<i64>,
    /// The write hold that this read hold continues, after a downgrade.
    continues: Option<Arc<Self>>,
    /// The number of its guards. At 0 it is being released, and can no longer be entered.
    guards: AtomicUsize,
    state: Arc<NodeState>,
    /// Whether the node is watched, or was.
    is_watched: AtomicBool,
    /// Set if a change of the connection ends the hold.
    connection: OnceLock<Connection>,
    /// The claim of a strict hold; the session's claim bounds it too.
    bound: Option<Arc<dyn Bound>>,
    on_end: OnEnd,
}

impl Hold {
    /// A hold that counts its first guard.
    pub(crate) fn new(releaser: Releaser, acquired: Acquired, on_end: OnEnd) -> Self {
        let Acquired { node, claim, state } = acquired;
        Self {
            releaser,
            czxid: OnceCell::new_with(node.czxid),
            node,
            claim,
            proof: OnceLock::new(),
            continues: None,
            guards: AtomicUsize::new(1),
            state,
            is_watched: AtomicBool::new(false),
            connection: OnceLock::new(),
            bound: None,
            on_end,
        }
    }

    /// Makes it continue the write hold of its owner: it then has the same fencing token. The token of its own node is
    /// greater than those of contenders that already wait.
    pub(crate) fn continuing(self, write: Option<Arc<Self>>) -> Self {
        Self { continues: write, ..self }
    }

    pub(super) fn bounded_by(self, bound: Arc<dyn Bound>) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// Counts another guard; returns false if the last guard has been removed.
    pub(crate) fn add_guard(&self) -> bool {
        let increment = |guards| (guards > 0).then_some(guards + 1);
        self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, increment).is_ok()
    }

    /// Removes a guard; returns true if it was the last one.
    pub(crate) fn remove_guard(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1 || planted::is("first-exit-releases")
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.state.is_over()
            && !self.connection.get().is_some_and(Connection::has_changed)
            && self.claim.is_valid(self.releaser.client.now())
            && self.is_within_bound()
    }

    fn is_within_bound(&self) -> bool {
        let Some(bound) = &self.bound else { return true };
        let is_valid = bound.is_valid(self.releaser.client.now());
        if !is_valid {
            self.state.note_lapse(self.path());
        }
        is_valid
    }

    /// From now on, the first change of the connection after the state that `connection` has seen ends the hold. A
    /// connection changes only by being lost, so no later state can hide a loss.
    pub(crate) fn end_with_connection(&self, connection: Connection) {
        // Set once, when the hold begins.
        let _ = self.connection.set(connection);
    }

    /// Marks the node as watched by the caller, who notes its deletion in the state.
    pub(crate) fn set_watched(&self) {
        self.is_watched.store(true, Ordering::Release);
    }

    pub(crate) fn client(&self) -> &Client {
        &self.releaser.client
    }

    pub(crate) fn path(&self) -> &str {
        &self.node.path
    }

    pub(crate) const fn claim(&self) -> &SessionClaim {
        &self.claim
    }

    /// When the proven bound expires for this hold: its own bound if it has one, otherwise that of the session.
    /// [`Instant::ZERO`] once the node is known to be deleted, or is about to be: the hold was released, or a change of
    /// the connection has ended it.
    pub(crate) fn proven_until(&self) -> Instant {
        if self.state.is_released_or_deleted()
            || self.connection.get().is_some_and(Connection::has_changed)
        {
            return Instant::ZERO;
        }
        match &self.bound {
            Some(bound) => bound.until(self.releaser.client.now()),
            None => {
                let now = self.releaser.client.now();
                let until = self.proven_by_session(now);
                if until <= now {
                    return until;
                }
                // Reported as proven: once that has expired, no renewal begins it again.
                self.proof.get_or_init(|| self.claim.clone()).proven_until(now)
            }
        }
    }

    /// The proven bound of the session for this hold. Unlike [`proven_until`](Self::proven_until), this fixes no claim.
    pub(crate) fn proven_by_session(&self, now: Instant) -> Instant {
        self.proof.get().unwrap_or(&self.claim).proven_until(now)
    }

    /// Fixes the claim of the proven bound, which has just been renewed by a write that found the node: the one of the
    /// hold, if it is proven, or else a new one.
    pub(crate) fn begin_proof(&self) {
        let now = self.releaser.client.now();
        if self.claim.proven_until(now) > now {
            self.proof.get_or_init(|| self.claim.clone());
        } else if self.claim.lease().proven_until() > now {
            self.proof.get_or_init(|| self.claim.lease().claim());
        }
    }

    /// Whether the proven bound has passed for ever.
    pub(crate) fn is_proof_over(&self) -> bool {
        let now = self.releaser.client.now();
        self.proof.get().is_some_and(|claim| claim.proven_until(now) <= now)
    }

    /// The node is known to be deleted, which ends the hold.
    pub(crate) fn note_deletion(&self) {
        self.state.note_deletion(self.path());
    }

    /// Ends the hold: it is no longer held. Call this before the first request of the release is sent.
    pub(crate) fn end(&self) {
        trace!(belief = "over", path = self.path(), "not held any more");
        self.state.release();
        (self.on_end)(self);
    }

    /// Watches the node from the first call on, so that its deletion by another client ends the hold. The call itself
    /// queues the read.
    pub(crate) fn watch_node(&self) {
        if self.is_held() && !self.is_watched.swap(true, Ordering::AcqRel) {
            let (node, claim) = (self.node.clone(), self.claim.clone());
            node_watch::watch(&self.releaser.client, node, claim, Arc::clone(&self.state));
        }
    }

    /// Removes the watches and the revocation listener, which precedes the delete.
    ///
    /// Source: `LockInternals.releaseLock`.
    fn prepare_release(&self) -> Option<RemovedWatches> {
        let watches = self.releaser.watches.as_ref();
        let removed = watches.map(|watches| watches.remove_watches(&self.releaser.client));
        if let Some(revocation) = &self.releaser.revocation {
            revocation.clear();
        }
        trace!(step = 10, path = self.path(), "release");
        removed
    }

    /// Deletes the node, unless it is known to be deleted: a node at its path is then another client's.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        let mut removed = self.prepare_release();
        if self.state.is_deleted() {
            return Ok(());
        }
        let Releaser { client, policy, .. } = &self.releaser;
        let mut delete = pin!(async {
            match &self.bound {
                Some(bound) => {
                    let request = delete_request(Arc::clone(bound));
                    guaranteed_delete::delete_by(client, &**policy, self.path(), request).await
                }
                None => guaranteed_delete::delete(client, &**policy, self.path()).await,
            }
        });
        let deleted = poll_fn(|cx| {
            let deleted = delete.as_mut().poll(cx);
            // The first poll has queued the delete.
            drop(removed.take());
            deleted
        });
        deleted.await
    }

    /// As [`release`](Self::release), without waiting.
    pub(crate) fn release_in_background(&self) {
        let removed = self.prepare_release();
        let client = &self.releaser.client;
        match &self.bound {
            _ if self.state.is_deleted() => {}
            Some(bound) => {
                guaranteed_delete::delete_in_background_by(
                    client,
                    self.path(),
                    delete_request(Arc::clone(bound)),
                );
            }
            None => guaranteed_delete::delete_in_background(client, self.path()),
        }
        drop(removed);
    }

    /// Waits until [`is_held`](Self::is_held) is false. Sends nothing.
    pub(crate) async fn lost(&self) {
        let suspended = async {
            match self.connection.get() {
                // Also the end of the client.
                Some(connection) => drop(connection.clone().next().await),
                None => std::future::pending().await,
            }
        };
        select(select(self.claim.lost(), self.state.over()), suspended).await;
    }

    pub(crate) async fn fencing_token(&self) -> Result<i64, Error> {
        match &self.continues {
            Some(write) => write.token_of_node().await,
            None => self.token_of_node().await,
        }
    }

    async fn token_of_node(&self) -> Result<i64, Error> {
        if planted::is("token-from-sequence") {
            let (_, digits) =
                self.path().split_at_checked(self.path().len() - 10).unwrap_or_default();
            return Ok(digits.parse().unwrap_or_default());
        }
        let read = || async {
            match self.releaser.client.exists(self.path()).await? {
                Some(stat) if self.node.matches(&stat) => Ok(stat.czxid),
                _ => {
                    self.state.note_deletion(self.path());
                    Err(error::lock_lost(self.path()))
                }
            }
        };
        self.czxid.get_or_try_init(read).await.copied()
    }
}

/// The request that deletes the node of a bounded hold.
pub(super) fn delete_request(
    bound: Arc<dyn Bound>,
) -> impl Fn(&Client, &str) -> Deleting + Clone + Send + Sync {
    move |client, node| bound.delete(client, node)
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("path", &self.path()).finish_non_exhaustive()
    }
}
