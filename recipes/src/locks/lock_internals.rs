//! The lock algorithm: Curator's `LockInternals`, step by step.
//!
//! | step | frame | Curator | here |
//! |---|---|---|---|
//! | 1. create the lock node, at the end of the queue, with a GUID in its name | create2 (15), ephemeral sequential | `StandardLockInternalsDriver.createsTheLock` | `LockInternals::one_attempt` |
//! | 2. create the parents, if they are missing, as containers | exists (3) upward, createContainer (19) downward, create2 again | `ZKPaths.mkdirs` | `crate::parents` |
//! | 3. search for the node, if a reply was lost | sync (9), getChildren (8); not found: create2 again | `CreateBuilderImpl.findProtectedNodeInForeground` | `crate::protection` |
//! | 4. watch the own node, if the lock is revocable | getData (4) with watch | `LockInternals.internalLockLoop` | `LockInternals::watch_own_node` |
//! | 5. list the queue | getChildren2 (12) | `LockInternals.getSortedChildren` | `LockInternals::children` |
//! | 6. decide: held if the own node is the first | – | `StandardLockInternalsDriver.getsTheLock` | [`gets_the_lock`](super::LockInternalsDriver::gets_the_lock) |
//! | 7. watch the node ahead, if the own node is not the first | getData (4) with watch | `LockInternals.internalLockLoop` | `LockInternals::internal_lock_loop` |
//! | 8. woken, by an event of that node or a change of the connection: continue with 5 | – | the watcher of `LockInternals`, which wakes all waiters | `Deadline::wait_for` |
//! | 9. leave the queue, after the deadline or an error | delete (2) | `LockInternals.deleteOurPath` | `LockInternals::delete_our_path` |
//! | 10. release | checkWatches (17) for each node that this instance watches, delete (2) | `LockInternals.releaseLock` | [`LockGuard::release`](super::LockGuard::release) |
//!
//! Each step emits an event at level TRACE: its number as `step`, its words above as the message, and the path. The
//! events after which the client assumes something else about its node, also in elections and semaphores, have a
//! `belief`: `unknown` (whether it exists), `waits` (for the node `ahead`), `holds` (for `left_s` seconds, if nothing else
//! is answered), `over`.
//!
//! Step 7 sends getData, not exists: exists on a node that has just been deleted would leave a watch behind
//! (CURATOR-107). When the own node is missing in step 5, or the parent is deleted during step 1, the error is
//! NoNode: if the retry policy allows, the acquire restarts with a new GUID, at the end of the queue.
//! An acquire that is dropped does step 9 in the background. If its create has no reply yet, the background first
//! searches for the node, with sync (9) and getChildren2 (12) behind the create
//! (`FindAndDeleteProtectedNodeInBackground`).
//! Before the first step 1 of a lock object, its namespace is created if it is missing.
//!
//! Differences from Curator (Nn: see `docs/CURATOR.md`):
//!
//! * A node of another session than the current one counts as missing: the server is about to delete it, and would
//!   grant the lock to another contender while we count it as held (N2, CURATOR-604).
//! * A hold begins with a [`SessionClaim`] that was made before the listing which granted it.
//! * The timeout bounds the whole call, also without a connection (N8): the steps in progress at the deadline may take
//!   one second more, all together.
//! * A dropped acquire is cleaned up through the session's queue, also when that is full.
//! * A `sync`, which Curator does not send, precedes each search: a lagging server would not show the node, and the
//!   node would stay until the session ends.
//! * On servers without create2 and containers (ZooKeeper before 3.5, ClickHouse Keeper), steps 1 to 3 send plain
//!   creates (1), and step 10 sends no checkWatches. See `crate::create`.
//! * With [`with_pipelined_listing`](super::LockOptions::with_pipelined_listing), steps 1 and 5 are sent in one write.
//!
//! A claim is made before the listing that grants the lock, in the session that owns the node. After its deadline, a
//! timed call releases its acquisitions in the background.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use bytes::Bytes;
use docent_session::{
    Children, Client, Error, ErrorKind, Watcher, retry::RetryLoop, session::SessionClaim,
};
use tokio::sync::OnceCell;
use tracing::{debug, trace};

use super::{
    LockOptions,
    hold::{Acquired, Releaser, seconds_left},
    lock_internals_driver::LockInternalsDriver,
    node_watch::NodeState,
    revocation::{self, Revocation},
    standard_lock_internals_driver::{PredicateError, PredicateResults},
    watcher_removal::{Purpose, WatcherRemovalManager},
};
use crate::{
    base_path::check_base_path,
    deadline::{Deadline, Ended},
    default_data::lock_data,
    error,
    namespace::Namespace,
    path::join,
    planted,
    protection::{self, NewNode, OurNode},
    recreate_pause::SharedRecreatePause,
    select::select,
};

/// The lock name of a mutex, between the GUID and the digits.
///
/// Source: `InterProcessMutex.LOCK_NAME`.
pub const LOCK_NAME: &str = "lock-";

/// The state of a lock object, and the steps of its acquires.
#[derive(Debug)]
pub(crate) struct LockInternals {
    client: Client,
    /// Includes the namespace.
    base_path: String,
    namespace: Namespace,
    lock_name: &'static str,
    max_leases: usize,
    options: LockOptions,
    /// Whether a missing base path is created; otherwise it is an error.
    creates_base_path: bool,
    /// The cached default data of lock nodes.
    default_data: OnceCell<Bytes>,
    watches: Arc<WatcherRemovalManager>,
    revocation: Arc<Revocation>,
    recreate: Arc<SharedRecreatePause>,
    /// Whether the parent existed at the last create.
    parent_seen: AtomicBool,
}

impl LockInternals {
    pub(crate) fn new(
        client: &Client,
        base_path: &str,
        lock_name: &'static str,
        max_leases: usize,
        options: LockOptions,
    ) -> Result<Self, Error> {
        check_base_path(base_path)?;
        let namespace = Namespace::new(options.namespace.as_deref())?;
        Ok(Self {
            client: client.clone(),
            base_path: namespace.fix_for_namespace(base_path),
            namespace,
            lock_name,
            max_leases,
            options,
            creates_base_path: true,
            default_data: OnceCell::new(),
            watches: Arc::default(),
            revocation: Arc::default(),
            recreate: SharedRecreatePause::new(client.clock()),
            parent_seen: AtomicBool::new(false),
        })
    }

    /// Leaves it to the caller to create a missing base path.
    pub(crate) fn without_base_path(self) -> Self {
        Self { creates_base_path: false, ..self }
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) const fn options(&self) -> &LockOptions {
        &self.options
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    pub(crate) fn revocation(&self) -> &Revocation {
        &self.revocation
    }

    /// The handle that releases a hold of this lock.
    pub(crate) fn releaser(&self) -> Releaser {
        Releaser {
            watches: Some(Arc::clone(&self.watches)),
            revocation: Some(Arc::clone(&self.revocation)),
            ..Releaser::new(&self.client, &self.options)
        }
    }

    /// Acquires the lock. `revocable`: the listener for revocations of the hold.
    ///
    /// Source: `LockInternals.attemptLock`.
    pub(crate) async fn attempt_lock(
        &self,
        driver: &dyn LockInternalsDriver,
        revocable: Option<&revocation::Listener>,
        deadline: &Deadline<'_>,
    ) -> Result<Acquired, Ended> {
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        loop {
            match self.one_attempt(driver, revocable, deadline).await {
                Err(Ended::Failed(error)) if is_node_missing(&error) => {
                    debug!(path = self.base_path, %error, "lock node missing; retrying");
                    self.note_loss(deadline);
                    deadline.bound_by_end(retry.pause_after_any_error(error)).await?;
                }
                other => return other,
            }
        }
    }

    /// Notes that the own node was deleted before it acquired the lock.
    pub(crate) fn note_loss(&self, deadline: &Deadline<'_>) {
        deadline.note_answer();
        self.recreate.note_loss();
    }

    /// As [`attempt_lock`](Self::attempt_lock), once: a missing node is an error.
    pub(crate) async fn one_attempt(
        &self,
        driver: &dyn LockInternalsDriver,
        revocable: Option<&revocation::Listener>,
        deadline: &Deadline<'_>,
    ) -> Result<Acquired, Ended> {
        self.recreate.wait(&self.client, deadline).await;
        let prepare = async {
            self.namespace.ensure(&self.client, &self.options).await?;
            Ok::<_, Error>(match revocable {
                Some(_) => Bytes::new(),
                None => lock_data(&self.default_data, &self.client, &self.options).await,
            })
        };
        let data = deadline.bound(prepare).await?;
        let lock_node = driver.creates_the_lock(self.lock_name);
        let node = NewNode {
            parent: &self.base_path,
            name: &lock_node.name,
            data: &data,
            parents: self.options.parents(),
            with_parents: self.creates_base_path,
            search_after_parents: false,
            mode: lock_node.mode,
            closing: None,
        };
        trace!(step = 1, path = self.base_path, "create the lock node");
        let (ours, listing) = deadline.bound(self.create(&node)).await?;
        let state = NodeState::counted_by(&self.recreate);
        if let Some(listener) = revocable {
            deadline.bound(self.watch_own_node(&ours, &state, Arc::clone(listener))).await?;
        }
        match self.internal_lock_loop(driver, &ours, listing, deadline).await {
            Ok(claim) => Ok(Acquired { node: ours.keep(), claim, state }),
            Err(ended) => Err(ended.after_delete(self.delete_our_path(ours, deadline).await)),
        }
    }

    /// Creates the lock node. If the parent is known to exist and the options allow it, the listing is sent in the
    /// same write. That listing is used only if the very first request created the node, since only then it saw it.
    async fn create(
        &self,
        node: &NewNode<'_>,
    ) -> Result<(OurNode<'_>, Option<PipelinedListing>), Error> {
        let pipeline = self.options.pipelined && self.parent_seen.load(Ordering::Relaxed);
        let policy = &*self.options.retry_policy;
        let mut create = pin!(protection::create(&self.client, policy, node));
        let mut listing = None;
        let created = poll_fn(|cx| {
            let claim = self.client.session().filter(|_| pipeline).map(|lease| lease.claim());
            let poll = create.as_mut().poll(cx);
            // The first poll has queued the create.
            if let (None, Some(claim), Poll::Pending) = (&listing, claim, &poll) {
                listing = Some((claim, self.client.get_children_with_stat(&self.base_path)));
            }
            poll
        })
        .await;
        self.parent_seen.store(created.is_ok(), Ordering::Relaxed);
        let created = created?;
        let by_first_request = created.by_first_request;
        let ours = OurNode::new(&self.client, created);
        let listing = match listing {
            Some((claim, listing)) if by_first_request => {
                listing.await.ok().map(|(children, _)| PipelinedListing { claim, children })
            }
            _ => None,
        };
        Ok((ours, listing))
    }

    /// Waits until our node is the first.
    ///
    /// Source: `LockInternals.internalLockLoop`.
    async fn internal_lock_loop(
        &self,
        driver: &dyn LockInternalsDriver,
        ours: &OurNode<'_>,
        mut listing: Option<PipelinedListing>,
        deadline: &Deadline<'_>,
    ) -> Result<SessionClaim, Ended> {
        loop {
            let mut claim = ours.claim()?;
            trace!(step = 5, path = ours.path(), "list the queue");
            let children = match listing.take() {
                // If the session has changed since, this claim is void: the queue is listed again.
                Some(listing) => {
                    claim = listing.claim;
                    listing.children
                }
                None => deadline.bound(self.children()).await?,
            };
            let names = ours.without_duplicates(&children);
            let contenders = driver.sorted(&names, self.lock_name);
            match driver.gets_the_lock(&contenders, ours.name(), self.max_leases) {
                Ok(PredicateResults::GetsTheLock) if claim.is_valid(self.client.now()) => {
                    self.trace_held(&claim, ours);
                    return Ok(claim);
                }
                // The server granted it, but the reply took longer than the claim is valid: list again.
                Ok(PredicateResults::GetsTheLock) => deadline.check()?,
                Ok(PredicateResults::PathToWatch(ahead)) => {
                    deadline.note_answer();
                    let ahead = join(&self.base_path, ahead);
                    trace!(step = 6, belief = "waits", ahead, path = ours.path(), "decide");
                    let mut state = self.client.state();
                    trace!(step = 7, path = ours.path(), ahead, "watch the node ahead");
                    let watcher = match deadline.bound(self.watch(&ahead)).await {
                        // It was deleted after the listing.
                        Err(Ended::Failed(error)) if error.kind() == ErrorKind::NoNode => {
                            if planted::is("stale-listing") {
                                return Ok(claim);
                            }
                            continue;
                        }
                        watcher => watcher?,
                    };
                    let mut watch = self.watches.add(watcher, Purpose::NodeAhead);
                    deadline.check()?;
                    // The session may have changed between the listing and the subscription.
                    ours.claim()?;
                    // After the deadline the queue is listed once more.
                    deadline.wait_for(select(watch.next(), state.next())).await;
                    #[cfg(docent_sim)]
                    planted::delay("granted-late", &self.client, 19).await;
                    trace!(step = 8, path = ours.path(), "woken");
                }
                Err(why) => return Err(self.without_place(&why, ours).into()),
            }
        }
    }

    fn trace_held(&self, claim: &SessionClaim, ours: &OurNode<'_>) {
        let path = ours.path();
        // Computed only if it is logged.
        trace!(
            step = 6,
            belief = "holds",
            left_s = seconds_left(claim, &self.client),
            path,
            "decide"
        );
    }

    /// Our node has no place in the queue.
    fn without_place(&self, why: &PredicateError, ours: &OurNode<'_>) -> Error {
        match why {
            PredicateError::OurNodeMissing => error::own_node_missing(ours.name()),
            PredicateError::SequenceExhausted => error::sequence_exhausted(&self.base_path),
        }
    }

    /// Lists the children; none for a missing parent.
    async fn children(&self) -> Result<Children, Error> {
        let list = || self.client.get_children_with_stat(&self.base_path);
        let listed = self.client.retry_idempotent(&*self.options.retry_policy, list).await;
        error::default_if_missing(listed).map(|(children, _)| children)
    }

    async fn watch(&self, path: &str) -> Result<Watcher, Error> {
        let read = || self.client.get_data_and_watch(path);
        let policy = &*self.options.retry_policy;
        self.client.retry_idempotent(policy, read).await.map(|(_, watcher)| watcher)
    }

    async fn watch_own_node(
        &self,
        ours: &OurNode<'_>,
        state: &Arc<NodeState>,
        listener: revocation::Listener,
    ) -> Result<(), Error> {
        trace!(step = 4, path = ours.path(), "watch the own node");
        let watch = self.watches.add(self.watch(ours.path()).await?, Purpose::OwnNode);
        revocation::watch_for_revocation(
            &self.client,
            Arc::clone(&self.options.retry_policy),
            Arc::clone(&self.watches),
            ours.path().to_owned(),
            Arc::clone(state),
            watch,
            listener,
        );
        Ok(())
    }

    /// Leaves the queue.
    ///
    /// Source: `LockInternals.deleteOurPath`.
    async fn delete_our_path(
        &self,
        ours: OurNode<'_>,
        deadline: &Deadline<'_>,
    ) -> Result<(), Ended> {
        trace!(step = 9, belief = "over", path = ours.path(), "leave the queue");
        deadline.bound_by_end(ours.delete(&*self.options.retry_policy)).await
    }

    /// The paths of all contenders, in the order of the queue.
    ///
    /// Source: `LockInternals.getParticipantNodes`.
    pub(crate) async fn participants(
        &self,
        driver: &dyn LockInternalsDriver,
    ) -> Result<Vec<String>, Error> {
        let children = self.children().await?;
        let names: Vec<&str> = children.iter().collect();
        let contenders = driver.sorted(&names, self.lock_name);
        Ok(contenders
            .iter()
            .filter(|contender| contender.name.contains(self.lock_name))
            .skip(usize::from(planted::is("participant-missed")))
            .map(|contender| join(&self.base_path, contender.name))
            .collect())
    }
}

/// Whether the own node is missing, or the parent: the acquire begins again.
pub(super) fn is_node_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::NoNode && !error.is_missing_chroot()
}

/// A listing that was sent with the create, and the claim made before both.
struct PipelinedListing {
    claim: SessionClaim,
    children: Children,
}
