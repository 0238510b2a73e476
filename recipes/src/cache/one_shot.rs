//! The one-shot watches of a cache on a server without addWatch (106).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
};

use docent_session::{WatchedEvent, Watcher};

use super::reads::Kind;
use crate::sync::lock;

/// A watch: the kind of read that set it, and its path.
type Key = (Kind, Arc<str>);

/// The watches, of which any number can wait in one task: each wakes it with its own waker.
#[derive(Default)]
pub(super) struct OneShotWatches {
    watchers: HashMap<Key, Watcher>,
    ready: Arc<Ready>,
}

/// The watches that may have an event.
#[derive(Default)]
struct Ready(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    keys: Vec<Key>,
    task: Option<Waker>,
}

struct KeyWaker {
    key: Key,
    ready: Arc<Ready>,
}

impl Wake for KeyWaker {
    fn wake(self: Arc<Self>) {
        let mut inner = lock(&self.ready.0);
        inner.keys.push(self.key.clone());
        let task = inner.task.take();
        drop(inner);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl OneShotWatches {
    pub(super) fn is_set(&self, kind: Kind, path: &Arc<str>) -> bool {
        self.watchers.contains_key(&(kind, Arc::clone(path)))
    }

    /// Adds a watch. The next [`poll`](Self::poll) looks at it.
    pub(super) fn add(&mut self, kind: Kind, path: &Arc<str>, watcher: Watcher) {
        let key = (kind, Arc::clone(path));
        self.watchers.insert(key.clone(), watcher);
        lock(&self.ready.0).keys.push(key);
    }

    /// The next event. A watch that has fired is no longer set.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<WatchedEvent>> {
        loop {
            let key = {
                let mut inner = lock(&self.ready.0);
                match inner.keys.pop() {
                    Some(key) => key,
                    None => {
                        inner.task = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            };
            let Some(watcher) = self.watchers.get_mut(&key) else { continue };
            let waker = KeyWaker { key: key.clone(), ready: Arc::clone(&self.ready) };
            let waker = Waker::from(Arc::new(waker));
            if let Poll::Ready(event) = watcher.poll_next(&mut Context::from_waker(&waker)) {
                self.watchers.remove(&key);
                return Poll::Ready(event);
            }
        }
    }
}
