//! Options of an election.

use crate::locks::LockOptions;

/// Which states of the connection end a leadership, besides the end of its session.
///
/// Source: `ConnectionStateErrorPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ConnectionStateErrorPolicy {
    /// Every loss of the connection ends it, and so does a read-only server. Source:
    /// `StandardConnectionStateErrorPolicy`.
    #[default]
    Standard,
    /// A leadership survives a loss of the connection, until the deadline of its session's
    /// [lease](docent_session::session::SessionLease). Curator counts a whole session timeout from SUSPENDED instead, and leads on
    /// beside the next leader (L23 in `docs/CURATOR.md`). Source: `SessionConnectionStateErrorPolicy`.
    Session,
}

/// What the listeners of a latch hear when it closes.
///
/// Source: `LeaderLatch.CloseMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CloseMode {
    /// Nothing: their changes end.
    #[default]
    Silent,
    /// That the leadership has ended, if it was leading.
    NotifyLeader,
}

/// Options of an election: those of the nodes, which are those of a lock, and those of the leadership.
///
/// ```
/// use docent::{LeaderOptions, leader::ConnectionStateErrorPolicy};
///
/// let options = LeaderOptions::default().with_error_policy(ConnectionStateErrorPolicy::Session);
/// # drop(options);
/// ```
#[derive(Debug, Clone, Default)]
pub struct LeaderOptions {
    pub(crate) lock: LockOptions,
    pub(crate) error_policy: ConnectionStateErrorPolicy,
    pub(crate) close_mode: CloseMode,
}

impl LeaderOptions {
    /// Sets the error policy. Default: [`Standard`](ConnectionStateErrorPolicy::Standard).
    ///
    /// Source: `CuratorFrameworkFactory.Builder.connectionStateErrorPolicy`.
    #[must_use]
    pub const fn with_error_policy(mut self, policy: ConnectionStateErrorPolicy) -> Self {
        self.error_policy = policy;
        self
    }

    /// Sets what the listeners of a latch hear when it closes. Default: [`Silent`](CloseMode::Silent).
    #[must_use]
    pub const fn with_close_mode(mut self, mode: CloseMode) -> Self {
        self.close_mode = mode;
        self
    }

    /// Sets the options of the nodes: retry policy, ACLs, namespace, mode of the parents, default data; and the
    /// [renewal of the proven bound](LockOptions::with_proven_renewal).
    /// [`with_data`](LockOptions::with_data) and [`with_pipelined_listing`](LockOptions::with_pipelined_listing) have no
    /// effect: the data of a node is the participant's id.
    #[must_use]
    pub fn with_lock_options(mut self, options: LockOptions) -> Self {
        self.lock = options;
        self
    }
}

impl From<LockOptions> for LeaderOptions {
    fn from(lock: LockOptions) -> Self {
        Self { lock, ..Self::default() }
    }
}
