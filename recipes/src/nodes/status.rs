//! What a kept node shows and reports, and the data that it shall have.

use bytes::Bytes;
use docent_session::Error;

/// What has happened to a kept node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NodeEvent {
    /// It was created, for the first time or again.
    ///
    /// Source: `PersistentNodeListener.nodeCreated`.
    Created {
        /// Its path.
        path: String,
        /// Its `czxid`, if the reply contained it: it distinguishes this node from earlier and later ones.
        czxid: Option<i64>,
    },
    /// It is gone: deleted, or its session has ended. Reported once, before the node is created again.
    Lost,
    /// It is there again, after [`Lost`](Self::Lost).
    Restored,
    /// The path has a node of another client, which is left alone. The node is created once that one is gone.
    Conflict {
        /// The session that owns the other node; 0 if it is not ephemeral.
        owner: i64,
    },
    /// Another client has written the node, and its data is kept from now on: see
    /// [`with_data_adoption`](super::NodeOptions::with_data_adoption).
    DataAdopted {
        /// The data.
        data: Bytes,
    },
    /// It cannot be created or written. Tried again after a reconnect, and when the data is set.
    Failed(Error),
    /// The reader was too slow: the oldest events are gone. [`czxid`](super::PersistentNode::czxid) shows whether the node
    /// is there now.
    Lagged {
        /// How many events are gone.
        missed: u64,
    },
}

/// The data that the node shall have.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) data: Bytes,
    /// Increases with each change.
    pub(super) version: u64,
}

/// What a kept node shows.
#[derive(Debug, Clone, Default)]
pub(super) struct Status {
    /// The path of the node, once it is known.
    pub(super) path: Option<String>,
    /// The `czxid` of the node that is there.
    pub(super) czxid: Option<i64>,
    /// The session that owns the node that is there, as far as the task knows; 0 if it is not ephemeral.
    pub(super) present: Option<i64>,
    /// Whether the node was created or adopted once.
    pub(super) was_created: bool,
    /// The version of the wanted data that was last written.
    pub(super) written: u64,
    /// Why it is not there, or not written, and the version of the wanted data that was to be written.
    pub(super) failed: Option<(u64, Error)>,
    /// Whether the path has another client's node.
    pub(super) conflict: bool,
    /// The result of the close.
    pub(super) closed: Option<Result<(), Error>>,
}
