//! The owner of a re-entrant lock.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// An identity for re-entrant acquires, in place of Curator's thread: a lock that is held under an owner can be
/// acquired again under the same owner.
///
/// Clones are the same owner. It is never inferred from a task or a thread: two branches of one `join!` share
/// both, and must exclude each other.
///
/// The acquires of one owner on one lock object are served one after the other, as a thread's are. Tasks that share an
/// owner can therefore wait for each other for ever: one waits for a read lock, the other one holds the write lock and
/// acquires the read lock too.
#[derive(Debug, Clone)]
pub struct Owner(Arc<u64>);

impl Owner {
    /// A new owner, distinct from all others in this process.
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
