//! The queue of a strict mutex: that of [`StandardLockInternalsDriver`](crate::locks::StandardLockInternalsDriver), for
//! nodes that belong to strict mutexes only.

use std::sync::Mutex;

use crate::locks::{
    LockInternalsDriver,
    standard_lock_internals_driver::{
        Contender, PredicateError, PredicateResults, gets_the_lock, sequence_of, sorted_contenders,
    },
};
use crate::sync::lock;

/// The lock name of a strict mutex. It ends with that of a mutex: Curator's locks at the same path queue behind it.
pub(super) const STRICT_LOCK_NAME: &str = "strict-lock-";

/// Orders the contenders of one acquire, and notes a child that is not a contender.
#[derive(Debug, Default)]
pub(super) struct Contenders {
    foreign: Mutex<Option<String>>,
}

impl Contenders {
    /// The first child of the last listing that belongs to no strict mutex.
    pub(super) fn foreign(&self) -> Option<String> {
        lock(&self.foreign).clone()
    }
}

impl LockInternalsDriver for Contenders {
    fn sorted<'a>(&self, children: &[&'a str], lock_name: &str) -> Vec<Contender<'a>> {
        let is_foreign = |name: &&&str| sequence_of(name, lock_name).is_none();
        let foreign = children.iter().find(is_foreign).map(|name| (*name).to_owned());
        *lock(&self.foreign) = foreign;
        sorted_contenders(children.iter().copied(), lock_name)
    }

    /// Ends the wait when there is a foreign child: the acquire fails then.
    fn gets_the_lock<'a>(
        &self,
        contenders: &[Contender<'a>],
        our_name: &str,
        max_leases: usize,
    ) -> Result<PredicateResults<'a>, PredicateError> {
        let result = gets_the_lock(contenders, our_name, max_leases)?;
        Ok(if self.foreign().is_some() { PredicateResults::GetsTheLock } else { result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_another_recipe_is_noted() {
        let ours = "_c_a-strict-lock-0000000003";
        for foreign in ["_c_b-lock-0000000001", "_c_b-__READ__0000000001", "leases", "readme"] {
            let contenders = Contenders::default();
            let children = [ours, "_c_b-strict-lock-0000000002", foreign];
            let sorted = contenders.sorted(&children, STRICT_LOCK_NAME);
            assert_eq!(contenders.foreign().as_deref(), Some(foreign));
            let result = contenders.gets_the_lock(&sorted, ours, 1);
            assert_eq!(result, Ok(PredicateResults::GetsTheLock), "the acquire does not wait");
            let sorted = contenders.sorted(&children[..2], STRICT_LOCK_NAME);
            assert_eq!(contenders.foreign(), None);
            let ahead = PredicateResults::PathToWatch("_c_b-strict-lock-0000000002");
            assert_eq!(contenders.gets_the_lock(&sorted, ours, 1), Ok(ahead));
        }
    }

    /// An InterProcessMutex at the path of a strict mutex queues behind its nodes.
    #[test]
    fn a_plain_mutex_counts_a_strict_contender() {
        let name = "_c_a-strict-lock-0000000003";
        assert_eq!(sequence_of(name, crate::locks::lock_internals::LOCK_NAME), Some(3));
    }
}
