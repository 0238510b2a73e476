//! The registration of instances, and queries for those of others.

use std::time::Duration;

use docent::blocking::{
    Client,
    internal::{self, Context, check},
};
use docent_session::Error;
use serde_json::Value;

use super::{NodeEvents, ServiceCache, ServiceProvider};
use crate::{DiscoveryOptions, Payload, ProviderOptions, ServiceInstance};

/// Registers instances of services, keeps them registered, and finds those of other processes.
///
/// As [`ServiceDiscovery`](crate::ServiceDiscovery): its instances are kept registered on the client's thread, over lost
/// sessions too. Clones are the same discovery; dropping the last one closes it in the background. `T` is the payload of the
/// instances.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Runtime::new()?;
/// # let server = runtime.block_on(docent_testing::TestingServer::start())?;
/// # let client = docent::blocking::Client::connect(&server.connect_string())?;
/// use docent_discovery::blocking::ServiceDiscovery;
///
/// let discovery = ServiceDiscovery::new(&client, "/services")?;
/// let instance = discovery.new_instance("web")?.with_address("10.0.0.7").with_port(80);
/// let id = instance.id().to_owned();
/// discovery.register(instance)?;
///
/// assert_eq!(discovery.query_for_names()?, ["web"]);
/// for instance in discovery.query_for_instances("web")? {
///     println!("{:?}:{:?}", instance.address(), instance.port());
/// }
/// // Drained before a restart: the providers of all processes leave it out.
/// discovery.set_enabled("web", &id, false)?;
/// discovery.close()?;
/// # client.close()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of the async methods, and [`WouldBlock`](crate::ErrorKind::WouldBlock) of each method that waits: inside an async
/// runtime, where it has no effect.
pub struct ServiceDiscovery<T = Value> {
    inner: crate::ServiceDiscovery<T>,
    context: Context,
}

impl ServiceDiscovery<Value> {
    /// A discovery of the services below `base_path`, with any JSON as payload. Nothing is sent.
    ///
    /// As [`ServiceDiscovery::new`](crate::ServiceDiscovery::new).
    pub fn new(client: &Client, base_path: &str) -> Result<Self, Error> {
        Self::with_payload(client, base_path)
    }

    /// A discovery of the services below `base_path` whose payload is a type of the application's.
    ///
    /// As [`ServiceDiscovery::with_payload`](crate::ServiceDiscovery::with_payload).
    pub fn with_payload<T>(client: &Client, base_path: &str) -> Result<ServiceDiscovery<T>, Error>
    where
        T: Payload + Send + Sync + 'static,
    {
        ServiceDiscovery::with_options(client, base_path, DiscoveryOptions::default())
    }
}

impl<T: Send + Sync + 'static> ServiceDiscovery<T> {
    /// A discovery of the services below `base_path`. Nothing is sent.
    ///
    /// As [`ServiceDiscovery::with_options`](crate::ServiceDiscovery::with_options).
    pub fn with_options(
        client: &Client,
        base_path: &str,
        options: DiscoveryOptions<T>,
    ) -> Result<Self, Error> {
        let async_client = client.async_client();
        let inner = crate::ServiceDiscovery::with_options(async_client, base_path, options)?;
        Ok(Self { inner, context: internal::context(client) })
    }
}

/// # Registration
impl<T: Send + Sync + 'static> ServiceDiscovery<T> {
    docent::forward! { ServiceDiscovery;
        /// An instance with a random id.
        fn new_instance(&self, name: &str) -> Result<ServiceInstance<T>, Error>;
        /// Registers an instance, and waits until it is there. Without a connection it waits for one.
        async fn register(&self, instance: ServiceInstance<T>) -> Result<(), Error>;
        /// Writes the fields of an instance that is registered here.
        async fn update(&self, instance: ServiceInstance<T>) -> Result<(), Error>;
        /// Enables or disables an instance that is registered here. Providers leave disabled instances out.
        async fn set_enabled(&self, name: &str, id: &str, enabled: bool) -> Result<(), Error>;
        /// Unregisters an instance: deletes its node, and keeps it no longer. It waits for at most the connection timeout.
        async fn unregister(&self, name: &str, id: &str) -> Result<(), Error>;
        /// Unregisters all instances that are registered here, except permanent ones. It waits for at most the connection
        /// timeout.
        async fn close(&self) -> Result<(), Error>;
        /// The path of an instance that is registered here, once it is known.
        #[must_use]
        fn path(&self, name: &str, id: &str) -> Option<String>;
    }

    /// As [`register`](Self::register), but waits for at most `wait`; false if the instance is not there by then. It is
    /// registered all the same: the client's thread keeps trying until it is [unregistered](Self::unregister).
    pub fn register_timeout(
        &self,
        instance: ServiceInstance<T>,
        wait: Duration,
    ) -> Result<bool, Error> {
        check()?;
        let registered = self.context.wait_timeout(wait, self.inner.register(instance));
        Ok(registered.transpose()?.is_some())
    }

    /// As [`update`](Self::update), but waits for at most `wait`; false if the instance is not written by then. It is
    /// written in the background all the same.
    pub fn update_timeout(
        &self,
        instance: ServiceInstance<T>,
        wait: Duration,
    ) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.update(instance)).transpose()?.is_some())
    }

    /// As [`set_enabled`](Self::set_enabled), but waits for at most `wait`; false if the instance is not written by then. It
    /// is written in the background all the same.
    pub fn set_enabled_timeout(
        &self,
        name: &str,
        id: &str,
        enabled: bool,
        wait: Duration,
    ) -> Result<bool, Error> {
        check()?;
        let written = self.context.wait_timeout(wait, self.inner.set_enabled(name, id, enabled));
        Ok(written.transpose()?.is_some())
    }

    /// The events of an instance that is registered here: an iterator that waits. Among them are the loss of the instance
    /// with its session, and its new registration.
    ///
    /// As [`ServiceDiscovery::events`](crate::ServiceDiscovery::events).
    #[must_use]
    pub fn events(&self, name: &str, id: &str) -> Option<NodeEvents> {
        let inner = self.inner.events(name, id)?;
        Some(internal::node_events(inner, self.context.clone()))
    }

    /// The form in which an instance is registered here.
    ///
    /// As [`ServiceDiscovery::instance`](crate::ServiceDiscovery::instance).
    #[must_use]
    pub fn instance(&self, name: &str, id: &str) -> Option<ServiceInstance<T>>
    where
        T: Clone,
    {
        self.inner.instance(name, id)
    }
}

/// # Instances of all processes
impl<T: Send + Sync + 'static> ServiceDiscovery<T> {
    docent::forward! { ServiceDiscovery;
        /// The names of the services, sorted.
        async fn query_for_names(&self) -> Result<Vec<String>, Error>;
        /// The names of the nodes of a service, sorted. No instance is read.
        async fn query_for_ids(&self, name: &str) -> Result<Vec<String>, Error>;
        /// The instances of a service, in the order of the names of their nodes.
        async fn query_for_instances(&self, name: &str) -> Result<Vec<ServiceInstance<T>>, Error>;
        /// One instance; `None` if there is none.
        async fn query_for_instance(&self, name: &str, id: &str) -> Result<Option<ServiceInstance<T>>, Error>;
    }

    /// A cache of the instances of a service. Returns at once: the client's thread reads the instances.
    ///
    /// As [`ServiceDiscovery::service_cache`](crate::ServiceDiscovery::service_cache).
    pub fn service_cache(&self, name: &str) -> Result<ServiceCache<T>, Error> {
        let cache = self.inner.service_cache(name)?;
        Ok(ServiceCache::new(cache, self.context.clone()))
    }

    /// As [`service_provider_with`](Self::service_provider_with), with the default [`ProviderOptions`].
    ///
    /// As [`ServiceDiscovery::service_provider`](crate::ServiceDiscovery::service_provider).
    pub fn service_provider(&self, name: &str) -> Result<ServiceProvider<T>, Error> {
        self.service_provider_with(name, ProviderOptions::default())
    }

    /// A provider of the instances of a service. Returns at once: the client's thread reads the instances.
    ///
    /// As [`ServiceDiscovery::service_provider_with`](crate::ServiceDiscovery::service_provider_with).
    pub fn service_provider_with(
        &self,
        name: &str,
        options: ProviderOptions<T>,
    ) -> Result<ServiceProvider<T>, Error> {
        let provider = self.inner.service_provider_with(name, options)?;
        Ok(ServiceProvider::new(provider, self.context.clone()))
    }
}

impl<T> Clone for ServiceDiscovery<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), context: self.context.clone() }
    }
}

docent::debug_as_inner!(ServiceDiscovery<T>);
