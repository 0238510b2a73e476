//! The node of an atomic value: reads, and writes that are applied at most once.
//!
//! A write is repeated only with the version that it was first sent with: the server applies it at most once. Its
//! outcome stays unknown unless a reply, or data of another writer in the next version, settles it.

use bytes::Bytes;
use docent_protocol::CreateMode;
use docent_session::{Client, Error, ErrorKind, Node, Outcome, retry::RetryLoop};
use tracing::debug;

use crate::{
    create,
    options::LockOptions,
    parents::{LastNode, create_parents},
    planted,
    settle::{BeforeWrite, get_if_exists, read_after_loss},
};

/// The node of an atomic value.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) client: Client,
    pub(super) path: String,
    pub(super) options: LockOptions,
}

/// How a write with a known outcome ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    Applied,
    /// Another writer was faster; nothing was written.
    LostRace,
}

impl Cell {
    /// Reads the node; `None` if it is missing. Sends getData (4).
    pub(super) async fn read(&self) -> Result<Option<Node>, Error> {
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        loop {
            let error = match self.client.get_data(&self.path).await {
                Ok(node) => return Ok(Some(node)),
                Err(error) if error.kind() == ErrorKind::NoNode => return Ok(None),
                Err(error) => error,
            };
            retry.pause(error).await.map_err(|error| self.not_applied(error))?;
        }
    }

    /// Writes the node if it is still in the state that was read.
    pub(super) async fn write(&self, seen: Option<&Node>, data: &[u8]) -> Result<Write, Error> {
        match seen {
            Some(seen) => self.set(seen, data).await,
            None => self.create(data).await,
        }
    }

    /// Sends setData (5) with the version that was read, again after a lost reply: the version makes the server apply
    /// it at most once.
    async fn set(&self, seen: &Node, data: &[u8]) -> Result<Write, Error> {
        let mut lost = Lost::new(self);
        loop {
            let version = Some(seen.stat.version);
            let Err(error) = self.client.set_data(&self.path, data, version).await else {
                return Ok(Write::Applied);
            };
            if let ErrorKind::BadVersion | ErrorKind::NoNode = error.kind() {
                let Some(unknown) = lost.error else { return Ok(Write::LostRace) };
                if planted::is("increment-repeated") {
                    return Ok(Write::LostRace);
                }
                return self.settle(unknown, Some(seen), data).await;
            }
            lost.pause(error).await?;
        }
    }

    /// Sends create2 (15), with parents like a lock node, again after a lost reply.
    pub(super) async fn create(&self, data: &[u8]) -> Result<Write, Error> {
        let mut lost = Lost::new(self);
        let mut create_parents_first = false;
        loop {
            if std::mem::take(&mut create_parents_first) {
                let parents = self.options.parents();
                let created =
                    create_parents(&self.client, &self.path, LastNode::Skip, parents).await;
                if let Err(error) = created {
                    create_parents_first = true;
                    // A parent is not the value.
                    lost.pause(self.not_applied(error)).await?;
                    continue;
                }
            }
            let acl = self.options.parents().acls.of(&self.path);
            let mode = CreateMode::Persistent;
            let created = create::create(&self.client, &self.path, data, mode, acl).await;
            let Err(error) = created else { return Ok(Write::Applied) };
            match error.kind() {
                ErrorKind::NodeExists => {
                    let Some(unknown) = lost.error else { return Ok(Write::LostRace) };
                    return self.settle(unknown, None, data).await;
                }
                ErrorKind::NoNode if !lost.missing_parents => {
                    (lost.missing_parents, create_parents_first) = (true, true);
                }
                _ => {
                    lost.missing_parents = false;
                    lost.pause(error).await?;
                }
            }
        }
    }

    /// Sends setData (5) for any version; a missing node is created. A write without a reply is repeated only if the node
    /// was not written since, or is missing since then: it could overwrite a later write of another client.
    pub(super) async fn force(&self, data: &[u8]) -> Result<(), Error> {
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        loop {
            let before = BeforeWrite::now(&self.client);
            let Err(error) = self.client.set_data(&self.path, data, None).await else {
                return Ok(());
            };
            if error.kind() == ErrorKind::NoNode {
                match self.create(data).await? {
                    Write::Applied => return Ok(()),
                    // Created by another client in between.
                    Write::LostRace => retry.pause_after_any_error(error).await?,
                }
                continue;
            }
            if error.outcome() == Outcome::Unknown {
                let read = || get_if_exists(&self.client, &self.path);
                let policy = &*self.options.retry_policy;
                let written = |node: &Node| node.stat.mzxid;
                let (node, last_change) =
                    read_after_loss(&self.client, policy, &self.path, read, written).await?;
                if node.is_some_and(|node| *node.data == *data) {
                    return Ok(());
                }
                if !BeforeWrite::is_unchanged(before, &self.client, last_change) {
                    let detail = "the value is another one: not written, or overwritten since";
                    return Err(error.with_detail(detail));
                }
            }
            retry.pause(error).await?;
        }
    }

    /// Finds out what became of a write whose reply was lost, and whose repetition was refused. Sends getData (4), which
    /// sees at least the state that refused the repetition.
    async fn settle(&self, lost: Error, seen: Option<&Node>, data: &[u8]) -> Result<Write, Error> {
        let node = self.read().await.map_err(|later| self.unknown(&lost, later))?;
        let Some(Node { data: current, stat, .. }) = node else {
            return Err(lost.with_detail("the node was deleted since"));
        };
        let is_next = match seen {
            Some(seen) => {
                stat.czxid == seen.stat.czxid && stat.version == seen.stat.version.wrapping_add(1)
            }
            None => stat.version == 0,
        };
        if is_next && *current != *data {
            debug!(path = self.path, "another client was faster than the write of the lost reply");
            return Ok(Write::LostRace);
        }
        let detail = if is_next {
            "the node has the written value, which another client may have written too"
        } else {
            "the node was changed further since"
        };
        Err(lost.with_detail(detail))
    }

    /// An error of a request that does not change the value.
    pub(super) fn not_applied(&self, error: Error) -> Error {
        self.with_outcome(error, Outcome::NotApplied)
    }

    /// The error of a later request, when an earlier write has an unknown outcome.
    fn unknown(&self, write: &Error, later: Error) -> Error {
        debug!(path = self.path, %write, %later, "the outcome of a write stays unknown");
        self.with_outcome(later, Outcome::Unknown)
    }

    fn with_outcome(&self, error: Error, outcome: Outcome) -> Error {
        if error.outcome() == outcome {
            return error;
        }
        Error::new(error.kind(), outcome).with_path(&self.path).caused_by(error)
    }

    /// The data of a node; shares its memory.
    pub(super) fn data(node: Option<&Node>) -> Option<Bytes> {
        node.map(|node| node.data.clone())
    }
}

/// The attempts of one write, and the first of its errors with an unknown outcome.
struct Lost<'a> {
    cell: &'a Cell,
    retry: RetryLoop<'a>,
    error: Option<Error>,
    /// Whether the parents were missing at the last create.
    missing_parents: bool,
}

impl<'a> Lost<'a> {
    fn new(cell: &'a Cell) -> Self {
        let retry = RetryLoop::new(&cell.client, &*cell.options.retry_policy);
        Self { cell, retry, error: None, missing_parents: false }
    }

    /// Waits before the next attempt. An error without one has the outcome of all attempts together.
    async fn pause(&mut self, error: Error) -> Result<(), Error> {
        if error.outcome() == Outcome::Unknown && self.error.is_none() {
            self.error = Some(error.clone());
        }
        let unknown = self.error.clone();
        self.retry.pause(error).await.map_err(|last| match unknown {
            Some(unknown) => self.cell.unknown(&unknown, last),
            None => last,
        })
    }
}
