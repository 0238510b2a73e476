//! The events that watchers receive.

use std::sync::Arc;

use docent_protocol::{EventType, KeeperState};

/// An event of a watched node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchedEvent {
    /// The type of the event; [`EventType::None`] for a [resync](Self::is_resync), and for the last event, when the
    /// session has ended.
    pub event_type: EventType,
    /// [`KeeperState::SyncConnected`] from a server, [`KeeperState::Expired`] or
    /// [`KeeperState::Closed`] at the end.
    pub state: KeeperState,
    /// The path of the node, as the client names it.
    pub path: Arc<str>,
    /// The zxid of the change that caused it; `None` from servers before 3.9, which do not send it.
    pub zxid: Option<i64>,
}

impl WatchedEvent {
    /// Whether events may have been missed: read the watched nodes again. A persistent watch resyncs after a reconnect,
    /// since no server reports the events in between. A resync also follows when a buffer was full, and when the
    /// server's watch was lost by a removal of all watches of the path or a refused request. The loss of the server's
    /// watch ends the watch of an exists.
    #[must_use]
    pub const fn is_resync(&self) -> bool {
        matches!(
            (self.event_type, self.state),
            (EventType::None, KeeperState::SyncConnected | KeeperState::ConnectedReadOnly)
        )
    }

    /// Whether this is the last event: the session ended, or the watch was removed.
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
