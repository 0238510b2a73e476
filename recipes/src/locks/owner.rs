//! Who a re-entrant lock belongs to.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What stands for Curator's thread: who holds a lock may acquire it again under the same owner.
///
/// Clones are the same owner. It is never inferred from a task or a thread: two branches of one `join!` share
/// both, and must exclude each other.
#[derive(Debug, Clone)]
pub struct Owner(Arc<u64>);

impl Owner {
    /// An owner like no other in this process.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Arc::new(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn id(&self) -> u64 {
        *self.0
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Owner {}
