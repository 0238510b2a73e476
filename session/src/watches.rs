//! The watch table: who waits for what, by the server's path.
//!
//! The server has two tables for each connection, data and child, and forgets both with the connection.
//! The client keeps a list for each kind, since a node that did not exist when it was asked for must be told
//! to the next server as such: in the data list, it would at once be reported as deleted.
//!
//! # Several kinds on one path
//!
//! Servers before 3.9 keep one mode for each path, table and connection: a one-shot watch on a path that has
//! a persistent one ends the latter after the next event (ZOOKEEPER-4466), and the later of two persistent
//! modes replaces the earlier. So for a path there is at most one mode on the server, the widest that anybody
//! here wants, and the others are served from its events:
//!
//! * below a persistent watch, one-shot watches are registered here only: all their events come anyway;
//! * a recursive watch replaces a persistent one. It does not tell of changed children, but of each child
//!   that came or went, and that is told to the others as changed children.
//!
//! Source: `ZKWatchManager.materialize`, `ZooKeeper.ExistsWatchRegistration`; `ClientCnxn.primeConnection`
//! for the replay.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use docent_protocol::{ErrorCode, EventType, KeeperState, List, Text, request::SetWatches2Request};

/// What a watch is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WatchKind {
    /// Data and existence of a node that exists. One event.
    Data,
    /// Creation of a node that does not exist. One event.
    Exist,
    /// Children of a node. One event.
    Child,
    /// Data, existence and children of a node, until removed.
    Persistent,
    /// Data and existence of a node and of all below it, until removed.
    PersistentRecursive,
}

impl WatchKind {
    /// Whether the watch stays after an event.
    #[must_use]
    pub const fn is_persistent(self) -> bool {
        matches!(self, Self::Persistent | Self::PersistentRecursive)
    }

    /// Whether an event ends a watch of this kind on the event's own node.
    const fn is_ended_by(self, event_type: EventType) -> bool {
        match event_type {
            EventType::NodeCreated | EventType::NodeDataChanged => {
                matches!(self, Self::Data | Self::Exist)
            }
            EventType::NodeDeleted => !self.is_persistent(),
            EventType::NodeChildrenChanged => matches!(self, Self::Child),
            _ => false,
        }
    }
}

/// What happened to a watched node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchedEvent {
    /// What happened; [`EventType::None`] for a [resync](Self::is_resync), and when the session ended and
    /// nothing more will be told.
    pub event_type: EventType,
    /// [`KeeperState::SyncConnected`] from a server, [`KeeperState::Expired`] or
    /// [`KeeperState::Closed`] at the end.
    pub state: KeeperState,
    /// The node, as the client calls it.
    pub path: Arc<str>,
    /// The change that caused it; `None` from servers before 3.9, which do not say.
    pub zxid: Option<i64>,
}

impl WatchedEvent {
    /// Whether events may have been missed: read again what is watched. After a reconnect, for persistent
    /// watches, since no server tells what happened meanwhile; and when a buffer was full.
    #[must_use]
    pub const fn is_resync(&self) -> bool {
        matches!(
            (self.event_type, self.state),
            (EventType::None, KeeperState::SyncConnected | KeeperState::ConnectedReadOnly)
        )
    }

    /// Whether nothing more will be told: the session ended, or the watch was removed.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        match self.event_type {
            EventType::None => !self.is_resync(),
            EventType::DataWatchRemoved
            | EventType::ChildWatchRemoved
            | EventType::PersistentWatchRemoved => true,
            _ => false,
        }
    }

    pub(crate) const fn resync(path: Arc<str>) -> Self {
        Self { event_type: EventType::None, state: KeeperState::SyncConnected, path, zxid: None }
    }
}

/// A request's wish to leave a watch, until its reply says whether it did.
#[derive(Debug)]
pub struct Registration<W> {
    /// [`WatchKind::Exist`] for exists, whether or not the node turns out to exist.
    pub kind: WatchKind,
    /// The server's path.
    pub path: Arc<str>,
    /// Who is told.
    pub watcher: W,
}

impl<W> Registration<W> {
    /// Whether a reply means that there is a watch now, and in which list it belongs.
    pub(crate) const fn kind_after(&self, err: ErrorCode) -> Option<WatchKind> {
        match (self.kind, err) {
            // An exists that found its node watches data.
            (WatchKind::Exist, ErrorCode::Ok) => Some(WatchKind::Data),
            (WatchKind::Exist, ErrorCode::NoNode) => Some(WatchKind::Exist),
            (kind, ErrorCode::Ok) => Some(kind),
            _ => None,
        }
    }
}

/// Who waits on one path: somebody. Nearly always one, who then takes no memory beside the table's.
#[derive(Debug)]
enum Watchers<W> {
    One((WatchKind, W)),
    #[expect(clippy::box_collection, reason = "it is rare, and the table has room for each")]
    Many(Box<Vec<(WatchKind, W)>>),
}

impl<W> Watchers<W> {
    fn as_slice(&self) -> &[(WatchKind, W)] {
        match self {
            Self::One(watcher) => std::slice::from_ref(watcher),
            Self::Many(watchers) => watchers,
        }
    }

    fn push(&mut self, watcher: (WatchKind, W)) {
        match std::mem::replace(self, Self::Many(Box::default())) {
            Self::One(first) => *self = Self::Many(Box::new(vec![first, watcher])),
            Self::Many(mut watchers) => {
                watchers.push(watcher);
                *self = Self::Many(watchers);
            }
        }
    }

    fn into_vec(self) -> Vec<(WatchKind, W)> {
        match self {
            Self::One(watcher) => vec![watcher],
            Self::Many(watchers) => *watchers,
        }
    }
}

/// Who waits for what.
#[derive(Debug)]
pub(crate) struct Watches<W> {
    paths: HashMap<Arc<str>, Watchers<W>>,
    count: usize,
    /// How many of them are recursive: without any, no event is looked up at the node's ancestors.
    recursive: usize,
}

impl<W> Default for Watches<W> {
    fn default() -> Self {
        Self { paths: HashMap::new(), count: 0, recursive: 0 }
    }
}

impl<W: Clone + PartialEq> Watches<W> {
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn add(&mut self, kind: WatchKind, path: Arc<str>, watcher: W) {
        match self.paths.entry(path) {
            Entry::Occupied(mut entry) => entry.get_mut().push((kind, watcher)),
            Entry::Vacant(entry) => {
                entry.insert(Watchers::One((kind, watcher)));
            }
        }
        self.count += 1;
        self.recursive += usize::from(kind == WatchKind::PersistentRecursive);
    }

    /// Forgets a watcher, here only. Which kind it was, if it was there.
    pub(crate) fn remove(&mut self, path: &str, watcher: &W) -> Option<WatchKind> {
        let mut removed = None;
        self.take(path, |_, other| other == watcher, |_, kind, _| removed = Some(kind));
        removed
    }

    /// Forgets all watchers of these kinds on a path.
    pub(crate) fn remove_kinds(
        &mut self,
        path: &str,
        wanted: impl Fn(WatchKind) -> bool,
    ) -> Vec<(WatchKind, W)> {
        let mut removed = Vec::new();
        self.take(path, |kind, _| wanted(kind), |_, kind, watcher| removed.push((kind, watcher)));
        removed
    }

    /// Whether anybody waits for this kind of thing on a path.
    pub(crate) fn has(&self, path: &str, wanted: impl Fn(WatchKind) -> bool) -> bool {
        self.at(path).any(|(kind, _)| wanted(*kind))
    }

    /// Whom an event is for: each watcher, with what it is told and about which node. One-shot watches are
    /// taken out of the table by it.
    pub(crate) fn dispatch(
        &mut self,
        event_type: EventType,
        path: &str,
        mut tell: impl FnMut(W, EventType, &Arc<str>),
    ) {
        if let Some((path, watchers)) = self.paths.get_key_value(path) {
            let watchers = watchers.as_slice();
            let recursive_here =
                watchers.iter().any(|(kind, _)| *kind == WatchKind::PersistentRecursive);
            for (kind, watcher) in watchers {
                let told = match kind {
                    // With a recursive one beside it, it is told by the children's own events, below.
                    WatchKind::Persistent => {
                        event_type != EventType::NodeChildrenChanged || !recursive_here
                    }
                    // Servers before 3.9 may send it (ZOOKEEPER-4475).
                    WatchKind::PersistentRecursive => event_type != EventType::NodeChildrenChanged,
                    _ => false,
                };
                if told {
                    tell(watcher.clone(), event_type, path);
                }
            }
        }
        self.take(
            path,
            |kind, _| kind.is_ended_by(event_type),
            |path, _, watcher| tell(watcher, event_type, path),
        );
        if self.recursive == 0 || event_type == EventType::NodeChildrenChanged {
            return;
        }
        let about = Arc::from(path);
        let mut below = path;
        while let Some(ancestor) = parent(below) {
            for (kind, watcher) in self.at(ancestor) {
                if *kind == WatchKind::PersistentRecursive {
                    tell(watcher.clone(), event_type, &about);
                }
            }
            below = ancestor;
        }
        if let EventType::NodeCreated | EventType::NodeDeleted = event_type {
            self.dispatch_children_changed(path, tell);
        }
    }

    /// Under a recursive watch, a child that came or went stands for changed children.
    fn dispatch_children_changed(
        &mut self,
        child: &str,
        mut tell: impl FnMut(W, EventType, &Arc<str>),
    ) {
        let Some(path) = parent(child) else { return };
        let Some((about, watchers)) = self.paths.get_key_value(path) else { return };
        let watchers = watchers.as_slice();
        if !watchers.iter().any(|(kind, _)| *kind == WatchKind::PersistentRecursive) {
            return;
        }
        for (kind, watcher) in watchers {
            if *kind == WatchKind::Persistent {
                tell(watcher.clone(), EventType::NodeChildrenChanged, about);
            }
        }
        self.take(
            path,
            |kind, _| kind == WatchKind::Child,
            |path, _, watcher| tell(watcher, EventType::NodeChildrenChanged, path),
        );
    }

    /// All persistent watchers, with their paths.
    pub(crate) fn persistent(&self) -> Vec<(Arc<str>, W)> {
        let mut all: Vec<_> = self
            .paths
            .iter()
            .flat_map(|(path, watchers)| {
                watchers
                    .as_slice()
                    .iter()
                    .filter(|(kind, _)| kind.is_persistent())
                    .map(move |(_, watcher)| (Arc::clone(path), watcher.clone()))
            })
            .collect();
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        all
    }

    /// Everybody, when the session has ended.
    pub(crate) fn drain(&mut self) -> Vec<(Arc<str>, W)> {
        self.count = 0;
        self.recursive = 0;
        let mut all: Vec<_> = std::mem::take(&mut self.paths)
            .into_iter()
            .flat_map(|(path, watchers)| {
                watchers
                    .into_vec()
                    .into_iter()
                    .map(move |(_, watcher)| (Arc::clone(&path), watcher))
            })
            .collect();
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        all
    }

    /// Hands `send` the requests that set all watches again on a new connection.
    ///
    /// Each has at most `REPLAY_BYTES` of paths and the one more that goes over it, for servers refuse
    /// large requests (ZOOKEEPER-706). Bytes are counted, not characters. Persistent ones come last, so that
    /// theirs is the mode that a path ends with.
    pub(crate) fn replay(&self, mut send: impl FnMut(&Replay<'_>)) {
        let mut all: Vec<(WatchKind, &str)> = Vec::with_capacity(self.count);
        for (path, watchers) in &self.paths {
            let watchers = watchers.as_slice();
            let recursive =
                watchers.iter().any(|(kind, _)| *kind == WatchKind::PersistentRecursive);
            all.extend(
                watchers
                    .iter()
                    .filter(|(kind, _)| !(recursive && *kind == WatchKind::Persistent))
                    .map(|(kind, _)| (*kind, &**path)),
            );
        }
        all.sort_unstable();
        all.dedup();
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let end = rest
                .iter()
                .position(|(_, path)| {
                    let full = bytes >= REPLAY_BYTES;
                    bytes += docent_protocol::frame::LENGTH_SIZE + path.len();
                    full
                })
                .unwrap_or(rest.len());
            let (batch, tail) = rest.split_at(end);
            rest = tail;
            send(&Replay::new(batch));
        }
    }

    /// What sets the one-shot watches of a path again.
    pub(crate) fn one_shots_at(&self, path: &str) -> Option<Replay<'_>> {
        let (path, watchers) = self.paths.get_key_value(path)?;
        let mut all: Vec<_> = watchers
            .as_slice()
            .iter()
            .filter(|(kind, _)| !kind.is_persistent())
            .map(|(kind, _)| (*kind, &**path))
            .collect();
        all.sort_unstable();
        all.dedup();
        (!all.is_empty()).then(|| Replay::new(&all))
    }

    fn at(&self, path: &str) -> impl Iterator<Item = &(WatchKind, W)> {
        self.paths.get(path).into_iter().flat_map(Watchers::as_slice)
    }

    /// Takes out of the table whom `wanted` names on a path, and hands them to `taken`.
    fn take(
        &mut self,
        path: &str,
        mut wanted: impl FnMut(WatchKind, &W) -> bool,
        mut taken: impl FnMut(&Arc<str>, WatchKind, W),
    ) {
        let (count, recursive) = (&mut self.count, &mut self.recursive);
        let mut take = |path: &Arc<str>, (kind, watcher): (WatchKind, W)| {
            *count -= 1;
            *recursive -= usize::from(kind == WatchKind::PersistentRecursive);
            taken(path, kind, watcher);
        };
        let left = match self.paths.get_mut(path) {
            None => return,
            Some(Watchers::One((kind, watcher))) => !wanted(*kind, watcher),
            Some(Watchers::Many(watchers)) => {
                let gone: Vec<_> =
                    watchers.extract_if(.., |(kind, watcher)| wanted(*kind, watcher)).collect();
                let left = !watchers.is_empty();
                if let Some((path, _)) = self.paths.get_key_value(path) {
                    gone.into_iter().for_each(|watcher| take(path, watcher));
                }
                left
            }
        };
        if !left && let Some((path, Watchers::One(watcher))) = self.paths.remove_entry(path) {
            take(&path, watcher);
        }
    }
}

/// The node above; `None` of the root.
fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some(("", "")) | None => None,
        Some(("", _)) => Some("/"),
        Some((parent, _)) => Some(parent),
    }
}

/// Paths to set watches on, by kind.
#[derive(Debug, Default)]
pub(crate) struct Replay<'a> {
    data: Vec<Text<'a>>,
    exist: Vec<Text<'a>>,
    child: Vec<Text<'a>>,
    persistent: Vec<Text<'a>>,
    persistent_recursive: Vec<Text<'a>>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(watches: &[(WatchKind, &'a str)]) -> Self {
        let mut replay = Self::default();
        for (kind, path) in watches {
            let list = match kind {
                WatchKind::Data => &mut replay.data,
                WatchKind::Exist => &mut replay.exist,
                WatchKind::Child => &mut replay.child,
                WatchKind::Persistent => &mut replay.persistent,
                WatchKind::PersistentRecursive => &mut replay.persistent_recursive,
            };
            list.push(Text::new(path));
        }
        replay
    }

    /// Whether it takes setWatches2, which servers before 3.6 do not know.
    pub(crate) const fn has_persistent(&self) -> bool {
        !self.persistent.is_empty() || !self.persistent_recursive.is_empty()
    }

    pub(crate) fn request(&self, relative_zxid: i64) -> SetWatches2Request<'_> {
        SetWatches2Request {
            relative_zxid,
            data_watches: List::new(&self.data),
            exist_watches: List::new(&self.exist),
            child_watches: List::new(&self.child),
            persistent_watches: List::new(&self.persistent),
            persistent_recursive_watches: List::new(&self.persistent_recursive),
        }
    }
}

/// How many bytes of paths one setWatches has.
///
/// Source: `ClientCnxn.SET_WATCHES_MAX_LENGTH`.
const REPLAY_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests;
