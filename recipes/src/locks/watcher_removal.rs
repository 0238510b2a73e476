//! The watches of one lock object, left over or waited upon.
//!
//! A waiter that ran out of time leaves its watch behind, to go with its event or with the next release of
//! the object: Curator does, and so a trace of ours looks like one of its own.
//!
//! Source: `WatcherRemovalManager`, `WatcherRemoveCuratorFramework`.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use docent_protocol::WatcherType;
use docent_session::{Client, WatchedEvent, Watcher};
use tokio::sync::Notify;

use crate::race::{First, race};

/// The watches that were set through one lock object.
#[derive(Debug, Default)]
pub(crate) struct WatcherRemovalManager {
    entries: Mutex<Vec<Entry>>,
    next_id: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    path: String,
    removed: Arc<Notify>,
    /// Once nobody waits for it any more.
    left_over: Option<Watcher>,
}

/// A watch that is waited upon.
#[derive(Debug)]
pub(crate) struct Entered {
    manager: Arc<WatcherRemovalManager>,
    id: u64,
    removed: Arc<Notify>,
    watcher: Option<Watcher>,
    fired: bool,
}

impl WatcherRemovalManager {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(self: &Arc<Self>, watcher: Watcher) -> Entered {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let removed = Arc::new(Notify::new());
        let entry = Entry {
            id,
            path: watcher.path().to_owned(),
            removed: Arc::clone(&removed),
            left_over: None,
        };
        let mut entries = self.lock();
        entries.retain_mut(|entry| !entry.has_fired());
        entries.push(entry);
        Entered { manager: Arc::clone(self), id, removed, watcher: Some(watcher), fired: false }
    }

    /// Forgets all watches of the object, those of its waiters too, who look again.
    ///
    /// As Curator, it asks the server about each (checkWatches), which removes nothing there (N11): the event
    /// still comes, and finds nobody.
    ///
    /// Who waited is woken when the result is dropped: so that a delete is queued before they look again.
    ///
    /// Source: `WatcherRemovalManager.removeWatchers`.
    pub(crate) fn remove_watches(&self, client: &Client) -> Removed {
        let mut entries = std::mem::take(&mut *self.lock());
        for entry in &mut entries {
            if !entry.has_fired() {
                drop(client.check_watches(&entry.path, WatcherType::Any));
            }
        }
        Removed(entries)
    }
}

/// Watches that are no more; dropped, it wakes those who waited for them.
#[must_use = "those who waited are woken when it is dropped"]
pub(crate) struct Removed(Vec<Entry>);

impl Drop for Removed {
    fn drop(&mut self) {
        for entry in &self.0 {
            entry.removed.notify_one();
        }
    }
}

impl Entry {
    fn has_fired(&mut self) -> bool {
        self.left_over.as_mut().is_some_and(|watcher| watcher.try_changed().is_some())
    }
}

impl Entered {
    /// Waits for the event; `None` when the watch was removed.
    pub(crate) async fn changed(&mut self) -> Option<WatchedEvent> {
        let watcher = self.watcher.as_mut()?;
        match race(watcher.changed(), self.removed.notified()).await {
            First::Left(event) => {
                self.fired = true;
                Some(event)
            }
            First::Right(()) => None,
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut entries = self.manager.lock();
        // Gone from the list: removed by a release.
        let Some(at) = entries.iter().position(|entry| entry.id == self.id) else { return };
        if self.fired {
            entries.swap_remove(at);
        } else if let Some(entry) = entries.get_mut(at) {
            entry.left_over = self.watcher.take();
        }
    }
}
