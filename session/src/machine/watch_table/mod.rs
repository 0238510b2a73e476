//! The watch table: the watchers of each server path, and the persistent watch that the server has there.
//!
//! For each connection, the server has two tables, data and child, and forgets both with the connection. The client
//! keeps a list for each kind. A watch on a node that did not exist has to be sent to the next server as such: in the
//! data list, the node would immediately be reported as deleted.
//!
//! # Several kinds on one path
//!
//! Servers before 3.9 keep one mode for each path, table and connection. A one-shot watch on a path with a persistent
//! watch ends the latter after the next event (ZOOKEEPER-4466), and the later of two persistent modes replaces the
//! earlier. So the server has at most one mode for a path, the widest that any watcher wants. The other watchers are
//! served from its events:
//!
//! * Under a persistent watch, one-shot watches are registered only in this table: the server sends all their events
//!   anyway. The persistent watch stays on the server until the last one-shot watch has fired or was removed.
//! * A recursive watch replaces a persistent one. The server does not report changed children for it, but it reports
//!   each created or deleted child. The other watchers receive such an event as changed children.
//!
//! Events are dispatched by the mode confirmed by the replies so far ([`PathMode::confirmed`]): a server sends events
//! and replies in the order in which it processed their causes. Requests and removals since then do not count.
//!
//! # Complexity
//!
//! A registration costs one lookup in a hash table, plus one or two in a tree if the path has several watchers. There
//! are no linear searches.
//!
//! Source: `ZKWatchManager.materialize`, `ZooKeeper.ExistsWatchRegistration`; `ClientCnxn.primeConnection` for the
//! replay.

use std::{collections::hash_map::Entry, sync::Arc};

use docent_protocol::{ErrorCode, EventType, path::parent};

mod event;
mod kind;
mod mode;
mod replay;
mod watchers;

use super::visited::Table;
use watchers::{Place, Stage, Watchers};

pub use event::{NodePath, WatchedEvent};
pub use kind::WatchKind;
pub(crate) use kind::{ALL, ONE_SHOT, PERSISTENT};
pub(crate) use mode::{Mode, PathMode};
pub(crate) use replay::WatchBatch;

/// A watch to be registered when the reply to its request confirms it.
#[derive(Debug)]
pub struct Registration<W> {
    /// [`WatchKind::Exist`] for exists, whether or not the node turns out to exist.
    pub kind: WatchKind,
    /// The server's path.
    pub path: Arc<str>,
    /// The watcher that receives the events.
    pub watcher: W,
}

impl<W> Registration<W> {
    /// The list that the watch belongs in after this reply; `None` if the request left no watch.
    pub(crate) const fn kind_after(&self, err: ErrorCode) -> Option<WatchKind> {
        match (self.kind, err) {
            // An exists that found its node watches the data.
            (WatchKind::Exist, ErrorCode::Ok) => Some(WatchKind::Data),
            (WatchKind::Exist, ErrorCode::NoNode) => Some(WatchKind::Exist),
            (kind, ErrorCode::Ok) => Some(kind),
            _ => None,
        }
    }
}

/// All watchers, by path.
#[derive(Debug)]
pub(crate) struct Watches<W> {
    paths: Table<Watchers<W>>,
    /// Only for paths that have or had a persistent watch.
    modes: Table<PathMode>,
    /// The number of watches that are set.
    count: usize,
    /// The number of these that are recursive: if it is 0, no event is looked up at the node's ancestors.
    recursive: usize,
}

impl<W> Default for Watches<W> {
    fn default() -> Self {
        Self { paths: Table::default(), modes: Table::default(), count: 0, recursive: 0 }
    }
}

impl<W: Clone + Ord> Watches<W> {
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Registers a watch whose request is queued.
    pub(crate) fn request(&mut self, kind: WatchKind, path: Arc<str>, watcher: W) {
        self.insert(Stage::Requested, kind, path, watcher);
    }

    /// Sets the watch after a reply, as this kind. Returns whether the watcher was still registered.
    pub(crate) fn set(&mut self, kind: WatchKind, path: &Arc<str>, watcher: W) -> bool {
        if !self.withdraw(path, &watcher) {
            return false;
        }
        self.insert(Stage::Set, kind, Arc::clone(path), watcher);
        true
    }

    /// Removes a requested watch that the server did not set. Returns whether the watcher was still registered.
    pub(crate) fn withdraw(&mut self, path: &str, watcher: &W) -> bool {
        let requested = self.place(path, watcher).filter(|(stage, ..)| *stage == Stage::Requested);
        requested.and_then(|place| self.take_at(path, place)).is_some()
    }

    /// Removes a watcher from this table only. Returns its kind, requested or set. If there are several, which is rare,
    /// returns the last one in [`WatchKind`].
    pub(crate) fn remove(&mut self, path: &str, watcher: &W) -> Option<WatchKind> {
        let mut removed = None;
        while let Some(place) = self.place(path, watcher) {
            self.take_at(path, place)?;
            removed = removed.max(Some(place.1));
        }
        removed
    }

    /// Removes all set watchers of these kinds from a path.
    pub(crate) fn remove_kinds(&mut self, path: &str, kinds: &[WatchKind]) -> Vec<(WatchKind, W)> {
        let mut removed = Vec::new();
        for &kind in kinds {
            self.take(path, kind, |_, watcher| removed.push((kind, watcher)));
        }
        removed
    }

    /// Whether a watch of one of these kinds is set on a path, or requested.
    pub(crate) fn has(&self, path: &str, kinds: &[WatchKind]) -> bool {
        self.paths.get(path).is_some_and(|watchers| {
            kinds
                .iter()
                .any(|&kind| watchers.has(Stage::Set, kind) || watchers.has(Stage::Requested, kind))
        })
    }

    /// Whether a watch of one of these kinds is set on a path.
    pub(crate) fn has_set(&self, path: &str, kinds: &[WatchKind]) -> bool {
        let watchers = self.paths.get(path);
        watchers.is_some_and(|watchers| kinds.iter().any(|&kind| watchers.has(Stage::Set, kind)))
    }

    /// Whether the path has any watcher, set or requested.
    pub(crate) fn is_watched(&self, path: &str) -> bool {
        self.paths.get(path).is_some()
    }

    /// The mode that the persistent watches set on a path need.
    pub(crate) fn widest_set(&self, path: &str) -> Mode {
        self.paths.get(path).map_or(Mode::None, Watchers::widest_set)
    }

    /// As [`widest_set`](Self::widest_set), including requested watches.
    pub(crate) fn widest(&self, path: &str) -> Mode {
        let has = |kind| self.has(path, &[kind]);
        let modes = PERSISTENT.map(|kind| if has(kind) { Mode::of(kind) } else { Mode::None });
        modes.into_iter().fold(Mode::None, Mode::or_wider)
    }

    // The modes on the server.

    /// Whether any path has a recorded mode.
    pub(crate) fn has_modes(&self) -> bool {
        !self.modes.is_empty()
    }

    pub(crate) fn mode_mut(&mut self, path: &str) -> Option<&mut PathMode> {
        self.modes.get_mut(path)
    }

    /// The mode of a path; added if it is missing.
    pub(crate) fn mode_entry(&mut self, path: &Arc<str>) -> &mut PathMode {
        self.modes.entry(Arc::clone(path)).or_default()
    }

    /// The table's own copy of the path, if it has a mode.
    pub(crate) fn mode_path(&self, path: &str) -> Option<Arc<str>> {
        self.modes.get_key_value(path).map(|(path, _)| Arc::clone(path))
    }

    pub(crate) fn confirmed(&self, path: &str) -> Mode {
        self.modes.get(path).map_or(Mode::None, |mode| mode.confirmed)
    }

    /// Whether a read of the path queued now is served from a persistent watch's events.
    pub(crate) fn is_covered(&self, path: &str) -> bool {
        self.modes.get(path).is_some_and(|mode| mode.queued.covers())
    }

    /// The smallest zxid from which events may be missing, over all paths whose watches are to be set again.
    pub(crate) fn unset_since(&self) -> Option<i64> {
        self.modes.iter().filter_map(|(_, mode)| mode.unset).min()
    }

    pub(crate) fn drop_mode(&mut self, path: &str) {
        self.modes.remove(path);
        shrink(&mut self.modes);
    }

    /// Handles the loss of the connection, and with it of the server's watches. The watches set here are sent to the
    /// next server.
    pub(crate) fn reset_modes(&mut self) {
        let paths = &self.paths;
        self.modes.retain(|path, mode| {
            let queued = paths.get(path).map_or(Mode::None, Watchers::widest_set);
            *mode = PathMode { queued, ..PathMode::default() };
            queued != Mode::None
        });
    }

    // Events.

    /// The receivers of an event: each watcher, with its event type and node. One-shot watches are removed from the
    /// table.
    pub(crate) fn dispatch(
        &mut self,
        event_type: EventType,
        path: &str,
        mut notify: impl FnMut(W, EventType, &Arc<str>),
    ) {
        let children = event_type == EventType::NodeChildrenChanged;
        if let Some((path, watchers)) = self.paths.get_key_value(path) {
            // Under a recursive mode, the children's own events stand for changed children, see below.
            let from_children = children && self.confirmed(path) == Mode::Recursive;
            // Servers before 3.9 may send changed children for a recursive watch (ZOOKEEPER-4475).
            for (kind, is_notified) in PERSISTENT.into_iter().zip([!from_children, !children]) {
                for watcher in watchers.of(Stage::Set, kind).filter(|_| is_notified) {
                    notify(watcher.clone(), event_type, path);
                }
            }
        }
        let is_covered = self.is_covered(path)
            || self.confirmed(path).covers()
            || self.has_set(path, &PERSISTENT);
        for kind in ONE_SHOT.into_iter().filter(|kind| kind.is_ended_by(event_type)) {
            let as_seen = match (kind, event_type) {
                // The deletion before the read that found no node: setWatches has reported it late, for an earlier watch.
                (WatchKind::Exist, EventType::NodeDeleted) if !is_covered => event_type,
                _ => kind.as_seen(event_type),
            };
            self.take(path, kind, |path, watcher| notify(watcher, as_seen, path));
        }
        if children {
            return;
        }
        if self.recursive > 0 {
            let about = Arc::from(path);
            let mut below = path;
            while let Some(ancestor) = parent(below) {
                let watchers = self.paths.get(ancestor).into_iter();
                let recursive = WatchKind::PersistentRecursive;
                for watcher in watchers.flat_map(|watchers| watchers.of(Stage::Set, recursive)) {
                    notify(watcher.clone(), event_type, &about);
                }
                below = ancestor;
            }
        }
        if let EventType::NodeCreated | EventType::NodeDeleted = event_type
            && !self.modes.is_empty()
            && let Some(parent) = parent(path)
            && self.confirmed(parent) == Mode::Recursive
        {
            self.dispatch_children_changed(parent, notify);
        }
    }

    /// Under a recursive mode, a created or deleted child stands for changed children.
    fn dispatch_children_changed(
        &mut self,
        path: &str,
        mut notify: impl FnMut(W, EventType, &Arc<str>),
    ) {
        let Some((about, watchers)) = self.paths.get_key_value(path) else { return };
        for watcher in watchers.of(Stage::Set, WatchKind::Persistent) {
            notify(watcher.clone(), EventType::NodeChildrenChanged, about);
        }
        self.take(path, WatchKind::Child, |path, watcher| {
            notify(watcher, EventType::NodeChildrenChanged, path);
        });
    }

    /// The persistent watchers that are set on a path.
    pub(crate) fn persistent_at(&self, path: &str) -> Vec<W> {
        let watchers = self.paths.get(path).into_iter();
        watchers
            .flat_map(|watchers| {
                PERSISTENT.into_iter().flat_map(|kind| watchers.of(Stage::Set, kind))
            })
            .cloned()
            .collect()
    }

    /// The paths with persistent watches that are set.
    pub(crate) fn persistent_paths(&self) -> Vec<Arc<str>> {
        let mut paths: Vec<_> = self
            .paths
            .iter()
            .filter(|(_, watchers)| watchers.widest_set() != Mode::None)
            .map(|(path, _)| Arc::clone(path))
            .collect();
        paths.sort_unstable();
        paths
    }

    /// Removes all watchers, at the end of the session.
    pub(crate) fn drain(&mut self) -> Vec<(Arc<str>, W)> {
        self.count = 0;
        self.recursive = 0;
        self.modes = Table::default();
        let mut paths: Vec<_> = std::mem::take(&mut self.paths).into_inner().into_iter().collect();
        paths.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        let all = paths.iter().flat_map(|(path, watchers)| {
            let set = ALL.into_iter().flat_map(|kind| watchers.of(Stage::Set, kind));
            set.map(|watcher| (Arc::clone(path), watcher.clone()))
        });
        all.collect()
    }

    fn insert(&mut self, stage: Stage, kind: WatchKind, path: Arc<str>, watcher: W) {
        if stage == Stage::Set {
            self.count += 1;
            self.recursive += usize::from(kind == WatchKind::PersistentRecursive);
        }
        match self.paths.entry(path) {
            Entry::Occupied(mut entry) => entry.get_mut().insert(stage, kind, watcher),
            Entry::Vacant(entry) => {
                entry.insert(Watchers::One(stage, kind, watcher));
            }
        }
    }

    /// Removes all set watchers of a kind from a path, and passes them to `taken`.
    fn take(&mut self, path: &str, kind: WatchKind, mut taken: impl FnMut(&Arc<str>, W)) {
        loop {
            let place = match self.paths.get(path) {
                Some(Watchers::One(Stage::Set, its_kind, _)) if *its_kind == kind => {
                    (Stage::Set, kind, 0)
                }
                Some(Watchers::Many(many)) => {
                    let range = (Stage::Set, kind, 0)..=(Stage::Set, kind, u64::MAX);
                    let Some((place, _)) = many.in_order.range(range).next() else { return };
                    *place
                }
                _ => return,
            };
            let Some((path, watcher)) = self.take_at(path, place) else { return };
            taken(&path, watcher);
        }
    }

    /// The first of a watcher's places at this path.
    fn place(&self, path: &str, watcher: &W) -> Option<Place> {
        match self.paths.get(path)? {
            Watchers::Many(many) => many.find(watcher),
            Watchers::One(stage, kind, one) => (one == watcher).then_some((*stage, *kind, 0)),
        }
    }

    /// Removes one watcher from the table: the path's only one, or the one at `place`.
    fn take_at(&mut self, path: &str, place: Place) -> Option<(Arc<str>, W)> {
        let (stage, kind, _) = place;
        if stage == Stage::Set {
            self.count -= 1;
            self.recursive -= usize::from(kind == WatchKind::PersistentRecursive);
        }
        if let Some(Watchers::Many(many)) = self.paths.get_mut(path) {
            let watcher = many.remove(place)?;
            let last = (many.in_order.len() == 1).then(|| many.in_order.pop_first()).flatten();
            let path = self.paths.get_key_value(path).map(|(path, _)| Arc::clone(path))?;
            if let Some(((stage, kind, _), last)) = last {
                self.paths.insert(Arc::clone(&path), Watchers::One(stage, kind, last));
            }
            return Some((path, watcher));
        }
        let (path, Watchers::One(_, _, watcher)) = self.paths.remove_entry(path)? else {
            return None;
        };
        shrink(&mut self.paths);
        Some((path, watcher))
    }
}

/// Frees memory when a table is nearly empty. The cost is amortized over the removals before.
fn shrink<V>(table: &mut Table<V>) {
    if table.capacity() > KEPT_PATHS && table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2);
    }
}

/// The capacity below which a table is not shrunk, in paths.
const KEPT_PATHS: usize = 64;

#[cfg(test)]
mod tests;
