//! An event of a cache.

use docent_session::{Error, watch::NodePath};

use super::node::CachedNode;

/// What a cache has noticed.
///
/// For each path, a created node is changed any number of times and deleted, before another one is created. Several
/// changes of the data may be one event. A created node follows its parent; a deleted one precedes it.
///
/// Source: `CuratorCacheListener.Type`, and for the state of the cache `TreeCacheEvent.Type`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CacheEvent {
    /// A node is new: it was created, or found by the first load.
    Created {
        /// The node.
        node: CachedNode,
    },
    /// The data of a node was written. Writing the same bytes again is a change too.
    Changed {
        /// The node before.
        old: CachedNode,
        /// The node now.
        new: CachedNode,
    },
    /// A node was deleted. A node that was replaced by another one at the same path is deleted and created.
    Deleted {
        /// The node as it was last known.
        node: CachedNode,
    },
    /// The first load is complete: every read has a reply. Reported once.
    Initialized {
        /// The number of nodes in the cache.
        len: usize,
    },
    /// Changes may go unnoticed from now on: the connection was lost. The nodes stay readable.
    Stale,
    /// The cache has caught up with the server after [`Stale`](Self::Stale). The differences were reported before.
    Resynced {
        /// The number of nodes in the cache.
        len: usize,
    },
    /// A node cannot be read, or its children cannot be listed: `NoAuth`, or `ReplyTooLarge` for a listing over the
    /// packet limit. What is below it stays unknown. Reported once for each such node; see
    /// [`CuratorCache::failures`](super::CuratorCache::failures).
    Failed {
        /// The path of the node.
        path: NodePath,
        /// The error of the read.
        error: Error,
    },
    /// This reader was too slow and has missed events. Later events follow this snapshot.
    Lagged {
        /// All nodes, ancestors first.
        nodes: Vec<CachedNode>,
        /// Whether the cache is initialized.
        initialized: bool,
        /// Whether the cache is stale.
        stale: bool,
    },
}
