//! The events of a cache, for one reader.

use std::sync::Arc;

use docent_session::Events;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{cache_event::CacheEvent, shared::Shared};
use crate::planted;

/// Reads the events of a cache.
pub(super) struct Reader {
    receiver: Receiver<(u64, CacheEvent)>,
    shared: Arc<Shared>,
    /// The number of the last event that the reader knows already, from a snapshot.
    seen: u64,
}

impl Reader {
    pub(super) const fn new(
        receiver: Receiver<(u64, CacheEvent)>,
        shared: Arc<Shared>,
        seen: u64,
    ) -> Self {
        Self { receiver, shared, seen }
    }

    pub(super) fn events(self) -> Events<CacheEvent> {
        Events::unfold(self, |mut reader| async move { Some((reader.next().await?, reader)) })
    }

    /// `None` once the cache was closed, or the client has ended.
    async fn next(&mut self) -> Option<CacheEvent> {
        loop {
            match self.receiver.recv().await {
                Ok((number, event)) if number > self.seen => return Some(event),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => {
                    // First the subscription: an event between the two is in the snapshot and is skipped.
                    self.receiver = self.receiver.resubscribe();
                    if planted::is("cache-reader-skips") {
                        continue;
                    }
                    let state = self.shared.read();
                    if state.closed {
                        return None;
                    }
                    self.seen = state.number;
                    let (initialized, stale) = (state.initialized, state.stale);
                    let nodes = state.tree.nodes().cloned().collect();
                    return Some(CacheEvent::Lagged { nodes, initialized, stale });
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
