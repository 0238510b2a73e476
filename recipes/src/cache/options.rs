//! Options of a cache.

use std::{fmt, sync::Arc};

use super::node::CachedNode;

/// The largest buffer of events. Its memory is allocated at the start.
const MAX_EVENTS: usize = 1 << 20;

pub(super) type Filter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Options of a [`CuratorCache`](super::CuratorCache): which nodes it holds, and how many requests and events it keeps
/// in flight. The default holds the whole tree with its data.
///
/// ```
/// use docent::CacheOptions;
///
/// let options = CacheOptions::direct_children()
///     .without_data()
///     .with_filter(|path| !path.ends_with(".tmp"));
/// # drop(options);
/// ```
#[derive(Clone)]
pub struct CacheOptions {
    pub(super) max_depth: usize,
    pub(super) filter: Option<Filter>,
    pub(super) keeps_data: bool,
    pub(super) clears: bool,
    pub(super) max_reads: usize,
    pub(super) max_events: usize,
    pub(super) initial: Vec<CachedNode>,
}

impl CacheOptions {
    /// Only the node itself. Its children are not listed.
    ///
    /// Source: `CuratorCache.Options.SINGLE_NODE_CACHE`.
    #[must_use]
    pub fn single_node() -> Self {
        Self::default().with_max_depth(0)
    }

    /// The node and its direct children.
    ///
    /// Source: `PathChildrenCache`. The wrapper of `CuratorCache` of that name reports all descendants (C10).
    #[must_use]
    pub fn direct_children() -> Self {
        Self::default().with_max_depth(1)
    }

    /// Sets the depth to which the tree is held: 0 is the node itself, 1 includes its children. Default: unlimited.
    ///
    /// Source: `TreeCache.Builder.setMaxDepth`.
    #[must_use]
    pub const fn with_max_depth(mut self, depth: usize) -> Self {
        self.max_depth = depth;
        self
    }

    /// Holds only the nodes for which the filter returns true; the descendants of others are not held either. It is
    /// called with full paths below the cached one, and must always return the same for one path.
    ///
    /// Source: `TreeCacheSelector`.
    #[must_use]
    pub fn with_filter(mut self, filter: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(Arc::new(filter));
        self
    }

    /// Keeps no data. The events of a creation and a change still contain the new data; the old node of a change and a
    /// deleted node have none.
    ///
    /// Source: `CuratorCacheStorage.dataNotCached`.
    #[must_use]
    pub const fn without_data(mut self) -> Self {
        self.keeps_data = false;
        self
    }

    /// Keeps the nodes readable after the close. They are not updated any more.
    ///
    /// Source: `CuratorCache.Options.DO_NOT_CLEAR_ON_CLOSE`.
    #[must_use]
    pub const fn without_clear_on_close(mut self) -> Self {
        self.clears = false;
        self
    }

    /// Starts with the nodes of an earlier cache of the same path, such as its
    /// [`snapshot`](super::CuratorCache::snapshot). Only differences become events. Nodes that this cache does not hold are
    /// left out: other paths, deeper ones, those that its filter rejects.
    ///
    /// An older server may serve this cache. Where its nodes are older than these, the cache sends a write that changes
    /// nothing, a multi (14) of a check that fails, and reads them again; if they are older still, the ensemble is another
    /// one, or was restored from a backup, and they count.
    ///
    /// Source: a `CuratorCacheStorage` that two caches use one after the other.
    #[must_use]
    pub fn with_initial_nodes(mut self, nodes: impl IntoIterator<Item = CachedNode>) -> Self {
        self.initial = nodes.into_iter().collect();
        self
    }

    /// Sets the number of reads in flight, at least 1. Default 128. Curator sets no limit (C4).
    #[must_use]
    pub const fn with_max_reads(mut self, reads: usize) -> Self {
        self.max_reads = if reads == 0 { 1 } else { reads };
        self
    }

    /// Sets the number of events that a reader may be behind before it receives a
    /// [`Lagged`](super::CacheEvent::Lagged) instead, from 1 to 1,048,576. Default 1,024. The memory for that number is
    /// allocated at the start, about 100 bytes for each; an event
    /// that a reader has not taken keeps its nodes in memory. Curator sets no limit (C4).
    #[must_use]
    pub const fn with_max_events(mut self, events: usize) -> Self {
        self.max_events = match events {
            0 => 1,
            MAX_EVENTS.. => MAX_EVENTS,
            _ => events,
        };
        self
    }

    /// The number of levels between the root and a path; `None` if a cache with these options does not hold the path.
    pub(super) fn depth(&self, root: &str, path: &str) -> Option<usize> {
        if path == root {
            return Some(0);
        }
        let below = path.strip_prefix(root.trim_end_matches('/'))?;
        let depth = below.starts_with('/').then(|| below.matches('/').count())?;
        if depth > self.max_depth {
            return None;
        }
        if let Some(filter) = &self.filter {
            // Each ancestor below the root has to pass, too.
            let start = path.len() - below.len();
            let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > start);
            let mut prefixes = ends.chain([path.len()]).filter_map(|end| path.get(..end));
            if !prefixes.all(|prefix| filter(prefix)) {
                return None;
            }
        }
        Some(depth)
    }
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            max_depth: usize::MAX,
            filter: None,
            keeps_data: true,
            clears: true,
            max_reads: 128,
            max_events: 1024,
            initial: Vec::new(),
        }
    }
}

impl fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheOptions")
            .field("max_depth", &self.max_depth)
            .field("has_filter", &self.filter.is_some())
            .field("keeps_data", &self.keeps_data)
            .field("clears", &self.clears)
            .field("max_reads", &self.max_reads)
            .field("max_events", &self.max_events)
            .field("initial", &self.initial.len())
            .finish()
    }
}
