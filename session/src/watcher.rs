//! What applications hold while they watch a node.

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

use docent_protocol::{EventType, KeeperState, OpCode};

use crate::{
    Error, Response, WatchKind, WatchedEvent, chroot::Chroot, driver::Shared, response::nothing,
};

/// Where the events of one watch are put.
///
/// Filled by the driver, emptied by whoever holds the [`Watcher`]: neither waits for the other.
#[derive(Debug)]
struct Slot(Mutex<Buffer>);

#[derive(Debug)]
enum Buffer {
    /// None are there. Who waits for one: there is one watcher, and it is borrowed while it waits.
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

/// The side of a watch that the session keeps.
#[derive(Debug, Clone)]
pub(crate) struct Notifier(Arc<Slot>);

impl PartialEq for Notifier {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Notifier {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Slot(Mutex::new(Buffer::Empty(None)))))
    }

    /// `limit` events that were not taken are kept.
    pub(crate) fn notify(&self, event: WatchedEvent, limit: usize) {
        let waker = match &mut *self.lock() {
            Buffer::Events(events) => {
                if events.len() >= limit.max(1) {
                    // What is dropped cannot be told one by one; that it was dropped can.
                    events.clear();
                    events.push_back(WatchedEvent::resync(Arc::clone(&event.path)));
                }
                events.push_back(event);
                None
            }
            buffer @ Buffer::Empty(_) => {
                let events = Buffer::Events(VecDeque::from([event]));
                match std::mem::replace(buffer, events) {
                    Buffer::Empty(waker) => waker,
                    Buffer::Events(_) => None,
                }
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch on a node.
///
/// A watch of a read (`get_data_and_watch` and the like) tells one event, once. One of
/// [`Client::add_watch`](crate::Client::add_watch) tells each, until it is dropped.
///
/// It survives reconnects: the next server is told of it. What changed meanwhile comes as an event of a
/// one-shot watch; a persistent one tells a [resync](WatchedEvent::is_resync) instead. It ends with the session,
/// with an event of type [`EventType::None`].
///
/// Events that are not taken are kept, up to
/// [`max_watch_events`](crate::Config::max_watch_events); then they are dropped and a resync takes their place. A
/// watcher that is not looked at holds up nobody.
///
/// A server tells nothing of a node that the client may not read at that moment, and a one-shot watch is over
/// on the server all the same: silence for ever (CVE-2024-23944; servers since 3.8.4 and 3.9.2, and patched
/// older ones). Where ACLs change, read again from time to time.
///
/// Dropping it forgets it here, and [`OnDrop`] says what else.
pub struct Watcher {
    notifier: Notifier,
    kind: WatchKind,
    /// The server's.
    path: Arc<str>,
    /// How much of it is the chroot, in bytes: a whole client's chroot would be a third of what a watcher takes.
    outside: u32,
    session: Weak<Shared>,
    /// Whether the reply of its request was seen, so that it stands in the watch table or its event came.
    confirmed: bool,
    on_drop: OnDrop,
    /// Whether nothing more can come but the end of the client, and that from no watch table.
    over: bool,
    /// The end of the client, for who waits for it: nearly nobody does.
    end: Option<Box<End>>,
}

type End = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// What becomes of the server's watch when a [`Watcher`] is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrop {
    /// It stays there; its events will find nobody. Nothing is sent. What one-shot watches do unless told
    /// otherwise, as Curator's: theirs is one event at most.
    Forget,
    /// It is removed, unless somebody else here watches the same: removeWatches (18) is sent. What persistent
    /// watches do unless told otherwise.
    Remove,
}

impl Watcher {
    /// `path` is the server's.
    pub(crate) fn new(
        notifier: Notifier,
        kind: WatchKind,
        path: Arc<str>,
        chroot: &Chroot,
        session: Weak<Shared>,
    ) -> Self {
        let on_drop = if kind.is_persistent() { OnDrop::Remove } else { OnDrop::Forget };
        let outside = path.len() - chroot.strip(&path).len();
        // Paths over 4 GiB fit into no frame. The root of a chroot is its whole path, and `/` to the client.
        let outside = if chroot.strip(&path) == "/" { path.len() } else { outside };
        let outside = u32::try_from(outside).unwrap_or(u32::MAX);
        let (confirmed, over, end) = (false, false, None);
        Self { notifier, kind, path, outside, session, confirmed, on_drop, over, end }
    }

    pub(crate) const fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// The request was answered.
    pub(crate) const fn confirm(mut self) -> Self {
        self.confirmed = true;
        self
    }

    /// The next event, if it has come and was not taken yet.
    pub fn try_changed(&mut self) -> Option<WatchedEvent> {
        let event = self.notifier.lock().pop()?;
        Some(self.told(event))
    }

    /// The node, as the client calls it.
    #[must_use]
    pub fn path(&self) -> &str {
        self.client_path(&self.path)
    }

    /// What the watch is about. A watch of an exists that found its node is told as
    /// [`WatchKind::Exist`] all the same.
    #[must_use]
    pub const fn kind(&self) -> WatchKind {
        self.kind
    }

    /// Waits for the next event.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. Once a one-shot watch has told its event, another call waits for
    /// ever but for the end of the client; so does any call after an [end](WatchedEvent::is_end).
    pub async fn changed(&mut self) -> WatchedEvent {
        poll_fn(|cx| self.poll_changed(cx)).await
    }

    /// As [`changed`](Self::changed), for streams and hand-written futures: ready with the next event, or the
    /// task is woken by it. Only the last task that asked is.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<WatchedEvent> {
        let event = {
            let mut buffer = self.notifier.lock();
            let event = buffer.pop();
            if event.is_none() {
                *buffer = Buffer::Empty(Some(cx.waker().clone()));
            }
            event
        };
        if let Some(event) = event {
            return Poll::Ready(self.told(event));
        }
        if self.over && self.poll_end(cx).is_ready() {
            // It is not asked again: a future that has ended must not be.
            (self.session, self.end) = (Weak::new(), None);
        }
        if self.session.strong_count() == 0 {
            return Poll::Ready(self.told(WatchedEvent {
                event_type: EventType::None,
                state: KeeperState::Closed,
                path: Arc::clone(&self.path),
                zxid: None,
            }));
        }
        Poll::Pending
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let session = &self.session;
        let end = self.end.get_or_insert_with(|| Box::new(Box::pin(end_of(session.clone()))));
        end.as_mut().as_mut().poll(cx)
    }

    /// Says what dropping it does.
    pub const fn set_on_drop(&mut self, on_drop: OnDrop) {
        self.on_drop = on_drop;
    }

    /// Drops it without telling the server.
    pub fn forget(mut self) {
        self.on_drop = OnDrop::Forget;
    }

    /// Gives the watch back to the server, unless somebody else here watches the same, and waits for the
    /// answer. Sends removeWatches (18).
    ///
    /// # Errors
    ///
    /// `Unimplemented` from servers before 3.5 is none: the watch is forgotten here in any case. `Closed` when
    /// the client is.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself.
    pub fn remove(mut self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.on_drop = OnDrop::Forget;
        let path = self.path();
        let response: Response<()> = match self.session.upgrade() {
            Some(session) => {
                let answer = session.remove_watch(path, &self.path, &self.notifier);
                Response::waiting(answer, nothing, OpCode::RemoveWatches, Chroot::default())
            }
            None => Response::refused(
                Error::new(crate::ErrorKind::Closed, crate::Outcome::NotApplied),
                nothing,
                OpCode::RemoveWatches,
                path,
            ),
        };
        response
    }

    /// The event with the client's path.
    fn told(&mut self, mut event: WatchedEvent) -> WatchedEvent {
        self.over |= !self.kind.is_persistent() || event.is_end();
        let path = self.client_path(&event.path);
        if path.len() != event.path.len() {
            event.path = path.into();
        }
        event
    }

    /// The client's path of a server's, at or below the watch's own.
    fn client_path<'a>(&self, path: &'a str) -> &'a str {
        match path.get(self.outside as usize..) {
            Some("") => "/",
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }
}

/// Waits for the end of a client, however it comes.
async fn end_of(session: Weak<Shared>) {
    let Some(mut state) = session.upgrade().map(|session| session.state()) else { return };
    // Its state is told once more at its end, and closed when it is gone.
    while session.upgrade().is_some_and(|session| session.ended().is_none()) {
        if state.changed().await.is_err() {
            return;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(session) = self.session.upgrade() else { return };
        match (self.confirmed, self.on_drop) {
            (false, _) => session.cancel_watch(&self.path, &self.notifier),
            (true, OnDrop::Forget) => session.forget_watch(&self.path, &self.notifier),
            // Not waited for.
            (true, OnDrop::Remove) => drop(session.remove_watch("", &self.path, &self.notifier)),
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("kind", &self.kind)
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
