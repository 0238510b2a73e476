//! The replay of watches to a new server: setWatches, in batches.

use std::sync::Arc;

use docent_protocol::{List, Text, frame::LENGTH_SIZE, request::SetWatches2Request};

use super::{Mode, ONE_SHOT, Stage, WatchKind, Watches};

/// The contents of a setWatches in flight.
#[derive(Debug, Default)]
pub(crate) struct WatchBatch {
    /// Its paths, with the persistent mode set for each.
    pub(crate) paths: Vec<(Arc<str>, Mode)>,
    /// The last zxid seen when the watches were lost.
    pub(crate) relative_zxid: i64,
}

impl WatchBatch {
    /// Whether it needs setWatches2, which servers before 3.6 do not support.
    pub(crate) fn has_persistent(&self) -> bool {
        self.paths.iter().any(|(_, mode)| *mode != Mode::None)
    }
}

/// The watches of one path to be set on a server.
#[derive(Debug)]
struct Entry<'a> {
    mode: Mode,
    path: &'a Arc<str>,
    /// Whether each kind of [`ONE_SHOT`] is included.
    one_shots: [bool; ONE_SHOT.len()],
}

impl<'a> Entry<'a> {
    fn kinds(&self) -> impl Iterator<Item = WatchKind> {
        let persistent = match self.mode {
            Mode::Persistent => Some(WatchKind::Persistent),
            Mode::Recursive => Some(WatchKind::PersistentRecursive),
            Mode::None | Mode::Unknown => None,
        };
        let one_shots = ONE_SHOT.into_iter().zip(self.one_shots);
        one_shots.filter_map(|(kind, set)| set.then_some(kind)).chain(persistent)
    }

    /// The size of its paths in the frame, in bytes.
    fn size(&self) -> usize {
        self.kinds().count() * (LENGTH_SIZE + self.path.len())
    }

    /// One entry for each kind, in the order in which the server processes them.
    fn split(&self) -> impl Iterator<Item = Entry<'a>> {
        let (mode, path) = (self.mode, self.path);
        self.kinds().map(move |kind| Entry {
            mode: if kind.is_persistent() { mode } else { Mode::None },
            path,
            one_shots: ONE_SHOT.map(|other| other == kind),
        })
    }
}

impl<W: Clone + Ord> Watches<W> {
    /// All paths with set watches, and the mode that each needs on another connection.
    pub(crate) fn set_paths(&self) -> Vec<(Arc<str>, Mode)> {
        let set = self.paths.iter().filter(|(_, watchers)| {
            let mut kinds = super::ALL.into_iter();
            kinds.any(|kind| watchers.has(Stage::Set, kind))
        });
        set.map(|(path, watchers)| (Arc::clone(path), watchers.widest_set())).collect()
    }

    /// Passes `send` the requests that set the watches of these paths, with their contents. Returns the paths that are
    /// too long for any request of `limit` bytes.
    ///
    /// Each request has at most `limit` bytes, since servers refuse large requests (ZOOKEEPER-706), and at most
    /// `REPLAY_BYTES` of paths, unless it is for one path. The sizes are in bytes, not characters. The watches of a path
    /// are sent together, the persistent one last, so that its mode is the path's final one. Paths without a persistent
    /// watch come first, for servers that support only those.
    pub(crate) fn batches(
        &self,
        paths: &[(Arc<str>, Mode)],
        relative_zxid: i64,
        limit: usize,
        mut send: impl FnMut(&Replay<'_>, WatchBatch),
    ) -> Vec<Arc<str>> {
        let mut entries: Vec<_> = paths
            .iter()
            .map(|(path, mode)| {
                let watchers = self.paths.get(path);
                let one_shots = ONE_SHOT
                    .map(|kind| watchers.is_some_and(|watchers| watchers.has(Stage::Set, kind)));
                Entry { mode: *mode, path, one_shots }
            })
            .filter(|entry| entry.size() > 0)
            .collect();
        entries.sort_unstable_by_key(|entry| (entry.mode != Mode::None, entry.path));
        let longest = limit.saturating_sub(OVERHEAD);
        let limit = longest.min(REPLAY_BYTES);
        let (mut batch, mut bytes, mut too_long) = (Vec::new(), 0, Vec::new());
        let mut flush = |batch: &mut Vec<Entry<'_>>| {
            if !batch.is_empty() {
                let paths = batch.iter().map(|entry| (Arc::clone(entry.path), entry.mode));
                send(&Replay::new(batch), WatchBatch { paths: paths.collect(), relative_zxid });
                batch.clear();
            }
        };
        for entry in entries {
            let size = entry.size();
            if bytes + size > limit {
                flush(&mut batch);
                bytes = 0;
            }
            if size <= longest {
                bytes += size;
                batch.push(entry);
                continue;
            }
            for single in entry.split() {
                if single.size() <= longest {
                    flush(&mut vec![single]);
                } else if too_long.last() != Some(entry.path) {
                    too_long.push(Arc::clone(entry.path));
                }
            }
        }
        flush(&mut batch);
        too_long
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
    fn new(entries: &[Entry<'a>]) -> Self {
        let mut replay = Self::default();
        for entry in entries {
            for kind in entry.kinds() {
                let list = match kind {
                    WatchKind::Data => &mut replay.data,
                    WatchKind::Exist => &mut replay.exist,
                    WatchKind::Child => &mut replay.child,
                    WatchKind::Persistent => &mut replay.persistent,
                    WatchKind::PersistentRecursive => &mut replay.persistent_recursive,
                };
                list.push(Text::new(entry.path));
            }
        }
        replay
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

/// The limit of the paths in one setWatches, in bytes.
///
/// Source: `ClientCnxn.SET_WATCHES_MAX_LENGTH`, which Java exceeds by one path.
pub(super) const REPLAY_BYTES: usize = 128 * 1024;

/// The bytes of a setWatches2 other than its paths: xid, operation, zxid, and the lengths of five lists.
pub(super) const OVERHEAD: usize = 4 + 4 + 8 + 5 * LENGTH_SIZE;
