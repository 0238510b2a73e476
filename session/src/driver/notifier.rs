//! The buffer between the driver and a watcher.

use std::{
    cmp::Ordering,
    collections::VecDeque,
    mem,
    sync::{Arc, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{
    WatchedEvent,
    sync::{Mutex, MutexGuard},
};

/// The events of one watch that were not taken yet.
///
/// The driver fills it and the holder of the [`Watcher`] empties it; neither blocks the other.
#[derive(Debug)]
struct Slot(Mutex<Buffer>);

#[derive(Debug)]
enum Buffer {
    /// No events; with the waker of the waiter. There is at most one, because waiting borrows the watcher mutably.
    Empty(Option<Waker>),
    Events(VecDeque<WatchedEvent>),
}

impl Buffer {
    fn pop(&mut self) -> Option<WatchedEvent> {
        let Self::Events(events) = self else { return None };
        let event = events.pop_front();
        if events.is_empty() {
            *self = Self::Empty(None);
        }
        event
    }
}

/// The session's handle on a watch.
#[derive(Debug, Clone)]
pub(crate) struct Notifier(Arc<Slot>);

impl PartialEq for Notifier {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Notifier {}

/// By memory address: any total order suffices.
impl Ord for Notifier {
    fn cmp(&self, other: &Self) -> Ordering {
        Arc::as_ptr(&self.0).cmp(&Arc::as_ptr(&other.0))
    }
}

impl PartialOrd for Notifier {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Notifier {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Slot(Mutex::new(Buffer::Empty(None)))))
    }

    /// Adds an event. Up to `limit` events are buffered.
    pub(crate) fn notify(&self, event: WatchedEvent, limit: usize) {
        let waker = match &mut *self.lock() {
            Buffer::Events(events) => {
                if events.len() >= limit.max(1) {
                    // The dropped events cannot be delivered; a resync reports that events were dropped.
                    events.clear();
                    events.push_back(WatchedEvent::resync(event.path.clone()));
                }
                events.push_back(event);
                None
            }
            buffer @ Buffer::Empty(_) => {
                let events = Buffer::Events(VecDeque::from([event]));
                match mem::replace(buffer, events) {
                    Buffer::Empty(waker) => waker,
                    Buffer::Events(_) => None,
                }
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next event, if there is one.
    pub(crate) fn try_next(&self) -> Option<WatchedEvent> {
        self.lock().pop()
    }

    /// The next event. Without one, the task of `cx` is woken when it comes.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<WatchedEvent> {
        let mut buffer = self.lock();
        match buffer.pop() {
            Some(event) => Poll::Ready(event),
            None => {
                let replaced = mem::replace(&mut *buffer, Buffer::Empty(Some(cx.waker().clone())));
                // The drop of a waker may run code of the caller.
                drop(buffer);
                drop(replaced);
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
