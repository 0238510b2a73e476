//! Sequences of events as iterators that wait: watchers, connection states.

use std::time::Duration;

use super::{
    context::Context,
    wait::{check, wait},
};
use crate::{ConnectionState, Error, ErrorKind, OnDrop, WatchKind, WatchedEvent};

/// A sequence that is waited for: an iterator over results, and its variants with a limit of time.
pub trait Events: sealed::Sealed {
    /// The next event, as [`Iterator::next`]; an error of the kind `OperationTimeout` if there is none within `wait`.
    /// Nothing is lost then.
    fn next_timeout(&mut self, wait: Duration) -> Option<Self::Item> {
        self.next_within(wait).unwrap_or_else(|| {
            let why = format_args!("no event within {wait:?}");
            Some(Self::failed(Error::refused(ErrorKind::OperationTimeout, why)))
        })
    }

    /// An iterator that ends when there is no next event within `wait`. It can be made again for the later events.
    fn timeout_iter(&mut self, wait: Duration) -> TimeoutIter<'_, Self>
    where
        Self: Sized,
    {
        TimeoutIter { events: self, wait }
    }
}

pub(super) mod sealed {
    use std::time::Duration;

    /// The part of the events that is not public.
    pub trait Sealed: Iterator {
        /// The next event; `None` if there is none within `wait`.
        fn next_within(&mut self, wait: Duration) -> Option<Option<Self::Item>>;
        /// An item that is an error.
        fn failed(error: crate::Error) -> Self::Item;
    }
}

/// Events until none comes within a time. Created by [`Events::timeout_iter`].
#[derive(Debug)]
pub struct TimeoutIter<'a, E> {
    events: &'a mut E,
    wait: Duration,
}

impl<E: Events> Iterator for TimeoutIter<'_, E> {
    type Item = E::Item;

    fn next(&mut self) -> Option<Self::Item> {
        self.events.next_within(self.wait).flatten()
    }
}

/// The states of a connection, in order: an iterator that waits, and ends when the client has ended. Created by
/// [`Client::states`](super::Client::states).
///
/// As [`States`](crate::States).
pub struct States {
    pub(super) inner: crate::States,
    pub(super) context: Context,
}

events!(States, ConnectionState);

impl States {
    async fn following(&mut self) -> Option<Result<ConnectionState, Error>> {
        self.inner.next().await.map(Ok)
    }
}

/// A watch on a node: an iterator that waits for its events, and ends after the last one.
///
/// ```
/// use std::time::Duration;
/// use docent::{AddWatchMode, blocking::Events};
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
/// As [`Watcher`](crate::Watcher).
pub struct Watcher {
    inner: crate::Watcher,
    context: Context,
    /// Whether no event can follow but the end of the client.
    over: bool,
}

events!(Watcher, WatchedEvent);

debug_as_inner!(States Watcher);

impl Watcher {
    pub(super) fn new(inner: crate::Watcher, context: &Context) -> Self {
        Self { inner, context: context.clone(), over: false }
    }

    /// Waits for the next event.
    ///
    /// Blocking [`Watcher::changed`](crate::Watcher::changed).
    pub fn changed(&mut self) -> Result<WatchedEvent, Error> {
        check()?;
        let event = wait(self.inner.changed());
        Ok(self.taken(event))
    }

    /// As [`changed`](Self::changed), for at most `wait`; `None` if there is no event by then.
    pub fn changed_timeout(&mut self, wait: Duration) -> Result<Option<WatchedEvent>, Error> {
        check()?;
        let event = self.context.wait_timeout(wait, self.inner.changed());
        Ok(event.map(|event| self.taken(event)))
    }

    /// The next event, if there is one in the buffer.
    ///
    /// As [`Watcher::try_changed`](crate::Watcher::try_changed).
    pub fn try_changed(&mut self) -> Option<WatchedEvent> {
        let event = self.inner.try_changed()?;
        Some(self.taken(event))
    }

    forward! { Watcher;
        /// Removes the watch from the server, and waits for the reply.
        async fn remove(self) -> Result<(), Error>;
        /// The path of the node.
        #[must_use]
        fn path(&self) -> &str;
        /// The kind of the watch.
        #[must_use]
        fn kind(&self) -> WatchKind;
        /// Sets whether dropping the watcher removes the watch from the server.
        fn set_on_drop(&mut self, on_drop: OnDrop);
    }

    /// Drops the watcher without removing the watch from the server.
    ///
    /// As [`Watcher::forget`](crate::Watcher::forget).
    pub fn forget(self) {
        self.inner.forget();
    }

    fn taken(&mut self, event: WatchedEvent) -> WatchedEvent {
        self.over |= !self.inner.kind().is_persistent() || event.is_end();
        event
    }

    async fn following(&mut self) -> Option<Result<WatchedEvent, Error>> {
        if self.over {
            return None;
        }
        let event = self.inner.changed().await;
        Some(Ok(self.taken(event)))
    }
}
