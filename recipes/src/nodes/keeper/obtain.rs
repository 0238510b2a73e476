//! How a kept node is created, or found.

use std::future::Future;

use bytes::Bytes;
use docent_protocol::CreateMode;
use docent_session::{Error, ErrorKind, Outcome, retry::RetryLoop};

use super::{Keeper, Present};
use crate::{
    create,
    node_task::Stop,
    parents::{LastNode, create_parents},
    path::split,
    protection::{self, NewNode},
};

impl Keeper {
    /// Creates the node, or finds that it is there.
    pub(super) async fn obtain(&mut self) -> Result<Present, Stop> {
        self.task.step(self.task.connected(&mut self.connection)).await??;
        let wanted = self.see_wanted();
        let created = if self.is_protected() && self.memory.path.is_none() {
            Some(self.create_protected(&wanted.data).await?)
        } else {
            let mut is_unknown = false;
            let create = self.create_at(self.node_path(), &wanted.data, &mut is_unknown);
            let created = self.task.created(create).await;
            if is_unknown || created.is_none() {
                self.memory.note_unknown(&wanted.data);
            }
            created.ok_or(Stop::Ended)??
        };
        let Some(present) = created else { return self.whose(&wanted).await };
        self.created(&present, wanted.version);
        Ok(present)
    }

    /// Creates a node whose name gets a GUID.
    async fn create_protected(&mut self, data: &Bytes) -> Result<Present, Stop> {
        let (parent, name) = split(&self.path);
        let node = NewNode {
            parent,
            name,
            data,
            parents: self.options.lock.parents(),
            with_parents: self.options.parents,
            search_after_parents: true,
            mode: self.mode,
            closing: Some(&self.task.closing),
        };
        let create = protection::create(&self.task.client, &self.task.policy, &node);
        let created = self.task.created(create).await;
        let is_unknown = match &created {
            Some(Ok(_)) => false,
            Some(Err(error)) => error.outcome() == Outcome::Unknown || error.is_retryable(),
            None => true,
        };
        if is_unknown {
            // The dropped create searches for its node in the background.
            self.memory.note_unknown(data);
        }
        let created = created.ok_or(Stop::Ended)??;
        let (owner, czxid) = (created.owner, created.czxid);
        Ok(Present { path: protection::keep_only(&self.task.client, created), owner, czxid })
    }

    /// Creates a node at a full path; `None` if there is one. Retries are safe: an existing node is looked at.
    async fn create_at(
        &self,
        path: &str,
        data: &[u8],
        unknown: &mut bool,
    ) -> Result<Option<Present>, Error> {
        let parents = self.options.lock.parents();
        let mode = not_sequential(self.mode);
        let acl = parents.acls.of(path);
        let mut retry = RetryLoop::new(&self.task.client, &self.task.policy);
        let mut with_parents = self.options.parents;
        loop {
            if self.task.closing.is_cancelled() {
                return Err(Error::refused(
                    ErrorKind::Closed,
                    "closed before its node was created",
                ));
            }
            let error = match create::create(&self.task.client, path, data, mode, acl).await {
                Ok(reply) => {
                    let owner = if mode.is_ephemeral() { reply.session } else { Some(0) };
                    let Some(owner) = owner else {
                        // Created, in a session that is not known: a close must not forget it.
                        *unknown = true;
                        return Ok(None);
                    };
                    let czxid = reply.stat.map(|stat| stat.czxid);
                    return Ok(Some(Present { path: path.to_owned(), owner, czxid }));
                }
                Err(error) => error,
            };
            *unknown |= error.outcome() == Outcome::Unknown;
            match error.kind() {
                ErrorKind::NodeExists => return Ok(None),
                ErrorKind::NoNode if error.is_missing_chroot() => return Err(error),
                ErrorKind::NoNode if with_parents => {
                    match create_parents(&self.task.client, path, LastNode::Skip, parents).await {
                        // Deleted again before the create: a retry, with its pause.
                        Ok(()) => with_parents = false,
                        Err(error) => self.pause(retry.pause(error)).await?,
                    }
                }
                ErrorKind::NoNode if self.options.parents => {
                    self.pause(retry.pause_after_any_error(error)).await?;
                    with_parents = true;
                }
                _ => self.pause(retry.pause(error)).await?,
            }
        }
    }

    /// Waits for the pause of a retry. A close ends it: the next attempt then sends nothing.
    async fn pause(&self, pause: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
        self.task.step(pause).await.unwrap_or(Ok(()))
    }
}

/// The mode of a node whose digits are already part of its path.
const fn not_sequential(mode: CreateMode) -> CreateMode {
    match mode {
        CreateMode::PersistentSequential => CreateMode::Persistent,
        CreateMode::EphemeralSequential => CreateMode::Ephemeral,
        CreateMode::PersistentSequentialWithTtl(ttl) => CreateMode::PersistentWithTtl(ttl),
        other => other,
    }
}
