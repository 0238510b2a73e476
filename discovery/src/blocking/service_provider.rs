//! One instance of a service at a time.

use std::{sync::Arc, time::Duration};

use docent::blocking::internal::{Context, check, wait};
use docent_session::Error;
use serde_json::Value;

use super::ServiceCache;
use crate::ServiceInstance;

/// Picks an instance of a service for each call to it. Created by
/// [`ServiceDiscovery::service_provider`](super::ServiceDiscovery::service_provider).
///
/// As [`ServiceProvider`](crate::ServiceProvider): a pick sends nothing and never waits, so it works inside an async runtime
/// too. Clones are the same provider; dropping the last one closes it in the background.
pub struct ServiceProvider<T = Value> {
    inner: crate::ServiceProvider<T>,
    /// That of `inner`.
    cache: ServiceCache<T>,
}

impl<T: Send + Sync + 'static> ServiceProvider<T> {
    pub(super) fn new(inner: crate::ServiceProvider<T>, context: Context) -> Self {
        let cache = ServiceCache::new(inner.cache().clone(), context);
        Self { inner, cache }
    }

    docent::forward! { ServiceProvider;
        /// Waits until all instances are loaded.
        async fn initialized(&self) -> Result<(), Error>;
        /// An instance for the next call; `None` if none can be used.
        #[must_use]
        fn instance(&self) -> Option<Arc<ServiceInstance<T>>>;
        /// The instances that can be used, in the order of the names of their nodes.
        #[must_use]
        fn instances(&self) -> Vec<Arc<ServiceInstance<T>>>;
        /// Notes that a call of an instance has failed.
        fn note_error(&self, instance: &ServiceInstance<T>);
    }

    /// As [`initialized`](Self::initialized), for at most `wait`; false if not all instances are loaded by then.
    pub fn initialized_timeout(&self, wait: Duration) -> Result<bool, Error> {
        self.cache.initialized_timeout(wait)
    }

    /// The instances in memory, also those that are not used.
    ///
    /// As [`ServiceProvider::cache`](crate::ServiceProvider::cache).
    #[must_use]
    pub const fn cache(&self) -> &ServiceCache<T> {
        &self.cache
    }

    /// Closes the provider and its cache. Inside an async runtime, both stay open.
    ///
    /// Blocking [`ServiceProvider::close`](crate::ServiceProvider::close).
    pub fn close(&self) -> Result<(), Error> {
        check()?;
        wait(self.inner.close());
        Ok(())
    }
}

impl<T> Clone for ServiceProvider<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), cache: self.cache.clone() }
    }
}

docent::debug_as_inner!(ServiceProvider<T>);
