//! The events that watchers receive.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use docent_protocol::{EventType, KeeperState};

/// The path of a node: text that is cheap to clone, and compares with a `&str`.
///
/// ```
/// # use docent_session::watch::NodePath;
/// let path = NodePath::from("/locks/printer");
/// assert!(path == "/locks/printer" && path.starts_with("/locks/"));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePath(Arc<str>);

impl NodePath {
    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for NodePath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for NodePath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for NodePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for NodePath {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for NodePath {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl PartialEq<String> for NodePath {
    fn eq(&self, other: &String) -> bool {
        *self.0 == **other
    }
}

impl From<Arc<str>> for NodePath {
    fn from(path: Arc<str>) -> Self {
        Self(path)
    }
}

impl From<NodePath> for Arc<str> {
    fn from(path: NodePath) -> Self {
        path.0
    }
}

impl From<&str> for NodePath {
    fn from(path: &str) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

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
    pub path: NodePath,
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

    pub(crate) fn resync(path: impl Into<NodePath>) -> Self {
        let path = path.into();
        Self { event_type: EventType::None, state: KeeperState::SyncConnected, path, zxid: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_text() {
        let path = NodePath::from("/a");
        let borrowed: &str = path.borrow();
        assert_eq!([path.as_str(), &path, path.as_ref(), borrowed], ["/a"; 4]);
        let [same, other] = ["/a".to_owned(), "/b".to_owned()];
        assert!(path == *"/a" && path == "/a" && path == same);
        assert!(path != *"/b" && path != "/b" && path != other);
        assert_eq!((path.to_string(), format!("{path:?}")), ("/a".into(), "\"/a\"".into()));
        assert_eq!(&*Arc::<str>::from(path), "/a");
    }
}
