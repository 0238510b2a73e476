//! The instances of a service in memory.

use std::{sync::Arc, time::Duration};

use docent::blocking::internal::{Context, check, wait};
use docent_session::{Error, NodePath};
use serde_json::Value;

use crate::{ServiceCacheEvent, ServiceInstance};

/// The instances of a service in memory. Created by
/// [`ServiceDiscovery::service_cache`](super::ServiceDiscovery::service_cache).
///
/// As [`ServiceCache`](crate::ServiceCache). Clones are the same cache; dropping the last one closes it in the background.
pub struct ServiceCache<T = Value> {
    inner: crate::ServiceCache<T>,
    context: Context,
}

impl<T: Send + Sync + 'static> ServiceCache<T> {
    pub(super) const fn new(inner: crate::ServiceCache<T>, context: Context) -> Self {
        Self { inner, context }
    }

    docent::forward! { ServiceCache;
        /// Waits until all instances are loaded.
        async fn initialized(&self) -> Result<(), Error>;
        /// Whether changes may have gone unnoticed.
        #[must_use]
        fn is_stale(&self) -> bool;
        /// The instances, in the order of the names of their nodes, disabled ones included.
        #[must_use]
        fn instances(&self) -> Arc<[Arc<ServiceInstance<T>>]>;
        /// The nodes that cannot be read, by path.
        #[must_use]
        fn failures(&self) -> Vec<(NodePath, Error)>;
    }

    /// As [`initialized`](Self::initialized), for at most `wait`; false if not all instances are loaded by then.
    pub fn initialized_timeout(&self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.initialized()).transpose()?.is_some())
    }

    /// The events from now on: an iterator that waits.
    ///
    /// As [`ServiceCache::events`](crate::ServiceCache::events).
    #[must_use]
    pub fn events(&self) -> ServiceCacheEvents<T> {
        ServiceCacheEvents { inner: self.inner.events(), context: self.context.clone() }
    }

    /// Closes the cache: removes its watch from the server, and forgets the instances. Inside an async runtime, the cache
    /// stays open.
    ///
    /// Blocking [`ServiceCache::close`](crate::ServiceCache::close).
    pub fn close(&self) -> Result<(), Error> {
        check()?;
        wait(self.inner.close());
        Ok(())
    }
}

impl<T> Clone for ServiceCache<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), context: self.context.clone() }
    }
}

/// The events of a service, for one reader: an iterator that waits, and ends once the cache was closed or the client has
/// ended. Created by [`ServiceCache::events`].
///
/// As [`ServiceCacheEvents`](crate::ServiceCacheEvents).
pub struct ServiceCacheEvents<T = Value> {
    inner: crate::ServiceCacheEvents<T>,
    context: Context,
}

docent::events!([T: Send + Sync + 'static] ServiceCacheEvents<T>, ServiceCacheEvent<T>);

impl<T: Send + Sync + 'static> ServiceCacheEvents<T> {
    async fn following(&mut self) -> Option<Result<ServiceCacheEvent<T>, Error>> {
        self.inner.next().await.map(Ok)
    }
}

docent::debug_as_inner!(ServiceCache<T> ServiceCacheEvents<T>);
