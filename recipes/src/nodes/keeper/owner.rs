//! Whose node is at our path.

use docent_protocol::{CreateMode, EventType, Stat};
use docent_session::{CreateOptions, Error, ErrorKind, Outcome, Watcher};
use tracing::debug;

use super::{Keeper, NodeEvent, Present, Wanted};
use crate::{
    node_task::Stop,
    persistent_retry::{self, PersistentRetry},
    select::{Either, select},
};

impl Keeper {
    /// The node exists: ours, of a former session of ours, or of another client.
    pub(super) async fn whose(&mut self, wanted: &Wanted) -> Result<Present, Stop> {
        let path = self.node_path().to_owned();
        let (Some(stat), watcher) = self.watch(&path).await? else { return Err(Stop::Lost) };
        let owner = session_owner(&stat);
        match self.task.step(self.is_ours(&self.task.policy, &stat)).await? {
            Ok(true) => {
                let present = Present { path, owner, czxid: Some(stat.czxid) };
                // What another node contains is not known: the wanted data is written.
                let is_known = owner == 0 && self.memory.node == present.czxid;
                let written = if is_known { self.status.borrow().written } else { 0 };
                self.remember(&present);
                self.show(&present, written, None);
                Ok(present)
            }
            Ok(false) if self.is_of_former_session(owner) => {
                self.replace(path, stat.version, wanted).await
            }
            Ok(false) => {
                self.wait_for_other(&path, &stat, watcher).await?;
                // The path is free, also while this task pauses.
                self.status.send_modify(|status| status.conflict = false);
                Err(Stop::Lost)
            }
            Err(error) if error.kind() == ErrorKind::NoNode => Err(Stop::Lost),
            Err(error) => Err(Stop::Failed(error)),
        }
    }

    /// Looks at a path, with a watch.
    async fn watch(&self, path: &str) -> Result<(Option<Stat>, Watcher), Stop> {
        let client = &self.task.client;
        let look = client.retry_idempotent(&self.task.policy, || client.exists_and_watch(path));
        Ok(self.task.step(look).await??)
    }

    /// Whether the server is about to delete the node (L20).
    fn is_of_former_session(&self, owner: i64) -> bool {
        owner != 0 && self.mode.is_ephemeral() && self.memory.former_sessions.contains(&owner)
    }

    /// Replaces the node of a former session of ours, if it still has this version.
    async fn replace(
        &mut self,
        path: String,
        version: i32,
        wanted: &Wanted,
    ) -> Result<Present, Stop> {
        let acl = self.options.lock.parents().acls.of(&path);
        let mut replace = self.task.client.transaction();
        replace.delete(&path, Some(version));
        replace.create(
            &path,
            &wanted.data,
            CreateOptions::new(CreateMode::Ephemeral).with_acl(acl),
        );
        let session = self.session();
        match replace.commit().await {
            Ok(_) => {
                let Some(owner) = self.session().filter(|owner| Some(*owner) == session) else {
                    // Created, in a session that is not known: a close must not forget it.
                    self.memory.note_unknown(&wanted.data);
                    return Err(Stop::Lost);
                };
                let present = Present { path, owner, czxid: None };
                self.created(&present, wanted.version);
                Ok(present)
            }
            // Changed or deleted since, or the reply is lost: look again, after the pause of a retry.
            Err(error) => {
                if error.outcome() == Outcome::Unknown {
                    self.memory.note_unknown(&wanted.data);
                }
                let pause = self.task.client.runtime().timer(persistent_retry::pause(0));
                select(self.task.closing.cancelled(), pause).await;
                Err(Stop::Lost)
            }
        }
    }

    /// Waits until another client's node is gone.
    async fn wait_for_other(
        &mut self,
        path: &str,
        stat: &Stat,
        mut watcher: Watcher,
    ) -> Result<(), Stop> {
        let owner = session_owner(stat);
        let is_known = self.status.borrow().conflict;
        if !is_known {
            debug!(path, owner, "another client's node is there; waiting until it is gone");
            if self.memory.path.is_some() {
                self.lose();
            }
            self.status.send_modify(|status| status.conflict = true);
            self.report(NodeEvent::Conflict { owner });
        }
        loop {
            let changed = select(watcher.next(), self.connection.next());
            match self.task.step(changed).await? {
                Either::Left(Some(event)) if event.event_type == EventType::NodeDeleted => {
                    return Ok(());
                }
                Either::Right(None) => return Err(Stop::Ended),
                _ => {}
            }
            // Written, or the connection has changed: no reason for a pause before the node is gone.
            match self.watch(path).await? {
                (Some(now), new) if now.czxid == stat.czxid => watcher = new,
                _ => return Ok(()),
            }
        }
    }

    /// Whether the node at our path is ours: of our session, with our GUID, with the `czxid` of our last one, or made by a
    /// create without a reply.
    pub(super) async fn is_ours(
        &self,
        policy: &PersistentRetry,
        stat: &Stat,
    ) -> Result<bool, Error> {
        let (memory, owner) = (&self.memory, session_owner(stat));
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
        let read = || self.task.client.get_data(&self.path);
        let node = self.task.client.retry_idempotent(policy, read).await?;
        Ok(memory.unknown_creates.contains(&node.data) && node.stat.czxid == stat.czxid)
    }
}

/// The session that owns a node; 0 if none does. Containers and nodes with a time to live have special owners, with the
/// highest bit set (`EphemeralType.CONTAINER_EPHEMERAL_OWNER`, `TTL_MASK`).
const fn session_owner(stat: &Stat) -> i64 {
    let owner = stat.ephemeral_owner;
    let top = (owner as u64) >> 56;
    if owner == i64::MIN || top == 0xff { 0 } else { owner }
}
