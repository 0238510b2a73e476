//! The connection of a session whose task was dropped with its runtime.
//!
//! A driver that is dropped with its runtime writes the queued requests, once and without waiting. Destructors queue
//! their first request themselves, so it is in the queue by then; requests that a task would send later are not. A
//! runtime drops its tasks in any order, so closeSession is sent by the drop of the driver, or left to the last drop of
//! the client: both happen under the machine's lock, and exactly one of them sends it.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use tokio::io::AsyncWrite as _;

use super::transport::ByteStream;

/// The connection of a session whose task was dropped with its runtime while the client is still in use: closeSession
/// is left to the last drop of the client. A runtime with several threads drops its tasks in any order.
pub(super) struct LastConnection {
    pub(super) stream: Box<dyn ByteStream>,
    /// The frame of closeSession; empty if it was sent among the queued requests.
    pub(super) close: Vec<u8>,
    /// Whether requests in front of closeSession have no replies yet.
    pub(super) expects_replies: bool,
}

impl LastConnection {
    /// Writes closeSession without waiting for the socket.
    pub(super) fn close(mut self) {
        let mut rest = &self.close[..];
        while !rest.is_empty() {
            let written = at_once(|cx| Pin::new(&mut self.stream).poll_write(cx, rest));
            let Some(Poll::Ready(Ok(count @ 1..))) = written else { return };
            rest = rest.get(count..).unwrap_or_default();
        }
        // A TLS stream buffers the end of a write.
        let _ = at_once(|cx| Pin::new(&mut self.stream).poll_flush(cx));
    }
}

impl Drop for LastConnection {
    /// Shuts the connection down if replies will still arrive. A socket that is closed before them resets the
    /// connection, and a server that writes another reply then closes it without reading the requests that it has
    /// received, closeSession among them. So the drop of [`Tcp`](super::Tcp)'s stream waits a moment once it is shut
    /// down.
    ///
    /// Source: `NIOServerCnxn.doIO`, which closes the connection after a failed write.
    fn drop(&mut self) {
        if self.expects_replies {
            let _ = at_once(|cx| Pin::new(&mut self.stream).poll_shutdown(cx));
        }
    }
}

impl fmt::Debug for LastConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastConnection").finish_non_exhaustive()
    }
}

/// Polls once, with or without a task to wake, and regardless of the task's budget.
pub(super) fn at_once<R>(mut poll: impl FnMut(&mut Context<'_>) -> R) -> Option<R> {
    let future = poll_fn(|cx| Poll::Ready(poll(cx)));
    match pin!(tokio::task::unconstrained(future)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
