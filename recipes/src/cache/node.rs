//! A node in a cache.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use docent_protocol::Stat;

/// A node as a cache knows it: path, Stat and data of one read. It never changes; clones share one allocation.
///
/// The number of children, `cversion` and `pzxid` in the Stat are those of the last read of the node, as in Curator: the
/// creation and deletion of children are followed by events of the children.
///
/// Source: `ChildData`.
#[derive(Clone, PartialEq, Eq)]
pub struct CachedNode(Arc<Inner>);

#[derive(PartialEq, Eq)]
struct Inner {
    path: Box<str>,
    stat: Stat,
    data: Option<Bytes>,
}

impl CachedNode {
    /// The data is that of a reply, of which a slice would keep up to 64 times its size in memory: it is copied.
    pub(super) fn new(path: &str, stat: Stat, data: Option<&[u8]>) -> Self {
        let data = data.map(Bytes::copy_from_slice);
        Self(Arc::new(Inner { path: path.into(), stat, data }))
    }

    /// The same node without its data.
    pub(super) fn without_data(&self) -> Self {
        Self::new(&self.0.path, self.0.stat, None)
    }

    /// The same node with another Stat.
    pub(super) fn with_stat(&self, stat: Stat) -> Self {
        let (path, data) = (self.0.path.clone(), self.0.data.clone());
        Self(Arc::new(Inner { path, stat, data }))
    }

    /// The path of the node, as the client names it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The Stat of the node. Its `czxid` identifies the node: a recreated one has another.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.0.stat
    }

    /// The data of the node; `None` when the cache does not keep data.
    #[must_use]
    pub fn data(&self) -> Option<&Bytes> {
        self.0.data.as_ref()
    }
}

impl fmt::Debug for CachedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedNode")
            .field("path", &self.path())
            .field("version", &self.stat().version)
            .field("czxid", &self.stat().czxid)
            .field("mzxid", &self.stat().mzxid)
            .field("data", &self.data())
            .finish_non_exhaustive()
    }
}
