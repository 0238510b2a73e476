//! The kinds of watches, and the events that end each.

use docent_protocol::EventType;

/// The kind of a watch.
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
    /// Data and existence of a node and of all its descendants, until removed.
    PersistentRecursive,
}

impl WatchKind {
    /// Whether the watch stays after an event.
    #[must_use]
    pub const fn is_persistent(self) -> bool {
        matches!(self, Self::Persistent | Self::PersistentRecursive)
    }

    /// Whether an event ends a watch of this kind on the event's own node.
    pub(super) const fn is_ended_by(self, event_type: EventType) -> bool {
        match event_type {
            EventType::NodeCreated | EventType::NodeDataChanged => {
                matches!(self, Self::Data | Self::Exist)
            }
            EventType::NodeDeleted => !self.is_persistent(),
            EventType::NodeChildrenChanged => matches!(self, Self::Child),
            _ => false,
        }
    }

    /// An event that ends a watch of this kind, as the server reports it for such a watch.
    ///
    /// A read that is covered by the events of a persistent watch sets no watch of its own. If the persistent watch is set
    /// after the read, the first event may be missing, and the next one does not fit to what the read has found: a node
    /// that existed cannot be created. The server's answer to setWatches would be the event that is reported here.
    ///
    /// Source: `DataTree.setWatches`.
    pub(super) const fn as_seen(self, event_type: EventType) -> EventType {
        match (self, event_type) {
            (Self::Data, EventType::NodeCreated) => EventType::NodeDataChanged,
            (Self::Exist, EventType::NodeDataChanged | EventType::NodeDeleted) => {
                EventType::NodeCreated
            }
            _ => event_type,
        }
    }
}

/// The persistent kinds.
pub(crate) const PERSISTENT: [WatchKind; 2] =
    [WatchKind::Persistent, WatchKind::PersistentRecursive];

/// The one-shot kinds.
pub(crate) const ONE_SHOT: [WatchKind; 3] = [WatchKind::Data, WatchKind::Exist, WatchKind::Child];

/// All kinds.
pub(crate) const ALL: [WatchKind; 5] = [
    WatchKind::Data,
    WatchKind::Exist,
    WatchKind::Child,
    WatchKind::Persistent,
    WatchKind::PersistentRecursive,
];
