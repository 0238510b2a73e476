//! Creating a sequential node exactly once over a connection that may break.
//!
//! When the connection breaks under a create, nobody knows whether there is a node now. So its name begins
//! with a GUID, and before another try the parent's children are searched for it.
//!
//! | situation | what is sent |
//! |---|---|
//! | the parent is there | create2 |
//! | it is not | create2 (NoNode), the parents ([`create_parents`](crate::parents::create_parents)), create2 with the same GUID |
//! | the reply is lost | getChildren; found: done; not found: create2 with the same GUID |
//! | retries used up, or dropped | in the background getChildren2, and delete of what is found |
//!
//! Not mirrored: a second lost reply within one create makes Curator lose track of its node (N1); a last
//! error other than ConnectionLoss leaves a possible node behind (N9). Here the search comes before *every*
//! create but the first, and the background looks after every unknown outcome. A node that was made in
//! another session than the current one is never adopted: it is about to vanish (CURATOR-498). A node without a
//! number gets another GUID then, so that a late delete of the old one cannot hit it.
//!
//! Source: Curator's `CreateBuilderImpl` (`withProtection`), `FindAndDeleteProtectedNodeInBackground`,
//! `ProtectedMode`.

use std::{future::Future, time::Duration};

use docent_protocol::{CreateMode, Stat};
use docent_session::{
    Children, Client, Error, ErrorKind, Outcome, SessionClaim, retry::RetryPolicy,
};
use tracing::{debug, trace};
use uuid::Uuid;

use crate::{
    acl_provider::acl_of,
    guaranteed_delete::{self, delete_in_background},
    parents::{Last, Parents, create_parents},
    retry_loop::RetryLoop,
};

/// How many characters of a node's name are its protection.
const PROTECTED_LENGTH: usize = 40;

/// In front of the GUID.
const PROTECTED_PREFIX: &str = "_c_";

/// The name of a protected node up to the caller's own part.
///
/// Source: `ProtectedUtils.getProtectedPrefix`.
#[derive(Debug, Clone)]
pub(crate) struct Protection(String);

impl Protection {
    pub(crate) fn new() -> Self {
        Self(format!("{PROTECTED_PREFIX}{}-", Uuid::new_v4().as_hyphenated()))
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.0
    }
}

/// What there is to create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewNode<'a> {
    pub(crate) parent: &'a str,
    /// The name behind the protection.
    pub(crate) name: &'a str,
    pub(crate) data: &'a [u8],
    pub(crate) parents: Parents<'a>,
    pub(crate) mode: CreateMode,
}

impl NewNode<'_> {
    fn path(&self, protection: &Protection) -> String {
        join(self.parent, &format!("{}{}", protection.prefix(), self.name))
    }
}

/// What was created.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) path: String,
    /// The session it belongs to; 0 for a persistent node.
    pub(crate) owner: i64,
    /// `None` for a node that was found rather than answered.
    pub(crate) czxid: Option<i64>,
    /// Whether the very first request made it: then whatever was sent behind that request saw it.
    pub(crate) at_once: bool,
}

/// Our node, which must not stay behind: dropped, it is deleted.
#[derive(Debug)]
pub(crate) struct OurNode<'a> {
    client: &'a Client,
    created: Option<Created>,
    /// The session that must still be there for the node to be ours; 0: any.
    owner: i64,
    path: String,
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
        self.path.rsplit_once('/').map_or(&*self.path, |(_, name)| name)
    }

    /// Whether another node was made by the same create: where a server that lagged showed none, a second one
    /// was made under the same GUID.
    pub(crate) fn is_twin(&self, name: &str) -> bool {
        let ours = self.name();
        let protection = ours.get(..PROTECTED_LENGTH).unwrap_or(ours);
        name != ours && ours.starts_with(PROTECTED_PREFIX) && name.starts_with(protection)
    }

    /// Relies on the session that our node was made in. That must be the current one: a node of another
    /// is not ours any more, though the server may still have it (N2).
    pub(crate) fn claim(&self) -> Result<SessionClaim, crate::Error> {
        if let Some(kind) = self.client.ended() {
            return Err(Error::new(kind, Outcome::NotApplied).into());
        }
        match self.client.session() {
            Some(lease) if [lease.session_id(), 0].contains(&self.owner) => Ok(lease.claim()),
            _ => Err(crate::Error::own_node_missing(self.name())),
        }
    }

    /// It is wanted: it stays.
    pub(crate) fn keep(mut self) -> Option<Created> {
        self.created.take()
    }

    /// Deletes it, with retries.
    pub(crate) async fn delete(mut self, policy: &dyn RetryPolicy) -> Result<(), Error> {
        // Done, or being done in the background, from here on.
        self.created = None;
        match guaranteed_delete::delete(self.client, policy, &self.path).await {
            Err(error) if error.kind() != ErrorKind::NoNode => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for OurNode<'_> {
    fn drop(&mut self) {
        if self.created.is_some() {
            delete_in_background(self.client, &self.path);
        }
    }
}

/// Creates an ephemeral node with protection and parents.
///
/// # Cancel safety
///
/// Dropped while a node may have been created, it has it found and deleted.
pub(crate) async fn create(
    client: &Client,
    policy: &dyn RetryPolicy,
    node: &NewNode<'_>,
) -> Result<Created, Error> {
    let protection = Protection::new();
    let path = node.path(&protection);
    let mut retry = RetryLoop::new(client, policy);
    let mut creation = Creation {
        client,
        node,
        protection,
        path,
        first: true,
        sessions: Sessions::None,
        unknown: false,
    };
    loop {
        match creation.attempt().await {
            Ok(created) => {
                creation.unknown = false;
                return Ok(created);
            }
            Err(error) => retry.pause(error).await?,
        }
    }
}

/// A create that may have left a node behind.
struct Creation<'a> {
    client: &'a Client,
    node: &'a NewNode<'a>,
    protection: Protection,
    /// As requested, without the digits.
    path: String,
    /// Whether no attempt was made yet.
    first: bool,
    /// The sessions that creates were sent in.
    sessions: Sessions,
    /// Whether there may be a node nobody has answered for.
    unknown: bool,
}

/// Whose nodes there may be under our GUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sessions {
    None,
    /// Of this session alone.
    One(i64),
    /// Of several, or of one that was not known when the create was sent.
    Several,
}

impl Creation<'_> {
    async fn attempt(&mut self) -> Result<Created, Error> {
        let first = std::mem::take(&mut self.first);
        if !first && let Some(found) = self.find().await? {
            return Ok(found);
        }
        let (result, at_once) = match self.create().await {
            Err(error) if error.kind() == ErrorKind::NoNode => {
                trace!(step = 2, path = self.node.parent, "create the parents");
                let parents = self.node.parents;
                create_parents(self.client, &self.path, Last::Parent, parents).await?;
                (self.create().await, false)
            }
            other => (other, first),
        };
        let (path, stat) = result?;
        Ok(Created { path, owner: stat.ephemeral_owner, czxid: Some(stat.czxid), at_once })
    }

    async fn create(&mut self) -> Result<(String, Stat), Error> {
        let NewNode { data, parents, mode, .. } = *self.node;
        let current = self.client.session().map(|session| session.session_id());
        self.sessions = match (self.sessions, current) {
            (Sessions::None, Some(now)) => Sessions::One(now),
            (Sessions::One(then), Some(now)) if then == now => Sessions::One(now),
            _ => Sessions::Several,
        };
        // From here on: a drop of this future leaves the request on its way.
        self.unknown = true;
        let acl = acl_of(parents.acl_provider, &self.path);
        let result = self.client.create2(&self.path, data, mode, acl).await;
        if result.as_ref().is_err_and(|error| error.outcome() == Outcome::NotApplied) {
            self.unknown = false;
        }
        result
    }

    /// Looks for the node that a lost reply would have told of. One of another session than the current one
    /// is deleted; so that none of those is taken for ours, each is asked for its owner if there may be any.
    ///
    /// Source: `CreateBuilderImpl.findProtectedNodeInForeground`.
    async fn find(&mut self) -> Result<Option<Created>, Error> {
        trace!(step = 3, path = self.path, "search for the node");
        let children = match self.client.get_children(self.node.parent).await {
            Ok(children) => children,
            Err(error) if error.kind() == ErrorKind::NoNode => Children::default(),
            Err(error) => return Err(error),
        };
        let current = self.client.session().map(|session| session.session_id());
        let (mut ours, mut foreign) = (None, false);
        for name in children.iter().filter(|name| name.starts_with(self.protection.prefix())) {
            let path = join(self.node.parent, &name);
            let owner = match self.sessions {
                _ if !self.node.mode.is_ephemeral() => 0,
                Sessions::One(then) => then,
                _ => match self.client.exists(&path).await? {
                    Some(stat) => stat.ephemeral_owner,
                    None => continue,
                },
            };
            if (owner == 0 || Some(owner) == current) && ours.is_none() {
                debug!(path, "found what a lost reply had created");
                ours = Some(Created { path, owner, czxid: None, at_once: false });
            } else {
                debug!(path, "found a node of another session; it is deleted");
                delete_in_background(self.client, &path);
                foreign = true;
            }
        }
        if foreign && ours.is_none() && !self.node.mode.is_sequential() {
            // Without a number of the server's, the next node would be at this one's path, and a delete that
            // comes late would hit it.
            self.protection = Protection::new();
            self.path = self.node.path(&self.protection);
        }
        if ours.is_none() {
            debug!(path = self.path, "no node with this GUID");
            // Or this server lags behind one that has made it. The next create is behind it all the same,
            // and the listing behind that shows both: see `OurNode::is_twin`.
        }
        Ok(ours)
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        if self.unknown {
            find_and_delete_in_background(self.client, self.node.parent, self.protection.clone());
        }
    }
}

/// Deletes the node of a create whose outcome nobody will learn. The search is queued here and now, behind
/// the create if that is still on its way, so that it sees what it made.
///
/// Source: `FindAndDeleteProtectedNodeInBackground`.
fn find_and_delete_in_background(client: &Client, parent: &str, protection: Protection) {
    let first = client.get_children2(parent);
    client.spawn(search(client.clone(), parent.to_owned(), protection, first));
}

async fn search(
    client: Client,
    parent: String,
    protection: Protection,
    first: impl Future<Output = Result<(Children, Stat), Error>>,
) {
    let mut result = first.await;
    loop {
        match result {
            Ok((children, _)) => {
                for name in children.iter().filter(|name| name.starts_with(protection.prefix())) {
                    trace!(%name, "deleted: nobody waits for it");
                    delete_in_background(&client, &join(&parent, &name));
                }
                return;
            }
            Err(error) if error.is_retryable() => {}
            Err(_) => return,
        }
        tokio::time::sleep(SEARCH_PAUSE).await;
        result = client.get_children2(&parent).await;
    }
}

/// Between two searches in the background.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);

/// A child's path.
pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// curator-locks 1.1: forty characters, of which 3 to 38 are a v4 GUID in lower case.
    #[test]
    fn the_protected_prefix_is_curators() {
        let prefix = Protection::new().prefix().to_owned();
        assert_eq!(prefix.len(), 40);
        assert!(prefix.starts_with("_c_") && prefix.ends_with('-'));
        let guid = Uuid::parse_str(&prefix[3..39]).unwrap();
        assert_eq!((guid.get_version_num(), guid.to_string().as_str()), (4, &prefix[3..39]));
        assert_ne!(Protection::new().prefix(), prefix);
    }
}
