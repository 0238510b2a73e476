//! Watchers and connection states as streams of `futures-core`.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::{FusedStream, Stream};

use super::{states::States, watcher::Watcher};
use crate::{ConnectionState, WatchedEvent};

/// The events of the watch: one event of a one-shot watch, every event of a persistent watch. It ends after the last
/// event: that of a one-shot watch, or an [end](WatchedEvent::is_end).
impl Stream for Watcher {
    type Item = WatchedEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchedEvent>> {
        let watcher = self.get_mut();
        if watcher.is_over() { Poll::Ready(None) } else { watcher.poll_changed(cx).map(Some) }
    }
}

impl FusedStream for Watcher {
    fn is_terminated(&self) -> bool {
        self.is_over()
    }
}

/// As [`States::next`]. It ends with the client.
impl Stream for States {
    type Item = ConnectionState;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ConnectionState>> {
        self.get_mut().poll_next(cx)
    }
}

impl FusedStream for States {
    fn is_terminated(&self) -> bool {
        self.is_over()
    }
}
