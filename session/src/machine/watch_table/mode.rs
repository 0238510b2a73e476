//! The mode of the persistent watch on a path: on the server now, and after the queued requests.

use docent_protocol::{AddWatchMode, WatcherType};

use super::kind::WatchKind;

/// The mode of the persistent watch that the server has on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// None, or none that matters: one-shot watches are recorded separately.
    #[default]
    None,
    Persistent,
    Recursive,
    /// There may be half of a mode (ZOOKEEPER-4466, ZOOKEEPER-4471).
    Unknown,
}

impl Mode {
    /// Whether one-shot watches are served from its events.
    pub(crate) const fn covers(self) -> bool {
        matches!(self, Self::Persistent | Self::Recursive)
    }

    pub(crate) const fn add_watch(self) -> AddWatchMode {
        match self {
            Self::Recursive => AddWatchMode::PersistentRecursive,
            _ => AddWatchMode::Persistent,
        }
    }

    pub(crate) const fn of(kind: WatchKind) -> Self {
        match kind {
            WatchKind::PersistentRecursive => Self::Recursive,
            WatchKind::Persistent => Self::Persistent,
            _ => Self::None,
        }
    }

    /// The mode that may remain after a caller's removeWatches of that type.
    pub(crate) const fn once_removed(self, watcher_type: WatcherType) -> Self {
        match (self, watcher_type) {
            (_, WatcherType::Any) => Self::None,
            (Self::Persistent | Self::Recursive, _) => Self::Unknown,
            (other, _) => other,
        }
    }

    /// The wider of two known modes.
    pub(crate) const fn or_wider(self, other: Self) -> Self {
        match (self, other) {
            (Self::Recursive, _) | (_, Self::Recursive) => Self::Recursive,
            (Self::Persistent, _) | (_, Self::Persistent) => Self::Persistent,
            (known, _) => known,
        }
    }
}

/// The state of the persistent watch of a path.
#[derive(Debug, Default)]
pub(crate) struct PathMode {
    /// The mode on the server, as of the last reply.
    pub(crate) confirmed: Mode,
    /// The mode on the server after the replies to all queued requests.
    pub(crate) queued: Mode,
    /// The number of pending requests that change the mode.
    pub(crate) unanswered: u32,
    /// Whether a caller left it there on purpose: it is neither narrowed nor removed.
    pub(crate) forgotten: bool,
    /// Whether a recursive mode may exist beside the persistent one (since 3.9).
    pub(crate) beside: bool,
    /// The zxid up to which no event was missed, if the watches are to be set again because the server may lack them.
    pub(crate) unset: Option<i64>,
    /// Whether a request about it was refused, so that it is suspended until the next try.
    pub(crate) put_off: bool,
}
