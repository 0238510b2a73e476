//! The watcher: the application's handle on a watch; and the futures of the calls that resolve to one.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use docent_protocol::{EventType, KeeperState, OpCode};

use super::{chroot::Chroot, exchange::nothing, response::Response};
use crate::{
    Error, ErrorKind, Outcome, WatchedEvent,
    driver::{Notifier, PendingReply, Shared, already_taken},
    watch::WatchKind,
};

/// A watch on a node.
///
/// A watch of a read (`get_data_and_watch` and the like) delivers one event, once. A watch of
/// [`Client::add_watch`](crate::Client::add_watch) delivers every event, until it is dropped.
///
/// A watch survives reconnects: it is set again on the next server. A one-shot watch delivers a change made in the
/// meantime as its event; a persistent watch delivers a [resync](WatchedEvent::is_resync) instead. A watch ends with
/// the session, with an event of type [`EventType::None`].
///
/// When a server refuses to set watches for a while, with `ThrottledOp` for example, the request is sent again with
/// growing delays up to 5 s. This ends no watch, and persistent watches resync when it is over. Only a server that does
/// not support persistent watches ends them, with [`EventType::PersistentWatchRemoved`].
///
/// A watch whose path leaves less than 40 bytes of [`max_request_bytes`](crate::Config::with_max_request_bytes) fits into no
/// request that sets it again. It ends with the connection, with an event such as [`EventType::DataWatchRemoved`].
///
/// Events that were not taken are buffered, up to [`max_watch_events`](crate::Config::with_max_watch_events). When the
/// buffer is full, they are dropped and replaced by one resync. A slow watcher delays nothing else.
///
/// A server sends no event of a node that the client may not read at that moment, but a one-shot watch is removed from
/// the server all the same. Such a watch stays silent for ever (CVE-2024-23944; servers since 3.8.4 and 3.9.2, and
/// patched older ones). Where ACLs change, read again from time to time.
///
/// With the feature `stream`, a watcher is a stream of `futures-core`, which ends after the last event.
///
/// Dropping the watcher removes the watch from the client. [`OnDrop`] decides whether it is removed from the server.
pub struct Watcher {
    notifier: Notifier,
    kind: WatchKind,
    /// The server's path.
    path: Arc<str>,
    /// The length of the chroot in it, in bytes: a client's whole chroot would be a third of the size of a watcher.
    outside: u32,
    session: Weak<Shared>,
    /// Whether the reply to its request was received, so that it is in the watch table or its event has come.
    confirmed: bool,
    on_drop: OnDrop,
    /// Whether the last event was taken.
    pub(super) is_over: bool,
}

/// Whether the server's watch is removed when a [`Watcher`] is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrop {
    /// The watch stays on the server, and its events are ignored. Nothing is sent. This is the default of one-shot
    /// watches, as in Curator: they cause at most one event.
    Forget,
    /// The watch is removed, unless another watcher of this client needs it. Sends removeWatches (18), or addWatch
    /// (106) when a recursive watch leaves others on its path. A persistent watch stays on the server until the
    /// one-shot watches of its path have fired or were dropped, because they are served from its events. This is the
    /// default of persistent watches.
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
        // Paths over 4 GiB fit into no frame. For the root of a chroot, the chroot is the whole path, and the client's
        // path is `/`.
        let outside = if chroot.strip(&path) == "/" { path.len() } else { outside };
        let outside = u32::try_from(outside).unwrap_or(u32::MAX);
        let (confirmed, is_over) = (false, false);
        Self { notifier, kind, path, outside, session, confirmed, on_drop, is_over }
    }

    pub(crate) const fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Marks the request as answered.
    pub(crate) const fn confirm(mut self) -> Self {
        self.confirmed = true;
        self
    }

    /// The next event, if there is one in the buffer.
    pub fn try_next(&mut self) -> Option<WatchedEvent> {
        let event = self.notifier.try_next()?;
        Some(self.localize(event))
    }

    /// The path of the node, as the client knows it.
    #[must_use]
    pub fn path(&self) -> &str {
        self.client_path(&self.path)
    }

    /// The kind of the watch. A watch of an exists that found its node is reported as [`WatchKind::Exist`] too.
    #[must_use]
    pub const fn kind(&self) -> WatchKind {
        self.kind
    }

    /// Waits for the next event; `None` after the last one, which is that of a one-shot watch, or an
    /// [end](WatchedEvent::is_end). More than [`max_watch_events`](crate::Config::with_max_watch_events) events that were
    /// not taken are replaced by a [resync](WatchedEvent::is_resync).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<WatchedEvent> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for streams and hand-written futures: ready with the next event, or wakes the
    /// task when it comes. Only the last task that polled is woken.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchedEvent>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(event) = self.notifier.poll_next(cx) {
            return Poll::Ready(Some(self.localize(event)));
        }
        if self.session.strong_count() > 0 {
            return Poll::Pending;
        }
        // The client was dropped without an end of its watches.
        Poll::Ready(Some(self.localize(WatchedEvent {
            event_type: EventType::None,
            state: KeeperState::Closed,
            path: Arc::clone(&self.path).into(),
            zxid: None,
        })))
    }

    /// Sets whether dropping the watcher removes the watch from the server.
    pub const fn set_on_drop(&mut self, on_drop: OnDrop) {
        self.on_drop = on_drop;
    }

    /// Drops the watcher without removing the watch from the server.
    pub fn forget(mut self) {
        self.on_drop = OnDrop::Forget;
    }

    /// Removes the watch from the server, unless another watcher of this client needs it, and waits for the reply.
    /// Sends removeWatches (18).
    ///
    /// # Errors
    ///
    /// `Closed` when the client has ended. `Unimplemented` from servers before 3.5 is not returned as an error: the
    /// watch is removed from the client in any case.
    ///
    /// # Cancel safety
    ///
    /// The request is queued by the call itself.
    pub fn remove(mut self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.on_drop = OnDrop::Forget;
        let path = self.path();
        let response: Response<()> = match self.session.upgrade() {
            Some(session) => {
                let answer = self.remove_from_server(&session, path);
                Response::waiting(answer, nothing, OpCode::RemoveWatches, Chroot::default())
            }
            None => Response::refused(
                Error::new(ErrorKind::Closed, Outcome::NotApplied),
                nothing,
                OpCode::RemoveWatches,
                path,
            ),
        };
        response
    }

    /// `path` is the caller's, for the errors of the reply.
    fn remove_from_server(&self, session: &Shared, path: &str) -> PendingReply {
        session.request(path, |machine, token| {
            let now = || session.clock().now();
            machine.remove_watch(&self.path, &self.notifier, Some(token), now);
        })
    }

    /// Replaces the path of an event with the client's path.
    fn localize(&mut self, mut event: WatchedEvent) -> WatchedEvent {
        self.is_over |= !self.kind.is_persistent() || event.is_end();
        if event.is_resync() {
            // When events were dropped, the resync replaced an event that may have been about a descendant.
            event.path = Arc::clone(&self.path).into();
        }
        let path = self.client_path(&event.path);
        if path.len() != event.path.len() {
            event.path = path.into();
        }
        event
    }

    /// The client's path for a server's path at or below the path of the watch.
    fn client_path<'a>(&self, path: &'a str) -> &'a str {
        match path.get(self.outside as usize..) {
            Some("") => "/",
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(session) = self.session.upgrade() else { return };
        match (self.confirmed, self.on_drop) {
            (false, _) => session.with(|machine| {
                machine.cancel_watch(&self.path, &self.notifier, || session.clock().now());
            }),
            (true, OnDrop::Forget) => {
                session.with(|machine| machine.forget_watch(&self.path, &self.notifier))
            }
            // The reply is not awaited.
            (true, OnDrop::Remove) => drop(self.remove_from_server(&session, "")),
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

/// The reply to a read that sets a watch.
#[must_use = "the request is sent anyway; without awaiting this, its watch is dropped"]
#[derive(Debug)]
pub struct WatchResponse<R> {
    response: Response<R>,
    watcher: Option<Watcher>,
}

impl<R> WatchResponse<R> {
    pub(crate) const fn new(response: Response<R>, watcher: Watcher) -> Self {
        Self { response, watcher: Some(watcher) }
    }

    /// Replaces the response to the read.
    pub(super) fn map(self, f: impl FnOnce(Response<R>) -> Response<R>) -> Self {
        Self { response: f(self.response), ..self }
    }
}

impl<R> Future for WatchResponse<R> {
    type Output = Result<(R, Watcher), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.response).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(value)) => {
                let watcher = self.watcher.take().map(Watcher::confirm);
                Poll::Ready(watcher.map(|watcher| (value, watcher)).ok_or_else(already_taken))
            }
        }
    }
}

/// The reply to [`Client::add_watch`](crate::Client::add_watch): the watcher.
#[must_use = "without awaiting this, the watch is removed again"]
#[derive(Debug)]
pub struct AddWatchResponse(pub(crate) WatchResponse<()>);

impl Future for AddWatchResponse {
    type Output = Result<Watcher, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_ok(|((), watcher)| watcher)
    }
}
