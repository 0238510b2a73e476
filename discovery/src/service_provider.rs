//! One instance of a service at a time.

use std::{fmt, future::Future, sync::Arc};

use docent_session::{Client, Error};
use serde_json::Value;

use crate::{
    DownInstancePolicy, InstanceSerializer, ProviderStrategy, RoundRobinStrategy, ServiceCache,
    ServiceInstance, down_instances::DownInstances,
};

type Filter<T> = Box<dyn Fn(&ServiceInstance<T>) -> bool + Send + Sync>;

/// Options of a [`ServiceProvider`]: in turn, two errors within 30 s, no filter.
///
/// ```
/// use std::time::Duration;
/// use docent_discovery::{DownInstancePolicy, ProviderOptions, RandomStrategy};
///
/// # fn example(client: &docent_session::Client) -> ProviderOptions {
/// ProviderOptions::default()
///     .with_strategy(RandomStrategy::new(client))
///     .with_down_instance_policy(DownInstancePolicy::new(Duration::from_secs(10), 1))
///     .with_filter(|instance| instance.ssl_port().is_some())
/// # }
/// ```
///
/// Source: `ServiceProviderBuilder`.
pub struct ProviderOptions<T = Value> {
    strategy: Box<dyn ProviderStrategy<T>>,
    filters: Vec<Filter<T>>,
    down_instance_policy: DownInstancePolicy,
}

impl<T> ProviderOptions<T> {
    /// Sets which of the instances is used.
    #[must_use]
    pub fn with_strategy(mut self, strategy: impl ProviderStrategy<T>) -> Self {
        self.strategy = Box::new(strategy);
        self
    }

    /// Uses only instances for which the filter returns true. All filters must.
    ///
    /// Source: `additionalFilter`.
    #[must_use]
    pub fn with_filter(
        mut self,
        filter: impl Fn(&ServiceInstance<T>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Sets when failing instances are left out.
    #[must_use]
    pub const fn with_down_instance_policy(mut self, policy: DownInstancePolicy) -> Self {
        self.down_instance_policy = policy;
        self
    }
}

impl<T> Default for ProviderOptions<T> {
    fn default() -> Self {
        Self {
            strategy: Box::new(RoundRobinStrategy::new()),
            filters: Vec::new(),
            down_instance_policy: DownInstancePolicy::default(),
        }
    }
}

impl<T> fmt::Debug for ProviderOptions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderOptions")
            .field("filters", &self.filters.len())
            .field("down_instance_policy", &self.down_instance_policy)
            .finish_non_exhaustive()
    }
}

/// Picks an instance of a service for each call to it. Created by
/// [`ServiceDiscovery::service_provider`](crate::ServiceDiscovery::service_provider).
///
/// The instances are those of a [`ServiceCache`], so a pick sends nothing and never waits. Disabled instances are left
/// out, and those with too many [errors](Self::note_error).
///
/// Clones are the same provider; dropping the last one closes it in the background.
///
/// Source: `ServiceProviderImpl`.
pub struct ServiceProvider<T = Value> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    client: Client,
    cache: ServiceCache<T>,
    serializer: Arc<dyn InstanceSerializer<T>>,
    strategy: Box<dyn ProviderStrategy<T>>,
    filters: Vec<Filter<T>>,
    down: DownInstances,
}

impl<T: Send + Sync + 'static> ServiceProvider<T> {
    pub(crate) fn new(
        client: &Client,
        cache: ServiceCache<T>,
        serializer: Arc<dyn InstanceSerializer<T>>,
        options: ProviderOptions<T>,
    ) -> Self {
        let ProviderOptions { strategy, filters, down_instance_policy } = options;
        let (client, down) = (client.clone(), DownInstances::new(down_instance_policy));
        let inner = Inner { client, cache, serializer, strategy, filters, down };
        Self { inner: Arc::new(inner) }
    }

    /// Waits until all instances are loaded.
    ///
    /// # Errors
    ///
    /// `Closed` when the provider or the client is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `start`.
    pub async fn initialized(&self) -> Result<(), Error> {
        self.inner.cache.initialized().await
    }

    /// An instance for the next call; `None` if none can be used.
    ///
    /// Source: `getInstance`.
    #[must_use]
    pub fn instance(&self) -> Option<Arc<ServiceInstance<T>>> {
        self.inner.strategy.instance(&self.instances())
    }

    /// The instances that can be used, in the order of the names of their nodes.
    ///
    /// Source: `getAllInstances`.
    #[must_use]
    pub fn instances(&self) -> Vec<Arc<ServiceInstance<T>>> {
        let now = self.inner.client.clock().now();
        let is_usable = |instance: &&Arc<ServiceInstance<T>>| {
            instance.is_enabled()
                && self.inner.filters.iter().all(|filter| filter(instance))
                && !self.inner.down.is_down(instance.id(), || self.fields(instance), now)
        };
        self.inner.cache.instances().iter().filter(is_usable).cloned().collect()
    }

    /// Notes that a call of an instance has failed. It is left out once it has failed as often as the
    /// [policy](DownInstancePolicy) says. An instance that is registered anew with other fields is another one.
    ///
    /// Source: `noteError`.
    pub fn note_error(&self, instance: &ServiceInstance<T>) {
        let now = self.inner.client.clock().now();
        self.inner.down.note(instance.id(), self.fields(instance), now);
    }

    fn fields(&self, instance: &ServiceInstance<T>) -> Vec<u8> {
        self.inner.serializer.serialize(instance).unwrap_or_default()
    }

    /// The instances in memory, also those that are not used.
    #[must_use]
    pub fn cache(&self) -> &ServiceCache<T> {
        &self.inner.cache
    }

    /// Closes the provider and its cache.
    ///
    /// # Cancel safety
    ///
    /// The provider is closed even if the future is dropped or never polled.
    ///
    /// Source: `close`.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<T> {
        self.inner.cache.close()
    }
}

impl<T> Clone for ServiceProvider<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> fmt::Debug for ServiceProvider<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceProvider").field("cache", &self.inner.cache).finish_non_exhaustive()
    }
}
