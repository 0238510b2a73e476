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

mod leave;
mod look;
mod owner;

use std::{
    collections::VecDeque,
    future::Future,
    pin::pin,
    sync::{Arc, Weak, atomic::AtomicBool},
};

use bytes::Bytes;
use docent_protocol::{CreateMode, EventType, Stat};
use docent_session::{
    Client, ConnectionState, Error, ErrorKind, Outcome, Watcher,
    retry::{RetryLoop, RetryPolicy},
};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    persistent_node::NodeOptions,
    status::{NodeEvent, Status, Wanted},
};
use crate::{
    acl_provider::acl_of,
    create,
    parents::{LastNode, create_parents},
    persistent_retry::PersistentRetry,
    planted,
    protection::{self, NewNode, split},
    recreate_pause::RecreatePause,
    select::{Either, select},
    state_changes::is_read_write,
};

/// The number of former sessions that are remembered, to recognize their nodes.
const FORMER_SESSIONS: usize = 8;

pub(super) struct Keeper {
    pub(super) client: Client,
    /// The requested path.
    pub(super) path: String,
    pub(super) mode: CreateMode,
    pub(super) options: NodeOptions,
    pub(super) wanted: watch::Receiver<Wanted>,
    /// Where data of other clients is adopted.
    pub(super) adopted: Weak<watch::Sender<Wanted>>,
    /// The version of the wanted data that the task has last looked at.
    pub(super) seen: u64,
    pub(super) status: Arc<watch::Sender<Status>>,
    pub(super) events: broadcast::Sender<NodeEvent>,
    pub(super) closing: CancellationToken,
    /// Whether the close deletes the node; fixed once it is closing.
    pub(super) deletes: Arc<AtomicBool>,
}

/// The node that is there, as far as the task knows.
struct Present {
    path: String,
    /// The session that owns it; 0 if it is not ephemeral.
    owner: i64,
    czxid: Option<i64>,
}

/// The task's memory of earlier steps.
#[derive(Default)]
struct Memory {
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

/// Why a step ended without a node.
enum NoNode {
    /// The client has ended, or the node was closed.
    Ended,
    /// Another client's node was there, and is gone or changed.
    LookAgain,
    /// The error is final for now.
    Failed(Error),
}

impl Keeper {
    pub(super) async fn run(mut self) {
        let policy =
            PersistentRetry::new(Arc::clone(&self.options.lock.retry_policy), self.closing.clone());
        let mut memory = Memory::default();
        let mut connection = self.client.state();
        let mut recreate = RecreatePause::default();
        let closed = loop {
            match self.obtain(&policy, &mut memory, &mut connection).await {
                Ok(present) => {
                    if let Some(closed) = self.keep(&policy, present, &mut memory).await {
                        break closed;
                    }
                    if planted::is("kept-node-gone") {
                        self.closing.cancelled().await;
                        break Ok(());
                    }
                }
                Err(NoNode::LookAgain) if !self.closing.is_cancelled() => {}
                Err(NoNode::Ended | NoNode::LookAgain) => break self.leave_unknown(&memory).await,
                Err(NoNode::Failed(error)) => {
                    if self.is_over(&error) {
                        break self.leave_unknown(&memory).await;
                    }
                    self.fail(error);
                    // No loop: it is tried again when something has changed.
                    let changed = select(connection.changed(), self.wanted.changed());
                    match select(self.closing.cancelled(), changed).await {
                        Either::Left(())
                        | Either::Right(Either::Left(Err(_)) | Either::Right(Err(_))) => {
                            break self.leave_unknown(&memory).await;
                        }
                        Either::Right(_) => {}
                    }
                    continue;
                }
            }
            // A process that deletes the node in a loop, or another client's node that comes and goes.
            select(self.closing.cancelled(), recreate.pause(&self.client)).await;
        };
        self.status.send_modify(|status| {
            (status.czxid, status.present) = (None, None);
            status.closed = Some(closed);
        });
    }

    fn fail(&self, error: Error) {
        debug!(path = self.path, %error, "node not kept; waiting for a change");
        self.report(NodeEvent::Failed(error.clone()));
        self.status.send_modify(|status| status.failed = Some((self.seen, error)));
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

    fn lose(&self, memory: &mut Memory) {
        if !std::mem::replace(&mut memory.is_lost, true) {
            self.status.send_modify(|status| (status.czxid, status.present) = (None, None));
            self.report(NodeEvent::Lost);
        }
    }

    fn session(&self) -> Option<i64> {
        self.client.session().map(|session| session.session_id())
    }

    /// Creates the node, or finds that it is there.
    async fn obtain(
        &mut self,
        policy: &PersistentRetry,
        memory: &mut Memory,
        connection: &mut watch::Receiver<Option<ConnectionState>>,
    ) -> Result<Present, NoNode> {
        match select(self.closing.cancelled(), connected(&self.client, connection)).await {
            Either::Right(true) => {}
            Either::Left(()) | Either::Right(false) => return Err(NoNode::Ended),
        }
        let wanted = self.see_wanted();
        let created = if self.is_protected() && memory.path.is_none() {
            let (parent, name) = split(&self.path);
            let node = NewNode {
                parent,
                name,
                data: &wanted.data,
                parents: self.options.lock.parents(),
                with_parents: self.options.parents,
                search_after_parents: true,
                mode: self.mode,
                closing: Some(&self.closing),
            };
            let create = protection::create(&self.client, policy, &node);
            let created = self.unless_unreachable(create).await;
            let is_unknown = match &created {
                Some(Ok(_)) => false,
                Some(Err(error)) => error.outcome() == Outcome::Unknown || error.is_retryable(),
                None => true,
            };
            if is_unknown {
                // The dropped create searches for its node in the background.
                memory.note_unknown(&wanted.data);
            }
            let Some(created) = created else { return Err(NoNode::Ended) };
            created.map(|created| {
                let (owner, czxid) = (created.owner, created.czxid);
                Some(Present { path: protection::keep_only(&self.client, created), owner, czxid })
            })
        } else {
            let path = memory.path.clone().unwrap_or_else(|| self.path.clone());
            let mut is_unknown = false;
            let create = self.create_at(policy, &path, &wanted.data, &mut is_unknown);
            let created = self.unless_unreachable(create).await;
            if is_unknown || created.is_none() {
                memory.note_unknown(&wanted.data);
            }
            let Some(created) = created else { return Err(NoNode::Ended) };
            created
        };
        let present = match created {
            Ok(Some(present)) => present,
            Ok(None) => return self.whose(policy, memory, &wanted, connection).await,
            Err(error) => return Err(NoNode::Failed(error)),
        };
        self.created(memory, &present, wanted.version);
        Ok(present)
    }

    /// Waits for a create. After a close, only for one that is in flight: `None` once there is no connection.
    async fn unless_unreachable<F: Future>(&self, create: F) -> Option<F::Output> {
        let mut create = pin!(create);
        if let Either::Left(created) = select(create.as_mut(), self.closing.cancelled()).await {
            return Some(created);
        }
        let mut connection = self.client.state();
        let disconnected = connection.wait_for(|state| !is_read_write(*state));
        match select(create, disconnected).await {
            Either::Left(created) => Some(created),
            Either::Right(_) => None,
        }
    }

    /// Creates a node at a full path; `None` if there is one. Retries are safe: an existing node is looked at.
    async fn create_at(
        &self,
        policy: &dyn RetryPolicy,
        path: &str,
        data: &[u8],
        unknown: &mut bool,
    ) -> Result<Option<Present>, Error> {
        let parents = self.options.lock.parents();
        let mode = not_sequential(self.mode);
        let acl = acl_of(parents.acl_provider, path);
        let mut retry = RetryLoop::new(&self.client, policy);
        let mut with_parents = self.options.parents;
        loop {
            if self.closing.is_cancelled() {
                return Err(Error::refused(
                    ErrorKind::Closed,
                    "closed before its node was created",
                ));
            }
            let error = match create::create(&self.client, path, data, mode, acl).await {
                Ok(reply) => {
                    let owner = if mode.is_ephemeral() { reply.session } else { Some(0) };
                    let Some(owner) = owner else { return Ok(None) };
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
                    match create_parents(&self.client, path, LastNode::Skip, parents).await {
                        // Deleted again before the create: a retry, with its pause.
                        Ok(()) => with_parents = false,
                        Err(error) => self.unless_closed(retry.pause(error)).await?,
                    }
                }
                ErrorKind::NoNode if self.options.parents => {
                    self.unless_closed(retry.pause_after_any_error(error)).await?;
                    with_parents = true;
                }
                _ => self.unless_closed(retry.pause(error)).await?,
            }
        }
    }

    /// Waits for the pause of a retry. A close ends it: the next attempt then sends nothing.
    async fn unless_closed(
        &self,
        pause: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        match select(self.closing.cancelled(), pause).await {
            Either::Left(()) => Ok(()),
            Either::Right(paused) => paused,
        }
    }

    fn created(&self, memory: &mut Memory, present: &Present, written: u64) {
        self.remember(memory, present);
        let path = present.path.clone();
        self.show(
            memory,
            present,
            written,
            Some(NodeEvent::Created { path, czxid: present.czxid }),
        );
    }

    fn remember(&self, memory: &mut Memory, present: &Present) {
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

    fn show(&self, memory: &mut Memory, present: &Present, written: u64, event: Option<NodeEvent>) {
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
        if std::mem::take(&mut memory.is_lost) {
            self.report(NodeEvent::Restored);
        }
    }

    /// Watches the node and writes to it until it is lost: then `None`. Some with the result once it is closed.
    async fn keep(
        &mut self,
        policy: &PersistentRetry,
        mut present: Present,
        memory: &mut Memory,
    ) -> Option<Result<(), Error>> {
        let mut connection = self.client.state();
        let mut watcher: Option<Watcher> = None;
        // Whether the node is known to be there: created or looked at on this connection, and no event since.
        let mut is_seen = is_read_write(*connection.borrow_and_update());
        loop {
            is_seen &= !connection.has_changed().unwrap_or(true);
            is_seen &= is_read_write(*connection.borrow());
            if self.closing.is_cancelled() {
                if watcher.as_mut().is_some_and(|watcher| watcher.try_changed().is_some()) {
                    (watcher, is_seen) = (None, false);
                }
                return Some(self.leave(&present, watcher, is_seen).await);
            }
            match select(self.closing.cancelled(), connected(&self.client, &mut connection)).await {
                Either::Left(()) => continue,
                Either::Right(false) => return Some(Ok(())),
                Either::Right(true) => {}
            }
            if present.owner != 0 && Some(present.owner) != self.session() {
                self.lose(memory);
                return None;
            }
            if watcher.is_none() {
                // An error of the look is one of this version, too.
                self.see_wanted();
                let look = self.look(policy, &present.path);
                match select(self.closing.cancelled(), look).await {
                    Either::Left(()) => continue,
                    Either::Right(Ok(Some((stat, data, new)))) if is_same(&present, &stat) => {
                        if present.czxid.is_none() {
                            present.czxid = Some(stat.czxid);
                            memory.node = present.czxid.filter(|_| present.owner == 0);
                            self.status.send_modify(|status| status.czxid = Some(stat.czxid));
                        }
                        if let Some(data) = data {
                            self.adopt_data(&data);
                        }
                        (watcher, is_seen) = (Some(new), true);
                    }
                    // Deleted, and possibly created by another client.
                    Either::Right(Ok(_)) => {
                        self.lose(memory);
                        return None;
                    }
                    Either::Right(Err(error)) => {
                        if let Some(closed) = self.park(error, &mut connection).await {
                            return Some(closed);
                        }
                    }
                }
                continue;
            }
            let wanted = self.see_wanted();
            if wanted.version != self.status.borrow().written {
                let write = self.write(policy, &present, &wanted, &mut watcher);
                match select(self.closing.cancelled(), write).await {
                    Either::Left(()) | Either::Right(Ok(true)) => {}
                    Either::Right(Ok(false)) => {
                        self.lose(memory);
                        return None;
                    }
                    Either::Right(Err(error)) if error.kind() == ErrorKind::NoNode => {
                        memory.node = None;
                        self.lose(memory);
                        return None;
                    }
                    Either::Right(Err(error)) => {
                        if let Some(closed) = self.park(error, &mut connection).await {
                            return Some(closed);
                        }
                    }
                }
                continue;
            }
            let Some(watch) = &mut watcher else { continue };
            let changed = select(connection.changed(), self.wanted.changed());
            match select(self.closing.cancelled(), select(watch.changed(), changed)).await {
                Either::Right(Either::Left(event)) => {
                    (watcher, is_seen) = (None, false);
                    if event.event_type == EventType::NodeDeleted {
                        memory.node = None;
                        self.lose(memory);
                        return None;
                    }
                }
                // The watch is set again by the client; what happened in between is looked at.
                Either::Right(Either::Right(Either::Left(_))) => {
                    is_seen = false;
                    match select(self.closing.cancelled(), connected(&self.client, &mut connection))
                        .await
                    {
                        Either::Right(true) => {
                            if planted::is("kept-node-rewritten") {
                                let _ =
                                    self.client.set_data(&present.path, &wanted.data, None).await;
                            }
                            watcher = None;
                        }
                        Either::Right(false) => return Some(Ok(())),
                        Either::Left(()) => {}
                    }
                }
                Either::Left(()) | Either::Right(Either::Right(Either::Right(_))) => {}
            }
        }
    }

    /// Whether an error only says that the node or its client is being closed.
    fn is_over(&self, error: &Error) -> bool {
        self.closing.is_cancelled()
            || self.client.ended().is_some()
            || error.kind() == ErrorKind::Closed
    }

    /// Reports an error, and waits until something changes. Some if nothing more can be done with this client.
    async fn park(
        &mut self,
        error: Error,
        connection: &mut watch::Receiver<Option<ConnectionState>>,
    ) -> Option<Result<(), Error>> {
        if self.is_over(&error) {
            // While a client closes, it refuses all requests: repeated, this one would keep the thread busy.
            return (!self.closing.is_cancelled()).then_some(Ok(()));
        }
        self.fail(error);
        let changed = select(connection.changed(), self.wanted.changed());
        select(self.closing.cancelled(), changed).await;
        None
    }

    /// Writes the wanted data; false if the node is gone, or another one. A newer value takes the place of one whose write
    /// has failed. setData has no check of the owner, so each retry looks at the node first: only the time between that
    /// look and the write remains, in which another client can replace the node.
    async fn write(
        &self,
        policy: &PersistentRetry,
        present: &Present,
        wanted: &Wanted,
        watcher: &mut Option<Watcher>,
    ) -> Result<bool, Error> {
        let mut retry = RetryLoop::new(&self.client, policy);
        let mut wanted = wanted.clone();
        loop {
            match self.client.set_data(&present.path, &wanted.data, None).await {
                Ok(stat) if is_same(present, &stat) => {
                    self.status.send_modify(|status| {
                        status.written = wanted.version;
                        status.failed = None;
                    });
                    return Ok(true);
                }
                // Written to another client's node.
                Ok(_) => return Ok(false),
                Err(_) if planted::is("kept-write-unchecked") => {
                    self.status.send_modify(|status| status.written = wanted.version);
                    return Ok(true);
                }
                Err(error) => retry.pause(error).await?,
            }
            if present.owner != 0 && Some(present.owner) != self.session() {
                return Ok(false);
            }
            // A server that lags shows a node that is gone; a leader does so behind a `sync`, too, but not behind a write.
            let look = || {
                let settling = self.refused_delete(&present.path);
                let look = self.client.exists_and_watch(&present.path);
                async {
                    match settling.await {
                        // The leader has refused it.
                        Err(error)
                            if matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NoAuth) => {}
                        settled => settled?,
                    }
                    look.await
                }
            };
            match self.client.retry_idempotent(policy, look).await? {
                (Some(stat), new) if is_same(present, &stat) => *watcher = Some(new),
                _ => return Ok(false),
            }
            wanted = self.wanted.borrow().clone();
        }
    }

    /// Whether the name of the node has a GUID.
    const fn is_protected(&self) -> bool {
        self.options.protected || self.mode.is_sequential()
    }
}

/// Waits for a connection to a server of the quorum; false when the client has ended. Marks the state as seen.
async fn connected(
    client: &Client,
    connection: &mut watch::Receiver<Option<ConnectionState>>,
) -> bool {
    loop {
        if client.ended().is_some() {
            return false;
        }
        if is_read_write(*connection.borrow_and_update()) {
            return true;
        }
        if connection.changed().await.is_err() {
            return false;
        }
    }
}

fn is_same(present: &Present, stat: &Stat) -> bool {
    let is_same_owner = present.owner == 0 || stat.ephemeral_owner == present.owner;
    is_same_owner && present.czxid.is_none_or(|czxid| czxid == stat.czxid)
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
