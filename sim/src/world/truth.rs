//! The changes that the servers have applied, in their order: all observations are compared with them.

use std::collections::BTreeMap;

use bytes::Bytes;
use docent::{EventType, Stat};
use docent_testing::server::AppliedChange;

use super::time::Nanos;

/// A change, and when the first member applied it.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) at: Nanos,
    pub(crate) change: AppliedChange,
}

/// All changes, in their order.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) changes: Vec<Applied>,
    by_path: BTreeMap<String, Vec<usize>>,
}

/// The state of a node between two of its changes.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// The zxid of the change that began it; 0 at the start.
    pub(crate) zxid: i64,
    pub(crate) at: Nanos,
    /// The zxid of the change that ended it.
    pub(crate) end_zxid: i64,
    pub(crate) end_at: Nanos,
    /// `None`: there is no node.
    pub(crate) node: Option<(Bytes, Stat)>,
}

impl Truth {
    pub(crate) fn add(&mut self, at: Nanos, changes: Vec<AppliedChange>) {
        for change in changes {
            self.by_path.entry(change.path.clone()).or_default().push(self.changes.len());
            self.changes.push(Applied { at, change });
        }
    }

    /// The changes of a node.
    pub(crate) fn of(&self, path: &str) -> impl DoubleEndedIterator<Item = &Applied> + Clone {
        let changes = self.by_path.get(path).map_or(&[][..], Vec::as_slice);
        changes.iter().map(|at| &self.changes[*at])
    }

    /// All nodes that were ever changed.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().map(String::as_str)
    }

    /// The states of a node, beginning with its absence.
    pub(crate) fn states(&self, path: &str) -> Vec<State> {
        let open = (i64::MAX, Nanos::MAX);
        let state = |zxid, at, node| State { zxid, at, end_zxid: open.0, end_at: open.1, node };
        let mut states = vec![state(0, 0, None)];
        for applied in self.of(path) {
            let (zxid, at) = (applied.change.zxid, applied.at);
            if let Some(last) = states.last_mut() {
                (last.end_zxid, last.end_at) = (zxid, at);
            }
            states.push(state(zxid, at, applied.change.node.clone()));
        }
        states
    }

    /// The changes that watchers of a path are notified of, each with the type of its event.
    pub(crate) fn events(
        &self,
        path: &str,
        is_recursive: bool,
    ) -> Vec<(i64, Nanos, String, EventType)> {
        let below = format!("{path}/");
        let mut events = Vec::new();
        for Applied { at, change } in &self.changes {
            let is_below = change.path.starts_with(&below);
            if change.path == path || is_recursive && is_below {
                events.push((change.zxid, *at, change.path.clone(), change.event_type));
            } else if is_below
                && !change.path[below.len()..].contains('/')
                && change.event_type != EventType::NodeDataChanged
            {
                events.push((change.zxid, *at, path.to_owned(), EventType::NodeChildrenChanged));
            }
        }
        events
    }
}
