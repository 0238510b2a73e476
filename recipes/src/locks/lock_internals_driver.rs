//! The part of the lock algorithm that differs between kinds of locks.

use std::fmt;

use docent_protocol::CreateMode;

use super::standard_lock_internals_driver::{
    Contender, PredicateError, PredicateResults, gets_the_lock, sorted_contenders,
};

/// The node that a contender creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockNode {
    /// The part of its name after the GUID.
    pub name: String,
    /// Ephemeral and sequential, for the locks of this crate.
    pub mode: CreateMode,
}

/// Decides which children contend for a lock, in which order they acquire it, and which node a contender creates.
///
/// Every method has a default, which is that of [`StandardLockInternalsDriver`]; a lock with a different order
/// overrides some of them. All clients that share a lock must use the same driver.
///
/// # Requirements for an implementation
///
/// For any list of children, [`gets_the_lock`](Self::gets_the_lock) must grant the lock to at most one contender (of a
/// semaphore, at most `max_leases`). Retries, clean-up and sessions are not the driver's concern.
///
/// Source: `LockInternalsDriver`, `LockInternalsSorter`. There, `createsTheLock` creates the node itself
/// (CURATOR-84); here it only describes the node, so that no node can be left behind.
pub trait LockInternalsDriver: fmt::Debug + Send + Sync + 'static {
    /// The contenders among the children, in the order in which they acquire the lock.
    ///
    /// Source: `LockInternalsSorter.fixForSorting`, `LockInternals.getSortedChildren`.
    fn sorted<'a>(&self, children: &[&'a str], lock_name: &str) -> Vec<Contender<'a>> {
        sorted_contenders(children.iter().copied(), lock_name)
    }

    /// Whether `our_name` has the lock, and which node to watch if not.
    ///
    /// # Errors
    ///
    /// A [`PredicateError`] when the children allow no decision.
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

    /// The node to create.
    ///
    /// Source: `LockInternalsDriver.createsTheLock`.
    fn creates_the_lock(&self, lock_name: &str) -> LockNode {
        LockNode { name: lock_name.to_owned(), mode: CreateMode::EphemeralSequential }
    }
}

/// Grants the lock to the first `max_leases` contenders, in the order of the server's sequence numbers.
///
/// Source: Curator's class of that name.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandardLockInternalsDriver;

impl LockInternalsDriver for StandardLockInternalsDriver {}
