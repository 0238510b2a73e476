//! Shows a test the data of an ensemble without a client.

use std::collections::BTreeMap;

use bytes::Bytes;
use docent_protocol::{EventType, Stat};

use super::{
    connection::{Connection, State},
    ensemble::Ensemble,
    member::Member,
    test_state::{AppliedChange, Record},
    tree::{Change, Tree},
};

impl Ensemble {
    /// The data and the stat of a node, in the tree of the member that has applied the most changes.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<(Bytes, Stat)> {
        let node = self.newest_tree()?.get(path)?;
        Some((node.data.clone().unwrap_or_default(), node.stat()))
    }

    /// The paths of the children of a node, as [`node`](Self::node) sees it, in ascending order.
    #[must_use]
    pub fn child_paths(&self, path: &str) -> Vec<String> {
        let parent = if path == "/" { "" } else { path };
        let node = self.newest_tree().and_then(|tree| tree.get(path));
        let children = node.into_iter().flat_map(|node| &node.children);
        children.map(|child| format!("{parent}/{child}")).collect()
    }

    /// The paths of the ephemeral nodes of a session, as [`node`](Self::node) sees them, in ascending order.
    #[must_use]
    pub fn ephemerals(&self, session_id: i64) -> Vec<String> {
        let tree = self.newest_tree();
        tree.into_iter().flat_map(|tree| tree.ephemerals(session_id)).map(str::to_owned).collect()
    }

    /// The paths on which the newest connection of a session has watches, in ascending order; none without a
    /// connection.
    #[must_use]
    pub fn watched_paths(&self, session_id: i64) -> Vec<String> {
        self.watches_of(session_id).into_keys().map(str::to_owned).collect()
    }

    /// Like [`watched_paths`](Self::watched_paths), but only paths with a watch set by addWatch, which stays until it
    /// is removed.
    #[must_use]
    pub fn persistently_watched_paths(&self, session_id: i64) -> Vec<String> {
        let watches = self.watches_of(session_id).into_iter();
        watches
            .filter(|(_, is_persistent)| *is_persistent)
            .map(|(path, _)| path.to_owned())
            .collect()
    }

    /// The watched paths of a session, and whether addWatch has set one of the watches.
    fn watches_of(&self, session_id: i64) -> BTreeMap<&str, bool> {
        let is_of_session = |connection: &Connection| matches!(connection.state, State::Open { session_id: of, .. } if of == session_id);
        // An older connection may still exist, if the server has not noticed its end.
        let mut newest_first = self.connections.iter().rev();
        let newest = newest_first.find(|(_, connection)| is_of_session(connection));
        let member =
            newest.and_then(|(id, connection)| Some((id, self.members.get(connection.member)?)));
        let paths = member.into_iter().flat_map(|(id, member)| member.watches.paths_of(*id));
        let mut watches = BTreeMap::new();
        for (path, is_persistent) in paths {
            *watches.entry(path).or_default() |= is_persistent;
        }
        watches
    }

    /// Starts to record the changes that are applied, for [`take_changes`](Self::take_changes).
    pub fn start_recording(&mut self) {
        let until = self.newest_tree().map_or(0, |tree| tree.last_zxid);
        self.record.get_or_insert(Record { until, ..Record::default() });
    }

    /// Takes the changes that were applied since the last call, in the order of their zxids. A change counts as applied
    /// once one member has applied it.
    pub fn take_changes(&mut self) -> Vec<AppliedChange> {
        self.record.as_mut().map(|record| std::mem::take(&mut record.changes)).unwrap_or_default()
    }

    /// A path at which two members that have applied the same changes differ; `None` if there is none.
    #[must_use]
    pub fn diverging_path(&self) -> Option<String> {
        let trees = self.members.iter().map(|member| &member.tree);
        let pairs = trees.clone().zip(trees.skip(1)).filter(|(a, b)| a.last_zxid == b.last_zxid);
        pairs.filter_map(|(a, b)| a.difference(b)).next()
    }

    pub(super) fn record_changes(
        &mut self,
        at: usize,
        (zxid, session_id): (i64, i64),
        changes: &[Change],
    ) {
        let Some(record) = self.record.as_mut().filter(|record| record.until < zxid) else {
            return;
        };
        record.until = zxid;
        let Some(tree) = self.members.get(at).map(|member| &member.tree) else { return };
        for change in changes {
            let (path, event_type) = match change {
                Change::Created { path, .. } => (path, EventType::NodeCreated),
                Change::Deleted { path, .. } => (path, EventType::NodeDeleted),
                Change::DataChanged { path, .. } => (path, EventType::NodeDataChanged),
            };
            let node = tree.get(path).filter(|_| event_type != EventType::NodeDeleted);
            let node = node.map(|node| (node.data.clone().unwrap_or_default(), node.stat()));
            let path = path.clone();
            record.changes.push(AppliedChange { zxid, session_id, path, event_type, node });
        }
    }

    pub(super) fn newest_tree(&self) -> Option<&Tree> {
        let newest = self.members.iter().max_by_key(|member| member.tree.last_zxid);
        newest.map(|member: &Member| &member.tree)
    }
}
