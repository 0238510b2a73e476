//! How a lock is acquired and released: Curator's `LockInternals`, step by step.
//!
//! | step | frame | Curator | here |
//! |---|---|---|---|
//! | 1. create the lock node: a node at the end of the queue, with a GUID in its name | create2 (15), ephemeral sequential | `StandardLockInternalsDriver.createsTheLock` | `LockInternals::one_attempt` |
//! | 2. create the parents, if they are missing, as containers | exists (3) upward, createContainer (19) downward, create2 again | `ZKPaths.mkdirs` | `crate::parents` |
//! | 3. search for the node, if a reply was lost | getChildren (8); not found: create2 again | `CreateBuilderImpl.findProtectedNodeInForeground` | `crate::protection` |
//! | 4. watch the own node, if the lock is revocable | getData (4) with watch | `LockInternals.internalLockLoop` | `LockInternals::watch_own_node` |
//! | 5. look at the queue | getChildren2 (12) | `LockInternals.getSortedChildren` | `LockInternals::children` |
//! | 6. held: the own node is first in it | – | `StandardLockInternalsDriver.getsTheLock` | [`gets_the_lock`](super::LockInternalsDriver::gets_the_lock) |
//! | 7. watch the node ahead, if it is not | getData (4) with watch | `LockInternals.internalLockLoop` | `LockInternals::internal_lock_loop` |
//! | 8. woken, by whatever happens to that node or to the connection: from 5 on | – | the watcher of `LockInternals`, which wakes all waiters | `Deadline::wait_for` |
//! | 9. leave the queue, when the time is up or something failed | delete (2) | `LockInternals.deleteOurPath` | `LockInternals::give_up` |
//! | 10. release | checkWatches (17) for each watch of this instance that is left, delete (2) | `LockInternals.releaseLock` | [`LockGuard::release`](super::LockGuard::release) |
//!
//! Each step tells of itself at level TRACE, with its number as `step`, its words above as the message, and the
//! path.
//!
//! Step 7 is getData and not exists, because exists on a node that has just gone would leave a watch behind
//! (CURATOR-107). When the own node is missing in step 5, or the parent vanished under step 1, the error is
//! NoNode: the retry policy is asked, and everything begins again with a new GUID, at the end of the queue.
//! Dropped on its way, an acquire does step 9 in the background; before its create is answered, it has the node
//! searched for there, with getChildren2 (12) behind the create (`FindAndDeleteProtectedNodeInBackground`).
//! A namespace is asked for, and made, before the first step 1 of a lock object.
//!
//! Beyond Curator:
//!
//! * A node of another session than the current one counts as missing: the server is about to delete it,
//!   and would give the lock to another while we believe in it (N2, CURATOR-604).
//! * A hold begins with a [`SessionClaim`] that was made before the listing which granted it.
//! * The time allowed bounds the whole call, also without a connection (N8): a step that is under way when
//!   the time is up may take one second more.
//! * Whatever is dropped on the way is cleaned up through the session's queue.
//! * With [`with_pipelined_listing`](super::LockOptions::with_pipelined_listing), steps 1 and 5 leave in one write.

use std::{
    borrow::Cow,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use docent_session::{Children, Client, Error as SessionError, ErrorKind, SessionClaim, Watcher};
use tokio::sync::OnceCell;
use tracing::{debug, trace};

use super::{
    LockOptions,
    hold::{Acquired, Releaser},
    lock_internals_driver::LockInternalsDriver,
    revocation::{self, Revocation},
    standard_lock_internals_driver::{PredicateError, PredicateResults},
    watcher_removal::WatcherRemovalManager,
};
use crate::{
    Error,
    deadline::Deadline,
    default_data::default_data,
    guaranteed_delete,
    namespace::Namespace,
    protection::{self, NewNode, OurNode, join},
    race::race,
    retry_loop::{RetryLoop, call_with_retry},
    wake::Wake,
};

/// The lock name of a mutex: it stands between the GUID and the digits.
///
/// Source: `InterProcessMutex.LOCK_NAME`.
pub const LOCK_NAME: &str = "lock-";

/// The machinery under a lock, one for each lock object.
#[derive(Debug)]
pub(crate) struct LockInternals {
    client: Client,
    /// With the namespace in front.
    base_path: String,
    namespace: Namespace,
    lock_name: &'static str,
    max_leases: usize,
    options: LockOptions,
    /// What the lock node says by default; found out once.
    default_data: OnceCell<Bytes>,
    watches: Arc<WatcherRemovalManager>,
    revocation: Arc<Revocation>,
    /// Whether the parent was there when last we looked.
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
            default_data: OnceCell::new(),
            watches: Arc::default(),
            revocation: Arc::default(),
            parent_seen: AtomicBool::new(false),
        })
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    pub(crate) fn revocation(&self) -> &Revocation {
        &self.revocation
    }

    /// How a hold of this lock is given up.
    pub(crate) fn releaser(&self) -> Releaser {
        Releaser {
            client: self.client.clone(),
            policy: Arc::clone(&self.options.retry_policy),
            watches: Some(Arc::clone(&self.watches)),
            revocation: Some(Arc::clone(&self.revocation)),
        }
    }

    /// Acquires the lock; `None` when `wait` has passed.
    ///
    /// Source: `LockInternals.attemptLock`.
    pub(crate) async fn attempt_lock(
        &self,
        driver: &dyn LockInternalsDriver,
        wait: Option<Duration>,
    ) -> Result<Option<Acquired>, Error> {
        let time = Deadline::after(&self.client, wait);
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        loop {
            match self.one_attempt(driver, &time).await {
                Err(error) if error.is_no_node() => {
                    debug!(path = self.base_path, %error, "begins again, if the policy allows");
                    match time.bound(retry.pause_whatever(error)).await {
                        Some(allowed) => allowed?,
                        None => return Ok(None),
                    }
                }
                other => return other,
            }
        }
    }

    async fn one_attempt(
        &self,
        driver: &dyn LockInternalsDriver,
        time: &Deadline<'_>,
    ) -> Result<Option<Acquired>, Error> {
        let revocable = self.revocation.listener();
        let ready = async {
            self.namespace.ensure(&self.client, &self.options).await?;
            Ok::<_, SessionError>(if revocable.is_some() {
                Bytes::new()
            } else {
                self.data().await
            })
        };
        let Some(data) = time.bound(ready).await.transpose()? else { return Ok(None) };
        let wanted = driver.creates_the_lock(self.lock_name);
        let node = NewNode {
            parent: &self.base_path,
            name: &wanted.name,
            data: &data,
            parents: self.options.parents(),
            mode: wanted.mode,
        };
        trace!(step = 1, path = self.base_path, "create the lock node");
        let Some(created) = time.bound(self.create(&node)).await else { return Ok(None) };
        let (ours, early) = created?;
        if let Some(listener) = revocable
            && time.bound(self.watch_own_node(&ours, listener)).await.transpose()?.is_none()
        {
            return Ok(None);
        }
        let result = self.internal_lock_loop(driver, &ours, early, time).await;
        match result {
            Ok(Some(claim)) => Ok(ours.keep().map(|created| Acquired {
                path: created.path,
                claim,
                czxid: created.czxid,
            })),
            Ok(None) => {
                self.give_up(ours, time).await?;
                Ok(None)
            }
            Err(error) => {
                // The first error is the one that is told (CURATOR-41).
                if let Err(second) = self.give_up(ours, time).await {
                    debug!(%second, "while leaving the queue");
                }
                Err(error)
            }
        }
    }

    /// Creates the lock node; where the parent is known, and the options say so, with the listing behind it in
    /// the same write. That counts if the very first request made the node, so that the listing saw it.
    async fn create(&self, node: &NewNode<'_>) -> Result<(OurNode<'_>, Option<Early>), Error> {
        let pipelined = self.options.pipelined && self.parent_seen.load(Ordering::Relaxed);
        let policy = &*self.options.retry_policy;
        let mut create = pin!(protection::create(&self.client, policy, node));
        let mut early = None;
        let created = poll_fn(|cx| {
            let claim = self.client.session().filter(|_| pipelined).map(|lease| lease.claim());
            let poll = create.as_mut().poll(cx);
            // The first poll has queued the create.
            if let (None, Some(claim), Poll::Pending) = (&early, claim, &poll) {
                early = Some((claim, self.client.get_children2(&self.base_path)));
            }
            poll
        })
        .await;
        self.parent_seen.store(created.is_ok(), Ordering::Relaxed);
        let created = created?;
        let at_once = created.at_once;
        let ours = OurNode::new(&self.client, created);
        let early = match early {
            Some((claim, listing)) if at_once => {
                listing.await.ok().map(|(children, _)| Early { claim, children })
            }
            _ => None,
        };
        Ok((ours, early))
    }

    /// Waits until our node is first; `None` when the time is up.
    ///
    /// Source: `LockInternals.internalLockLoop`.
    async fn internal_lock_loop(
        &self,
        driver: &dyn LockInternalsDriver,
        ours: &OurNode<'_>,
        mut early: Option<Early>,
        time: &Deadline<'_>,
    ) -> Result<Option<SessionClaim>, Error> {
        loop {
            let mut claim = ours.claim()?;
            trace!(step = 5, path = ours.path(), "look at the queue");
            let children = match early.take() {
                Some(early) if early.claim.lease().session_id() == claim.lease().session_id() => {
                    claim = early.claim;
                    early.children
                }
                _ => match time.bound(self.children()).await {
                    Some(children) => children?,
                    None => return Ok(None),
                },
            };
            let names: Vec<Cow<'_, str>> = children.iter().collect();
            let names = self.without_twins(&names, ours);
            let contenders = driver.sorted(&names, self.lock_name);
            match driver.gets_the_lock(&contenders, ours.name(), self.max_leases) {
                Ok(PredicateResults::GetsTheLock) if claim.is_valid(self.client.now()) => {
                    trace!(step = 6, path = ours.path(), "held");
                    return Ok(Some(claim));
                }
                // Ours when the server answered, but the answer took too long to be believed: ask again, if
                // there is time.
                Ok(PredicateResults::GetsTheLock) if time.is_up() => return Ok(None),
                Ok(PredicateResults::GetsTheLock) => {}
                Ok(PredicateResults::PathToWatch(ahead)) => {
                    let ahead = join(&self.base_path, ahead);
                    let mut wake = Wake::arm(&self.client);
                    trace!(step = 7, path = ours.path(), ahead, "watch the node ahead");
                    let watcher = match time.bound(self.watch(&ahead)).await {
                        None => return Ok(None),
                        Some(Ok(watcher)) => watcher,
                        // It has gone meanwhile: who is next?
                        Some(Err(error)) if error.kind() == ErrorKind::NoNode => continue,
                        Some(Err(error)) => return Err(error.into()),
                    };
                    let mut watch = self.watches.enter(watcher);
                    if time.is_up() {
                        return Ok(None);
                    }
                    // The session may have changed between the listing and the arming.
                    ours.claim()?;
                    // Out of time, the queue is looked at once more.
                    time.wait_for(race(watch.changed(), wake.changed())).await;
                    trace!(step = 8, path = ours.path(), "woken");
                }
                Err(PredicateError::OurNodeMissing) => {
                    return Err(Error::own_node_missing(ours.name()));
                }
                Err(PredicateError::SequenceExhausted) => {
                    return Err(Error::SequenceExhausted { path: self.base_path.clone() });
                }
            }
        }
    }

    /// Lists the children; a missing parent has none.
    async fn children(&self) -> Result<Children, SessionError> {
        let list = || self.client.get_children2(&self.base_path);
        match call_with_retry(&self.client, &*self.options.retry_policy, list).await {
            Ok((children, _)) => Ok(children),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(Children::default()),
            Err(error) => Err(error),
        }
    }

    /// The children without what our own create left behind, which is deleted.
    fn without_twins<'a>(&self, names: &'a [Cow<'_, str>], ours: &OurNode<'_>) -> Vec<&'a str> {
        let (twins, names): (Vec<&str>, Vec<&str>) =
            names.iter().map(AsRef::as_ref).partition(|name| ours.is_twin(name));
        for twin in twins {
            debug!(name = twin, "a second node of one create is deleted");
            let path = join(&self.base_path, twin);
            guaranteed_delete::delete_in_background(&self.client, &path);
        }
        names
    }

    async fn watch(&self, path: &str) -> Result<Watcher, SessionError> {
        let read = || self.client.get_data_and_watch(path);
        let policy = &*self.options.retry_policy;
        call_with_retry(&self.client, policy, read).await.map(|(_, watcher)| watcher)
    }

    async fn watch_own_node(
        &self,
        ours: &OurNode<'_>,
        listener: revocation::Listener,
    ) -> Result<(), SessionError> {
        trace!(step = 4, path = ours.path(), "watch the own node");
        let watch = self.watches.enter(self.watch(ours.path()).await?);
        revocation::watch_over(
            &self.client,
            Arc::clone(&self.options.retry_policy),
            Arc::clone(&self.watches),
            ours.path().to_owned(),
            watch,
            listener,
        );
        Ok(())
    }

    /// Leaves the queue.
    ///
    /// Source: `LockInternals.deleteOurPath`.
    async fn give_up(&self, ours: OurNode<'_>, time: &Deadline<'_>) -> Result<(), Error> {
        trace!(step = 9, path = ours.path(), "leave the queue");
        match time.bound(ours.delete(&*self.options.retry_policy)).await {
            Some(Err(error)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// All who want the lock or have it, first come first, as paths.
    ///
    /// Source: `LockInternals.getParticipantNodes`.
    pub(crate) async fn participants(
        &self,
        driver: &dyn LockInternalsDriver,
    ) -> Result<Vec<String>, Error> {
        let children = self.children().await?;
        let names: Vec<Cow<'_, str>> = children.iter().collect();
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let contenders = driver.sorted(&names, self.lock_name);
        Ok(contenders
            .iter()
            .filter(|contender| contender.name.contains(self.lock_name))
            .map(|contender| join(&self.base_path, contender.name))
            .collect())
    }

    async fn data(&self) -> Bytes {
        match &self.options.data {
            Some(data) => data.clone(),
            None => default_data(&self.default_data, &self.client, &self.options).await,
        }
    }
}

/// A listing that was sent with the create, and the claim that was made before both.
struct Early {
    claim: SessionClaim,
    children: Children,
}

/// That a path can be a lock's.
pub(crate) fn check_base_path(path: &str) -> Result<(), Error> {
    let refuse = |why: &dyn std::fmt::Display| {
        Err(Error::InvalidPath(format!("{path:?} cannot be the path of a lock: {why}")))
    };
    match docent_protocol::path::validate(path) {
        Err(error) => refuse(&error),
        // Curator takes it, and fails at each acquire (N10).
        Ok(()) if path == "/" => refuse(&"the root is no place for lock nodes"),
        Ok(()) => Ok(()),
    }
}
