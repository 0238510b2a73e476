//! The states of a connection, as a sequence.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::ConnectionState;

/// The states of a connection, in order. With the feature `stream`, a stream of `futures-core`.
///
/// Source: Curator's `ConnectionStateListener`.
pub struct States {
    current: Option<ConnectionState>,
    /// The future of the next state; `None` once the client has ended.
    next: Option<Next>,
}

type Next = Pin<
    Box<dyn Future<Output = Option<(ConnectionState, Receiver<ConnectionState>)>> + Send + Sync>,
>;

impl States {
    pub(super) fn new(current: Option<ConnectionState>, later: Receiver<ConnectionState>) -> Self {
        Self { current, next: Some(Box::pin(receive(later))) }
    }

    /// The next state; `None` once the client has ended. A listener that is more than 32 states behind misses the
    /// oldest; Curator keeps 25.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<ConnectionState> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for streams and hand-written futures: ready with the next state, or wakes the task when
    /// it comes. Only the last task that polled is woken.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConnectionState>> {
        if let Some(current) = self.current.take() {
            return Poll::Ready(Some(current));
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let Poll::Ready(received) = next.as_mut().poll(cx) else { return Poll::Pending };
        let (state, next) = match received {
            Some((state, later)) => (Some(state), Some(Box::pin(receive(later)) as Next)),
            None => (None, None),
        };
        self.next = next;
        Poll::Ready(state)
    }

    /// Whether the client has ended and all states were taken.
    #[cfg(feature = "stream")]
    pub(super) const fn is_over(&self) -> bool {
        self.current.is_none() && self.next.is_none()
    }
}

/// The next state, and the receiver of those after it; `None` once the client has ended.
async fn receive(
    mut states: Receiver<ConnectionState>,
) -> Option<(ConnectionState, Receiver<ConnectionState>)> {
    loop {
        match states.recv().await {
            Ok(state) => return Some((state, states)),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("States").field("current", &self.current).finish_non_exhaustive()
    }
}
