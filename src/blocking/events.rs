//! Sequences of events as iterators that wait.

use std::{future::Future, time::Duration};

use super::{Blocking, wait, wait_timeout};
use crate::{Error, ErrorKind, Events, Latest, WatchedEvent, Watcher};

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
/// [`Watcher`], [`Events`] and [`Latest`] are sources.
pub trait EventSource {
    /// An event.
    type Event;

    /// Waits for the next event; `None` after the last one. Dropping the future loses nothing.
    fn next_event(&mut self) -> impl Future<Output = Option<Self::Event>>;
}

/// Waits for each event. A call inside an async runtime is refused: its item is the error.
impl<E: EventSource> Iterator for Blocking<E> {
    type Item = Result<E::Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        wait(async || Ok(self.inner.next_event().await)).transpose()
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
        let next = wait_timeout(limit, async || Ok(self.inner.next_event().await)).transpose()?;
        Some(next.transpose())
    }
}

macro_rules! event_sources {
    ($([$($generics:tt)*] $source:ty: $event:ty;)*) => {$(
        impl<$($generics)*> EventSource for $source {
            type Event = $event;

            async fn next_event(&mut self) -> Option<$event> {
                self.next().await
            }
        }
    )*};
}

event_sources! {
    [] Watcher: WatchedEvent;
    [T] Events<T>: T;
    [T: Clone + Send + Sync + 'static] Latest<T>: T;
}
