//! The registration of instances, and queries for those of others.
//!
//! | call | frames | Curator |
//! |---|---|---|
//! | [`register`](ServiceDiscovery::register) | create2 (15), with parents as [`PersistentNode`]; registered already: setData (5) | `internalRegisterService` |
//! | [`update`](ServiceDiscovery::update), [`set_enabled`](ServiceDiscovery::set_enabled) | setData (5) | `updateService` |
//! | [`unregister`](ServiceDiscovery::unregister) | delete (2) | `internalUnregisterService` |
//! | [`query_for_names`](ServiceDiscovery::query_for_names), [`query_for_ids`](ServiceDiscovery::query_for_ids) | getChildren2 (12) | `queryForNames`, – |
//! | [`query_for_instances`](ServiceDiscovery::query_for_instances) | getChildren2 (12), getData (4) for each | `queryForInstances` |
//! | [`query_for_instance`](ServiceDiscovery::query_for_instance) | getData (4) | `queryForInstance` |
//!
//! An instance is kept registered by a [`PersistentNode`], so after a registration and each write follows exists (3) with
//! watch. Differences from Curator (Cn: see `docs/CURATOR.md`): a disabled instance is written as such (C27); a sequential
//! instance has one node, with a GUID in its name (C28); the node of another client is left alone (C29); instances do not
//! depend on each other (C30); a reconnect in the same session writes nothing (C32); the close leaves permanent instances
//! (C33); the form registered last is the one that is kept (C39). With
//! [`with_watched_instances`](DiscoveryOptions::with_watched_instances), getData (4) with watch takes the place of exists (3)
//! with watch; Curator has a cache of each instance: addWatch (106), getData (4).
//!
//! An instance is a kept node, whose rules decide whose it is: discovery itself writes no node.

mod options;
mod queries;

use std::{
    collections::BTreeMap,
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use docent_protocol::path as paths;
use docent_recipes::nodes::{NodeEvent, NodeOptions, PersistentNode};
use docent_session::{Client, Error, ErrorKind, Events};
use serde_json::Value;

pub use self::options::DiscoveryOptions;
use crate::{
    Payload, ProviderOptions, ServiceCache, ServiceInstance, ServiceProvider, ServiceType, error,
};

/// Registers instances of services, keeps them registered, and finds those of other processes.
///
/// A registered instance is present as long as its discovery: it is created again when its session has ended, and when
/// somebody has deleted its node. The instance of another client with the same id is left alone: see
/// [`register`](Self::register).
///
/// Two discoveries of one client must not register the same instance: they have the same session, so both take the node
/// for their own.
///
/// Clones are the same discovery; dropping the last one closes it in the background. `T` is the payload of the instances.
///
/// ```
/// # use docent_discovery::{ServiceDiscovery, ServiceInstance};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent_session::Client::connect(&server.connect_string()).await?;
/// let discovery = ServiceDiscovery::new(&client, "/services")?;
/// let instance = discovery.new_instance("web")?.with_address("10.0.0.7").with_port(80);
/// let id = instance.id().to_owned();
/// discovery.register(instance).await?;
///
/// assert_eq!(discovery.query_for_names().await?, ["web"]);
/// for instance in discovery.query_for_instances("web").await? {
///     println!("{:?}:{:?}", instance.address(), instance.port());
/// }
/// // Drained before a restart: the providers of all processes leave it out.
/// discovery.set_enabled("web", &id, false).await?;
/// discovery.close().await?;
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: `ServiceDiscoveryImpl`.
pub struct ServiceDiscovery<T = Value> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    client: Client,
    base_path: String,
    options: DiscoveryOptions<T>,
    /// `None` once it is closed.
    registered: Mutex<Option<AllRegistered<T>>>,
}

/// By name and id.
type AllRegistered<T> = BTreeMap<(String, String), Registered<T>>;

struct Registered<T> {
    instance: ServiceInstance<T>,
    node: PersistentNode,
}

impl<T: 'static> Registered<T> {
    /// The form in which it is registered, which another process may have written.
    fn current(&mut self, options: &DiscoveryOptions<T>) -> &mut ServiceInstance<T> {
        if options.watches_instances
            && let Ok(instance) = options.serializer.deserialize(&self.node.data())
        {
            self.instance = instance;
        }
        &mut self.instance
    }
}

/// Whether the data of a node is another form of an instance.
fn is_form_of<T: 'static>(
    instance: &ServiceInstance<T>,
    options: &DiscoveryOptions<T>,
) -> impl Fn(&[u8]) -> bool + Send + Sync + use<T> {
    let serializer = Arc::clone(&options.serializer);
    let (name, id) = (instance.name.clone(), instance.id.clone());
    let service_type = instance.service_type;
    move |data| {
        let read = serializer.deserialize(data);
        read.is_ok_and(|it| it.name == name && it.id == id && it.service_type == service_type)
    }
}

/// The end of a write that has begun.
type Written = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl ServiceDiscovery<Value> {
    /// A discovery of the services below `base_path`, with any JSON as payload. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](ErrorKind::InvalidPath).
    ///
    /// Source: `ServiceDiscoveryBuilder`, `start`.
    pub fn new(client: &Client, base_path: &str) -> Result<Self, Error> {
        Self::with_payload(client, base_path)
    }

    /// A discovery of the services below `base_path` whose payload is a type of the application's.
    ///
    /// ```
    /// # fn example(client: &docent_session::Client) -> Result<(), docent_discovery::Error> {
    /// use docent_discovery::{ServiceDiscovery, ServiceInstance};
    ///
    /// let discovery = ServiceDiscovery::with_payload::<String>(client, "/services")?;
    /// drop(discovery.register(ServiceInstance::new("web", "1").with_payload("eu-west".to_owned())));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](ErrorKind::InvalidPath).
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
    /// # Errors
    ///
    /// [`InvalidPath`](ErrorKind::InvalidPath).
    pub fn with_options(
        client: &Client,
        base_path: &str,
        options: DiscoveryOptions<T>,
    ) -> Result<Self, Error> {
        if let Err(invalid) = paths::validate(base_path) {
            let what = "the base path of a service discovery";
            return Err(error::invalid_path(what, base_path, invalid).caused_by(invalid));
        }
        let (client, base_path) = (client.clone(), base_path.to_owned());
        let registered = Mutex::new(Some(BTreeMap::new()));
        Ok(Self { inner: Arc::new(Inner { client, base_path, options, registered }) })
    }

    /// An instance with a random id.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when the client's runtime has no randomness.
    ///
    /// Source: `ServiceInstance.builder`.
    pub fn new_instance(&self, name: &str) -> Result<ServiceInstance<T>, Error> {
        let mut bytes = [0; 16];
        if !self.inner.client.runtime().fill_random(&mut bytes) {
            let why = "no randomness for the id of an instance";
            return Err(Error::refused(ErrorKind::InvalidConfig, why));
        }
        let id = uuid::Builder::from_random_bytes(bytes).into_uuid();
        Ok(ServiceInstance::new(name, &id.as_hyphenated().to_string()))
    }

    /// Registers an instance. The call itself begins it; the future waits until the instance is there. Without a connection
    /// it waits for one.
    ///
    /// An instance that is registered already is [updated](Self::update). An instance of type
    /// [`Static`](ServiceType::Static) or [`Permanent`](ServiceType::Permanent) takes over a persistent node of the same
    /// id, such as that of an earlier run of this process.
    ///
    /// # Errors
    ///
    /// * `NodeExists` while another client's instance has the id. That one is left alone, and this one is registered when
    ///   the other is gone, unless it is [unregistered](Self::unregister) first.
    /// * Any other error of the server for which it cannot be registered now, such as `NoAuth`: it is tried again after the
    ///   next reconnect, and when the instance is registered or updated again.
    /// * `InvalidPath` for a name or id that cannot be part of a path; `BadArguments` when the instance cannot be
    ///   serialized, or is registered with another type; `Closed`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: the instance is registered.
    ///
    /// Source: `registerService`.
    pub fn register(
        &self,
        instance: ServiceInstance<T>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<T> {
        let put = self.put(instance, true);
        async move { put?.await }
    }

    /// Writes the fields of an instance that is registered here, over those that another process may have written. The call
    /// itself begins it; of several updates in quick succession, possibly only the last is written. If a third client deletes the node while the write is in flight, the
    /// write can hit another client's instance of the same id: see [`PersistentNode::set_data`].
    ///
    /// # Errors
    ///
    /// `BadArguments` when no instance of this name and id is registered here; those of [`register`](Self::register).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: the instance is updated.
    ///
    /// Source: `updateService`.
    pub fn update(
        &self,
        instance: ServiceInstance<T>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<T> {
        let put = self.put(instance, false);
        async move { put?.await }
    }

    /// Enables or disables an instance that is registered here. Providers leave disabled instances out.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    ///
    /// # Cancel safety
    ///
    /// As [`update`](Self::update).
    ///
    /// Source: the builder's `enabled`, with `updateService`.
    pub fn set_enabled(
        &self,
        name: &str,
        id: &str,
        enabled: bool,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<T> {
        let mut all = self.registered();
        let all = all.as_mut().ok_or_else(|| error::closed(&self.inner.base_path));
        let put = all.and_then(|all| {
            change(all, name, id, |registered| {
                let instance = registered.current(&self.inner.options);
                let before = std::mem::replace(&mut instance.enabled, enabled);
                let bytes = self.serialize(instance);
                if bytes.is_err() {
                    instance.enabled = before;
                }
                bytes
            })
        });
        async move { put?.await }
    }

    fn put(&self, instance: ServiceInstance<T>, registers: bool) -> Result<Written, Error> {
        let (name, id) = (instance.name.clone(), instance.id.clone());
        let path = self.instance_path(&name, &id)?;
        let bytes = self.serialize(&instance)?;
        let mut all = self.registered();
        let registered = all.as_mut().ok_or_else(|| error::closed(&self.inner.base_path))?;
        if !registers || registered.contains_key(&(name.clone(), id.clone())) {
            return change(registered, &name, &id, |registered| {
                if registered.instance.service_type != instance.service_type {
                    return Err(error::other_type(&name, &id));
                }
                registered.instance = instance;
                Ok(bytes)
            });
        }
        let service_type = instance.service_type;
        let mut options = NodeOptions::default().with_lock_options(self.inner.options.lock.clone());
        if !service_type.is_dynamic() {
            options = options.with_adoption();
        }
        if service_type == ServiceType::Permanent {
            options = options.without_deletion();
        }
        if self.inner.options.watches_instances {
            options = options.with_data_adoption(is_form_of(&instance, &self.inner.options));
        }
        let (client, mode) = (&self.inner.client, service_type.create_mode());
        let node = PersistentNode::start_with(client, &path, mode, bytes, options)?;
        let written = Box::pin(node.written());
        registered.insert((name, id), Registered { instance, node });
        Ok(written)
    }

    fn serialize(&self, instance: &ServiceInstance<T>) -> Result<Vec<u8>, Error> {
        let bytes = self.inner.options.serializer.serialize(instance);
        bytes.map_err(|error| error::unwritable(&instance.name, &instance.id, &error))
    }

    fn registered(&self) -> MutexGuard<'_, Option<AllRegistered<T>>> {
        self.inner.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events of an instance that is registered here: created, lost, restored, in conflict with another client's, or
    /// written by another process.
    #[must_use]
    pub fn events(&self, name: &str, id: &str) -> Option<Events<NodeEvent>> {
        self.node(name, id).map(|node| node.events())
    }

    /// The form in which an instance is registered here: that of the last registration or update, or the one that another
    /// process has written since, if instances are [watched](DiscoveryOptions::with_watched_instances). Nothing is sent.
    #[must_use]
    pub fn instance(&self, name: &str, id: &str) -> Option<ServiceInstance<T>>
    where
        T: Clone,
    {
        let mut all = self.registered();
        let registered = all.as_mut()?.get_mut(&(name.to_owned(), id.to_owned()))?;
        Some(registered.current(&self.inner.options).clone())
    }

    /// The path of an instance that is registered here, once it is known. That of a sequential one has a GUID and ends
    /// with a number: see [`ServiceType::DynamicSequential`]. Its last component is the id for
    /// [`query_for_instance`](Self::query_for_instance).
    #[must_use]
    pub fn path(&self, name: &str, id: &str) -> Option<String> {
        self.node(name, id)?.path()
    }

    fn node(&self, name: &str, id: &str) -> Option<PersistentNode> {
        let all = self.registered();
        let registered = all.as_ref()?.get(&(name.to_owned(), id.to_owned()));
        registered.map(|registered| registered.node.clone())
    }

    /// Unregisters an instance: deletes its node, and keeps it no longer. Nothing happens if it is not registered here. It
    /// waits for the reply, at most for the connection timeout. Wait for the future before the same instance is registered
    /// again: otherwise its new node may be deleted, and created once more.
    ///
    /// # Errors
    ///
    /// `OperationTimeout` when the node is not yet deleted, and `NoAuth` while its ACL does not allow it: the background
    /// repeats the delete until the session or the client ends. Other errors when it cannot be deleted.
    ///
    /// # Cancel safety
    ///
    /// The instance is unregistered even if the future is dropped or never polled.
    ///
    /// Source: `unregisterService`.
    pub fn unregister(
        &self,
        name: &str,
        id: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<T> {
        let key = (name.to_owned(), id.to_owned());
        let registered = self.registered().as_mut().and_then(|all| all.remove(&key));
        let closing = registered.map(|registered| registered.node.close_and_delete());
        async move {
            match closing {
                Some(closing) => closing.await,
                None => Ok(()),
            }
        }
    }

    /// A cache of the instances of a service. Returns at once: a task reads the instances. The cache is closed by itself,
    /// not with this discovery.
    ///
    /// # Errors
    ///
    /// `InvalidPath`.
    ///
    /// Source: `serviceCacheBuilder`, `start`.
    pub fn service_cache(&self, name: &str) -> Result<ServiceCache<T>, Error> {
        let path = self.service_path(name)?;
        let serializer = Arc::clone(&self.inner.options.serializer);
        ServiceCache::start(&self.inner.client, &path, serializer)
    }

    /// As [`service_provider_with`](Self::service_provider_with), with the default [`ProviderOptions`].
    ///
    /// # Errors
    ///
    /// As [`service_provider_with`](Self::service_provider_with).
    pub fn service_provider(&self, name: &str) -> Result<ServiceProvider<T>, Error> {
        self.service_provider_with(name, ProviderOptions::default())
    }

    /// A provider of the instances of a service. Returns at once: a task reads the instances. The provider is closed by
    /// itself, not with this discovery.
    ///
    /// # Errors
    ///
    /// `InvalidPath`.
    ///
    /// Source: `serviceProviderBuilder`, `start`.
    pub fn service_provider_with(
        &self,
        name: &str,
        options: ProviderOptions<T>,
    ) -> Result<ServiceProvider<T>, Error> {
        let cache = self.service_cache(name)?;
        let serializer = Arc::clone(&self.inner.options.serializer);
        Ok(ServiceProvider::new(&self.inner.client, cache, serializer, options))
    }

    /// Unregisters all instances that are registered here, except [permanent](ServiceType::Permanent) ones, which stay on
    /// the server. It waits for the replies of all together, at most for the connection timeout.
    ///
    /// # Errors
    ///
    /// One of the errors, as of [`unregister`](Self::unregister).
    ///
    /// # Cancel safety
    ///
    /// The discovery is closed even if the future is dropped or never polled.
    ///
    /// Source: `close`.
    pub fn close(&self) -> impl Future<Output = Result<(), Error>> + Send + use<T> {
        let all = self.registered().take().unwrap_or_default();
        let closing: Vec<_> = all.into_values().map(|one| one.node.close()).collect();
        join_all(closing)
    }

    fn service_path(&self, name: &str) -> Result<String, Error> {
        let path = join(&self.inner.base_path, name);
        let refused =
            |why: &dyn fmt::Display| error::invalid_path("the name of a service", name, why);
        match paths::validate(&path) {
            _ if name.is_empty() => Err(refused(&"it is empty")),
            // The names of a deeper path are not found by a query for names.
            _ if name.contains('/') => {
                Err(refused(&"it contains a slash; use another base path for a group of services"))
            }
            Err(invalid) => Err(refused(&invalid).caused_by(invalid)),
            Ok(()) => Ok(path),
        }
    }

    fn instance_path(&self, name: &str, id: &str) -> Result<String, Error> {
        let path = join(&self.service_path(name)?, id);
        let refused =
            |why: &dyn fmt::Display| error::invalid_path("the id of an instance", id, why);
        match paths::validate(&path) {
            _ if id.is_empty() => Err(refused(&"it is empty")),
            // In Curator it makes a deeper path, which queries do not find.
            _ if id.contains('/') => Err(refused(&"it contains a slash")),
            Err(invalid) => Err(refused(&invalid).caused_by(invalid)),
            Ok(()) => Ok(path),
        }
    }
}

/// Changes a registered instance, and writes the bytes that `change` returns.
///
/// Source: `ServiceDiscoveryImpl.updateService`.
fn change<T>(
    all: &mut AllRegistered<T>,
    name: &str,
    id: &str,
    change: impl FnOnce(&mut Registered<T>) -> Result<Vec<u8>, Error>,
) -> Result<Written, Error> {
    let Some(registered) = all.get_mut(&(name.to_owned(), id.to_owned())) else {
        return Err(error::not_registered(name, id));
    };
    let bytes = change(registered)?;
    // The same bytes, too: another process may have written others to the node.
    registered.node.set_data(bytes);
    Ok(Box::pin(registered.node.written()))
}

/// Waits for all. Each begins at once, and with it its limit of time. Returns the first error.
async fn join_all<F>(futures: Vec<F>) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut result = Ok(());
    poll_fn(|cx| {
        futures.retain_mut(|future| match future.as_mut().poll(cx) {
            Poll::Ready(ended) => {
                result = std::mem::replace(&mut result, Ok(())).and(ended);
                false
            }
            Poll::Pending => true,
        });
        Poll::Ready(())
    })
    .await;
    for future in futures {
        result = result.and(future.await);
    }
    result
}

fn join(parent: &str, child: &str) -> String {
    format!("{}/{child}", parent.trim_end_matches('/'))
}

impl<T> Clone for ServiceDiscovery<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> fmt::Debug for ServiceDiscovery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceDiscovery")
            .field("base_path", &self.inner.base_path)
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use docent_session::{Config, Outcome};
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{InstanceSerializer, SerializerError};

    // Case (Found in docent itself): discovery: the close waited for one time limit after the
    // other.
    #[tokio::test(start_paused = true)]
    async fn all_limits_of_time_run_at_once() {
        let wait = |seconds: u64, result: Result<(), ErrorKind>| async move {
            let until = sleep(Duration::from_secs(seconds));
            if seconds > 0 {
                until.await;
            }
            result.map_err(|kind| Error::new(kind, Outcome::Unknown))
        };
        let start = Instant::now();
        let all = vec![
            wait(5, Ok(())),
            wait(0, Err(ErrorKind::NotEmpty)),
            wait(7, Err(ErrorKind::OperationTimeout)),
            wait(6, Ok(())),
        ];
        assert_eq!(join_all(all).await.unwrap_err().kind(), ErrorKind::NotEmpty);
        assert_eq!(start.elapsed(), Duration::from_secs(7));
        assert!(join_all(vec![wait(1, Ok(())), wait(0, Ok(()))]).await.is_ok());
        assert_eq!(start.elapsed(), Duration::from_secs(8));
    }

    /// A form without disabled instances.
    struct OnlyEnabled;

    impl InstanceSerializer<()> for OnlyEnabled {
        fn serialize(&self, instance: &ServiceInstance<()>) -> Result<Vec<u8>, SerializerError> {
            if instance.is_enabled() { Ok(Vec::new()) } else { Err("disabled".into()) }
        }

        fn deserialize(&self, _bytes: &[u8]) -> Result<ServiceInstance<()>, SerializerError> {
            Err("no instance".into())
        }
    }

    #[tokio::test]
    async fn an_instance_that_cannot_be_written_stays_as_it_was() {
        let client = Config::new("127.0.0.1:1").unwrap().start().unwrap();
        let options = DiscoveryOptions::new(OnlyEnabled);
        let discovery = ServiceDiscovery::with_options(&client, "/services", options).unwrap();
        drop(discovery.register(ServiceInstance::new("web", "i1").with_payload(())));
        discovery.set_enabled("web", "i1", false).await.unwrap_err();
        assert!(discovery.instance("web", "i1").unwrap().is_enabled());
    }
}
