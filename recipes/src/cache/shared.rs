//! What the task of a cache shares with its readers. Only the task writes.
//!
//! No lock is held while an event is sent, a waiter woken, or a future polled.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use docent_session::{Error, ErrorKind};
use tokio::sync::{broadcast, watch};

use super::{cache_event::CacheEvent, tree::Tree};
use crate::sync::lock;

/// A node that cannot be read or listed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// The `pzxid` of the node before the listing that failed; `None` if the node itself cannot be read.
    pub(super) listing: Option<i64>,
}

/// The nodes, and the state of the cache.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) tree: Tree,
    /// The nodes that cannot be read or listed.
    pub(super) failed: BTreeMap<Arc<str>, Failure>,
    /// The number of events so far.
    pub(super) number: u64,
    pub(super) initialized: bool,
    pub(super) stale: bool,
    pub(super) closed: bool,
    /// The events of the current change.
    events: Vec<(u64, CacheEvent)>,
}

impl Failure {
    /// Whether the node itself cannot be read.
    pub(super) const fn is_of_node(&self) -> bool {
        self.listing.is_none()
    }
}

impl State {
    pub(super) fn emit(&mut self, event: CacheEvent) {
        self.number += 1;
        self.events.push((self.number, event));
    }

    /// The `pzxid` of a node before its listing was too large, if it was.
    pub(super) fn unlistable(&self, path: &str) -> Option<i64> {
        let failure = self.failed.get(path)?;
        failure.listing.filter(|_| failure.error.kind() == ErrorKind::ReplyTooLarge)
    }

    pub(super) fn emit_deleted(&mut self, path: &str) {
        for node in self.tree.remove(path) {
            self.emit(CacheEvent::Deleted { node });
        }
    }
}

/// How far a cache has come, for those that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) initialized: bool,
    pub(super) closed: bool,
}

pub(super) struct Shared {
    state: RwLock<State>,
    /// `None` once the cache is closed: the readers then end.
    events: Mutex<Option<broadcast::Sender<(u64, CacheEvent)>>>,
    pub(super) status: watch::Sender<Status>,
}

impl Shared {
    pub(super) fn new(max_events: usize, tree: Tree) -> Self {
        Self {
            state: RwLock::new(State { tree, ..State::default() }),
            events: Mutex::new(Some(broadcast::Sender::new(max_events))),
            status: watch::Sender::new(Status::default()),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state in one step, then delivers the events of the change.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        let events = std::mem::take(&mut state.events);
        let status = Status { initialized: state.initialized, closed: state.closed };
        drop(state);
        if !events.is_empty() {
            let sender = lock(&self.events).clone();
            for event in events {
                // Without receivers, the event is lost.
                let _ = sender.as_ref().map(|sender| sender.send(event));
            }
        }
        self.status.send_if_modified(|current| std::mem::replace(current, status) != status);
        result
    }

    /// Ends the cache and its readers. The readers come first: they have ended when a caller of `close` continues.
    pub(super) fn close(&self, clears: bool) {
        *lock(&self.events) = None;
        self.change(|state| {
            state.closed = true;
            if clears {
                state.tree.clear();
                state.failed.clear();
            }
        });
    }

    /// A receiver of the events from now on; a closed one after the end.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<(u64, CacheEvent)> {
        match &*lock(&self.events) {
            Some(sender) => sender.subscribe(),
            None => broadcast::Sender::new(1).subscribe(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Wake, Waker},
    };

    use tokio::sync::broadcast::{Receiver, error::TryRecvError};

    use super::*;

    /// Records whether the reader has ended at the moment of the wake.
    struct Closer {
        reader: Mutex<Receiver<(u64, CacheEvent)>>,
        ended: Mutex<Option<bool>>,
    }

    impl Wake for Closer {
        fn wake(self: Arc<Self>) {
            let next = self.reader.lock().unwrap().try_recv();
            *self.ended.lock().unwrap() = Some(matches!(next, Err(TryRecvError::Closed)));
        }
    }

    // Case (Found in docent itself): the close of a cache returned a moment before its readers had
    // ended: a closed provider of a service, asked on another thread, still picked an instance.
    #[test]
    fn the_readers_have_ended_when_the_close_is_complete() {
        let shared = Shared::new(1, Tree::default());
        let (reader, ended) = (Mutex::new(shared.subscribe()), Mutex::new(None));
        let closer = Arc::new(Closer { reader, ended });
        let mut status = shared.status.subscribe();
        let mut closed = pin!(status.wait_for(|status| status.closed));
        let waker = Waker::from(Arc::clone(&closer));
        let mut cx = Context::from_waker(&waker);
        assert!(closed.as_mut().poll(&mut cx).is_pending());
        shared.close(true);
        assert_eq!(*closer.ended.lock().unwrap(), Some(true));
        assert!(matches!(closed.poll(&mut cx), Poll::Ready(Ok(_))));
    }
}
