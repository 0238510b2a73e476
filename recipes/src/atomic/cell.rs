//! The node of an atomic value: reads, and writes that are applied at most once.
//!
//! A write without a reply is repeated if the node was not changed since. Otherwise its outcome stays unknown, unless data
//! of another writer in its place settle it.

use bytes::Bytes;
use docent_protocol::CreateMode;
use docent_session::{Client, Error, ErrorKind, Node, Outcome, retry::RetryLoop};
use tracing::debug;

use crate::{
    create,
    options::LockOptions,
    parents::{LastNode, create_parents},
    planted,
    settle::{BeforeWrite, after_loss, get_if_exists, read_after_loss},
    swap::{Seen, swap},
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
            match get_if_exists(&self.client, &self.path).await {
                Ok(node) => return Ok(node),
                Err(error) => retry.pause(error).await.map_err(|error| self.not_applied(error))?,
            }
        }
    }

    /// Writes the node if it is still in the state that was read.
    pub(super) async fn write(&self, seen: Option<&Node>, data: &[u8]) -> Result<Write, Error> {
        match seen {
            Some(seen) => self.set(seen, data).await,
            None => self.create(data).await,
        }
    }

    async fn set(&self, seen: &Node, data: &[u8]) -> Result<Write, Error> {
        let policy = &*self.options.retry_policy;
        let seen = Seen { mzxid: seen.stat.mzxid, version: seen.stat.version };
        match swap(&self.client, policy, &self.path, seen, data).await {
            Ok(Some(_)) => Ok(Write::Applied),
            Ok(None) => Ok(Write::LostRace),
            Err(error) => match error.outcome() {
                Outcome::NotApplied if error.kind() == ErrorKind::NoNode => Ok(Write::LostRace),
                Outcome::Unknown if planted::is("increment-repeated") => Ok(Write::LostRace),
                _ => Err(error),
            },
        }
    }

    /// Sends create2 (15), with parents like a lock node; after a lost reply, again if nothing was created or deleted since.
    pub(super) async fn create(&self, data: &[u8]) -> Result<Write, Error> {
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        let (mut missing_parents, mut create_parents_first) = (false, false);
        loop {
            if std::mem::take(&mut create_parents_first) {
                let parents = self.options.parents();
                let created =
                    create_parents(&self.client, &self.path, LastNode::Skip, parents).await;
                if let Err(error) = created {
                    create_parents_first = true;
                    // A parent is not the value.
                    retry.pause(self.not_applied(error)).await?;
                    continue;
                }
            }
            let acl = self.options.parents().acls.of(&self.path);
            let mode = CreateMode::Persistent;
            let before = BeforeWrite::now(&self.client);
            let created = create::create(&self.client, &self.path, data, mode, acl).await;
            let Err(error) = created else { return Ok(Write::Applied) };
            match error.kind() {
                ErrorKind::NodeExists => return Ok(Write::LostRace),
                ErrorKind::NoNode if !missing_parents => {
                    (missing_parents, create_parents_first) = (true, true);
                    continue;
                }
                _ => {}
            }
            missing_parents = false;
            if error.outcome() == Outcome::Unknown
                && self.is_overtaken(before, &error, data).await?
            {
                return Ok(Write::LostRace);
            }
            retry.pause(error).await?;
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

    /// Finds out what became of a create without a reply: whether another client's node is there instead. If not, it may be
    /// repeated. The lost error, if the create may have been applied.
    async fn is_overtaken(
        &self,
        before: Option<BeforeWrite>,
        lost: &Error,
        data: &[u8],
    ) -> Result<bool, Error> {
        let read = || get_if_exists(&self.client, &self.path);
        let policy = &*self.options.retry_policy;
        let (node, last_change) =
            read_after_loss(&self.client, policy, &self.path, read, |node| node.stat.czxid).await?;
        if BeforeWrite::is_unchanged(before, &self.client, last_change) {
            return Ok(false);
        }
        let detail = match node {
            None => "the node was deleted since",
            Some(node) if node.stat.version != 0 => "the node was changed further since",
            Some(node) if *node.data == *data => {
                "the node has the written value, which another client may have written too"
            }
            Some(_) => {
                let is_first = BeforeWrite::is_first(before, &self.client, &self.path).await;
                if is_first.map_err(|error| after_loss(error, &self.path))? {
                    debug!(
                        path = self.path,
                        "another client was faster than the create of the lost reply"
                    );
                    return Ok(true);
                }
                "the node may have been created anew since"
            }
        };
        Err(lost.clone().with_detail(detail))
    }

    /// An error of a request that does not change the value.
    pub(super) fn not_applied(&self, error: Error) -> Error {
        if error.outcome() == Outcome::NotApplied {
            return error;
        }
        Error::new(error.kind(), Outcome::NotApplied).with_path(&self.path).caused_by(error)
    }

    /// The data of a node; shares its memory.
    pub(super) fn data(node: Option<&Node>) -> Option<Bytes> {
        node.map(|node| node.data.clone())
    }
}
