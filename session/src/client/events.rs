//! What is received over time: events in order, and the latest value of something that changes.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::{
    broadcast::{self, error::RecvError},
    watch,
};

use crate::ConnectionState;

/// Events, in order, for one reader.
///
/// [`next`](Self::next) waits for the next one and returns `None` after the last. With the feature `stream`, they are a
/// stream of `futures-core`.
///
/// A slow reader delays nothing. Where a limited number of events is kept for it, the oldest are dropped beyond the limit,
/// and an event named `Lagged` is delivered in their place. The method that returns the events states the limit.
pub struct Events<T> {
    poll: Box<PollNext<T>>,
    is_over: bool,
}

/// Returns the next event; `None` after the last. Wakes the task of its last call.
type PollNext<T> = dyn FnMut(&mut Context<'_>) -> Poll<Option<T>> + Send + Sync;

impl<T> Events<T> {
    /// The events that `next` returns, each with the state for the next call. For the crates of docent.
    #[doc(hidden)]
    pub fn unfold<S, F>(state: S, mut next: impl FnMut(S) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<(T, S)>> + Send + Sync + 'static,
    {
        // One allocation for all events.
        let mut future = Box::pin(Some(next(state)));
        let poll = move |cx: &mut Context<'_>| {
            let Some(current) = future.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            let Poll::Ready(received) = current.poll(cx) else { return Poll::Pending };
            let (event, later) = received.map(|(event, state)| (event, next(state))).unzip();
            future.set(later);
            Poll::Ready(event)
        };
        Self { poll: Box::new(poll), is_over: false }
    }

    /// The next event; `None` after the last.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for streams and hand-written futures: ready with the next event, or wakes the task when
    /// it comes. Only the last task that polled is woken.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = (self.poll)(cx);
        self.is_over = matches!(next, Poll::Ready(None));
        next
    }
}

impl<T> fmt::Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

/// The latest value of something that changes, for one reader.
///
/// [`get`](Self::get) returns the current value, and [`next`](Self::next) waits for a later one; `None` is the end. Of
/// several values in quick succession, a reader receives at least the last. With the feature `stream`, the later values are a
/// stream of `futures-core`. A clone is another reader, which has seen the same.
///
/// ```
/// # use docent_session::{Client, ConnectionState};
/// # async fn example(client: Client) {
/// let mut state = client.state();
/// println!("now {:?}", state.get());
/// while let Some(state) = state.next().await {
///     println!("now {state:?}");
/// }
/// # }
/// ```
pub struct Latest<T> {
    receiver: watch::Receiver<T>,
    /// The future of the next value, made when it is first polled.
    waiting: Option<Waiting<T>>,
    is_over: bool,
}

/// Resolves to a receiver that has seen no value since its last change; `None` at the end.
type Waiting<T> = Pin<Box<dyn Future<Output = Option<watch::Receiver<T>>> + Send + Sync>>;

impl<T: Clone + Send + Sync + 'static> Latest<T> {
    /// For the crates of docent.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(receiver: watch::Receiver<T>) -> Self {
        Self { receiver, waiting: None, is_over: false }
    }

    /// The current value, also after the end. [`next`](Self::next) waits for a later one from now on.
    pub fn get(&mut self) -> T {
        self.waiting = None;
        self.receiver.borrow_and_update().clone()
    }

    /// Whether there is a later value than this reader has seen, or the end: [`next`](Self::next) then does not wait.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.receiver.has_changed().unwrap_or(true)
    }

    /// The next value that this reader has not seen. The current value at the creation of the reader counts as seen. `None`
    /// at the end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for streams and hand-written futures: ready with the next value, or wakes the task when
    /// it comes. Only the last task that polled is woken.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let waiting = self.waiting.get_or_insert_with(|| {
            let mut receiver = self.receiver.clone();
            Box::pin(async move { receiver.changed().await.is_ok().then_some(receiver) })
        });
        let Poll::Ready(receiver) = waiting.as_mut().poll(cx) else { return Poll::Pending };
        self.is_over = receiver.is_none();
        Poll::Ready(receiver.map(|receiver| {
            self.receiver = receiver;
            self.get()
        }))
    }

    /// The first value, from the current one on, for which `is_wanted` returns true. `None` at the end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the values that were looked at.
    pub async fn wait_for(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Option<T> {
        let mut value = self.get();
        while !is_wanted(&value) {
            value = self.next().await?;
        }
        Some(value)
    }
}

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Self { receiver: self.receiver.clone(), waiting: None, is_over: self.is_over }
    }
}

impl<T: fmt::Debug> fmt::Debug for Latest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Latest").field(&*self.receiver.borrow()).finish()
    }
}

/// An event of [`Client::states`](crate::Client::states).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateEvent {
    /// The connection has this state from now on.
    State(ConnectionState),
    /// The reader was too slow: the oldest states are gone.
    Lagged {
        /// How many states are gone.
        missed: u64,
    },
}

impl StateEvent {
    /// The state; `None` of the other events.
    #[must_use]
    pub const fn state(self) -> Option<ConnectionState> {
        match self {
            Self::State(state) => Some(state),
            Self::Lagged { .. } => None,
        }
    }
}

impl From<ConnectionState> for StateEvent {
    fn from(state: ConnectionState) -> Self {
        Self::State(state)
    }
}

/// The current state, if there is one, and the later ones.
pub(super) fn states(
    current: Option<ConnectionState>,
    later: broadcast::Receiver<ConnectionState>,
) -> Events<StateEvent> {
    Events::unfold((current, later), |(mut current, mut later)| async move {
        let state = match current.take() {
            Some(state) => Ok(state),
            None => later.recv().await,
        };
        let event = match state {
            Ok(state) => StateEvent::State(state),
            Err(RecvError::Lagged(missed)) => StateEvent::Lagged { missed },
            Err(RecvError::Closed) => return None,
        };
        Some((event, (None, later)))
    })
}

/// Streams of `futures-core`.
#[cfg(feature = "stream")]
mod stream {
    use super::*;
    use crate::{WatchedEvent, Watcher};

    macro_rules! stream {
        ($([$($generics:tt)*] $source:ty: $item:ty;)*) => {$(
            /// As its method `next`.
            impl<$($generics)*> futures_core::Stream for $source {
                type Item = $item;

                fn poll_next(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                ) -> Poll<Option<$item>> {
                    self.get_mut().poll_next(cx)
                }
            }

            impl<$($generics)*> futures_core::FusedStream for $source {
                fn is_terminated(&self) -> bool {
                    self.is_over
                }
            }
        )*};
    }

    stream! {
        [T] Events<T>: T;
        [T: Clone + Send + Sync + Unpin + 'static] Latest<T>: T;
        [] Watcher: WatchedEvent;
    }
}
