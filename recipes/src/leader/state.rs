//! The data of a participation in an election: the part of its task, and the part that a latch shows.

use std::sync::Arc;

use bytes::Bytes;
use docent_session::Error;
use tokio::sync::watch;

use super::{leadership::Leadership, options::LeaderOptions};
use crate::{namespace::Namespace, node_task::NodeTask};

/// The lock name of a latch's nodes, between the GUID and the digits.
///
/// Source: `LeaderLatch.LOCK_NAME`.
pub(super) const LOCK_NAME: &str = "latch-";

/// What a latch shows of its participation.
#[derive(Debug, Clone, Default)]
pub(super) struct Status {
    /// The leadership that has begun and whose end the task has not yet noticed.
    pub(super) leadership: Option<Leadership>,
    /// Set once, by a close, before it ends the leadership: none begins after it.
    pub(super) resigns: bool,
    /// The path of the own node.
    pub(super) path: Option<String>,
    /// The path of the node that the own one waits for.
    pub(super) node_ahead: Option<String>,
    /// The path of the node that last led.
    pub(super) last_path_is_leader: Option<String>,
    /// The number of leaderships so far.
    pub(super) epoch: u64,
    pub(super) end: Option<End>,
}

/// How a participation has ended.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// With an error that no retry mends, and the result of the delete.
    Failed { error: Error, deleted: Result<(), Error> },
    /// By a close, or with the client. With the result of the delete, once it is known.
    Closed { notify: bool, deleted: Option<Result<(), Error>> },
}

impl End {
    pub(super) const fn closed(deleted: Result<(), Error>) -> Self {
        // A close has set its own end before, so this one notifies of the end of the client.
        Self::Closed { notify: true, deleted: Some(deleted) }
    }
}

/// The task's own part of a latch.
pub(super) struct Participation {
    pub(super) task: NodeTask,
    /// Includes the namespace.
    pub(super) path: String,
    pub(super) namespace: Namespace,
    pub(super) id: Bytes,
    pub(super) options: LeaderOptions,
    pub(super) status: Arc<watch::Sender<Status>>,
}
