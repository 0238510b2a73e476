//! Who watches what, and who is told.
//!
//! A server has two tables, for data and for children; a watch of addWatch is in both. Watches belong to
//! connections, not to sessions. Up to 3.8 a connection has one mode for each path and table, and the
//! last registration decides (ZOOKEEPER-4466); since 3.9 the modes stand side by side.
//!
//! Source: `WatchManager` 3.8 and 3.9, `DataTree.addWatch`, `removeWatch`, `setWatches`.

use std::collections::{BTreeMap, BTreeSet};

use docent_protocol::{AddWatchMode, ErrorCode, EventType, Text, WatcherType, path};

use super::{acl::NodeAcl, tree::Change, version::Version};

/// A connection, by its number.
pub(crate) type Watcher = u64;

/// The modes in which somebody watches a path, as bits.
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

/// Which of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Data,
    Child,
}

/// One table.
#[derive(Debug, Clone, Default)]
struct Paths {
    paths: BTreeMap<String, BTreeMap<Watcher, Modes>>,
    by_watcher: BTreeMap<Watcher, BTreeSet<String>>,
    /// How many entries are recursive. None: nobody above needs to be asked.
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

    /// Whether anybody watches the path. On its way up, `PathParentIterator` stumbles over a path without
    /// a slash in front.
    fn anybody_watches(&self, path: &str) -> Result<bool, ErrorCode> {
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

    /// Who is to be told of an event; one-shot watches are used up.
    fn trigger(&mut self, at: &str, event: EventType, version: Version) -> BTreeSet<Watcher> {
        let mut told = BTreeSet::new();
        let here: Vec<_> =
            self.paths.get(at).into_iter().flatten().map(|(w, m)| (*w, *m)).collect();
        for (watcher, modes) in here {
            let is_recursive_only = modes.has(Modes::RECURSIVE) && !version.keeps_watch_modes();
            if is_recursive_only && event == EventType::NodeChildrenChanged {
                continue;
            }
            told.insert(watcher);
            if modes.has(Modes::STANDARD) {
                self.set(at, watcher, modes.without(Modes::STANDARD));
            }
        }
        let above = if self.recursive > 0 && event != EventType::NodeChildrenChanged {
            path::parent(at)
        } else {
            None
        };
        for path in std::iter::successors(above, |path| path::parent(path)) {
            let watchers = self.paths.get(path).into_iter().flatten();
            told.extend(watchers.filter(|(_, m)| m.has(Modes::RECURSIVE)).map(|(w, _)| *w));
        }
        told
    }
}

/// An event, and the ACL that decides whether a watcher may hear of it.
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

    /// How many paths are watched, and how many watches there are.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |table: &Paths| table.paths.values().map(BTreeMap::len).sum::<usize>();
        (self.data.paths.len() + self.child.paths.len(), count(&self.data) + count(&self.child))
    }

    fn add(&mut self, table: Table, path: &str, watcher: Watcher, mode: Modes) {
        let keeps = self.version.keeps_watch_modes();
        let table = self.table(table);
        let old = if keeps { table.modes(path, watcher) } else { Modes::default() };
        table.set(path, watcher, old.with(mode));
    }

    /// A one-shot watch of exists, getData or getChildren.
    pub(crate) fn watch(&mut self, table: Table, path: &str, watcher: Watcher) {
        self.add(table, path, watcher, Modes::STANDARD);
    }

    /// An addWatch; any mode but the two is none.
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

    /// The watches of a connection that has ended.
    pub(crate) fn forget(&mut self, watcher: Watcher) {
        self.data.forget(watcher);
        self.child.forget(watcher);
    }

    /// Who hears of a change, in the order in which it is told.
    pub(crate) fn trigger(&mut self, change: &Change) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut tell = |event, path: &str, acl: &NodeAcl, to: BTreeSet<Watcher>| {
            if !to.is_empty() {
                notices.push(Notice { event, path: path.to_owned(), acl: acl.clone(), to });
            }
        };
        let parent = |path| path::parent(path).unwrap_or("/");
        let version = self.version;
        let children = EventType::NodeChildrenChanged;
        match change {
            Change::Created { path, acl, parent_acl } => {
                let event = EventType::NodeCreated;
                tell(event, path, acl, self.data.trigger(path, event, version));
                let above = parent(path);
                tell(children, above, parent_acl, self.child.trigger(above, children, version));
            }
            Change::Deleted { path, acl, parent_acl } => {
                let event = EventType::NodeDeleted;
                let mut to = self.data.trigger(path, event, version);
                // Once to each, whichever of its watches there were.
                to.append(&mut self.child.trigger(path, event, version));
                tell(event, path, acl, to);
                let above = parent(path);
                tell(children, above, parent_acl, self.child.trigger(above, children, version));
            }
            Change::DataChanged { path, acl } => {
                let event = EventType::NodeDataChanged;
                tell(event, path, acl, self.data.trigger(path, event, version));
            }
        }
        notices
    }

    /// checkWatches: whether there is such a watch. `MarshallingError` when there is no such type, and
    /// where a real server stumbles over the path.
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
        // Up to 3.8, anybody's will do.
        let mut found = false;
        for (table, modes) in [(&self.child, child), (&self.data, data)] {
            if modes.is_some() {
                let text =
                    if path.is_null() { Err(ErrorCode::MarshallingError) } else { Ok(&*text) };
                found |= table.anybody_watches(text?)?;
            }
        }
        Ok(found)
    }

    /// removeWatches: whether there was such a watch; `None` when there is no such type.
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

/// Which modes of which table a type of checkWatches and removeWatches means.
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

    /// What a registration is, in the table of the versions measured.
    fn register(watches: &mut Watches, what: &str) {
        match what {
            "data" => watches.watch(Table::Data, "/p", ME),
            "child" => watches.watch(Table::Child, "/p", ME),
            "persistent" => assert!(watches.add_watch("/p", ME, AddWatchMode::Persistent)),
            _ => assert!(watches.add_watch("/p", ME, AddWatchMode::PersistentRecursive)),
        }
    }

    /// What is heard of a step: D, C, + or nothing, as in that table.
    fn heard(watches: &mut Watches, step: &str) -> String {
        let change = match step {
            "set" => Change::DataChanged { path: "/p".into(), acl: acl::open() },
            _ => Change::Created { path: "/p/x".into(), acl: acl::open(), parent_acl: acl::open() },
        };
        let letter = |notice: &Notice| match notice.event {
            EventType::NodeDataChanged => "D",
            EventType::NodeChildrenChanged => "C",
            _ => "+",
        };
        watches.trigger(&change).iter().map(letter).collect()
    }

    /// Table 7 of the versions measured: mixed watches on one path and connection.
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
                let told: Vec<_> = steps
                    .split(' ')
                    .map(|step| heard(&mut watches, step))
                    .map(|told| if told.is_empty() { "-".to_owned() } else { told })
                    .collect();
                assert_eq!(told.join(" "), expected, "{registered} on {version}");
            }
        }
    }

    /// The same table for removeWatches.
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
