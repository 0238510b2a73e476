//! The events of a cache, for one reader.

use std::{fmt, sync::Arc};

use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{cache_event::CacheEvent, shared::Shared};
use crate::planted;

/// The events of a cache, in order, for one reader. Slow readers hold up nothing: they miss events and receive a
/// [`Lagged`](CacheEvent::Lagged) with a snapshot instead. Created by
/// [`CuratorCache::events`](super::CuratorCache::events).
pub struct CacheEvents {
    receiver: Receiver<(u64, CacheEvent)>,
    shared: Arc<Shared>,
    /// The number of the last event that the reader knows already, from a snapshot.
    seen: u64,
}

impl CacheEvents {
    pub(super) const fn new(
        receiver: Receiver<(u64, CacheEvent)>,
        shared: Arc<Shared>,
        seen: u64,
    ) -> Self {
        Self { receiver, shared, seen }
    }

    /// The next event; `None` once the cache was closed, or the client has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<CacheEvent> {
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

impl fmt::Debug for CacheEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheEvents").finish_non_exhaustive()
    }
}
