//! Creates a node on servers of every version.
//!
//! | server | request |
//! |---|---|
//! | ZooKeeper since 3.5 | create2 (15), or createContainer (19) |
//! | older ones, and ClickHouse Keepers without these operations | create (1); persistent instead of a container |
//!
//! The first create of a client detects which operations the servers have: see [`SessionLease::lacks`].
//! Curator 5 does not support the older servers; Curator 2, which does, sends create.

use std::{sync::Arc, time::Duration};

use docent_protocol::{Acl, CreateMode, OpCode, Stat, WatcherType};
use docent_session::{
    Client, ConnectionState, CreateOptions, Error, ErrorKind, Watcher, session::SessionLease,
};
use tracing::debug;

use crate::{state_changes::session_id, timer};

/// The reply to a create.
#[derive(Debug)]
pub(crate) struct CreateReply {
    pub(crate) path: String,
    /// `None` for a create (1), whose reply has no stat.
    pub(crate) stat: Option<Stat>,
    /// The session that owns the node, if known; 0 for a node that is not ephemeral.
    pub(crate) session: Option<i64>,
    /// Whether the first request created it, not a second one with another operation.
    pub(crate) by_first_request: bool,
}

/// How long to wait for the server to close the connection after it has refused an unknown operation.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Creates a node; a persistent one instead of a container on servers without containers. The first poll queues the
/// first request.
pub(crate) async fn create(
    client: &Client,
    path: &str,
    data: &[u8],
    mode: CreateMode,
    acl: &[Acl<'_>],
) -> Result<CreateReply, Error> {
    let session = client.session();
    let op = match mode {
        CreateMode::Container => Some(OpCode::CreateContainer),
        // A create (1) has no substitute for the others, such as a node with a time to live.
        _ => plain_mode(mode).map(|_| OpCode::Create2),
    };
    if op.is_some() && needs_plain_create(session.as_ref()) {
        return create_plain(client, path, data, mode, acl, true).await;
    }
    let mut state = client.state();
    let was_connected = state.get().is_some_and(ConnectionState::is_connected);
    let result = client.create_with_stat(path, data, CreateOptions::new(mode).with_acl(acl)).await;
    match result {
        Ok((path, stat)) => Ok(CreateReply {
            path,
            session: Some(stat.ephemeral_owner),
            stat: Some(stat),
            by_first_request: true,
        }),
        Err(error) if error.kind() == ErrorKind::Unimplemented && op.is_some() => {
            debug!(path, %error, "server lacks create2 or containers; using plain creates");
            // The server closes this connection; another request on it would be lost.
            let closed = async {
                // The first change may be the connection itself.
                let is_open = |state: Option<_>| state.is_some_and(ConnectionState::is_connected);
                while state.next().await.is_some_and(is_open) && !was_connected {}
            };
            timer::timeout(client, CLOSE_TIMEOUT, closed).await;
            create_plain(client, path, data, mode, acl, false).await
        }
        Err(error) => Err(error),
    }
}

/// Whether the servers are known to lack operations of ZooKeeper 3.5: create2, createContainer and checkWatches.
/// If one of them is missing, none is sent.
pub(crate) fn lacks_3_5_operations(client: &Client) -> bool {
    needs_plain_create(client.session().as_ref())
}

/// Removes a watch from the server, unless its event has arrived.
///
/// Source: `WatcherRemovalManager.removeWatchers`.
pub(crate) fn remove_unfired(client: &Client, mut watcher: Watcher) {
    if watcher.try_next().is_none() && !lacks_3_5_operations(client) {
        drop(client.check_watches(watcher.path(), WatcherType::Any));
    }
}

fn needs_plain_create(session: Option<&Arc<SessionLease>>) -> bool {
    session.is_some_and(|session| {
        session.lacks(OpCode::Create2) || session.lacks(OpCode::CreateContainer)
    })
}

/// The mode of the create (1) that replaces a create in `mode`, if there is one.
const fn plain_mode(mode: CreateMode) -> Option<CreateMode> {
    match mode {
        CreateMode::Container => Some(CreateMode::Persistent),
        CreateMode::Persistent
        | CreateMode::PersistentSequential
        | CreateMode::Ephemeral
        | CreateMode::EphemeralSequential => Some(mode),
        _ => None,
    }
}

async fn create_plain(
    client: &Client,
    path: &str,
    data: &[u8],
    mode: CreateMode,
    acl: &[Acl<'_>],
    by_first_request: bool,
) -> Result<CreateReply, Error> {
    let current = || session_id(client);
    let before = current();
    let mode = plain_mode(mode).unwrap_or(mode);
    let path = client.create(path, data, CreateOptions::new(mode).with_acl(acl)).await?;
    // The reply does not contain the session. It is known if the session did not change: a replaced one never
    // returns.
    let session = before.filter(|_| before == current());
    let session = if mode.is_ephemeral() { session } else { Some(0) };
    Ok(CreateReply { path, stat: None, session, by_first_request })
}
