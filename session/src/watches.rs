//! The watch table: who waits for what, by the server's path.
//!
//! The server has two tables for each connection, data and child, and forgets both with the connection.
//! The client keeps three lists, since a node that did not exist when it was asked for must be told to
//! the next server as such: in the data list, it would at once be reported as deleted.
//!
//! Source: `ZKWatchManager.materialize`, `ZooKeeper.ExistsWatchRegistration`; `ClientCnxn.primeConnection`
//! for the replay.

use std::{collections::HashMap, sync::Arc};

use docent_protocol::{
    ErrorCode, EventType, KeeperState, List, Text, call::SetWatches, request::SetWatchesRequest,
};

/// What a watch is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WatchKind {
    /// Data and existence of a node that exists.
    Data,
    /// Creation of a node that does not exist.
    Exist,
    /// Children of a node.
    Child,
}

/// What happened to a watched node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchedEvent {
    /// What happened; [`EventType::None`] when the session ended and nothing more will be told.
    pub event_type: EventType,
    /// [`KeeperState::SyncConnected`] from a server, [`KeeperState::Expired`] or
    /// [`KeeperState::Closed`] at the end.
    pub state: KeeperState,
    /// The node, as the client calls it.
    pub path: Arc<str>,
    /// The change that caused it; `None` from servers before 3.9, which do not say.
    pub zxid: Option<i64>,
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
    /// Whether a reply means that the server now has a watch, and in which list it belongs.
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

/// Who waits for what.
#[derive(Debug)]
pub(crate) struct Watches<W> {
    paths: HashMap<Arc<str>, Vec<(WatchKind, W)>>,
    count: usize,
}

impl<W> Default for Watches<W> {
    fn default() -> Self {
        Self { paths: HashMap::new(), count: 0 }
    }
}

impl<W: Clone + PartialEq> Watches<W> {
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn add(&mut self, kind: WatchKind, path: Arc<str>, watcher: W) {
        self.paths.entry(path).or_default().push((kind, watcher));
        self.count += 1;
    }

    /// Forgets a watcher, here only: the server keeps its watch, whose event then finds nobody.
    /// Whether it was there.
    pub(crate) fn remove(&mut self, path: &str, watcher: &W) -> bool {
        !self.take(path, |_, other| other == watcher).is_empty()
    }

    /// Whom an event is for. One-shot watches are taken out of the table by it.
    pub(crate) fn dispatch(&mut self, event_type: EventType, path: &str) -> Vec<W> {
        self.take(path, |kind, _| match event_type {
            EventType::NodeCreated | EventType::NodeDataChanged => kind != WatchKind::Child,
            EventType::NodeDeleted => true,
            EventType::NodeChildrenChanged => kind == WatchKind::Child,
            _ => false,
        })
    }

    /// Everybody, when the session has ended.
    pub(crate) fn drain(&mut self) -> Vec<(Arc<str>, W)> {
        self.count = 0;
        let mut all: Vec<_> = self
            .paths
            .drain()
            .flat_map(|(path, watchers)| {
                watchers.into_iter().map(move |(_, watcher)| (Arc::clone(&path), watcher))
            })
            .collect();
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        all
    }

    /// Hands `send` the requests that set all watches again on a new connection.
    ///
    /// Each has at most `REPLAY_BYTES` of paths and the one more that goes over it, for servers refuse
    /// large requests (ZOOKEEPER-706). Bytes are counted, not characters.
    pub(crate) fn replay(&self, relative_zxid: i64, mut send: impl FnMut(&SetWatches<'_>)) {
        let mut all: Vec<(WatchKind, &str)> = Vec::with_capacity(self.count);
        for (path, watchers) in &self.paths {
            all.extend(watchers.iter().map(|(kind, _)| (*kind, &**path)));
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
            let of = |wanted: WatchKind| -> Vec<Text<'_>> {
                batch
                    .iter()
                    .filter(|(kind, _)| *kind == wanted)
                    .map(|(_, path)| Text::new(path))
                    .collect()
            };
            let (data, exist, child) =
                (of(WatchKind::Data), of(WatchKind::Exist), of(WatchKind::Child));
            send(&SetWatches(SetWatchesRequest {
                relative_zxid,
                data_watches: List::new(&data),
                exist_watches: List::new(&exist),
                child_watches: List::new(&child),
            }));
        }
    }

    fn take(&mut self, path: &str, mut wanted: impl FnMut(WatchKind, &W) -> bool) -> Vec<W> {
        let Some(watchers) = self.paths.get_mut(path) else { return Vec::new() };
        let mut taken = Vec::new();
        watchers.retain(|(kind, watcher)| {
            let take = wanted(*kind, watcher);
            if take {
                taken.push(watcher.clone());
            }
            !take
        });
        self.count -= taken.len();
        if watchers.is_empty() {
            self.paths.remove(path);
        }
        taken
    }
}

/// How many bytes of paths one setWatches has.
///
/// Source: `ClientCnxn.SET_WATCHES_MAX_LENGTH`.
const REPLAY_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use WatchKind::{Child, Data, Exist};

    fn table(entries: &[(WatchKind, &str, u32)]) -> Watches<u32> {
        let mut watches = Watches::default();
        for &(kind, path, watcher) in entries {
            watches.add(kind, path.into(), watcher);
        }
        watches
    }

    /// wire-protocol section 6.2, the client's side of the trigger matrix.
    #[test]
    fn an_event_takes_the_lists_it_concerns() {
        let all = [(Data, "/a", 1), (Exist, "/a", 2), (Child, "/a", 3), (Data, "/a/b", 4)];
        for (event, taken, left) in [
            (EventType::NodeCreated, vec![1, 2], 2),
            (EventType::NodeDataChanged, vec![1, 2], 2),
            (EventType::NodeDeleted, vec![1, 2, 3], 1),
            (EventType::NodeChildrenChanged, vec![3], 3),
            (EventType::Unknown(99), vec![], 4),
        ] {
            let mut watches = table(&all);
            assert_eq!((watches.dispatch(event, "/a"), watches.len()), (taken, left), "{event}");
        }
    }

    #[test]
    fn an_event_for_nobody_is_ignored() {
        let mut watches = table(&[(Data, "/a", 1)]);
        assert!(watches.dispatch(EventType::NodeDeleted, "/b").is_empty());
        watches.remove("/a", &1);
        assert!(watches.dispatch(EventType::NodeDeleted, "/a").is_empty());
        assert_eq!(watches.len(), 0);
    }

    #[test]
    fn the_replay_keeps_three_lists_and_names_a_path_once_in_each() {
        let watches =
            table(&[(Data, "/d", 1), (Data, "/d", 2), (Exist, "/e", 3), (Child, "/d", 4)]);
        let mut sent = Vec::new();
        watches.replay(9, |request| sent.push(format!("{:?}", request.0)));
        assert_eq!(sent.len(), 1);
        assert!(
            sent[0]
                .contains(r#"data_watches: ["/d"], exist_watches: ["/e"], child_watches: ["/d"]"#)
        );
    }

    /// ZOOKEEPER-706, reliability case 15.
    #[test]
    fn a_large_replay_is_split_and_loses_nothing() {
        let mut watches = Watches::default();
        for number in 0..11_000 {
            let path: Arc<str> = format!("/{number:099}").into();
            watches.add([Data, Exist, Child][number % 3], path, number);
        }
        let (mut batches, mut total) = (0, 0);
        watches.replay(1, |request| {
            let lists = [request.0.data_watches, request.0.exist_watches, request.0.child_watches];
            let bytes: usize = lists
                .iter()
                .flat_map(|list| list.iter())
                .map(|path| 4 + path.as_bytes().len())
                .sum();
            assert!(bytes <= REPLAY_BYTES + 104, "{bytes}");
            batches += 1;
            total += lists.iter().map(List::len).sum::<usize>();
        });
        assert_eq!((batches, total), (9, 11_000));
    }
}
