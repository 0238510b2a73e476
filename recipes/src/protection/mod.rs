//! Creates a sequential node exactly once over a connection that may break.
//!
//! When the connection breaks during a create, it is unknown whether the node exists. So the node's name begins
//! with a GUID, and before a retry the parent's children are searched for it.
//!
//! | situation | requests |
//! |---|---|
//! | the parent exists | create2 |
//! | the parent is missing | create2 (NoNode), the parents ([`create_parents`]), create2 with the same GUID |
//! | the reply is lost | sync, getChildren; if the node is not found, create2 with the same GUID |
//! | the node exists | an earlier create has created it: sync, getChildren; a node of another session is deleted, and create2 sent with another GUID |
//! | retries exhausted, or future dropped | in the background a delete of no node, getChildren2, and delete of each node found |
//!
//! Not mirrored: a second lost reply within one create makes Curator lose track of its node (N1 in
//! `docs/CURATOR.md`); a last error other than ConnectionLoss leaves a possible node behind (N9). Here a search
//! precedes *every* create but the first, and the background cleans up after every unknown outcome. A `sync`, which
//! Curator does not send, precedes each search that a create follows: a lagging server would not show the node of a
//! lost reply. The last search of a GUID follows a write instead, because a `sync` does not wait for creates that are
//! ordered and not committed yet ([`settled`]). If more than one create may have created a node, deleting ours searches
//! for the others too ([`SentCreates`]). A node of another session than the current one is never adopted: the server
//! is about to delete it (CURATOR-498). The next node then gets another GUID, so that a late delete
//! of the old one cannot hit it: it may have the same number, if the queue was removed in between.
//!
//! Source: Curator's `CreateBuilderImpl` (`withProtection`), `FindAndDeleteProtectedNodeInBackground`,
//! `ProtectedMode`.

mod our_node;

use std::future::Future;

use crate::{
    create::{self, CreateReply},
    error,
    guaranteed_delete::{self, delete_in_background},
    parents::{LastNode, Parents, create_parents},
    path::{join, split},
    planted,
    select::{Either, select},
    sent_creates::SentCreates,
    settle::after_loss,
    state_changes::session_id,
};
use docent_protocol::{CreateMode, Stat};
use docent_session::{
    Children, Client, Error, ErrorKind, Outcome,
    client::Response,
    retry::{RetryLoop, RetryPolicy},
    runtime::Runtime,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, trace};

pub(crate) use our_node::OurNode;
use our_node::protection_of;

/// The length in characters of the protection at the beginning of a node's name.
const PROTECTED_LENGTH: usize = 40;

/// A session id that no session has.
const NO_SESSION: i64 = -1;

/// The text before the GUID.
const PROTECTED_PREFIX: &str = "_c_";

/// The beginning of a protected node's name, before the caller's part.
///
/// Source: `ProtectedUtils.getProtectedPrefix`.
#[derive(Debug, Clone)]
pub(crate) struct Protection(String);

impl Protection {
    /// A new GUID, from the randomness of the client's runtime.
    pub(crate) fn new(runtime: &dyn Runtime) -> Result<Self, Error> {
        let mut bytes = [0; 16];
        if !planted::is("one-guid") && !runtime.fill_random(&mut bytes) {
            // Two contenders with one GUID would take each other's node for their own.
            return Err(Error::refused(ErrorKind::InvalidConfig, "no randomness for a GUID"));
        }
        let guid = uuid::Builder::from_random_bytes(bytes).into_uuid();
        Ok(Self(format!("{PROTECTED_PREFIX}{}-", guid.as_hyphenated())))
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.0
    }
}

/// A node to create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewNode<'a> {
    pub(crate) parent: &'a str,
    /// The part of the name after the protection.
    pub(crate) name: &'a str,
    pub(crate) data: &'a [u8],
    pub(crate) parents: Parents<'a>,
    /// Whether missing parents are created; otherwise they are an error.
    pub(crate) with_parents: bool,
    /// Whether a search follows the creation of the parents, as in Curator's creates in the background.
    pub(crate) search_after_parents: bool,
    pub(crate) mode: CreateMode,
    /// Once it is cancelled, no create is sent any more.
    pub(crate) closing: Option<&'a CancellationToken>,
}

impl NewNode<'_> {
    fn path(&self, protection: &Protection) -> String {
        join(self.parent, &format!("{}{}", protection.prefix(), self.name))
    }
}

/// A node that was created.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) path: String,
    /// The session that owns it; 0 for a persistent node.
    pub(crate) owner: i64,
    /// `None` for a node that was found by a search, or created by a create (1).
    pub(crate) czxid: Option<i64>,
    /// Whether the very first request created it: then requests sent after that one saw it.
    pub(crate) by_first_request: bool,
    /// Whether other creates of the same GUID may have created nodes too.
    may_have_duplicates: bool,
    /// Whether a search found it, so that creates after it may not be committed yet.
    by_search: bool,
}

/// Creates a node with protection, and with its parents if the node says so.
///
/// # Cancel safety
///
/// If the future is dropped while a node may have been created, the background finds and deletes it.
pub(crate) async fn create(
    client: &Client,
    policy: &dyn RetryPolicy,
    node: &NewNode<'_>,
) -> Result<Created, Error> {
    let protection = Protection::new(&**client.runtime())?;
    let path = node.path(&protection);
    let mut retry = RetryLoop::new(client, policy);
    let mut creation = ProtectedCreate {
        client,
        node,
        protection,
        path,
        first: true,
        sent: SentCreates::default(),
    };
    loop {
        match creation.attempt().await {
            Ok(created) => {
                creation.sent = SentCreates::default();
                return Ok(created);
            }
            // The node is ours, and the searches saw an older tree.
            Err(error) if error.kind() == ErrorKind::NodeExists => {
                creation.unless_closed(retry.pause_after_any_error(error)).await?;
            }
            Err(error) => {
                let paused = creation.unless_closed(retry.pause(error)).await;
                paused.map_err(|error| creation.with_outcome(error))?;
            }
        }
    }
}

/// A create that may leave a node behind. On drop, the background finds and deletes the nodes it may have created.
struct ProtectedCreate<'a> {
    client: &'a Client,
    node: &'a NewNode<'a>,
    protection: Protection,
    /// The requested path, without the digits that the server appends.
    path: String,
    /// Whether the next attempt is the first.
    first: bool,
    /// The creates sent under this GUID.
    sent: SentCreates,
}

impl ProtectedCreate<'_> {
    async fn attempt(&mut self) -> Result<Created, Error> {
        let first = std::mem::take(&mut self.first);
        if !first && let Some(found) = self.find().await? {
            return Ok(found);
        }
        let (result, first) = match self.create().await {
            Err(error) if error.kind() == ErrorKind::NoNode && self.node.with_parents => {
                trace!(step = 2, path = self.node.parent, "create the parents");
                let parents = self.node.parents;
                create_parents(self.client, &self.path, LastNode::Skip, parents).await?;
                if self.node.search_after_parents {
                    // Without a sync and a result: all creates so far were refused, or were searched for above.
                    self.client.get_children(self.node.parent).await?;
                }
                (self.create().await, false)
            }
            other => (other, first),
        };
        let (result, first) = match result {
            // No other client has this GUID: an earlier create succeeded, and the search saw an older tree.
            Err(error) if error.kind() == ErrorKind::NodeExists => {
                let refused = self.path.clone();
                match self.find().await? {
                    Some(found) => return Ok(found),
                    // It was another session's: the next create has another GUID.
                    None if self.path != refused => (self.create().await, false),
                    None => return Err(error),
                }
            }
            other => (other, first),
        };
        let CreateReply { path, stat, session, by_first_request } = result?;
        let owner = match session {
            Some(session) => session,
            // The session changed during a create (1), whose reply does not contain the owner.
            None => self.owner_of(&path).await?.unwrap_or(NO_SESSION),
        };
        let may_have_duplicates = self.sent.may_have_created_several();
        let (czxid, by_first_request) = (stat.map(|stat| stat.czxid), by_first_request && first);
        let by_search = false;
        Ok(Created { path, owner, czxid, by_first_request, may_have_duplicates, by_search })
    }

    /// The session that owns a node; `None` if the node is missing.
    async fn owner_of(&self, path: &str) -> Result<Option<i64>, Error> {
        Ok(self.client.exists(path).await?.map(|stat| stat.ephemeral_owner))
    }

    /// The error of a node that was closed.
    fn closed(&self) -> Error {
        if self.sent.may_have_created() {
            error::not_yet_deleted(&self.path)
        } else {
            Error::refused(ErrorKind::Closed, "closed before its node was created")
        }
    }

    /// A refusal, such as that of a search, says nothing of the creates before it.
    fn with_outcome(&self, error: Error) -> Error {
        if self.sent.may_have_created() { after_loss(error, &self.path) } else { error }
    }

    /// Waits for the pause of a retry. A close ends it.
    async fn unless_closed(
        &self,
        pause: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let Some(closing) = self.node.closing else { return pause.await };
        match select(closing.cancelled(), pause).await {
            Either::Left(()) => Err(self.closed()),
            Either::Right(paused) => paused,
        }
    }

    async fn create(&mut self) -> Result<CreateReply, Error> {
        if self.node.closing.is_some_and(CancellationToken::is_cancelled) {
            return Err(self.closed());
        }
        let NewNode { data, parents, mode, .. } = *self.node;
        // Recorded before the request is sent: dropping this future does not recall it.
        self.sent.record_request(session_id(self.client));
        let acl = parents.acls.of(&self.path);
        let result = create::create(self.client, &self.path, data, mode, acl).await;
        if let Err(error) = &result {
            match (error.kind(), error.outcome()) {
                (ErrorKind::NodeExists, _) => self.sent.record_node_exists(),
                (_, Outcome::NotApplied) => self.sent.record_refusal(),
                (_, Outcome::Unknown) if planted::is("unknown-create-forgotten") => {
                    self.sent.record_refusal();
                }
                (_, Outcome::Unknown) => {}
            }
        }
        result
    }

    /// Searches for the node of a lost reply, after a `sync`: a lagging server would not show it. Of several, the
    /// first in the queue is ours. The others are deleted, as are nodes of another session than the current one.
    /// If creates were sent in several or unknown sessions, the owner of each node is read first.
    ///
    /// Source: `CreateBuilderImpl.findProtectedNodeInForeground`, which has no `sync`.
    async fn find(&mut self) -> Result<Option<Created>, Error> {
        trace!(step = 3, belief = "unknown", path = self.path, "search for the node");
        let synced = self.client.sync(self.node.parent);
        let listed = self.client.get_children(self.node.parent);
        synced.await?;
        let children = error::default_if_missing(listed.await)?;
        let mut names: Vec<_> =
            children.iter().filter(|name| name.starts_with(self.protection.prefix())).collect();
        // The names differ only in their digits, of which all have the same number.
        names.sort_unstable();
        let current = session_id(self.client);
        let (mut ours, mut foreign) = (None, false);
        for name in names {
            let path = join(self.node.parent, name);
            let owner = match self.sent.owner() {
                _ if !self.node.mode.is_ephemeral() => 0,
                Some(session) => session,
                None => match self.owner_of(&path).await? {
                    Some(owner) => owner,
                    None => continue,
                },
            };
            let is_ours = owner == 0 || Some(owner) == current;
            if is_ours && ours.is_none() {
                debug!(path, "found the node of a lost reply");
                let may_have_duplicates = self.sent.may_have_created_several();
                ours = Some(Created {
                    path,
                    owner,
                    czxid: None,
                    by_first_request: false,
                    may_have_duplicates,
                    by_search: true,
                });
            } else {
                debug!(path, is_ours, "deleting a duplicate node, or one of another session");
                delete_in_background(self.client, &path);
                foreign |= !is_ours;
            }
        }
        if foreign && ours.is_none() {
            // A late delete would hit a node at the same path: one that is not sequential, or whose queue was removed and
            // begins its numbers again.
            self.abandon();
            self.protection = Protection::new(&**self.client.runtime())?;
            self.path = self.node.path(&self.protection);
        }
        if ours.is_none() {
            debug!(path = self.path, "no node with this GUID");
        }
        Ok(ours)
    }

    /// Finds and deletes, in the background, the nodes that may have been created under this GUID.
    fn abandon(&mut self) {
        let is_left = planted::is("failed-create-left") && !self.node.mode.is_ephemeral();
        if std::mem::take(&mut self.sent).may_have_created() && !is_left {
            let protection = self.protection.prefix();
            find_and_delete_in_background(self.client, self.node.parent, protection, None);
        }
    }
}

impl Drop for ProtectedCreate<'_> {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Deletes the nodes of creates with an unknown outcome, but not the one named `keep`. The call itself queues the
/// search, behind a create that is still in flight.
///
/// Source: `FindAndDeleteProtectedNodeInBackground`, which sends the listing alone.
fn find_and_delete_in_background(
    client: &Client,
    parent: &str,
    protection: &str,
    keep: Option<&str>,
) {
    let first = search(client, parent, protection);
    let (task_client, parent) = (client.clone(), parent.to_owned());
    let (protection, keep) = (protection.to_owned(), keep.map(str::to_owned));
    client.runtime().spawn(Box::pin(async move {
        let again = |client: &Client| search(client, &parent, &protection);
        let found = guaranteed_delete::repeat(task_client, first, again).await;
        let Some((children, client)) = found else { return };
        let is_left = |name: &&str| name.starts_with(&protection) && keep.as_deref() != Some(*name);
        for name in children.iter().filter(is_left) {
            trace!(name, "deleting the node of an abandoned create");
            delete_in_background(&client, &join(&parent, name));
        }
    }));
}

/// Queues a write that settles all creates before it, and a listing behind it; both must succeed.
fn search(
    client: &Client,
    parent: &str,
    protection: &str,
) -> impl Future<Output = Result<Children, Error>> + use<> {
    let cleanup = client.cleanup();
    // No node has this name: each has the caller's part behind it.
    let settles = !planted::is("search-without-write");
    let settling = settles.then(|| cleanup.delete(&join(parent, protection), None));
    settled(settling, cleanup.get_children_with_stat(parent))
}

/// The listing, once all earlier creates of the session have taken effect or never will.
///
/// A leader that has lost its majority answers `sync` and reads from its tree until it steps down (ZOOKEEPER-1675): it
/// does not show a create that the majority has ordered, or will accept later. A write is answered by the majority, and
/// after all that was ordered before it; so is one that is refused, since the refusal is a transaction too.
///
/// Source: `PrepRequestProcessor.pRequest` (`ErrorTxn`), `Leader.processSync`.
async fn settled(
    settling: Option<Response<()>>,
    listed: Response<(Children, Stat)>,
) -> Result<Children, Error> {
    if let Some(settling) = settling
        && let Err(error) = settling.await
        && !is_refused_by_majority(&error)
    {
        return Err(error);
    }
    error::default_if_missing(listed.await).map(|(children, _)| children)
}

/// Whether the leader checked a delete of no node against its tree, and refused it.
fn is_refused_by_majority(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NoAuth)
}

/// Deletes all nodes of a node's GUID but this one.
fn delete_duplicates_in_background(client: &Client, path: &str) {
    let (parent, name) = split(path);
    find_and_delete_in_background(client, parent, protection_of(name), Some(name));
}

/// Keeps a created node, and deletes the nodes in the background that other creates of its GUID may have created.
pub(crate) fn keep_only(client: &Client, created: Created) -> String {
    if created.may_have_duplicates {
        delete_duplicates_in_background(client, &created.path);
    }
    created.path
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;

    #[derive(Debug)]
    struct Random(Option<u8>);

    impl Runtime for Random {
        fn transport(&self) -> std::sync::Arc<dyn docent_session::runtime::Transport> {
            std::sync::Arc::new(docent_session::runtime::Tcp)
        }

        fn timer(
            &self,
            _after: std::time::Duration,
        ) -> Pin<Box<dyn docent_session::runtime::Timer>> {
            unreachable!("a GUID needs no time")
        }

        fn spawn(&self, _task: docent_session::runtime::Task) {}

        fn fill_random(&self, bytes: &mut [u8]) -> bool {
            bytes.fill(self.0.unwrap_or_default());
            self.0.is_some()
        }
    }

    /// `ProtectedUtils.getProtectedPrefix`: forty characters. Those at the indices 3 to 38 are a v4 GUID in lower case.
    #[test]
    fn the_protected_prefix_is_curators() {
        let prefix = |byte| Protection::new(&Random(Some(byte))).unwrap().prefix().to_owned();
        let one = prefix(0xff);
        assert_eq!(one, "_c_ffffffff-ffff-4fff-bfff-ffffffffffff-");
        assert_eq!(one.len(), 40);
        assert_ne!(prefix(7), one);
    }

    #[test]
    fn without_randomness_there_is_no_guid() {
        let error = Protection::new(&Random(None)).unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::InvalidConfig, Outcome::NotApplied)
        );
    }
}
