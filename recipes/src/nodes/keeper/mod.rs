//! The task that keeps one node present.
//!
//! One task owns one node, and has one request in flight. It reads the wanted data when it writes, so the last wanted
//! value is the last one written (L21).
//!
//! | step | frames | Curator |
//! |---|---|---|
//! | 1. wait for a connection to the quorum | – | – |
//! | 2. create the node | create2 (15), createContainer (19) or createTTL (21); parents missing: exists (3) upward, createContainer downward, create again | `PersistentNode.createNode` |
//! | 3. it exists: whose is it? | exists (3) with watch; of a former session of ours: multi (14) of delete and create | `processBackgroundCallback` |
//! | 4. watch it | exists (3) with watch; getData (4) with watch, if the data of other clients is adopted | `watchNode` |
//! | 5. the data was set | setData (5); before each retry: a delete that is refused, exists (3) with watch | `setData` |
//! | 6. woken: deleted, continue with 2; written, continue with 4; reconnected in the same session, continue with 4; in another one, an ephemeral node with 2, others with 4. Deleted again and again: step 2 after a pause | – | `watcher`, `connectionStateListener` |
//! | 7. close | delete (2); before each retry, and if the node was not seen on this connection: a delete that is refused, exists (3); checkWatches (17) if the node stays | `close` |
//!
//! Differences from Curator (Ln: see `docs/CURATOR.md`): one create at a time, with a search for the GUID before each
//! retry (L14); an error that no retry mends parks the task until something changes (L15, L17); the node of another
//! client is neither overwritten nor deleted (L16); a failed exists is repeated (L18); a reconnect writes nothing (L19);
//! the node of a former session of ours is replaced in one transaction (L20).
//!
//! A node is written or deleted only while it is ours: our session owns it, or our GUID is in its name. After the
//! close, the task creates and writes nothing.

mod keep;
mod leave;
mod obtain;
mod owner;

use std::{
    collections::VecDeque,
    sync::{Arc, Weak, atomic::AtomicBool},
};

use bytes::Bytes;
use docent_protocol::{CreateMode, Stat};
use docent_session::{Error, ErrorKind};
use tokio::sync::{broadcast, watch};
use tracing::debug;

use super::{
    options::NodeOptions,
    status::{NodeEvent, Status, Wanted},
};
use crate::{
    node_task::{NodeTask, Stop},
    planted,
    recreate_pause::RecreatePause,
    select::{Either, select},
    state_changes::{Connection, session_id},
};

/// The number of former sessions that are remembered, to recognize their nodes.
const FORMER_SESSIONS: usize = 8;

pub(super) struct Keeper {
    pub(super) task: NodeTask,
    pub(super) connection: Connection,
    /// The requested path.
    pub(super) path: String,
    pub(super) mode: CreateMode,
    pub(super) options: NodeOptions,
    pub(super) wanted: watch::Receiver<Wanted>,
    /// Where data of other clients is adopted.
    pub(super) adopted: Weak<watch::Sender<Wanted>>,
    /// The version of the wanted data that the task has last looked at.
    pub(super) seen: u64,
    pub(super) memory: Memory,
    pub(super) status: Arc<watch::Sender<Status>>,
    pub(super) events: broadcast::Sender<NodeEvent>,
    /// Whether the close deletes the node; fixed once it is closing.
    pub(super) deletes: Arc<AtomicBool>,
}

/// The node that is there, as far as the task knows.
#[derive(Clone)]
struct Present {
    path: String,
    /// The session that owns it; 0 if it is not ephemeral.
    owner: i64,
    czxid: Option<i64>,
}

/// The task's memory of earlier steps.
#[derive(Default)]
pub(super) struct Memory {
    /// The path of a node that had one: with its GUID and digits.
    path: Option<String>,
    /// The `czxid` of our node that no session owns, unless it is known to be deleted. A server that lags behind does not
    /// show the node to a new session.
    node: Option<i64>,
    former_sessions: VecDeque<i64>,
    /// The data of the creates that have no reply, and may have made the node.
    unknown_creates: Vec<Bytes>,
    /// Whether the loss of the node was reported, and its return was not.
    is_lost: bool,
}

impl Memory {
    /// Remembers the data of a create that may have made the node.
    fn note_unknown(&mut self, data: &Bytes) {
        if !self.unknown_creates.contains(data) {
            self.unknown_creates.push(data.clone());
        }
    }
}

impl Present {
    /// Whether a stat can be that of this node.
    fn is_same(&self, stat: &Stat) -> bool {
        let is_same_owner = self.owner == 0 || stat.ephemeral_owner == self.owner;
        is_same_owner && self.czxid.is_none_or(|czxid| czxid == stat.czxid)
    }
}

impl Keeper {
    pub(super) async fn run(mut self) {
        let mut recreate = RecreatePause::default();
        let closed = loop {
            match self.obtain().await {
                Ok(present) => {
                    if let Some(closed) = self.keep(present).await {
                        break closed;
                    }
                    if planted::is("kept-node-gone") {
                        self.task.closing.cancelled().await;
                        break Ok(());
                    }
                }
                Err(Stop::Failed(error)) => match self.park(error).await {
                    Ok(()) => continue,
                    Err(_) => break self.leave_unknown().await,
                },
                // Another client's node was there, and is gone or changed.
                Err(Stop::Lost) if !self.task.closing.is_cancelled() => {}
                Err(_) => break self.leave_unknown().await,
            }
            // A process that deletes the node in a loop, or another client's node that comes and goes.
            select(self.task.closing.cancelled(), recreate.pause(&self.task.client)).await;
        };
        self.status.send_modify(|status| {
            (status.czxid, status.present) = (None, None);
            status.closed = Some(closed);
        });
    }

    /// Reports an error, and waits until something changes: a loop of requests that fail would keep the thread busy.
    async fn park(&mut self, error: Error) -> Result<(), Stop> {
        // The error says only that the node or its client is being closed, which refuses all requests.
        let is_closing = self.task.closing.is_cancelled() || error.kind() == ErrorKind::Closed;
        if is_closing || self.task.client.ended().is_some() {
            return Err(Stop::Ended);
        }
        debug!(path = self.path, %error, "node not kept; waiting for a change");
        self.report(NodeEvent::Failed(error.clone()));
        self.status.send_modify(|status| status.failed = Some((self.seen, error)));
        // A clone: the next turn has to find the change.
        let mut connection = self.connection.clone();
        let changed = select(connection.next(), self.wanted.changed());
        match self.task.step(changed).await? {
            Either::Left(Some(_)) | Either::Right(Ok(())) => Ok(()),
            _ => Err(Stop::Ended),
        }
    }

    /// The wanted data; from now on, only later changes wake the task.
    fn see_wanted(&mut self) -> Wanted {
        let wanted = self.wanted.borrow_and_update().clone();
        self.seen = wanted.version;
        wanted
    }

    fn report(&self, event: NodeEvent) {
        // Without receivers, the event is lost.
        let _ = self.events.send(event);
    }

    fn lose(&mut self) {
        if !std::mem::replace(&mut self.memory.is_lost, true) {
            self.status.send_modify(|status| (status.czxid, status.present) = (None, None));
            self.report(NodeEvent::Lost);
        }
    }

    /// The path of the node, once it is known; the requested one before.
    fn node_path(&self) -> &str {
        self.memory.path.as_ref().unwrap_or(&self.path)
    }

    fn session(&self) -> Option<i64> {
        session_id(&self.task.client)
    }

    /// Whether the node is not that of another session than the current one.
    fn is_of_session(&self, present: &Present) -> bool {
        present.owner == 0 || Some(present.owner) == self.session()
    }

    fn created(&mut self, present: &Present, written: u64) {
        self.remember(present);
        let path = present.path.clone();
        self.show(present, written, Some(NodeEvent::Created { path, czxid: present.czxid }));
    }

    fn remember(&mut self, present: &Present) {
        let memory = &mut self.memory;
        memory.path = Some(present.path.clone());
        memory.node = present.czxid.filter(|_| present.owner == 0);
        memory.unknown_creates.clear();
        if present.owner != 0 && memory.former_sessions.back() != Some(&present.owner) {
            memory.former_sessions.push_back(present.owner);
            if memory.former_sessions.len() > FORMER_SESSIONS {
                memory.former_sessions.pop_front();
            }
        }
    }

    fn show(&mut self, present: &Present, written: u64, event: Option<NodeEvent>) {
        self.status.send_modify(|status| {
            status.path = Some(present.path.clone());
            (status.czxid, status.present) = (present.czxid, Some(present.owner));
            status.was_created = true;
            status.written = written;
            status.failed = None;
            status.conflict = false;
        });
        if let Some(event) = event {
            self.report(event);
        }
        if std::mem::take(&mut self.memory.is_lost) {
            self.report(NodeEvent::Restored);
        }
    }

    /// Whether the name of the node has a GUID.
    const fn is_protected(&self) -> bool {
        self.options.protected || self.mode.is_sequential()
    }
}
