//! The switches that a test has set, and the changes that are recorded for it.

use bytes::Bytes;
use docent_protocol::{EventType, Stat};

/// The switches of a test.
#[derive(Debug, Default)]
pub(super) struct Controls {
    /// The number of requests still to be rejected with `ThrottledOp`.
    pub(super) throttled: u32,
    /// Whether nothing is written to disk, so that no member acknowledges a change.
    pub(super) disks_stall: bool,
    /// Whether a leader commits changes that it alone has accepted.
    #[cfg(docent_sim)]
    pub(super) commits_alone: bool,
    /// The sessions that were not notified of a change, because they might not read the node.
    #[cfg(docent_sim)]
    pub(super) unnotified: std::collections::BTreeSet<i64>,
    /// The sessions whose write was refused because they had moved to another member.
    #[cfg(docent_sim)]
    pub(super) moved: std::collections::BTreeSet<i64>,
    /// The data of a member when a backup was made, and its epoch.
    #[cfg(docent_sim)]
    pub(super) backup: Option<(super::tree::Tree, i64)>,
}

/// A change of a node that the servers have applied.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AppliedChange {
    /// The zxid of the change.
    pub zxid: i64,
    /// The session of the request that made it; 0: a change that no request made, such as the expiry of a session.
    pub session_id: i64,
    /// The path of the node.
    pub path: String,
    /// [`EventType::NodeCreated`], [`EventType::NodeDataChanged`] or [`EventType::NodeDeleted`].
    pub event_type: EventType,
    /// The data and the stat after the change; `None` for a deleted node.
    pub node: Option<(Bytes, Stat)>,
}

/// The changes that were recorded and not taken yet.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) changes: Vec<AppliedChange>,
    /// The zxid of the last recorded change.
    pub(super) until: i64,
}
