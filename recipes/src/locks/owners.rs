//! The owners and holds of a lock object.
//!
//! Source: `InterProcessMutex.threadData`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use super::{Owner, hold::Hold};
use crate::sync::lock;

/// The owners of one lock object, and all of its holds.
#[derive(Debug, Default)]
pub(super) struct Owners {
    entries: Mutex<HashMap<u64, Entry>>,
    holds: Mutex<Vec<Weak<Hold>>>,
}

#[derive(Debug, Default)]
struct Entry {
    hold: Option<Weak<Hold>>,
    /// Serializes the acquires of one owner, as they are in a thread.
    acquiring: Arc<tokio::sync::Mutex<()>>,
}

/// The entry of an owner that acquires the lock. Dropping it removes an idle entry, also when the acquire was dropped.
pub(super) struct Acquiring<'a> {
    owners: &'a Owners,
    id: u64,
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        self.owners.remove_idle(self.id);
    }
}

impl Owners {
    /// The hold of this owner, which may be being released.
    pub(super) fn hold(&self, owner: &Owner) -> Option<Arc<Hold>> {
        lock(&self.entries).get(&owner.id())?.hold.as_ref()?.upgrade()
    }

    /// Begins an acquire, which has to lock the mutex. The mutex is to be dropped first.
    pub(super) fn acquiring(&self, owner: &Owner) -> (Acquiring<'_>, Arc<tokio::sync::Mutex<()>>) {
        let mutex = Arc::clone(&lock(&self.entries).entry(owner.id()).or_default().acquiring);
        (Acquiring { owners: self, id: owner.id() }, mutex)
    }

    pub(super) fn add(&self, owner: Option<&Owner>, hold: &Arc<Hold>) {
        if let Some(owner) = owner {
            lock(&self.entries).entry(owner.id()).or_default().hold = Some(Arc::downgrade(hold));
        }
        let mut holds = lock(&self.holds);
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(hold));
    }

    /// Whether the lock object has a hold that is held.
    pub(super) fn any_held(&self) -> bool {
        let holds: Vec<_> = {
            let holds = lock(&self.holds);
            holds.iter().filter_map(Weak::upgrade).collect()
        };
        // Not under the lock: the end of a claim wakes tasks.
        holds.iter().any(|hold| hold.is_held())
    }

    /// Removes a hold that has ended. The owner may have another one by now, which stays.
    pub(super) fn remove(&self, id: u64, hold: &Hold) {
        if let Some(entry) = lock(&self.entries).get_mut(&id)
            && entry.hold.as_ref().is_some_and(|current| std::ptr::eq(current.as_ptr(), hold))
        {
            entry.hold = None;
        }
        self.remove_idle(id);
    }

    /// Removes the entry of an owner that neither holds nor acquires the lock.
    fn remove_idle(&self, id: u64) {
        let mut entries = lock(&self.entries);
        let idle = entries
            .get(&id)
            .is_some_and(|entry| entry.hold.is_none() && Arc::strong_count(&entry.acquiring) == 1);
        if idle {
            entries.remove(&id);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.entries).len()
    }
}
