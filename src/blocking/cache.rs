//! Nodes in memory: [`docent::recipes::cache`](crate::recipes::cache) with methods that wait.

use std::time::Duration;

use super::{
    Client,
    context::Context,
    wait::{check, wait},
};
use crate::{CacheEvent, CacheOptions, CacheState, CachedNode, Error, NodePath};

/// A node, its direct children or a tree in memory.
///
/// As [`CuratorCache`](crate::CuratorCache). The filter of the options is called on the client's thread, where blocking
/// calls are refused.
#[derive(Clone)]
pub struct CuratorCache {
    inner: crate::CuratorCache,
    context: Context,
}

impl CuratorCache {
    forward! { CuratorCache;
        /// Starts to cache a whole tree. Returns at once.
        new fn start(client, path: &str);
        /// As [`start`](Self::start), with options.
        new fn start_with(client, path: &str, options: CacheOptions);
        /// Waits until the first load is complete.
        async fn initialized(&self) -> Result<(), Error>;
        /// The path of the cached node.
        #[must_use]
        fn path(&self) -> &str;
        /// Whether the first load is complete.
        #[must_use]
        fn is_initialized(&self) -> bool;
        /// Whether changes may have gone unnoticed.
        #[must_use]
        fn is_stale(&self) -> bool;
        /// A node, if the cache has it.
        #[must_use]
        fn get(&self, path: &str) -> Option<CachedNode>;
        /// The children of a node, in the order of their paths.
        #[must_use]
        fn children(&self, path: &str) -> Vec<CachedNode>;
        /// All nodes at one moment, ancestors first.
        #[must_use]
        fn snapshot(&self) -> Vec<CachedNode>;
        /// The number of nodes.
        #[must_use]
        fn len(&self) -> usize;
        /// Whether there are no nodes.
        #[must_use]
        fn is_empty(&self) -> bool;
        /// The nodes that cannot be read or listed now, with the errors.
        #[must_use]
        fn failures(&self) -> Vec<(NodePath, Error)>;
    }

    /// As [`start_with`](Self::start_with), with all events from the start.
    ///
    /// As [`CuratorCache::start_with_events`](crate::CuratorCache::start_with_events).
    pub fn start_with_events(
        client: &Client,
        path: &str,
        options: CacheOptions,
    ) -> Result<(Self, CacheEvents), Error> {
        let (inner, events) = crate::CuratorCache::start_with_events(&client.inner, path, options)?;
        let context = client.context.clone();
        Ok((Self { inner, context: context.clone() }, CacheEvents { inner: events, context }))
    }

    /// As [`initialized`](Self::initialized), for at most `wait`; false if the first load is not complete by then.
    pub fn initialized_timeout(&self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.initialized()).transpose()?.is_some())
    }

    /// The events from now on: an iterator that waits.
    ///
    /// As [`CuratorCache::events`](crate::CuratorCache::events).
    #[must_use]
    pub fn events(&self) -> CacheEvents {
        CacheEvents { inner: self.inner.events(), context: self.context.clone() }
    }

    /// All nodes at one moment, and the events from that moment on.
    ///
    /// As [`CuratorCache::snapshot_and_events`](crate::CuratorCache::snapshot_and_events).
    #[must_use]
    pub fn snapshot_and_events(&self) -> (Vec<CachedNode>, CacheEvents) {
        let (nodes, inner) = self.inner.snapshot_and_events();
        (nodes, CacheEvents { inner, context: self.context.clone() })
    }

    /// As [`snapshot_and_events`](Self::snapshot_and_events), with the state of the cache at that moment.
    ///
    /// As [`CuratorCache::state_and_events`](crate::CuratorCache::state_and_events).
    #[must_use]
    pub fn state_and_events(&self) -> (CacheState, CacheEvents) {
        let (state, inner) = self.inner.state_and_events();
        (state, CacheEvents { inner, context: self.context.clone() })
    }

    /// Closes the cache: removes the watch from the server, and forgets all nodes.
    ///
    /// Blocking [`CuratorCache::close`](crate::CuratorCache::close).
    pub fn close(&self) -> Result<(), Error> {
        check()?;
        wait(self.inner.close());
        Ok(())
    }
}

/// The events of a cache: an iterator that waits, and ends once the cache was closed or the client has ended. Created by
/// [`CuratorCache::events`].
///
/// As [`CacheEvents`](crate::CacheEvents).
pub struct CacheEvents {
    inner: crate::CacheEvents,
    context: Context,
}

events!(CacheEvents, CacheEvent);

impl CacheEvents {
    async fn following(&mut self) -> Option<Result<CacheEvent, Error>> {
        self.inner.next().await.map(Ok)
    }
}

debug_as_inner!(CuratorCache CacheEvents);
