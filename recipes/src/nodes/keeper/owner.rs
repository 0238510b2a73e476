//! Whose node is at our path.

use docent_protocol::{CreateMode, EventType, Stat};
use docent_session::{ConnectionState, Error, ErrorKind, Outcome};
use tokio::sync::watch;
use tracing::debug;

use super::{Keeper, Memory, NoNode, NodeEvent, Present, Wanted};
use crate::{
    acl_provider::acl_of,
    persistent_retry::PersistentRetry,
    select::{Either, select},
};

impl Keeper {
    /// The node exists: ours, of a former session of ours, or of another client.
    pub(super) async fn whose(
        &mut self,
        policy: &PersistentRetry,
        memory: &mut Memory,
        wanted: &Wanted,
        connection: &mut watch::Receiver<Option<ConnectionState>>,
    ) -> Result<Present, NoNode> {
        let path = memory.path.clone().unwrap_or_else(|| self.path.clone());
        let look = self.client.retry_idempotent(policy, || self.client.exists_and_watch(&path));
        let (stat, mut watcher) = match select(self.closing.cancelled(), look).await {
            Either::Left(()) => return Err(NoNode::Ended),
            Either::Right(Ok((Some(stat), watcher))) => (stat, watcher),
            Either::Right(Ok((None, _))) => return Err(NoNode::LookAgain),
            Either::Right(Err(error)) => return Err(NoNode::Failed(error)),
        };
        let owner = if is_ephemeral_owner(stat.ephemeral_owner) { stat.ephemeral_owner } else { 0 };
        let present = Present { path: path.clone(), owner, czxid: Some(stat.czxid) };
        let is_ours = self.is_ours(policy, memory, &stat, owner);
        let is_ours = match select(self.closing.cancelled(), is_ours).await {
            Either::Left(()) => return Err(NoNode::Ended),
            Either::Right(Ok(is_ours)) => is_ours,
            Either::Right(Err(error)) if error.kind() == ErrorKind::NoNode => {
                return Err(NoNode::LookAgain);
            }
            Either::Right(Err(error)) => return Err(NoNode::Failed(error)),
        };
        if is_ours {
            // What another node contains is not known: the wanted data is written.
            let is_known = owner == 0 && memory.node == Some(stat.czxid);
            let written = if is_known { self.status.borrow().written } else { 0 };
            self.remember(memory, &present);
            self.show(memory, &present, written, None);
            return Ok(present);
        }
        if owner != 0 && memory.former_sessions.contains(&owner) && self.mode.is_ephemeral() {
            // The server is about to delete it (L20).
            let acl = acl_of(self.options.lock.parents().acl_provider, &path);
            let mut replace = self.client.transaction();
            replace.delete(&path, Some(stat.version));
            replace.create_with_acl(&path, &wanted.data, CreateMode::Ephemeral, acl);
            let session = self.session();
            return match replace.commit().await {
                Ok(_) => {
                    // Not in another session: the owner of the node would not be known.
                    let owner = self.session().filter(|owner| Some(*owner) == session);
                    let Some(owner) = owner else { return Err(NoNode::LookAgain) };
                    let present = Present { path, owner, czxid: None };
                    self.created(memory, &present, wanted.version);
                    Ok(present)
                }
                // Changed or deleted since, or the reply is lost: look again, after the pause of a retry.
                Err(error) => {
                    if error.outcome() == Outcome::Unknown {
                        memory.note_unknown(&wanted.data);
                    }
                    let pause = self.client.runtime().timer(crate::persistent_retry::pause(0));
                    select(self.closing.cancelled(), pause).await;
                    Err(NoNode::LookAgain)
                }
            };
        }
        let is_known = self.status.borrow().conflict;
        if !is_known {
            debug!(path, owner, "another client's node is there; waiting until it is gone");
            self.lose_silently(memory);
            self.status.send_modify(|status| status.conflict = true);
            self.report(NodeEvent::Conflict { owner });
        }
        // The path is free once the other's node is gone, also while this task pauses.
        let gone = || {
            self.status.send_modify(|status| status.conflict = false);
            Err(NoNode::LookAgain)
        };
        loop {
            let changed = select(watcher.changed(), connection.changed());
            match select(self.closing.cancelled(), changed).await {
                Either::Left(()) | Either::Right(Either::Right(Err(_))) => {
                    return Err(NoNode::Ended);
                }
                Either::Right(Either::Left(event))
                    if event.event_type == EventType::NodeDeleted =>
                {
                    return gone();
                }
                Either::Right(_) => {}
            }
            // Written, or the connection has changed: no reason for a pause before the node is gone.
            let look = self.client.retry_idempotent(policy, || self.client.exists_and_watch(&path));
            match select(self.closing.cancelled(), look).await {
                Either::Left(()) => return Err(NoNode::Ended),
                Either::Right(Ok((Some(now), new))) if now.czxid == stat.czxid => watcher = new,
                Either::Right(Ok(_)) => return gone(),
                Either::Right(Err(error)) => return Err(NoNode::Failed(error)),
            }
        }
    }

    fn lose_silently(&self, memory: &mut Memory) {
        if memory.path.is_some() {
            self.lose(memory);
        }
    }

    /// Whether the node at our path is ours: of our session, with our GUID, with the `czxid` of our last one, or made by a
    /// create without a reply.
    pub(super) async fn is_ours(
        &self,
        policy: &PersistentRetry,
        memory: &Memory,
        stat: &Stat,
        owner: i64,
    ) -> Result<bool, Error> {
        if self.mode.is_ephemeral() {
            return Ok(owner != 0 && Some(owner) == self.session());
        }
        if owner != 0 {
            return Ok(false);
        }
        let has_guid = memory.path.as_ref().is_some_and(|path| *path != self.path);
        if has_guid || self.options.adopts || memory.node == Some(stat.czxid) {
            return Ok(true);
        }
        // A persistent node has no owner. One that was never written and has our data is the one that we created.
        if memory.unknown_creates.is_empty() || stat.version != 0 {
            return Ok(false);
        }
        let read = || self.client.get_data(&self.path);
        let node = self.client.retry_idempotent(policy, read).await?;
        Ok(memory.unknown_creates.contains(&node.data) && node.stat.czxid == stat.czxid)
    }
}

/// Whether the owner of a stat is a session: containers and nodes with a time to live have special owners, with the
/// highest bit set (`EphemeralType.CONTAINER_EPHEMERAL_OWNER`, `TTL_MASK`).
pub(super) const fn is_ephemeral_owner(owner: i64) -> bool {
    let top = (owner as u64) >> 56;
    owner != 0 && owner != i64::MIN && top != 0xff
}
