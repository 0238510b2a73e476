//! The rules of a cache, without I/O: which reads follow an event or a reply, and what they change.
//!
//! | input | what follows | Curator |
//! |---|---|---|
//! | a watch is set, or may have missed events | a round: getData (4) of the root and of every known node | `CuratorCacheImpl.rebuild` |
//! | reply to getData | a new node, or one with another `pzxid` than its last listing: getChildren2 (12) | `putStorage`, `checkChildrenChanged` |
//! | reply to getData of a node whose parent is not known | nothing: the parent's listing will show the node | – |
//! | reply to getChildren2 | getData of each unknown child; known ones that are missing are deleted | `processChildren` |
//! | reply to getData with an older state than the cache has | multi (14) of a check that fails; after a pause getData again, and then it counts | – |
//! | a listing over the limit | after a pause getData, and getChildren2 if `pzxid` is another one | –, C5 |
//! | `NoNode` | the node and its descendants are deleted | `removeStorage` |
//! | `NodeCreated`, `NodeDataChanged` | getData, unless the zxid of the event shows that it is known | `process` |
//! | `NodeDeleted` | the node and its descendants are deleted | `process` |
//! | all reads of a round are answered, and those of events until then | `Initialized`, later `Resynced` | `checkEvents` |
//!
//! A node is the same if its `czxid` is, its data if `mzxid` is, its children if `pzxid` is (C1 in `docs/CURATOR.md`).
//!
//! The caller handles events before the replies that arrived behind them. So when an event comes, the reply to a read in
//! flight may be older or newer than the event. After `NodeDeleted` such a reply is ignored: a node that was created
//! again has its own event. After other events the node is read again, unless the reply is new enough.
//!
//! One-shot watches replace a persistent one on servers without addWatch (106): on the data and the children of each
//! node, and on the existence of a missing root.
//!
//! The children of a node are known at a `pzxid` once each child in that listing was read, or has a read pending. A new
//! round therefore begins with the known nodes and the pending ones. A node is stored behind its parent only; a listing
//! in a round adds all pending reads below it to the round.
//!
//! A read that is older than the cache does not count before a write that changes nothing has a reply in that session,
//! and is repeated after a pause. A `sync` does not suffice: a leader without its majority answers it. After the write,
//! the ensemble is another one, and the read counts.

use std::sync::Arc;

use docent_protocol::{EventType, Stat};
use docent_session::{Children, Error, ErrorKind, Node};
use tracing::debug;

use super::{
    cache_event::CacheEvent,
    node::CachedNode,
    options::CacheOptions,
    reads::{Cause, Job, Kind, Read, Reads},
    shared::{Failure, Shared, State},
    tree::NOT_LISTED,
};
use crate::{
    path::{join, split},
    planted,
};

/// The watches from which the events come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// A persistent watch, recursive if there are descendants to hold.
    Persistent,
    OneShot,
}

pub(super) struct Engine {
    root: Arc<str>,
    options: CacheOptions,
    shared: Arc<Shared>,
    pub(super) mode: Mode,
    reads: Reads,
    /// Whether a round is under way: its end makes the cache initialized, or fresh again.
    in_round: bool,
    /// Whether the round waits for the reads that events caused before its own had ended.
    has_joined_events: bool,
    is_connected: bool,
    /// The connection was lost, and no round has begun since.
    needs_round: bool,
    /// A node whose listing was too large may have fewer children since the last retry.
    has_shrunk: bool,
    /// The paths of the events are not those of the changed nodes.
    wrong_paths: bool,
    /// The session has seen all that was committed before the cache was: no read can be older than a node of the cache,
    /// unless the ensemble is another one.
    is_settled: bool,
}

/// What follows a node that was read.
enum Stored {
    /// Its children are to be listed.
    List,
    /// Nothing.
    Done,
    /// The cache has a newer state of the node: the server lags, or the ensemble is another one.
    Older,
}

impl Engine {
    pub(super) fn new(root: Arc<str>, options: CacheOptions, shared: Arc<Shared>) -> Self {
        Self {
            root,
            options,
            shared,
            mode: Mode::Persistent,
            reads: Reads::default(),
            in_round: false,
            has_joined_events: false,
            is_connected: false,
            needs_round: false,
            has_shrunk: false,
            wrong_paths: false,
            is_settled: false,
        }
    }

    /// Whether the server reports the path of the watch in its events instead of the path of the node: ClickHouse Keeper
    /// (ClickHouse #115475). Only one-shot watches help then.
    pub(super) const fn has_wrong_paths(&self) -> bool {
        self.wrong_paths
    }

    /// A watch was set, maybe in another session. A new session knows less than the one before: its server may lag, and
    /// read-only servers are behind without notice.
    pub(super) const fn new_watch(&mut self, mode: Mode) {
        (self.mode, self.is_settled) = (mode, false);
    }

    /// Reads all known nodes: a new watch was set, or the watch has missed events.
    pub(super) fn begin_round(&mut self) {
        // A child that was listed and not yet read is known from nowhere else: its parent will not be listed again.
        let unread = self.reads.cancel_all();
        self.wrong_paths = false;
        (self.in_round, self.has_joined_events, self.needs_round) = (true, false, false);
        if self.mode == Mode::OneShot {
            // Each listing sets a watch.
            self.shared.change(|state| state.tree.forget_listings());
        }
        let known: Vec<Arc<str>> = {
            let state = self.shared.read();
            let paths = state.tree.nodes().map(CachedNode::path);
            let missing = state.failed.keys().chain(&unread).map(|path| &**path);
            paths.chain(missing).filter(|path| **path != *self.root).map(Arc::from).collect()
        };
        let cause = Cause { round: true, ..Cause::default() };
        let root = Arc::clone(&self.root);
        self.reads.add(Kind::Data, &root, cause);
        for path in &known {
            self.reads.add(Kind::Data, path, cause);
        }
    }

    /// One-shot watches report what they have missed. They do so before the reply to the first read on the new
    /// connection, which ends this round.
    pub(super) fn begin_short_round(&mut self) {
        (self.in_round, self.has_joined_events, self.needs_round) = (true, false, false);
        // The reads of earlier events have failed with the connection: the cache has not caught up without them.
        self.reads.join_all();
        let root = Arc::clone(&self.root);
        self.reads.add(Kind::Data, &root, Cause { round: true, ..Cause::default() });
        self.reads.resume();
    }

    /// Changes may go unnoticed from now on.
    pub(super) fn set_stale(&self) {
        if !self.shared.read().stale {
            self.shared.change(|state| {
                state.stale = true;
                if state.initialized {
                    state.emit(CacheEvent::Stale);
                }
            });
        }
    }

    /// The connection was lost: changes may go unnoticed until the round after the next connection.
    pub(super) fn disconnected(&mut self) {
        (self.is_connected, self.needs_round) = (false, true);
        self.set_stale();
    }

    /// Connected again. The round after it may have begun, and nothing may be left of it to read.
    pub(super) fn connected(&mut self) {
        self.is_connected = true;
        self.end_round();
    }

    /// A read was sent without a watch, because there was one, and that one has fired since.
    pub(super) fn watch_has_fired(&mut self, read: &Read) {
        self.reads.repeat(read);
    }

    /// The next read to send.
    pub(super) fn next_read(&mut self) -> Option<Read> {
        self.reads.take()
    }

    /// Whether a read failed that is to be sent again soon.
    pub(super) fn is_waiting(&self) -> bool {
        self.reads.is_waiting()
    }

    /// The number of reads that were put off so far.
    pub(super) const fn put_off(&self) -> u64 {
        self.reads.put_off_count()
    }

    /// Queues the reads that have failed because of the connection, or of an overload.
    pub(super) fn resume(&mut self) {
        self.reads.resume();
    }

    /// Whether a node could not be read or listed for a reason that may go away unnoticed, such as its ACL.
    pub(super) fn has_refused(&self) -> bool {
        self.shared.read().failed.values().any(|failure| self.is_refusal(failure))
    }

    /// Whether a listing that was too large may fit since the last retry.
    pub(super) const fn has_shrunk(&self) -> bool {
        self.has_shrunk
    }

    /// Reads the refused nodes again, and lists those whose listing was too large, if it is another one now.
    pub(super) fn retry_refused(&mut self) {
        self.has_shrunk = false;
        let refused: Vec<Arc<str>> = {
            let state = self.shared.read();
            let refused = state.failed.iter().filter(|(_, failure)| self.is_refusal(failure));
            refused.map(|(path, _)| Arc::clone(path)).collect()
        };
        for path in &refused {
            self.reads.add(Kind::Data, path, Cause { retry: true, ..Cause::default() });
        }
    }

    /// Whether a node may become readable without an event. Data over the limit is written before it fits.
    fn is_refusal(&self, failure: &Failure) -> bool {
        let has_event = failure.is_of_node() && self.mode == Mode::Persistent;
        !has_event || failure.error.kind() != ErrorKind::ReplyTooLarge
    }

    /// The number of levels between the root and a path; `None` if the cache does not hold the path.
    fn depth(&self, path: &str) -> Option<usize> {
        self.options.depth(&self.root, path)
    }

    /// An event of a watch, which is not a resync and not an end.
    pub(super) fn on_event(&mut self, event_type: EventType, path: &Arc<str>, zxid: Option<i64>) {
        if self.depth(path).is_none() {
            return;
        }
        // Until the first read on a new connection is answered, one-shot watches report what they have missed.
        let round =
            self.mode == Mode::OneShot && self.in_round && self.reads.is_in_round(&self.root);
        let zxid_of_read = Some(zxid.unwrap_or(i64::MAX));
        let mut cause = Cause { round, zxid: zxid_of_read, ..Cause::default() };
        let known = self.shared.read().tree.get(path).map(|slot| *slot.node.stat());
        let is_known = |since: i64| zxid.is_some_and(|zxid| zxid <= since);
        // Servers that send zxids send the right paths, too.
        let doubt = zxid.is_none()
            && self.mode == Mode::Persistent
            && self.options.max_depth > 0
            && **path == *self.root
            && known.is_some();
        match event_type {
            EventType::NodeDeleted if known.is_some_and(|stat| is_known(stat.czxid)) => return,
            EventType::NodeDeleted if !doubt => {
                self.has_shrunk |= self.shared.read().unlistable(split(path).0).is_some();
                self.delete(path);
                if self.mode == Mode::OneShot && **path == *self.root {
                    self.reads.add(Kind::Exists, path, cause);
                }
            }
            EventType::NodeChildrenChanged if self.mode == Mode::OneShot => {
                self.list(path, cause);
            }
            EventType::NodeChildrenChanged => return,
            EventType::NodeCreated if known.is_some_and(|stat| is_known(stat.czxid)) => return,
            EventType::NodeDataChanged if known.is_some_and(|stat| is_known(stat.mzxid)) => return,
            _ => {
                cause.suspect = doubt;
                self.reads.add(Kind::Data, path, cause);
            }
        }
        self.end_round();
    }

    /// The reply to getData. The caller has handled all events that arrived before it.
    pub(super) fn on_data(&mut self, read: &Read, reply: Result<Node, Error>) {
        let Some(job) = self.reads.finish(read) else { return };
        match reply {
            Ok(node) => {
                let (path, stat) = (&read.path, node.stat);
                self.wrong_paths |= job.suspect && !self.is_changed(path, &stat);
                match self.store(path, node, job.retry) {
                    Stored::List => {
                        self.list(path, Cause { round: job.round, ..Cause::default() });
                    }
                    Stored::Older => {
                        debug!(%path, "the server has an older state of a node; reading it again");
                        let root = Arc::clone(&self.root);
                        self.reads.add(Kind::Settle, &root, Cause::default());
                        return self.reads.put_off(read, job);
                    }
                    Stored::Done => {}
                }
                if job.again.is_some_and(|zxid| zxid > stat.mzxid) {
                    self.reads.add(Kind::Data, path, Cause::default());
                }
                self.reads.leave(&job);
            }
            Err(error) if error.kind() == ErrorKind::NoNode => {
                self.delete(&read.path);
                // A server that lags may not have the node yet, and its parent is the same when it has.
                let (parent, _) = split(&read.path);
                self.shared.change(|state| state.tree.forget_listing(parent));
                let cause = Cause { round: job.round, ..Cause::default() };
                if self.mode == Mode::OneShot && *read.path == *self.root {
                    self.reads.add(Kind::Exists, &read.path, cause);
                } else if job.again.is_some() {
                    self.reads.add(Kind::Data, &read.path, cause);
                }
                self.reads.leave(&job);
            }
            Err(error) => {
                if self.fail(read, job, error) {
                    self.reads.add(Kind::Data, &read.path, Cause::default());
                }
            }
        }
        self.end_round();
    }

    /// The reply to getChildren2.
    pub(super) fn on_children(&mut self, read: &Read, reply: Result<(Children, Stat), Error>) {
        let Some(job) = self.reads.finish(read) else { return };
        let cause = Cause { round: job.round, ..Cause::default() };
        match reply {
            Ok((children, stat)) => {
                self.note_children(&read.path, &children, &stat, cause);
                if job.again.is_some() {
                    self.list(&read.path, Cause::default());
                }
                self.reads.leave(&job);
            }
            Err(error) if error.kind() == ErrorKind::NoNode => {
                self.delete(&read.path);
                if self.mode == Mode::OneShot && *read.path == *self.root {
                    self.reads.add(Kind::Exists, &read.path, cause);
                }
                self.reads.leave(&job);
            }
            Err(error) => {
                self.fail(read, job, error);
            }
        }
        self.end_round();
    }

    /// The reply to the exists of a missing root.
    pub(super) fn on_exists(&mut self, read: &Read, reply: Result<Option<Stat>, Error>) {
        let Some(job) = self.reads.finish(read) else { return };
        match reply {
            Ok(stat) => {
                if stat.is_some() {
                    let cause = Cause { round: job.round, ..Cause::default() };
                    self.reads.add(Kind::Data, &read.path, cause);
                }
                self.reads.leave(&job);
            }
            Err(error) => drop(self.fail(read, job, error)),
        }
        self.end_round();
    }

    /// The reply to a write that changes nothing. Without one of the quorum, the next older read sends another.
    ///
    /// A sync (9) would not do: a leader that has commits to apply answers the one of its own client before them.
    pub(super) fn on_settle(&mut self, read: &Read, reply: Result<(), Error>) {
        let is_settled = reply.err().is_none_or(|error| {
            matches!(error.kind(), ErrorKind::BadVersion | ErrorKind::NoNode | ErrorKind::NoAuth)
        });
        if self.reads.finish(read).is_some() {
            self.is_settled |= is_settled;
        }
    }

    fn is_changed(&self, path: &str, stat: &Stat) -> bool {
        let state = self.shared.read();
        let known = state.tree.get(path).map(|slot| *slot.node.stat());
        known.is_none_or(|known| (known.czxid, known.mzxid) != (stat.czxid, stat.mzxid))
    }

    /// Whether the cache has the parent of a node, or the node is its root.
    fn has_parent(&self, path: &str) -> bool {
        path == &*self.root || self.shared.read().tree.get(split(path).0).is_some()
    }

    /// Stores a node as it was read, unless the cache has a newer state. A listing that was too large is repeated by a
    /// `retry` only, and not while it is the same.
    fn store(&mut self, path: &Arc<str>, node: Node, retry: bool) -> Stored {
        let stat = node.stat;
        if !self.has_parent(path) {
            // An event came before the parent was read. Its listing follows that read, and shows this node.
            return Stored::Done;
        }
        let is_trusted = self.is_settled || planted::is("cache-stale-reply");
        if !is_trusted && self.is_older(path, &stat) {
            return Stored::Older;
        }
        let new = CachedNode::new(path, stat, Some(&node.data));
        let stored = if self.options.keeps_data { new.clone() } else { new.without_data() };
        let (listed, unlistable) = self.shared.change(|state| {
            let known = state.tree.get(path).map(|slot| (slot.node.clone(), slot.listed));
            match known {
                Some((old, listed)) if old.stat().czxid == stat.czxid => {
                    let is_change = stat.mzxid != old.stat().mzxid;
                    // An initial node may come from a cache with other options.
                    let differs =
                        stat != *old.stat() || stored.data().is_some() != old.data().is_some();
                    if is_change || differs {
                        state.tree.insert(stored, listed);
                    }
                    if is_change {
                        state.emit(CacheEvent::Changed { old, new });
                    }
                    let is_listed = listed == stat.pzxid;
                    if is_listed || state.failed.get(path).is_some_and(Failure::is_of_node) {
                        state.failed.remove(path);
                    }
                    (listed, state.unlistable(path))
                }
                _ => {
                    state.failed.remove(path);
                    state.emit_deleted(path);
                    state.tree.insert(stored, NOT_LISTED);
                    state.emit(CacheEvent::Created { node: new });
                    (NOT_LISTED, None)
                }
            }
        });
        let is_other = unlistable.is_some_and(|pzxid| pzxid != stat.pzxid);
        self.has_shrunk |= is_other && !retry;
        let may_fit = unlistable.is_none() || (is_other && retry);
        if listed != stat.pzxid && may_fit { Stored::List } else { Stored::Done }
    }

    /// Whether the cache has a newer state of a node than the one that was read. Replies come in order, but a node may be
    /// an initial one, or one of an earlier session.
    fn is_older(&self, path: &str, stat: &Stat) -> bool {
        let state = self.shared.read();
        let known = state.tree.get(path).map(|slot| *slot.node.stat());
        known.is_some_and(|known| (known.czxid, known.mzxid) > (stat.czxid, stat.mzxid))
    }

    /// Lists the children of a known node, unless they are deeper than the cache.
    fn list(&mut self, path: &Arc<str>, cause: Cause) {
        if self.depth(path).is_some_and(|depth| depth < self.options.max_depth) {
            self.reads.add(Kind::Children, path, cause);
        }
    }

    fn note_children(&mut self, path: &Arc<str>, children: &Children, stat: &Stat, cause: Cause) {
        let known = self.shared.change(|state| {
            let slot = state.tree.get(path)?;
            if slot.node.stat().czxid != stat.czxid {
                return Some(None);
            }
            let node = slot.node.clone();
            let same_data = node.stat().mzxid == stat.mzxid && node.stat() != stat;
            let node = if same_data { node.with_stat(*stat) } else { node };
            state.tree.insert(node, stat.pzxid);
            state.failed.remove(path);
            let mut names: Vec<&str> = children.iter().collect();
            names.sort_unstable();
            let known = state.tree.children(path);
            for child in &known {
                let name = child.path().rsplit('/').next().unwrap_or_default();
                if names.binary_search(&name).is_err() {
                    state.emit_deleted(child.path());
                }
            }
            let is_unknown = |child: &String| state.tree.get(child).is_none();
            let unknown = children.iter().map(|name| join(path, name)).filter(is_unknown);
            Some(Some(unknown.map(Arc::from).collect::<Vec<Arc<str>>>()))
        });
        match known {
            // Deleted since, which an event reported.
            None => {}
            // Another node at the same path.
            Some(None) => drop(self.reads.add(Kind::Data, path, cause)),
            Some(Some(unknown)) => {
                if cause.round {
                    // Children that an event has made known may have reads that no round is waiting for.
                    self.reads.join_round(path);
                }
                for child in &unknown {
                    if self.depth(child).is_some() {
                        self.reads.add(Kind::Data, child, cause);
                    }
                }
            }
        }
    }

    /// Deletes a node and its descendants, with their reads.
    fn delete(&mut self, path: &str) {
        self.reads.cancel(path);
        let (first, end) = super::tree::descendants(path);
        self.shared.change(|state: &mut State| {
            state
                .failed
                .retain(|failed, _| **failed != *path && !(*first <= **failed && **failed < *end));
            state.emit_deleted(path);
        });
    }

    /// A read has failed: sends it again later, or reports it. Returns whether an event asks for another read at once.
    fn fail(&mut self, read: &Read, job: Job, error: Error) -> bool {
        let path = &read.path;
        if error.is_retryable() || error.kind() == ErrorKind::TooManyRequests {
            debug!(%path, %error, "node of a cache not read; retrying");
            self.reads.put_off(read, job);
            return false;
        }
        debug!(%path, %error, "node of a cache cannot be read");
        self.shared.change(|state| {
            let node = state.tree.get(path).map(|slot| slot.node.stat());
            let listing = node.filter(|_| read.kind == Kind::Children).map(|stat| stat.pzxid);
            let failure = Failure { error: error.clone(), listing };
            let failed = state.failed.insert(Arc::clone(path), failure);
            if failed.is_none_or(|failed| failed.error.kind() != error.kind()) {
                state.emit(CacheEvent::Failed { path: Arc::clone(path).into(), error });
            }
        });
        self.reads.leave(&job);
        job.again.is_some()
    }

    fn end_round(&mut self) {
        let is_complete =
            |reads: &Reads| reads.is_round_complete() || planted::is("cache-initialized-early");
        // Replies that arrived before the connection was lost do not end a round: nothing reports changes since.
        if !self.in_round || !is_complete(&self.reads) || !self.is_connected || self.needs_round {
            return;
        }
        // Only once: under constant changes there is always a read in flight.
        if !std::mem::replace(&mut self.has_joined_events, true) {
            self.reads.join_all();
            if !is_complete(&self.reads) {
                return;
            }
        }
        self.in_round = false;
        self.shared.change(|state| {
            let len = state.tree.len();
            state.stale = false;
            let event = if std::mem::replace(&mut state.initialized, true) {
                CacheEvent::Resynced { len }
            } else {
                CacheEvent::Initialized { len }
            };
            state.emit(event);
        });
    }
}

#[cfg(test)]
mod tests;
