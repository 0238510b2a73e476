//! Reads that are not older than their call, and what became of a write whose reply was lost.
//!
//! A member that lags behind shows an older state: a node that is missing there may have been created long ago. A `sync`
//! brings a member up to its leader, but a leader that has lost its majority answers `sync` and reads from its tree
//! (ZOOKEEPER-1675). A refused write is a transaction, too: its reply comes from the majority, behind all earlier requests
//! of this session. A read behind it sees everything that was committed when it was sent.
//!
//! Source: `PrepRequestProcessor.pRequest` (`ErrorTxn`), `Leader.processSync`.

use std::future::Future;

use docent_protocol::Stat;
use docent_session::{Client, Error, ErrorKind, Node, Outcome, retry::RetryPolicy};

use crate::{path::split, state_changes::session_id};

/// Reads data that is not older than this call. Sends a transaction (14) of a check of `path` that fails, and `read` behind its
/// reply: in the same session, since a new one may begin on a server that lags behind.
pub(crate) async fn read_settled<R, F: Future<Output = Result<R, Error>>>(
    client: &Client,
    path: &str,
    read: impl Fn() -> F,
) -> Result<R, Error> {
    loop {
        let session = session_id(client);
        // Changes nothing, also if a node has this version.
        match client.transaction().check(path, Some(i32::MAX)).commit().await {
            Err(error) if !is_refused_by_majority(&error) => return Err(error),
            _ => {}
        }
        let read = read().await;
        if session.is_some() && session == session_id(client) {
            return read;
        }
    }
}

/// Reads data that is not older than the replies of `session`: in a later one, behind a write.
pub(crate) async fn read_behind<R, F: Future<Output = Result<R, Error>>>(
    client: &Client,
    session: Option<i64>,
    path: &str,
    read: impl Fn() -> F,
) -> Result<R, Error> {
    let found = read().await;
    if session.is_some() && session == session_id(client) {
        return found;
    }
    read_settled(client, path, read).await
}

/// A delete that deletes nothing: no node has this version, or the ACL does not allow it. Its reply comes behind all earlier
/// requests of this session. `NoNode` if there is no node.
pub(crate) fn refused_delete(
    client: &Client,
    path: &str,
) -> impl Future<Output = Result<(), Error>> + use<> {
    let refused = client.cleanup().delete(path, Some(i32::MAX));
    async {
        match refused.await {
            Err(error) if matches!(error.kind(), ErrorKind::BadVersion | ErrorKind::NoAuth) => {
                Ok(())
            }
            result => result,
        }
    }
}

/// Whether the leader has checked the path against its tree.
fn is_refused_by_majority(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::BadVersion | ErrorKind::NoNode | ErrorKind::NoAuth)
}

/// Reads a node behind a write without a reply, which has been applied by then or never will be; repeated by the policy.
/// Returns it with the zxid of its last change, which is `change_of` what was read; of a missing node, the last zxid at
/// which it may have been created or deleted. The outcome of an error is that of the write: `Unknown`.
pub(crate) async fn read_after_loss<R, F: Future<Output = Result<Option<R>, Error>>>(
    client: &Client,
    policy: &dyn RetryPolicy,
    path: &str,
    read: impl Fn() -> F,
    change_of: impl Fn(&R) -> i64,
) -> Result<(Option<R>, i64), Error> {
    let look = || async {
        let found = read().await?;
        let last_change = match &found {
            Some(found) => change_of(found),
            // Read behind it, so the ancestors show each change before it.
            None => last_change_above(client, path).await?,
        };
        Ok((found, last_change))
    };
    let read = client.retry_idempotent(policy, || read_settled(client, path, look)).await;
    read.map_err(|error| after_loss(error, path))
}

/// The error of a read behind a write that may have been applied.
pub(crate) fn after_loss(error: Error, path: &str) -> Error {
    if error.outcome() == Outcome::Unknown {
        return error;
    }
    Error::new(error.kind(), Outcome::Unknown).with_path(path).caused_by(error)
}

/// The node, unless it is missing.
pub(crate) async fn get_if_exists(client: &Client, path: &str) -> Result<Option<Node>, Error> {
    client.get_data(path).allow(ErrorKind::NoNode).await
}

/// The last zxid at which a missing node may have been created or deleted: the `pzxid` of the nearest ancestor that exists,
/// since it knows of each child that was created or deleted on the way to `path`; its `czxid` if it never had that child.
/// The greatest zxid if there is no ancestor, as under a chroot that is missing.
async fn last_change_above(client: &Client, mut path: &str) -> Result<i64, Error> {
    while path != "/" {
        path = split(path).0;
        if let Some(ancestor) = client.exists(path).await? {
            let keeps_all = keeps_all_children(&ancestor);
            return Ok(if keeps_all { ancestor.czxid } else { ancestor.pzxid });
        }
    }
    Ok(i64::MAX)
}

/// Whether no child of a node was ever deleted. Its `cversion` counts creates and deletes, though not the creates of the nodes
/// that a server comes with, whose `czxid` is 0.
///
/// Source: `DataNode.copyStat`.
const fn keeps_all_children(stat: &Stat) -> bool {
    stat.czxid != 0 && stat.cversion == stat.num_children
}

/// The session before a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BeforeWrite {
    session_id: i64,
    zxid: i64,
}

impl BeforeWrite {
    /// `None` without a session.
    pub(crate) fn now(client: &Client) -> Option<Self> {
        let token = client.session_token()?;
        Some(Self { session_id: token.session_id(), zxid: token.last_zxid() })
    }

    /// The same before a write that is to replace the state of this zxid, which an earlier session may have seen.
    pub(crate) fn of(client: &Client, mzxid: i64) -> Option<Self> {
        let before = Self::now(client)?;
        Some(Self { zxid: before.zxid.max(mzxid), ..before })
    }

    /// Whether the write was not applied: the last change of what it writes, as [`read_after_loss`] has seen it, is older.
    /// It then may be repeated, and undoes no later write of another client. Only in the same session: a server may still
    /// apply a request of an earlier one.
    pub(crate) fn is_unchanged(before: Option<Self>, client: &Client, last_change: i64) -> bool {
        let session_id = session_id(client);
        before.is_some_and(|it| session_id == Some(it.session_id) && last_change <= it.zxid)
    }

    /// Whether a node that exists now was not created and deleted since.
    pub(crate) async fn is_first(
        before: Option<Self>,
        client: &Client,
        path: &str,
    ) -> Result<bool, Error> {
        let parent = client.exists(split(path).0).await?;
        let Some((before, parent)) = before.zip(parent) else { return Ok(false) };
        Ok(parent.czxid <= before.zxid && keeps_all_children(&parent))
    }
}
