//! The watches of one lock object.
//!
//! A waiter that times out leaves its watch behind, until its event or the next release of the object: so does
//! Curator, and the traces of both are to be equal.
//!
//! There is one entry for each node and [`Purpose`], for any number of waiters, as Curator keeps a set of watchers and
//! paths. So acquires that time out behind one holder leave one watch, and a release sends one checkWatches for each
//! entry.
//!
//! Source: `WatcherRemovalManager`, `WatcherRemoveCuratorFramework`.

use std::{
    collections::{HashMap, hash_map},
    sync::{Arc, Mutex},
};

use docent_protocol::WatcherType;
use docent_session::{Client, WatchedEvent, Watcher};
use tokio_util::sync::CancellationToken;

use crate::{
    create::lacks_3_5_operations,
    select::{Either, select},
    sync::lock,
};

/// The reason for a watch. Curator has one watcher for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// `LockInternals.watcher`.
    NodeAhead,
    /// `LockInternals.revocableWatcher`.
    OwnNode,
}

/// The watches that were set through one lock object.
#[derive(Debug, Default)]
pub(crate) struct WatcherRemovalManager(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_node: HashMap<Key, Entry>,
    next_id: u64,
    /// The number of entries above which those with a fired watch are removed.
    purge_above: usize,
}

type Key = (Arc<str>, Purpose);

#[derive(Debug)]
struct Entry {
    /// Increases in the order of creation.
    id: u64,
    removed: CancellationToken,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The number of waiters, each with its own watcher.
    Waiting(usize),
    /// The watcher of the last waiter.
    Abandoned(Watcher),
}

/// The watch of one waiter.
#[derive(Debug)]
pub(crate) struct LockWatch {
    manager: Arc<WatcherRemovalManager>,
    key: Key,
    id: u64,
    removed: CancellationToken,
    watcher: Option<Watcher>,
    fired: bool,
}

impl WatcherRemovalManager {
    pub(crate) fn add(self: &Arc<Self>, watcher: Watcher, purpose: Purpose) -> LockWatch {
        let key = (Arc::from(watcher.path()), purpose);
        let (id, removed) = lock(&self.0).add(&key);
        LockWatch {
            manager: Arc::clone(self),
            key,
            id,
            removed,
            watcher: Some(watcher),
            fired: false,
        }
    }

    /// Removes all watches of the object, including those of its waiters, which then list the queue again.
    ///
    /// As Curator, it sends checkWatches for each, which does not remove the server's watch (N11): the event still
    /// arrives, and has no watcher. Servers before 3.5 lack the operation and are not sent it.
    ///
    /// Dropping the result wakes the waiters: so a delete can be queued before they list the queue.
    ///
    /// Source: `WatcherRemovalManager.removeWatchers`.
    pub(crate) fn remove_watches(&self, client: &Client) -> RemovedWatches {
        let mut entries: Vec<_> = std::mem::take(&mut lock(&self.0).by_node).into_iter().collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.id);
        let has_check_watches = !lacks_3_5_operations(client);
        let mut removed = Vec::with_capacity(entries.len());
        for ((path, _), mut entry) in entries {
            if has_check_watches && !entry.has_fired() {
                drop(client.check_watches(&path, WatcherType::Any));
            }
            removed.push(entry.removed);
        }
        RemovedWatches(removed)
    }
}

/// Removed watches. Dropping it wakes their waiters.
#[must_use = "dropping it wakes the waiters"]
pub(crate) struct RemovedWatches(Vec<CancellationToken>);

impl Drop for RemovedWatches {
    fn drop(&mut self) {
        for removed in &self.0 {
            removed.cancel();
        }
    }
}

impl Entries {
    /// Adds a waiter to an entry, which may be new. Returns the entry's id and the token of its removal.
    fn add(&mut self, key: &Key) -> (u64, CancellationToken) {
        if self.by_node.len() > self.purge_above {
            self.by_node.retain(|_, entry| !entry.has_fired());
            // The next scan is at twice as many entries, so its amortized cost per watch is constant.
            self.purge_above = self.by_node.len().saturating_mul(2);
        }
        match self.by_node.entry((Arc::clone(&key.0), key.1)) {
            hash_map::Entry::Occupied(entry) => {
                let entry = entry.into_mut();
                entry.state = match &entry.state {
                    State::Waiting(waiting) => State::Waiting(waiting + 1),
                    // The new watch replaces the abandoned one.
                    State::Abandoned(_) => State::Waiting(1),
                };
                (entry.id, entry.removed.clone())
            }
            hash_map::Entry::Vacant(vacant) => {
                let id = self.next_id;
                self.next_id += 1;
                let removed = CancellationToken::new();
                let entry = Entry { id, removed: removed.clone(), state: State::Waiting(1) };
                vacant.insert(entry);
                (id, removed)
            }
        }
    }

    /// Removes a waiter. `watcher` is its watcher if that has not fired; the last waiter leaves it in the entry.
    fn remove_waiter(&mut self, key: &Key, id: u64, watcher: Option<Watcher>) {
        // With another id, a release has removed the entry, and a later waiter has created a new one.
        let Some(entry) = self.by_node.get_mut(key).filter(|entry| entry.id == id) else { return };
        entry.state = match (&entry.state, watcher) {
            (State::Waiting(waiting @ 2..), _) => State::Waiting(waiting - 1),
            (_, Some(watcher)) => State::Abandoned(watcher),
            (_, None) => {
                self.by_node.remove(key);
                return;
            }
        };
    }
}

impl Entry {
    fn has_fired(&mut self) -> bool {
        match &mut self.state {
            State::Waiting(_) => false,
            State::Abandoned(watcher) => watcher.try_next().is_some(),
        }
    }
}

impl LockWatch {
    /// Waits for the event; `None` when the watch was removed.
    pub(crate) async fn next(&mut self) -> Option<WatchedEvent> {
        let watcher = self.watcher.as_mut()?;
        match select(watcher.next(), self.removed.cancelled()).await {
            Either::Left(event) => {
                self.fired = true;
                event
            }
            Either::Right(()) => None,
        }
    }
}

impl Drop for LockWatch {
    fn drop(&mut self) {
        let watcher = self.watcher.take().filter(|_| !self.fired);
        lock(&self.manager.0).remove_waiter(&self.key, self.id, watcher);
    }
}

#[cfg(test)]
mod tests {
    use docent_protocol::CreateMode;

    use super::*;

    async fn client() -> (docent_testing::TestingServer, Client) {
        let server = docent_testing::TestingServer::start().await.unwrap();
        let client = Client::connect(&server.connect_string()).await.unwrap();
        (server, client)
    }

    /// Waiters that time out behind one holder after another do not leave more and more entries.
    #[tokio::test]
    async fn entries_of_fired_watches_are_removed() {
        let (_server, client) = client().await;
        let manager = Arc::new(WatcherRemovalManager::default());
        for round in 0..100 {
            let path = format!("/ahead-{round}");
            client.create(&path, b"", CreateMode::Ephemeral).await.unwrap();
            let (_, watcher) = client.get_data_and_watch(&path).await.unwrap();
            drop(manager.add(watcher, Purpose::NodeAhead));
            client.delete(&path, None).await.unwrap();
        }
        let left = lock(&manager.0).by_node.len();
        assert!(left <= 3, "{left} entries of fired watches");
    }

    /// When one of several waiters leaves, the entry stays, and a removal still wakes the others.
    #[tokio::test]
    async fn a_removal_wakes_all_waiters_and_no_later_ones() {
        let (_server, client) = client().await;
        client.create("/ahead", b"", CreateMode::Ephemeral).await.unwrap();
        let manager = Arc::new(WatcherRemovalManager::default());
        let watch = async || {
            let (_, watcher) = client.get_data_and_watch("/ahead").await.unwrap();
            manager.add(watcher, Purpose::NodeAhead)
        };
        let (mut first, second, mut third) = (watch().await, watch().await, watch().await);
        drop(second);
        assert_eq!(client.metrics().watches, 2);
        let removed = manager.remove_watches(&client);
        let mut later = watch().await;
        drop(removed);
        assert!(first.next().await.is_none() && third.next().await.is_none());
        drop((first, third));
        assert_eq!(lock(&manager.0).by_node.len(), 1, "the entry of the later waiter stays");
        client.delete("/ahead", None).await.unwrap();
        assert!(later.next().await.is_some());
        drop(later);
        assert!(lock(&manager.0).by_node.is_empty() && client.metrics().watches == 0);
    }
}
