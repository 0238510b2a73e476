//! The watches of a server, and the notifications they cause.
//!
//! A server has two tables, for data and for children. A watch set by addWatch is in both. Watches belong to
//! connections, not to sessions. Up to 3.8, a connection has one mode for each path and table, and the last
//! registration decides (ZOOKEEPER-4466). Since 3.9, the modes coexist.
//!
//! Source: `WatchManager` 3.8 and 3.9, `DataTree.addWatch`, `removeWatch`, `setWatches`.

use std::collections::{BTreeMap, BTreeSet};

use docent_protocol::{AddWatchMode, ErrorCode, EventType, Text, WatcherType, path};

use super::{acl::NodeAcl, tree::Change, version::Version};

/// The number of a watching connection.
pub(crate) type Watcher = u64;

/// The modes of a connection's watches on one path, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Modes(u8);

impl Modes {
    const STANDARD: Self = Self(1);
    const PERSISTENT: Self = Self(2);
    const RECURSIVE: Self = Self(4);

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// One of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Data,
    Child,
}

/// A table of watches.
#[derive(Debug, Clone, Default)]
struct Paths {
    paths: BTreeMap<String, BTreeMap<Watcher, Modes>>,
    by_watcher: BTreeMap<Watcher, BTreeSet<String>>,
    /// The number of recursive entries. At 0, the ancestors of a path need no check.
    recursive: usize,
}

impl Paths {
    fn set(&mut self, path: &str, watcher: Watcher, modes: Modes) {
        let old = self.modes(path, watcher);
        if old.has(Modes::RECURSIVE) {
            self.recursive -= 1;
        }
        if modes.has(Modes::RECURSIVE) {
            self.recursive += 1;
        }
        if modes == Modes::default() {
            if let Some(watchers) = self.paths.get_mut(path) {
                watchers.remove(&watcher);
                if watchers.is_empty() {
                    self.paths.remove(path);
                }
            }
            if let Some(paths) = self.by_watcher.get_mut(&watcher) {
                paths.remove(path);
                if paths.is_empty() {
                    self.by_watcher.remove(&watcher);
                }
            }
            return;
        }
        match self.paths.get_mut(path) {
            Some(watchers) => {
                watchers.insert(watcher, modes);
            }
            None => {
                self.paths.insert(path.to_owned(), BTreeMap::from([(watcher, modes)]));
            }
        }
        if old == Modes::default() {
            self.by_watcher.entry(watcher).or_default().insert(path.to_owned());
        }
    }

    fn modes(&self, path: &str, watcher: Watcher) -> Modes {
        let watchers = self.paths.get(path);
        watchers.and_then(|watchers| watchers.get(&watcher)).copied().unwrap_or_default()
    }

    fn forget(&mut self, watcher: Watcher) {
        for path in self.by_watcher.get(&watcher).cloned().unwrap_or_default() {
            self.set(&path, watcher, Modes::default());
        }
    }

    /// Whether the path has a watch. A path without a leading slash is an error, since `PathParentIterator` fails on
    /// it.
    fn is_watched(&self, path: &str) -> Result<bool, ErrorCode> {
        let mut rest = path;
        while !rest.is_empty() {
            let up = match rest.rsplit_once('/') {
                _ if rest == "/" => "",
                Some(("", _)) => "/",
                Some((up, _)) => up,
                None => return Err(ErrorCode::MarshallingError),
            };
            if self.paths.contains_key(path) {
                return Ok(true);
            }
            if self.recursive == 0 {
                break;
            }
            rest = up;
        }
        Ok(false)
    }

    /// The watchers to notify of an event. One-shot watches are removed.
    fn trigger(&mut self, at: &str, event: EventType, version: Version) -> BTreeSet<Watcher> {
        let mut notified = BTreeSet::new();
        let here: Vec<_> =
            self.paths.get(at).into_iter().flatten().map(|(w, m)| (*w, *m)).collect();
        for (watcher, modes) in here {
            let is_recursive_only = modes.has(Modes::RECURSIVE) && !version.keeps_watch_modes();
            if is_recursive_only && event == EventType::NodeChildrenChanged {
                continue;
            }
            notified.insert(watcher);
            if modes.has(Modes::STANDARD) {
                self.set(at, watcher, modes.without(Modes::STANDARD));
            }
        }
        if event != EventType::NodeChildrenChanged && !version.events_name_the_watch() {
            notified.extend(self.recursive_above(at).map(|(_, watcher)| watcher));
        }
        notified
    }

    /// The recursive watches of the ancestors of a node.
    fn recursive_above<'a>(&'a self, at: &'a str) -> impl Iterator<Item = (&'a str, Watcher)> {
        let above = if self.recursive > 0 { path::parent(at) } else { None };
        std::iter::successors(above, |path| path::parent(path)).flat_map(|path| {
            let watchers = self.paths.get(path).into_iter().flatten();
            watchers.filter(|(_, m)| m.has(Modes::RECURSIVE)).map(move |(w, _)| (path, *w))
        })
    }
}

/// An event, and the ACL that decides which watchers may receive it.
#[derive(Debug, Clone)]
pub(crate) struct Notice {
    pub(crate) event: EventType,
    pub(crate) path: String,
    pub(crate) acl: NodeAcl,
    pub(crate) to: BTreeSet<Watcher>,
}

/// All watches of one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watches {
    data: Paths,
    child: Paths,
    version: Version,
}

impl Watches {
    pub(crate) fn new(version: Version) -> Self {
        Self { version, ..Self::default() }
    }

    const fn table(&mut self, table: Table) -> &mut Paths {
        match table {
            Table::Data => &mut self.data,
            Table::Child => &mut self.child,
        }
    }

    /// The number of watched paths, and the number of watches.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |table: &Paths| table.paths.values().map(BTreeMap::len).sum::<usize>();
        (self.data.paths.len() + self.child.paths.len(), count(&self.data) + count(&self.child))
    }

    /// The watchers of data and of existence, by path.
    pub(crate) fn of_data(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &Watcher>)> {
        self.data.paths.iter().map(|(path, watchers)| (&**path, watchers.keys()))
    }

    /// The watched paths of a connection, and whether addWatch has set the watch.
    pub(crate) fn paths_of(&self, watcher: Watcher) -> impl Iterator<Item = (&str, bool)> {
        let tables = [&self.data, &self.child].into_iter();
        tables.flat_map(move |table| {
            let paths = table.by_watcher.get(&watcher).into_iter().flatten();
            paths.map(move |path| {
                let modes = table.modes(path, watcher);
                (&**path, modes.has(Modes::PERSISTENT.with(Modes::RECURSIVE)))
            })
        })
    }

    fn add(&mut self, table: Table, path: &str, watcher: Watcher, mode: Modes) {
        let keeps = self.version.keeps_watch_modes();
        let table = self.table(table);
        let old = if keeps { table.modes(path, watcher) } else { Modes::default() };
        table.set(path, watcher, old.with(mode));
    }

    /// Adds a one-shot watch of exists, getData or getChildren.
    pub(crate) fn watch(&mut self, table: Table, path: &str, watcher: Watcher) {
        self.add(table, path, watcher, Modes::STANDARD);
    }

    /// Adds a watch of addWatch. Returns whether the mode is valid.
    pub(crate) fn add_watch(&mut self, path: &str, watcher: Watcher, mode: AddWatchMode) -> bool {
        let (mode, both) = match mode {
            AddWatchMode::Persistent => (Modes::PERSISTENT, true),
            AddWatchMode::PersistentRecursive => {
                (Modes::RECURSIVE, !self.version.keeps_watch_modes())
            }
            _ => return false,
        };
        self.add(Table::Data, path, watcher, mode);
        if both {
            self.add(Table::Child, path, watcher, mode);
        }
        true
    }

    /// Removes the watches of a closed connection.
    pub(crate) fn forget(&mut self, watcher: Watcher) {
        self.data.forget(watcher);
        self.child.forget(watcher);
    }

    /// The notifications of a change, in the order of their delivery.
    pub(crate) fn trigger(&mut self, change: &Change) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut notify = |event, path: &str, acl: &NodeAcl, to: BTreeSet<Watcher>| {
            if !to.is_empty() {
                notices.push(Notice { event, path: path.to_owned(), acl: acl.clone(), to });
            }
        };
        let parent = |path| path::parent(path).unwrap_or("/");
        let version = self.version;
        let children = EventType::NodeChildrenChanged;
        match change {
            Change::Created { path, acl, parent_acl, .. } => {
                let event = EventType::NodeCreated;
                notify(event, path, acl, self.data.trigger(path, event, version));
                let above = parent(path);
                notify(children, above, parent_acl, self.child.trigger(above, children, version));
            }
            Change::Deleted { path, acl, parent_acl, .. } => {
                let event = EventType::NodeDeleted;
                let mut to = self.data.trigger(path, event, version);
                // A connection is notified once, however many of its watches match.
                to.append(&mut self.child.trigger(path, event, version));
                notify(event, path, acl, to);
                let above = parent(path);
                notify(children, above, parent_acl, self.child.trigger(above, children, version));
            }
            Change::DataChanged { path, acl, .. } => {
                let event = EventType::NodeDataChanged;
                notify(event, path, acl, self.data.trigger(path, event, version));
            }
        }
        if version.events_name_the_watch() {
            let (event, path, acl) = match change {
                Change::Created { path, acl, .. } => (EventType::NodeCreated, path, acl),
                Change::Deleted { path, acl, .. } => (EventType::NodeDeleted, path, acl),
                Change::DataChanged { path, acl, .. } => (EventType::NodeDataChanged, path, acl),
            };
            for (watched, watcher) in self.data.recursive_above(path) {
                let (path, acl, to) = (watched.to_owned(), acl.clone(), BTreeSet::from([watcher]));
                notices.push(Notice { event, path, acl, to });
            }
        }
        notices
    }

    /// checkWatches: whether the watch exists. `MarshallingError` for an unknown type, and for a path on which a real
    /// server fails.
    pub(crate) fn contains(
        &self,
        path: Text<'_>,
        kind: WatcherType,
        watcher: Watcher,
    ) -> Result<bool, ErrorCode> {
        let (data, child) = wanted(kind, self.version).ok_or(ErrorCode::MarshallingError)?;
        let text = path.to_str();
        if self.version.keeps_watch_modes() {
            let has = |table: &Paths, modes: Option<Modes>| {
                modes.is_some_and(|modes| table.modes(&text, watcher).has(modes))
            };
            return Ok(has(&self.data, data) || has(&self.child, child));
        }
        // Up to 3.8, a watch of any connection counts.
        let mut found = false;
        for (table, modes) in [(&self.child, child), (&self.data, data)] {
            if modes.is_some() {
                let text =
                    if path.is_null() { Err(ErrorCode::MarshallingError) } else { Ok(&*text) };
                found |= table.is_watched(text?)?;
            }
        }
        Ok(found)
    }

    /// removeWatches: whether the watch existed; `None` for an unknown type.
    pub(crate) fn remove(
        &mut self,
        path: &str,
        kind: WatcherType,
        watcher: Watcher,
    ) -> Option<bool> {
        let (data, child) = wanted(kind, self.version)?;
        let mut removed = false;
        for (table, modes) in [(&mut self.data, data), (&mut self.child, child)] {
            let old = table.modes(path, watcher);
            if let Some(modes) = modes.filter(|modes| old.has(*modes)) {
                table.set(path, watcher, old.without(modes));
                removed = true;
            }
        }
        Some(removed)
    }
}

/// The modes in each table that a type of checkWatches and removeWatches selects.
fn wanted(kind: WatcherType, version: Version) -> Option<(Option<Modes>, Option<Modes>)> {
    const ALL: Modes = Modes(7);
    let keeps = version.keeps_watch_modes();
    let one_shot = if keeps { Modes::STANDARD } else { ALL };
    Some(match kind {
        WatcherType::Children => (None, Some(one_shot)),
        WatcherType::Data => (Some(one_shot), None),
        WatcherType::Any => (Some(ALL), Some(ALL)),
        WatcherType::Persistent if keeps => (Some(Modes::PERSISTENT), Some(Modes::PERSISTENT)),
        WatcherType::PersistentRecursive if keeps => (Some(Modes::RECURSIVE), None),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::acl;

    const ME: Watcher = 1;

    /// Performs a registration, given by its short name.
    fn register(watches: &mut Watches, what: &str) {
        match what {
            "data" => watches.watch(Table::Data, "/p", ME),
            "child" => watches.watch(Table::Child, "/p", ME),
            "persistent" => assert!(watches.add_watch("/p", ME, AddWatchMode::Persistent)),
            _ => assert!(watches.add_watch("/p", ME, AddWatchMode::PersistentRecursive)),
        }
    }

    /// The events that a step causes: D, C, + or nothing.
    fn heard(watches: &mut Watches, step: &str) -> String {
        let change = match step {
            "set" => Change::DataChanged { path: "/p".into(), bytes: 0, acl: acl::open() },
            _ => Change::Created {
                path: "/p/x".into(),
                bytes: 0,
                acl: acl::open(),
                parent_acl: acl::open(),
            },
        };
        let letter = |notice: &Notice| match notice.event {
            EventType::NodeDataChanged => "D",
            EventType::NodeChildrenChanged => "C",
            _ => "+",
        };
        watches.trigger(&change).iter().map(letter).collect()
    }

    /// Mixed watches on one path and connection, as measured on real servers.
    #[test]
    fn mixed_watches_behave_as_measured() {
        for (registered, steps, up_to_38, from_39) in [
            ("persistent data", "set set child child set", "D - C C -", "D D C C D"),
            ("data persistent", "set set child", "D D C", "D D C"),
            ("persistent child", "child child set set", "C - D D", "C C D D"),
            ("recursive data", "set set child child", "D - - -", "D D + +"),
            ("recursive child", "child child set set", "+C + D D", "+C + D D"),
            ("child recursive", "child child set", "+ + D", "+C + D"),
            ("persistent recursive", "set child", "D +", "D +C"),
            ("recursive persistent", "set child", "D C", "D +C"),
        ] {
            for (version, expected) in
                [(Version::V3_6, up_to_38), (Version::V3_8, up_to_38), (Version::V3_9, from_39)]
            {
                let mut watches = Watches::new(version);
                registered.split(' ').for_each(|what| register(&mut watches, what));
                let notified: Vec<_> = steps
                    .split(' ')
                    .map(|step| heard(&mut watches, step))
                    .map(|notified| if notified.is_empty() { "-".to_owned() } else { notified })
                    .collect();
                assert_eq!(notified.join(" "), expected, "{registered} on {version}");
            }
        }
    }

    /// The same for removeWatches.
    #[test]
    fn removals_behave_as_measured() {
        use WatcherType::{Any, Children, Data, Persistent, PersistentRecursive};
        for (registered, kind, up_to_38, from_39) in [
            ("data", Data, Some(true), Some(true)),
            ("data", Children, Some(false), Some(false)),
            ("child", Any, Some(true), Some(true)),
            ("persistent", Children, Some(true), Some(false)),
            ("persistent", Any, Some(true), Some(true)),
            ("persistent", Persistent, None, Some(true)),
            ("persistent", PersistentRecursive, None, Some(false)),
            ("recursive", Data, Some(true), Some(false)),
            ("recursive", PersistentRecursive, None, Some(true)),
            ("data", Persistent, None, Some(false)),
            ("data", WatcherType::Unknown(6), None, None),
        ] {
            for (version, expected) in [(Version::V3_8, up_to_38), (Version::V3_9, from_39)] {
                let mut watches = Watches::new(version);
                register(&mut watches, registered);
                let contains = watches.contains(Text::new("/p"), kind, ME).ok();
                let removed = watches.remove("/p", kind, ME);
                let what = format!("{registered} {kind:?} on {version}");
                assert_eq!((contains, removed), (expected, expected), "{what}");
            }
        }
    }

    #[test]
    fn nothing_is_left_of_a_connection() {
        let mut watches = Watches::new(Version::V3_9);
        for what in ["data", "child", "persistent", "recursive"] {
            register(&mut watches, what);
        }
        watches.forget(ME);
        assert_eq!(watches.counts(), (0, 0));
        assert_eq!((watches.data.recursive, watches.data.by_watcher.len()), (0, 0));
    }
}
