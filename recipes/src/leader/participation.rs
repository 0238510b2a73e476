//! The task that takes part in an election for a latch.
//!
//! One task owns one participation: it creates the node, waits, leads, and leaves. All other parts of a latch read its
//! [`Status`] or send it the message to close.
//!
//! | step | frames | Curator |
//! |---|---|---|
//! | 1. wait for a connection to the quorum | – | `LeaderLatch.start`, `AfterConnectionEstablished` |
//! | 2. create the node, at the end of the queue | create2 (15); parents missing: exists (3) upward, createContainer (19) downward, getChildren (8), create2 | `reset` |
//! | 3. list the queue | getChildren2 (12) | `getChildren`, `checkLeadership` |
//! | 4. the first: claim | getData (4) of the own node, with watch | `checkLeadership` |
//! | 5. not the first: watch the node ahead | getData (4) with watch | `checkLeadership` |
//! | 6. woken, by an event of that node or a change of the connection: continue with 3 | – | `watcher`, `handleStateChange` |
//! | 7. own node missing, or of another session: give the place up, continue with 1 | delete (2), if it may exist | `reset` |
//! | 8. close | delete (2), checkWatches (17) for the node ahead | `close` |
//!
//! Differences from Curator (Ln: see `docs/CURATOR.md`):
//!
//! * The claim is a watching read, so the leader notices that its node was deleted (L1).
//! * There is one create at a time, and no listing before its outcome is known; a retry searches for the GUID first, and
//!   creates under the same GUID (L2, L3).
//! * After a close, nothing is sent but the delete and checkWatches (L4, L5).
//! * A claim or listing that fails is repeated; it never costs the place (L6, L24).
//! * The session that created the node must be the current one before each listing (L7).
//! * Any event of the node ahead leads to a new listing, which sets the watch again (L9).
//! * Only children of this election count (L25).
//!
//! A leadership begins only in the session that created the node, with a claim made before the listing, and, with the
//! standard error policy, on the connection of that listing. It ends in this order: its holds, its tokens, the status
//! that listeners read, the delete.

use std::{
    future::{Future, pending, poll_fn},
    pin::pin,
    sync::Arc,
};

use bytes::Bytes;
use docent_protocol::{CreateMode, EventType, WatcherType};
use docent_session::{Children, Client, Error, ErrorKind, SessionClaim, Watcher, retry::RetryLoop};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    leadership::Leadership,
    options::{ConnectionStateErrorPolicy, LeaderOptions},
};
use crate::{
    create::lacks_3_5_operations,
    error,
    locks::{
        hold::{Acquired, Connection, Hold, Releaser},
        node_watch::{NodeIdentity, NodeState},
        renewal,
        standard_lock_internals_driver::{
            PredicateError, PredicateResults, gets_the_lock, sorted_contenders,
        },
    },
    namespace::Namespace,
    persistent_retry::PersistentRetry,
    planted,
    protection::{self, NewNode, OurNode, join},
    recreate_pause::RecreatePause,
    select::{Either, select},
    state_changes::is_read_write,
};

/// The lock name of a latch's nodes, between the GUID and the digits.
///
/// Source: `LeaderLatch.LOCK_NAME`.
pub(super) const LOCK_NAME: &str = "latch-";

/// What a latch shows of its participation.
#[derive(Debug, Clone, Default)]
pub(super) struct Status {
    /// The leadership that has begun and whose end the task has not yet noticed.
    pub(super) leadership: Option<Leadership>,
    /// Set once, by a close, before it ends the leadership: none begins after it.
    pub(super) resigns: bool,
    /// The path of the own node.
    pub(super) path: Option<String>,
    /// The path of the node that the own one waits for.
    pub(super) node_ahead: Option<String>,
    /// The path of the node that last led.
    pub(super) last_path_is_leader: Option<String>,
    pub(super) end: Option<End>,
}

/// How a participation has ended.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// With an error that no retry mends.
    Failed(Error),
    /// By a close, or with the client. With the result of the delete, once it is known.
    Closed { notify: bool, deleted: Option<Result<(), Error>> },
}

/// The task's own part of a latch.
pub(super) struct Participation {
    pub(super) client: Client,
    /// Includes the namespace.
    pub(super) path: String,
    pub(super) namespace: Namespace,
    pub(super) id: Bytes,
    pub(super) options: LeaderOptions,
    pub(super) status: Arc<watch::Sender<Status>>,
    pub(super) closing: CancellationToken,
}

/// Why a place in the queue ended.
enum PlaceEnd {
    /// Our node is missing.
    NodeMissing,
    /// Our node may exist, but is no longer ours.
    NodeLost,
}

/// The end of the client.
struct ClientEnded;

/// The latch was closed before there was a reply to the create. With the result of the close.
struct ClosedWhileCreating(Result<(), Error>);

/// A leadership that the status shows. Dropping it ends it.
struct Leading<'a> {
    status: &'a watch::Sender<Status>,
    leadership: Leadership,
    state: Arc<NodeState>,
    czxid: i64,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        // Its holders first, then the listeners; the delete follows.
        self.leadership.end();
        self.status.send_modify(|status| status.leadership = None);
    }
}

impl Participation {
    /// Takes part until the latch is closed, the client ends, or an error is final.
    pub(super) async fn run(self) {
        let policy =
            PersistentRetry::new(Arc::clone(&self.options.lock.retry_policy), self.closing.clone());
        let mut epoch = 0;
        let mut recreate = RecreatePause::default();
        let end = loop {
            match self.take_place(&policy, &mut epoch).await {
                // Notifies of the end of the client: a close has set its own end before.
                Ok(Some(deleted)) => break End::Closed { notify: true, deleted: Some(deleted) },
                Ok(None) => {}
                // The parent was deleted after its creation.
                Err(error)
                    if (error.kind() == ErrorKind::NoNode && !error.is_missing_chroot())
                        || policy_allows(&policy, &error) =>
                {
                    debug!(path = self.path, %error, "no place in the queue; retrying");
                }
                Err(error) => break self.failed(error),
            }
            select(self.closing.cancelled(), recreate.pause(&self.client)).await;
        };
        self.status.send_modify(|status| {
            (status.path, status.node_ahead) = (None, None);
            match (&mut status.end, end) {
                // The close itself has said whether it notifies.
                (Some(End::Closed { deleted, .. }), End::Closed { deleted: result, .. }) => {
                    *deleted = result;
                }
                (Some(End::Closed { deleted, .. }), End::Failed(_)) => *deleted = Some(Ok(())),
                (slot, end) => *slot = Some(end),
            }
        });
    }

    fn failed(&self, error: Error) -> End {
        // A client that is being closed refuses requests, and its claims are over, before it has ended.
        if self.client.ended().is_some() || error.kind() == ErrorKind::Closed {
            return End::Closed { notify: true, deleted: Some(Ok(())) };
        }
        debug!(path = self.path, %error, "election left: the error is final");
        End::Failed(error)
    }

    /// One place in the queue, from the create to its end. Some with the result of the delete if the latch was closed,
    /// or the client has ended.
    async fn take_place(
        &self,
        policy: &PersistentRetry,
        epoch: &mut u64,
    ) -> Result<Option<Result<(), Error>>, Error> {
        let mut connection = self.client.state();
        match select(self.closing.cancelled(), self.connected(&mut connection, &mut None)).await {
            Either::Left(()) | Either::Right(Err(ClientEnded)) => return Ok(Some(Ok(()))),
            Either::Right(Ok(())) => {}
        }
        let created = match self.create(policy).await {
            Ok(created) => created,
            Err(ClosedWhileCreating(deleted)) => return Ok(Some(deleted)),
        };
        let ours = OurNode::new(&self.client, created?);
        self.status.send_modify(|status| status.path = Some(ours.path().to_owned()));
        let mut ahead = None;
        let place = self.keep_place(policy, &ours, &mut connection, &mut ahead, epoch);
        let end = match select(self.closing.cancelled(), place).await {
            // The leadership has ended with its future.
            Either::Left(()) | Either::Right(Ok(Err(ClientEnded))) => {
                return Ok(Some(self.leave(ours, ahead).await));
            }
            Either::Right(end) => end,
        };
        self.status.send_modify(|status| (status.path, status.node_ahead) = (None, None));
        match end {
            Ok(Ok(PlaceEnd::NodeMissing)) => drop(ours.keep()),
            // Answered before the next create is sent, so that one participant never has two nodes.
            Ok(Ok(PlaceEnd::NodeLost)) => {
                if let Err(error) = ours.delete(policy).await {
                    debug!(%error, "node not deleted; retrying in the background");
                    if self.closing.is_cancelled() {
                        return Ok(Some(Err(error)));
                    }
                }
            }
            Ok(Err(ClientEnded)) => {}
            Err(error) => {
                if let Err(error) = ours.delete(&*self.options.lock.retry_policy).await {
                    debug!(%error, "node not deleted; retrying in the background");
                }
                return Err(error);
            }
        }
        Ok(None)
    }

    /// Creates the node. A close waits for the reply of a create that is in flight, and deletes its node. Without a
    /// connection, the background searches for it.
    async fn create(
        &self,
        policy: &PersistentRetry,
    ) -> Result<Result<protection::Created, Error>, ClosedWhileCreating> {
        let created = async {
            self.namespace.ensure(&self.client, &self.options.lock).await?;
            let node = NewNode {
                parent: &self.path,
                name: LOCK_NAME,
                data: &self.id,
                parents: self.options.lock.parents(),
                with_parents: true,
                search_after_parents: true,
                mode: CreateMode::EphemeralSequential,
                closing: Some(&self.closing),
            };
            protection::create(&self.client, policy, &node).await
        };
        let mut created = pin!(created);
        let created = match select(created.as_mut(), self.closing.cancelled()).await {
            Either::Left(created) => Some(created),
            Either::Right(()) => {
                let mut connection = self.client.state();
                let disconnected = connection.wait_for(|state| !is_read_write(*state));
                match select(created, disconnected).await {
                    Either::Left(created) => Some(created),
                    Either::Right(_) => None,
                }
            }
        };
        match created {
            Some(Err(error)) if self.closing.is_cancelled() && !policy_allows(policy, &error) => {
                Err(ClosedWhileCreating(Ok(())))
            }
            // The dropped create searches for its node.
            Some(Err(_)) if self.closing.is_cancelled() => {
                Err(ClosedWhileCreating(Err(error::not_yet_deleted(&self.path))))
            }
            None => Err(ClosedWhileCreating(Err(error::not_yet_deleted(&self.path)))),
            Some(created) => Ok(created),
        }
    }

    /// Waits for the leadership, and leads, until the place is lost.
    async fn keep_place(
        &self,
        policy: &PersistentRetry,
        ours: &OurNode<'_>,
        connection: &mut Connection,
        ahead: &mut Option<Watcher>,
        epoch: &mut u64,
    ) -> Result<Result<PlaceEnd, ClientEnded>, Error> {
        let mut leading: Option<Leading<'_>> = None;
        let mut has_led = false;
        loop {
            let mut retry = RetryLoop::new(&self.client, policy);
            let (claim, children) = loop {
                if let Err(ended) = self.connected(connection, &mut leading).await {
                    return Ok(Err(ended));
                }
                // Before the listing: later changes of the connection end what is claimed by it.
                let Ok(claim) = ours.claim() else {
                    drop(leading.take());
                    let lost = async { self.place_in_another_session(ours, has_led).await };
                    return Ok(Ok(lost.await));
                };
                let list = self.client.get_children_with_stat(&self.path);
                match self.step(&mut leading, list).await {
                    Ok((children, _)) => break (claim, children),
                    Err(error) if error.kind() == ErrorKind::NoNode => {
                        return Ok(Ok(PlaceEnd::NodeLost));
                    }
                    // A leadership that ends meanwhile is reported at once.
                    Err(error) => self.step(&mut leading, retry.pause(error)).await?,
                }
            };
            let names = ours.without_duplicates(&children);
            let contenders = sorted_contenders(names.iter().copied(), LOCK_NAME);
            match gets_the_lock(&contenders, ours.name(), 1) {
                Ok(PredicateResults::GetsTheLock) => {
                    let read = self.client.get_data_and_watch(ours.path());
                    let (node, mut own) = match self.step(&mut leading, read).await {
                        Ok(read) => read,
                        Err(error) if error.kind() == ErrorKind::NoNode => {
                            return Ok(Ok(PlaceEnd::NodeLost));
                        }
                        // Unknown is not foreign: the place stays (L6).
                        Err(error) => {
                            self.step(&mut leading, retry.pause(error)).await?;
                            continue;
                        }
                    };
                    let identity = ours.identity();
                    if !identity.matches(&node.stat) {
                        return Ok(Ok(PlaceEnd::NodeLost));
                    }
                    let czxid = node.stat.czxid;
                    if leading.as_ref().is_none_or(|l| l.czxid != czxid || !l.leadership.is_held())
                    {
                        drop(leading.take());
                        let identity = NodeIdentity { czxid: Some(czxid), ..identity };
                        leading = self.lead(identity, &claim, connection, *epoch + 1);
                        if leading.is_none() {
                            // The session or the connection has changed since the listing.
                            self.unless_resigned().await;
                            continue;
                        }
                        *epoch += 1;
                        has_led = true;
                        drop(ahead.take());
                    }
                    let Some(leader) = &leading else { continue };
                    let deleted = async {
                        if planted::is("own-node-unwatched") {
                            std::future::pending::<()>().await;
                        }
                        own.changed().await
                    };
                    let changed = select(deleted, connection.changed());
                    match select(changed, leader.leadership.ended()).await {
                        Either::Left(Either::Left(event))
                            if event.event_type == EventType::NodeDeleted =>
                        {
                            leader.state.note_deletion(ours.path());
                            return Ok(Ok(PlaceEnd::NodeMissing));
                        }
                        // The node was written, or the connection has changed: look again.
                        Either::Left(_) => {}
                        Either::Right(()) => self.take_back(&mut leading).await,
                    }
                }
                Ok(PredicateResults::PathToWatch(name)) => {
                    drop(leading.take());
                    let path = join(&self.path, name);
                    let watcher = match self.client.get_data_and_watch(&path).await {
                        Ok((_, watcher)) => watcher,
                        // It was deleted after the listing.
                        Err(error) if error.kind() == ErrorKind::NoNode => continue,
                        Err(error) => {
                            retry.pause(error).await?;
                            continue;
                        }
                    };
                    // The old watch is dropped after the new one is set: one of the two sees the deletion.
                    let watcher = ahead.insert(watcher);
                    self.status.send_if_modified(|status| {
                        let is_new = status.node_ahead.as_ref() != Some(&path);
                        status.node_ahead = Some(path);
                        is_new
                    });
                    select(watcher.changed(), connection.changed()).await;
                }
                Err(PredicateError::OurNodeMissing) => return Ok(Ok(PlaceEnd::NodeLost)),
                Err(PredicateError::SequenceExhausted) => {
                    return Err(error::sequence_exhausted(&self.path));
                }
            }
        }
    }

    /// Begins to lead, if the session and, with the standard policy, the connection have not changed since the listing.
    fn lead(
        &self,
        node: NodeIdentity,
        claim: &SessionClaim,
        connection: &Connection,
        epoch: u64,
    ) -> Option<Leading<'_>> {
        let state = Arc::<NodeState>::default();
        let (path, czxid) = (node.path.clone(), node.czxid?);
        let node = if planted::is("token-of-old-term") && epoch > 1 {
            NodeIdentity { czxid: Some(czxid - 1), ..node }
        } else {
            node
        };
        let acquired = Acquired { node, claim: claim.clone(), state: Arc::clone(&state) };
        let releaser = Releaser {
            client: self.client.clone(),
            policy: Arc::clone(&self.options.lock.retry_policy),
            watches: None,
            revocation: None,
        };
        let hold = Arc::new(Hold::new(releaser, acquired, Box::new(|_| {})));
        // The claim has set the watch.
        hold.set_watched();
        let ends_with_connection =
            self.options.error_policy == ConnectionStateErrorPolicy::Standard;
        if ends_with_connection && !planted::is("leader-outlives-connection") {
            hold.end_with_connection(connection.clone());
        }
        if !hold.is_held() {
            return None;
        }
        if let Some(every) = self.options.lock.proven_renewal {
            renewal::start(&hold, every, None);
        }
        let leadership = Leadership::new(hold, epoch);
        let is_published = self.status.send_if_modified(|status| {
            if status.resigns {
                return false;
            }
            status.leadership = Some(leadership.clone());
            status.node_ahead = None;
            status.last_path_is_leader = Some(path);
            true
        });
        if !is_published {
            leadership.end();
            return None;
        }
        Some(Leading { status: &self.status, leadership, state, czxid })
    }

    /// Our session has ended, and with it the place. A leader looks at its node first, as Curator's does.
    async fn place_in_another_session(&self, ours: &OurNode<'_>, has_led: bool) -> PlaceEnd {
        if has_led
            && let Ok((children, _)) = self.client.get_children_with_stat(&self.path).await
            && is_first(&children, ours.name())
        {
            // Only that the frames are Curator's: the node is of another session, whatever the reply is.
            let _ = self.client.get_data(ours.path()).await;
        }
        PlaceEnd::NodeLost
    }

    /// Leaves the queue. The delete is queued first, as in Curator, which does it the other way round in its locks.
    ///
    /// Source: `LeaderLatch.internalClose`.
    async fn leave(&self, ours: OurNode<'_>, ahead: Option<Watcher>) -> Result<(), Error> {
        if planted::is("latch-node-left") {
            drop(ours.keep());
            return Ok(());
        }
        let mut ahead = ahead;
        let mut delete = pin!(ours.delete(&*self.options.lock.retry_policy));
        poll_fn(|cx| {
            let deleted = delete.as_mut().poll(cx);
            // The first poll has queued the delete.
            if let Some(mut watcher) = ahead.take()
                && watcher.try_changed().is_none()
                && !lacks_3_5_operations(&self.client)
            {
                drop(self.client.check_watches(watcher.path(), WatcherType::Any));
            }
            deleted
        })
        .await
    }

    /// Waits for a connection to a server of the quorum, and marks its state as seen. A leadership that ends meanwhile
    /// is taken back.
    async fn connected(
        &self,
        connection: &mut Connection,
        leading: &mut Option<Leading<'_>>,
    ) -> Result<(), ClientEnded> {
        loop {
            if self.client.ended().is_some() {
                return Err(ClientEnded);
            }
            if is_read_write(*connection.borrow_and_update()) {
                return Ok(());
            }
            if self.step(leading, connection.changed()).await.is_err() {
                return Err(ClientEnded);
            }
        }
    }

    /// Waits for a step. A leadership that ends meanwhile is taken back at once.
    async fn step<F: Future>(&self, leading: &mut Option<Leading<'_>>, step: F) -> F::Output {
        let mut step = pin!(step);
        if let Some(leader) = leading {
            if let Either::Left(output) = select(step.as_mut(), leader.leadership.ended()).await {
                return output;
            }
            self.take_back(leading).await;
        }
        step.await
    }

    /// Takes back a leadership that has ended.
    async fn take_back(&self, leading: &mut Option<Leading<'_>>) {
        self.unless_resigned().await;
        drop(leading.take());
    }

    /// After the begin of a close, waits for the rest of that call, on whose end this future is dropped: nothing may be
    /// sent but the delete, and the close says whether listeners are notified.
    async fn unless_resigned(&self) {
        if self.status.borrow().resigns {
            pending::<()>().await;
        }
    }
}

fn policy_allows(policy: &PersistentRetry, error: &Error) -> bool {
    docent_session::retry::RetryPolicy::is_retryable(policy, error)
}

fn is_first(children: &Children, name: &str) -> bool {
    sorted_contenders(children.iter(), LOCK_NAME).first().is_some_and(|first| first.name == name)
}
