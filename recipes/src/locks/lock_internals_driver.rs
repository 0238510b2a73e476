//! What can be different about a lock that is otherwise acquired as any other.

use std::fmt;

use docent_protocol::CreateMode;

use super::standard_lock_internals_driver::{
    Contender, PredicateError, PredicateResults, gets_the_lock, sorted_contenders,
};

/// The node that a contender puts into the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockNode {
    /// Its name, behind the GUID.
    pub name: String,
    /// Ephemeral and sequential, for the locks of this crate.
    pub mode: CreateMode,
}

/// Decides who wants a lock, in which order they get it, and what node stands for a contender.
///
/// Every method has the standard answer, which is that of [`StandardLockInternalsDriver`]; a lock with an order
/// of its own overrides what it needs. All who share the lock must have the same driver.
///
/// # What an implementation answers for
///
/// That at most one contender (or as many as there are leases) is told that it gets the lock, as long as
/// all look at the same children. The rest is not its business: the retries, the clean-up, the session that
/// a node belongs to.
///
/// Source: `LockInternalsDriver`, `LockInternalsSorter`. There, `createsTheLock` creates the node itself
/// (CURATOR-84); here it says which one, so that none can be left behind.
pub trait LockInternalsDriver: fmt::Debug + Send + Sync + 'static {
    /// The children that want the lock, in the order in which they get it.
    ///
    /// Source: `LockInternalsSorter.fixForSorting`, `LockInternals.getSortedChildren`.
    fn sorted<'a>(&self, children: &[&'a str], lock_name: &str) -> Vec<Contender<'a>> {
        sorted_contenders(children.iter().copied(), lock_name)
    }

    /// Whether `our_name` has the lock, and whom to watch if not.
    ///
    /// # Errors
    ///
    /// What the children can say of neither.
    ///
    /// Source: `LockInternalsDriver.getsTheLock`.
    fn gets_the_lock<'a>(
        &self,
        contenders: &[Contender<'a>],
        our_name: &str,
        max_leases: usize,
    ) -> Result<PredicateResults<'a>, PredicateError> {
        gets_the_lock(contenders, our_name, max_leases)
    }

    /// What node to create.
    ///
    /// Source: `LockInternalsDriver.createsTheLock`.
    fn creates_the_lock(&self, lock_name: &str) -> LockNode {
        LockNode { name: lock_name.to_owned(), mode: CreateMode::EphemeralSequential }
    }
}

/// The order of the server's numbers, for the first `max_leases` of them.
///
/// Source: Curator's class of that name.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandardLockInternalsDriver;

impl LockInternalsDriver for StandardLockInternalsDriver {}
