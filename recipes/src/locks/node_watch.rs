//! The watch on the node of a hold: it ends the hold when another client deletes the node.
//!
//! Curator's holders do not watch their nodes, so nothing is sent before [`LockGuard::lost`](super::LockGuard::lost) or
//! [`LockGuard::cancellation_token`](super::LockGuard::cancellation_token) is called. From then on, a task reads the
//! node with getData (4) and a watch, and reads it again after each event but its deletion. getData, not exists: on a
//! missing node, exists would leave a watch behind (CURATOR-107).
//!
//! A server that the session is connected to has applied the create: it accepts no client that has seen a later zxid.
//! So `NoNode` shows a deletion, never a server that lags. A node that another client has created at the same path has
//! another `czxid`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use docent_protocol::{EventType, Stat};
use docent_session::{
    Client, ErrorKind, Node,
    client::{WatchResponse, WeakClient},
    session::SessionClaim,
};
use tokio::sync::Notify;
use tracing::debug;

use crate::{persistent_retry, planted, recreate_pause::SharedRecreatePause, select::select};

/// Whether a lock node still makes its owner a holder: the hold was not released, no other client is known to have
/// deleted the node, and the claim of a strict hold has not ended.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    is_released: AtomicBool,
    is_deleted: AtomicBool,
    /// Whether the claim of a strict hold has ended.
    is_lapsed: AtomicBool,
    /// Notified when one of them changes.
    over: Notify,
    /// Counts the deletion, unless the hold was released; none for a latch, which counts its places.
    recreate: Option<Arc<SharedRecreatePause>>,
}

impl NodeState {
    /// The state of a node whose deletion counts as a loss.
    pub(crate) fn counted_by(recreate: &Arc<SharedRecreatePause>) -> Arc<Self> {
        Arc::new(Self { recreate: Some(Arc::clone(recreate)), ..Self::default() })
    }

    /// Whether the hold was released, the node is known to be deleted, or the claim of a strict hold has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_released_or_deleted() || self.is_lapsed.load(Ordering::Acquire)
    }

    pub(crate) fn is_released_or_deleted(&self) -> bool {
        self.is_released.load(Ordering::Acquire) || self.is_deleted.load(Ordering::Acquire)
    }

    /// Whether another client is known to have deleted the node.
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Records the release. Call this before its first request is sent: the deletion of the node is then ours.
    pub(crate) fn release(&self) {
        self.is_released.store(true, Ordering::Release);
        self.over.notify_waiters();
    }

    /// Records that the node is deleted, or that another client's node has taken its place.
    pub(crate) fn note_deletion(&self, path: &str) {
        if !self.is_over() {
            debug!(path, "the lock node was deleted");
        }
        let is_first = !self.is_deleted.swap(true, Ordering::AcqRel);
        if let Some(recreate) = &self.recreate
            && is_first
            && !self.is_released.load(Ordering::Acquire)
        {
            recreate.note_loss();
        }
        self.over.notify_waiters();
    }

    /// Records that the claim of a strict hold has ended.
    pub(crate) fn note_lapse(&self, path: &str) {
        if planted::is("strict-revived") {
            return;
        }
        if !self.is_over() {
            debug!(path, "the claim of a strict hold has ended without a renewal");
        }
        self.is_lapsed.store(true, Ordering::Release);
        self.over.notify_waiters();
    }

    /// Waits until [`is_over`](Self::is_over) is true.
    pub(crate) async fn over(&self) {
        // Created before the check, so that no notification is missed.
        let over = self.over.notified();
        if !self.is_over() {
            over.await;
        }
    }
}

/// A lock node, distinguished from a later node at the same path.
#[derive(Debug, Clone)]
pub(crate) struct NodeIdentity {
    pub(crate) path: String,
    /// The session that owns it; 0 for a persistent node, which a custom driver may create.
    pub(crate) owner: i64,
    /// `None` if it is not known yet.
    pub(crate) czxid: Option<i64>,
}

impl NodeIdentity {
    /// Whether this is the Stat of our node.
    pub(crate) fn matches(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.owner && self.czxid.is_none_or(|czxid| stat.czxid == czxid)
    }
}

/// Watches a node until the end of its hold. The call itself queues the first read.
pub(crate) fn watch(
    client: &Client,
    node: NodeIdentity,
    claim: SessionClaim,
    state: Arc<NodeState>,
) {
    let first = client.get_data_and_watch(&node.path);
    // The guard keeps the client alive, not its watch.
    let weak = client.downgrade();
    client.runtime().spawn(Box::pin(async move {
        let over = select(state.over(), claim.lost());
        select(over, follow(weak, node, first, &state)).await;
    }));
}

/// Reads and watches the node until it is deleted, or the client has ended. A failed read is repeated, whatever the
/// error: without a watch, a deletion would stay unnoticed.
async fn follow(
    client: WeakClient,
    mut node: NodeIdentity,
    first: WatchResponse<Node>,
    state: &NodeState,
) {
    let (mut read, mut failures) = (first, 0);
    loop {
        match read.await {
            Ok((found, mut watcher)) => {
                if !node.matches(&found.stat) {
                    return state.note_deletion(&node.path);
                }
                node.czxid = Some(found.stat.czxid);
                failures = 0;
                let Some(event) = watcher.next().await else { return };
                match event.event_type {
                    EventType::NodeDeleted => return state.note_deletion(&node.path),
                    _ if planted::is("written-is-deleted") => state.note_deletion(&node.path),
                    // The end of the session, which ends the claim too.
                    EventType::None if event.is_end() => return,
                    // The data have changed, or the watch was removed.
                    _ => {}
                }
            }
            Err(error) if error.kind() == ErrorKind::NoNode => {
                return state.note_deletion(&node.path);
            }
            Err(error) => {
                let pause = persistent_retry::pause(failures);
                debug!(path = node.path, %error, ?pause, "lock node not watched; retrying");
                let Some(timer) = client.upgrade().map(|client| client.runtime().timer(pause))
                else {
                    return;
                };
                timer.await;
                failures += 1;
            }
        }
        let Some(client) = client.upgrade().filter(|client| client.ended().is_none()) else {
            return;
        };
        read = client.get_data_and_watch(&node.path);
    }
}
