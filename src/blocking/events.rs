//! Sequences of events as iterators that wait.

use std::{future::Future, time::Duration};

use tokio::sync::watch;

use super::{Blocking, wait, wait_timeout};
use crate::{ConnectionState, Error, ErrorKind, WatchedEvent, Watcher, session::States};

/// A sequence of events, whose [`Blocking`] is an iterator that waits.
///
/// ```
/// use std::time::Duration;
/// use docent::AddWatchMode;
///
/// # fn example(client: &docent::blocking::Client) -> Result<(), docent::Error> {
/// let mut watcher = client.add_watch("/config", AddWatchMode::PersistentRecursive)?;
/// // Until there is no event for a minute; `for event in watcher` has no limit.
/// for event in watcher.timeout_iter(Duration::from_secs(60)) {
///     let event = event?;
///     println!("{:?} {}", event.event_type, event.path);
/// }
/// # Ok(())
/// # }
/// ```
///
/// A `watch::Receiver`, such as `subscribe` of a shared value returns, is a sequence of its later values: of several in
/// quick succession, possibly only the last.
pub trait EventSource {
    /// An event.
    type Event;

    /// Waits for the next event; `None` after the last one. Dropping the future loses nothing.
    fn next_event(&mut self) -> impl Future<Output = Option<Result<Self::Event, Error>>>;
}

/// Waits for each event. A call inside an async runtime is refused: its item is the error.
impl<E: EventSource> Iterator for Blocking<E> {
    type Item = Result<E::Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = wait(async || Ok(self.inner.next_event().await));
        next.unwrap_or_else(|refused| Some(Err(refused)))
    }
}

impl<E: EventSource> Blocking<E> {
    /// The next event, as [`Iterator::next`]; an error of the kind `OperationTimeout` if there is none within `limit`.
    /// Nothing is lost then.
    pub fn next_timeout(&mut self, limit: Duration) -> Option<Result<E::Event, Error>> {
        self.next_within(limit).unwrap_or_else(|| {
            let why = format_args!("no event within {limit:?}");
            Some(Err(Error::refused(ErrorKind::OperationTimeout, why)))
        })
    }

    /// An iterator that ends when there is no next event within `limit`. It can be made again for the later events.
    pub fn timeout_iter(
        &mut self,
        limit: Duration,
    ) -> impl Iterator<Item = Result<E::Event, Error>> {
        std::iter::from_fn(move || self.next_within(limit).flatten())
    }

    fn next_within(&mut self, limit: Duration) -> Option<Option<Result<E::Event, Error>>> {
        let next = wait_timeout(limit, async || Ok(self.inner.next_event().await));
        next.unwrap_or_else(|refused| Some(Some(Err(refused))))
    }
}

macro_rules! event_sources {
    ($($source:ty: $event:ty),*) => {
        $(impl EventSource for $source {
            type Event = $event;

            async fn next_event(&mut self) -> Option<Result<$event, Error>> {
                self.next().await.map(Ok)
            }
        })*
    };
}

event_sources!(States: ConnectionState, Watcher: WatchedEvent);

#[cfg(feature = "recipes")]
event_sources!(
    crate::cache::CacheEvents: crate::CacheEvent,
    crate::leader::LeadershipChanges: crate::leader::LeadershipChange,
    crate::nodes::NodeEvents: crate::nodes::NodeEvent
);

#[cfg(feature = "recipes")]
impl EventSource for crate::nodes::GroupView {
    type Event = std::sync::Arc<std::collections::BTreeMap<String, bytes::Bytes>>;

    async fn next_event(&mut self) -> Option<Result<Self::Event, Error>> {
        self.next().await
    }
}

impl<T: Clone> EventSource for watch::Receiver<T> {
    type Event = T;

    async fn next_event(&mut self) -> Option<Result<T, Error>> {
        self.changed().await.ok()?;
        Some(Ok(self.borrow_and_update().clone()))
    }
}
