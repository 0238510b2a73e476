//! Who holds a lock object, of those that have a name.
//!
//! Source: `InterProcessMutex.threadData`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::{Owner, hold::Hold};

/// The owners of one lock object, and its holds.
#[derive(Debug, Default)]
pub(super) struct Owners {
    entries: Mutex<HashMap<u64, Entry>>,
    holds: Mutex<Vec<Weak<Hold>>>,
}

#[derive(Debug, Default)]
struct Entry {
    hold: Option<Weak<Hold>>,
    /// One acquire of an owner at a time, as a thread would.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// An owner's entry is in use; dropped, an idle one is removed, also when an acquire is dropped on its way.
pub(super) struct Turn<'a> {
    owners: &'a Owners,
    id: u64,
    pub(super) turn: Option<Arc<tokio::sync::Mutex<()>>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turn = None;
        self.owners.forget_idle(self.id);
    }
}

impl Owners {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this owner holds, or is just giving up.
    pub(super) fn hold(&self, owner: &Owner) -> Option<Arc<Hold>> {
        self.lock().get(&owner.id())?.hold.as_ref()?.upgrade()
    }

    pub(super) fn turn(&self, owner: &Owner) -> Turn<'_> {
        let turn = Arc::clone(&self.lock().entry(owner.id()).or_default().turn);
        Turn { owners: self, id: owner.id(), turn: Some(turn) }
    }

    pub(super) fn enter(&self, owner: Option<&Owner>, hold: &Arc<Hold>) {
        if let Some(owner) = owner {
            self.lock().entry(owner.id()).or_default().hold = Some(Arc::downgrade(hold));
        }
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(hold));
    }

    /// Whether any hold of this object is believed in.
    pub(super) fn any_held(&self) -> bool {
        let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.iter().filter_map(Weak::upgrade).any(|hold| hold.is_held())
    }

    /// This hold is over; the owner may have another by now.
    pub(super) fn forget(&self, id: u64, hold: &Hold) {
        if let Some(entry) = self.lock().get_mut(&id)
            && entry.hold.as_ref().is_some_and(|entered| std::ptr::eq(entered.as_ptr(), hold))
        {
            entry.hold = None;
        }
        self.forget_idle(id);
    }

    /// An owner that neither holds nor acquires needs no entry.
    fn forget_idle(&self, id: u64) {
        let mut entries = self.lock();
        let idle = entries
            .get(&id)
            .is_some_and(|entry| entry.hold.is_none() && Arc::strong_count(&entry.turn) == 1);
        if idle {
            entries.remove(&id);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}
