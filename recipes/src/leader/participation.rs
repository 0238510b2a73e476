//! The task that takes part in an election for a latch.
//!
//! One task owns one participation: it creates the node, waits, leads, and leaves. All other parts of a latch read its
//! [`Status`](super::state::Status) or send it the message to close.
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
    future::{Future, poll_fn},
    pin::pin,
};

use docent_protocol::CreateMode;
use docent_session::{Error, ErrorKind, Outcome, Watcher, retry::RetryPolicy};
use tracing::debug;

use super::{
    place::Place,
    state::{End, LOCK_NAME, Participation},
};
use crate::{
    create::remove_unfired,
    error,
    node_task::Stop,
    planted,
    protection::{self, NewNode, OurNode},
    recreate_pause::RecreatePause,
    select::select,
};

impl Participation {
    /// Takes part until the latch is closed, the client ends, or an error is final.
    pub(super) async fn run(self) {
        let mut recreate = RecreatePause::default();
        let end = loop {
            if let Err(end) = self.take_place().await {
                break end;
            }
            select(self.task.closing.cancelled(), recreate.pause(&self.task.client)).await;
        };
        self.status.send_modify(|status| {
            (status.path, status.node_ahead) = (None, None);
            match (&mut status.end, end) {
                // The close itself has said whether it notifies.
                (Some(End::Closed { deleted, .. }), End::Closed { deleted: result, .. }) => {
                    *deleted = result;
                }
                (Some(End::Closed { deleted, .. }), End::Failed { deleted: result, .. }) => {
                    *deleted = Some(result);
                }
                (slot, end) => *slot = Some(end),
            }
        });
    }

    /// One place in the queue, from the create to its end. `Ok`: another one is to be taken.
    async fn take_place(&self) -> Result<(), End> {
        let mut connection = self.task.client.state();
        let connected = self.task.connected(&mut connection);
        let Ok(Ok(())) = self.task.step(connected).await else { return Err(End::closed(Ok(()))) };
        let Some(created) = self.create().await? else { return Ok(()) };
        let ours = OurNode::new(&self.task.client, created);
        self.status.send_modify(|status| status.path = Some(ours.path().to_owned()));
        let mut place = Place::new(self, ours, connection);
        let stop = self.task.step(place.keep()).await.unwrap_or(Stop::Ended);
        let Place { leading, ahead, ours, is_missing, .. } = place;
        // The leadership ends before anything else is sent.
        drop(leading);
        match stop {
            Stop::Ended => return Err(End::closed(self.leave(ours, ahead).await)),
            Stop::Lost if is_missing => drop(ours.keep()),
            // Answered before the next create is sent, so that one participant never has two nodes.
            Stop::Lost => {
                if let Err(error) = ours.delete(&self.task.policy).await {
                    debug!(%error, "node not deleted; retrying in the background");
                    if self.task.closing.is_cancelled() {
                        return Err(End::closed(Err(error)));
                    }
                }
            }
            Stop::Failed(failed) => {
                let deleted = ours.delete(&*self.options.lock.retry_policy).await;
                if let Err(error) = &deleted {
                    debug!(%error, "node not deleted; retrying in the background");
                }
                return self.retried(failed, deleted);
            }
        }
        Ok(())
    }

    /// Creates the node; `None` after an error that is retried. A close waits for the reply of a create that is in flight,
    /// and deletes its node. Without a connection, the background searches for it.
    async fn create(&self) -> Result<Option<protection::Created>, End> {
        let created = async {
            self.namespace.ensure(&self.task.client, &self.options.lock).await?;
            let node = NewNode {
                parent: &self.path,
                name: LOCK_NAME,
                data: &self.id,
                parents: self.options.lock.parents(),
                with_parents: true,
                search_after_parents: true,
                mode: CreateMode::EphemeralSequential,
                closing: Some(&self.task.closing),
            };
            protection::create(&self.task.client, &self.task.policy, &node).await
        };
        match self.task.created(created).await {
            Some(Ok(created)) => Ok(Some(created)),
            Some(Err(error)) if !self.task.closing.is_cancelled() => {
                let deleted = match error.outcome() {
                    Outcome::NotApplied => Ok(()),
                    Outcome::Unknown => Err(error::not_yet_deleted(&self.path)),
                };
                self.retried(error, deleted).map(|()| None)
            }
            Some(Err(error)) if !self.is_retryable(&error) => Err(End::closed(Ok(()))),
            // The dropped create searches for its node.
            _ => Err(End::closed(Err(error::not_yet_deleted(&self.path)))),
        }
    }

    fn is_retryable(&self, error: &Error) -> bool {
        self.task.policy.is_retryable(error)
    }

    /// `Ok` if another place can be taken after this error. `deleted`: the result of the delete of the node.
    fn retried(&self, error: Error, deleted: Result<(), Error>) -> Result<(), End> {
        // The parent was deleted after its creation.
        let is_parent_missing = error.kind() == ErrorKind::NoNode && !error.is_missing_chroot();
        if is_parent_missing || self.is_retryable(&error) {
            debug!(path = self.path, %error, "no place in the queue; retrying");
            return Ok(());
        }
        // A client that is being closed refuses requests, and its claims are over, before it has ended.
        if self.task.client.ended().is_some() || error.kind() == ErrorKind::Closed {
            return Err(End::closed(Ok(())));
        }
        debug!(path = self.path, %error, "election left: the error is final");
        Err(End::Failed { error, deleted })
    }

    /// Leaves the queue. The delete is queued first, as in Curator, which does it the other way round in its locks.
    ///
    /// Source: `LeaderLatch.internalClose`.
    async fn leave(&self, ours: OurNode<'_>, mut ahead: Option<Watcher>) -> Result<(), Error> {
        if planted::is("latch-node-left") {
            drop(ours.keep());
            return Ok(());
        }
        let mut delete = pin!(ours.delete(&*self.options.lock.retry_policy));
        poll_fn(|cx| {
            let deleted = delete.as_mut().poll(cx);
            // The first poll has queued the delete.
            if let Some(watcher) = ahead.take() {
                remove_unfired(&self.task.client, watcher);
            }
            deleted
        })
        .await
    }
}
