//! Our node in the queue, and what is deleted with it.

use docent_session::{Children, Client, Error, Outcome, retry::RetryPolicy, session::SessionClaim};
use tracing::debug;

use super::{
    Created, PROTECTED_LENGTH, PROTECTED_PREFIX, delete_duplicates_in_background,
    find_and_delete_in_background,
};
use crate::{
    error,
    guaranteed_delete::{self, delete_in_background},
    locks::node_watch::NodeIdentity,
    path::{join, split},
    planted,
};

/// Our node in the queue. Dropping it deletes the node, unless [`keep`](Self::keep) was called.
#[derive(Debug)]
pub(crate) struct OurNode<'a> {
    client: &'a Client,
    created: Option<Created>,
    /// The session that must be the current one for the node to be ours; 0: any.
    owner: i64,
    path: String,
}

/// The beginning of the names of all nodes with the GUID of a node's name.
pub(super) fn protection_of(name: &str) -> &str {
    name.get(..PROTECTED_LENGTH).unwrap_or(name)
}

impl<'a> OurNode<'a> {
    pub(crate) fn new(client: &'a Client, created: Created) -> Self {
        let (owner, path) = (created.owner, created.path.clone());
        Self { client, created: Some(created), owner, path }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        split(&self.path).1
    }

    /// Whether another node was created under the same GUID: after a search on a lagging server found none, a retry
    /// creates a second node.
    pub(crate) fn is_duplicate(&self, name: &str) -> bool {
        let ours = self.name();
        name != ours && ours.starts_with(PROTECTED_PREFIX) && name.starts_with(protection_of(ours))
    }

    /// The node, distinguished from a later one at the same path; its `czxid` is known from the reply to the create.
    pub(crate) fn identity(&self) -> NodeIdentity {
        let czxid = self.created.as_ref().and_then(|created| created.czxid);
        NodeIdentity { path: self.path.clone(), owner: self.owner, czxid }
    }

    /// The children without the duplicates of our own node, which are deleted in the background.
    pub(crate) fn without_duplicates<'c>(&self, children: &'c Children) -> Vec<&'c str> {
        let (duplicates, names): (Vec<_>, Vec<_>) =
            children.iter().partition(|name| self.is_duplicate(name));
        for name in duplicates {
            debug!(name, "deleting a duplicate of our node");
            delete_in_background(self.client, &join(split(&self.path).0, name));
        }
        names
    }

    /// Claims the session that owns our node. It must be the current one: a node of another session is no longer
    /// ours, although the server may still have it (N2).
    pub(crate) fn claim(&self) -> Result<SessionClaim, Error> {
        if let Some(kind) = self.client.ended() {
            return Err(Error::new(kind, Outcome::NotApplied));
        }
        match self.client.session() {
            Some(lease) if planted::is("claim-of-any-session") => Ok(lease.claim()),
            Some(lease) if [lease.session_id(), 0].contains(&self.owner) => Ok(lease.claim()),
            _ => Err(error::own_node_missing(self.name())),
        }
    }

    /// Keeps the node on drop. If the last create has created it, duplicates need no search: they are older, so the
    /// listing that grants a lock has shown them.
    pub(crate) fn keep(mut self) -> NodeIdentity {
        let created = self.created.take();
        if created.as_ref().is_some_and(|created| created.by_search && created.may_have_duplicates)
        {
            delete_duplicates_in_background(self.client, &self.path);
        }
        let czxid = created.and_then(|created| created.czxid);
        NodeIdentity { path: std::mem::take(&mut self.path), owner: self.owner, czxid }
    }

    /// Deletes it, with retries.
    pub(crate) async fn delete(mut self, policy: &dyn RetryPolicy) -> Result<(), Error> {
        // From here on `delete` owns the clean-up, also when it is dropped.
        let created = self.created.take();
        let delete = guaranteed_delete::delete(self.client, policy, &self.path);
        // Dropped after the delete, so the search for duplicates is queued behind it, also on cancellation.
        let _duplicates =
            DuplicateCleanup(&self, created.is_some_and(|created| created.may_have_duplicates));
        delete.await
    }
}

impl Drop for OurNode<'_> {
    fn drop(&mut self) {
        if let Some(created) = self.created.take().filter(|_| !planted::is("waiter-leaves-node")) {
            delete_in_background(self.client, &self.path);
            drop(DuplicateCleanup(self, created.may_have_duplicates));
        }
    }
}

/// On drop, deletes the nodes that other creates of the same GUID may have created, if the flag is set.
struct DuplicateCleanup<'a>(&'a OurNode<'a>, bool);

impl Drop for DuplicateCleanup<'_> {
    fn drop(&mut self) {
        let Self(ours, true) = self else { return };
        let (parent, name) = split(&ours.path);
        find_and_delete_in_background(ours.client, parent, protection_of(name), None);
    }
}
