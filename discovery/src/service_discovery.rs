//! The registration of instances, and queries for those of others.
//!
//! | call | frames | Curator |
//! |---|---|---|
//! | [`register`](ServiceDiscovery::register) | create2 (15), with parents as [`PersistentNode`]; registered already with other fields: setData (5); with the same: nothing | `internalRegisterService` |
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
//! (C33); the form registered last is the one that is kept (C39).

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use docent_protocol::path as paths;
use docent_recipes::{
    locks::LockOptions,
    nodes::{NodeEvents, NodeOptions, PersistentNode},
};
use docent_session::{Children, Client, Error, ErrorKind, Node};
use serde_json::Value;
use tracing::debug;

use crate::{
    InstanceSerializer, JsonInstanceSerializer, Payload, ProviderOptions, ServiceCache,
    ServiceInstance, ServiceProvider, ServiceType, error,
};

/// The number of instances that a query reads at once.
const MAX_READS: usize = 64;

/// Options of a [`ServiceDiscovery`].
pub struct DiscoveryOptions<T = Value> {
    serializer: Arc<dyn InstanceSerializer<T>>,
    lock: LockOptions,
}

impl<T> DiscoveryOptions<T> {
    /// Sets the form of the instances in their nodes. Default: [`JsonInstanceSerializer::new`].
    #[must_use]
    pub fn with_serializer(mut self, serializer: impl InstanceSerializer<T>) -> Self {
        self.serializer = Arc::new(serializer);
        self
    }

    /// Sets the options that it shares with locks: retry policy, ACLs, mode of the parents.
    #[must_use]
    pub fn with_lock_options(mut self, options: LockOptions) -> Self {
        self.lock = options;
        self
    }
}

impl<T: Payload> Default for DiscoveryOptions<T> {
    fn default() -> Self {
        Self { serializer: Arc::new(JsonInstanceSerializer::new()), lock: LockOptions::default() }
    }
}

impl<T> Clone for DiscoveryOptions<T> {
    fn clone(&self) -> Self {
        Self { serializer: Arc::clone(&self.serializer), lock: self.lock.clone() }
    }
}

impl<T> fmt::Debug for DiscoveryOptions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiscoveryOptions").field("lock", &self.lock).finish_non_exhaustive()
    }
}

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
        async move { put?.written().await }
    }

    /// Writes the fields of an instance that is registered here. The call itself begins it; of several updates in quick
    /// succession, possibly only the last is written. If a third client deletes the node while the write is in flight, the
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
        async move { put?.written().await }
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
                let before = std::mem::replace(&mut registered.instance.enabled, enabled);
                let bytes = self.serialize(&registered.instance);
                if bytes.is_err() {
                    registered.instance.enabled = before;
                }
                bytes
            })
        });
        async move { put?.written().await }
    }

    fn put(&self, instance: ServiceInstance<T>, registers: bool) -> Result<Put, Error> {
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
        let (client, mode) = (&self.inner.client, service_type.create_mode());
        let node = PersistentNode::start_with(client, &path, mode, bytes, options)?;
        registered.insert((name, id), Registered { instance, node: node.clone() });
        Ok(Put { node, repeats: None })
    }

    fn serialize(&self, instance: &ServiceInstance<T>) -> Result<Vec<u8>, Error> {
        let bytes = self.inner.options.serializer.serialize(instance);
        bytes.map_err(|error| error::unwritable(&instance.name, &instance.id, &error))
    }

    fn registered(&self) -> MutexGuard<'_, Option<AllRegistered<T>>> {
        self.inner.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events of an instance that is registered here: created, lost, restored, in conflict with another client's.
    #[must_use]
    pub fn events(&self, name: &str, id: &str) -> Option<NodeEvents> {
        self.node(name, id).map(|node| node.events())
    }

    /// The path of an instance that is registered here, once it is known. That of a sequential one ends with a number.
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
    /// `OperationTimeout` when the node is not yet deleted: the background repeats the delete until the session or the
    /// client ends. Other errors when it cannot be deleted.
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

    /// The names of the services, sorted. A service whose instances are gone stays until the server removes its node.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries. A base path that does not exist has no services.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `queryForNames`.
    pub async fn query_for_names(&self) -> Result<Vec<String>, Error> {
        self.list(&self.inner.base_path).await
    }

    /// The names of the nodes of a service, sorted: the ids of its instances, sequential ones with their number. No
    /// instance is read.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; those of the session, after retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn query_for_ids(&self, name: &str) -> Result<Vec<String>, Error> {
        self.list(&self.service_path(name)?).await
    }

    /// The instances of a service, in the order of the names of their nodes. A node whose data is not an instance is left
    /// out.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; those of the session, after retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `queryForInstances`.
    pub async fn query_for_instances(&self, name: &str) -> Result<Vec<ServiceInstance<T>>, Error> {
        let service = self.service_path(name)?;
        let (client, lock) = (&self.inner.client, &self.inner.options.lock);
        let paths = self.list(&service).await?;
        let paths: Vec<String> = paths.iter().map(|id| join(&service, id)).collect();
        let mut instances = Vec::with_capacity(paths.len());
        for paths in paths.chunks(MAX_READS) {
            let replies: Vec<_> = paths.iter().map(|path| client.get_data(path)).collect();
            for (path, reply) in paths.iter().zip(replies) {
                let node = match reply.await {
                    Err(error) if error.is_retryable() => {
                        let read = || client.get_data(path);
                        client.retry_idempotent(lock.retry_policy(), read).await
                    }
                    reply => reply,
                };
                match node.and_then(|node| self.read(path, &node)) {
                    Ok(instance) => instances.push(instance),
                    // It has left since the listing.
                    Err(error) if error.kind() == ErrorKind::NoNode => {}
                    Err(error) if error.kind() == ErrorKind::BadReply => {
                        debug!(path, %error, "node left out of a query");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(instances)
    }

    /// One instance; `None` if there is none. `id` is the name of its node, for a sequential one with its number.
    ///
    /// # Errors
    ///
    /// `BadReply` if the data of the node is not an instance; `InvalidPath`; those of the session, after retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `queryForInstance`.
    pub async fn query_for_instance(
        &self,
        name: &str,
        id: &str,
    ) -> Result<Option<ServiceInstance<T>>, Error> {
        let path = self.instance_path(name, id)?;
        let policy = self.inner.options.lock.retry_policy();
        let read = || self.inner.client.get_data(&path);
        match self.inner.client.retry_idempotent(policy, read).await {
            Ok(node) => self.read(&path, &node).map(Some),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, path: &str, node: &Node) -> Result<ServiceInstance<T>, Error> {
        let instance = self.inner.options.serializer.deserialize(&node.data);
        instance.map_err(|error| error::unreadable(path, &error))
    }

    /// The sorted names of the children.
    async fn list(&self, path: &str) -> Result<Vec<String>, Error> {
        let policy = self.inner.options.lock.retry_policy();
        let list = || self.inner.client.get_children_with_stat(path);
        let children = match self.inner.client.retry_idempotent(policy, list).await {
            Ok((children, _)) => children,
            Err(error) if error.kind() == ErrorKind::NoNode => Children::default(),
            Err(error) => return Err(error),
        };
        let mut names: Vec<String> = children.iter().map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
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
    /// the server. It waits for the replies, for each at most for the connection timeout.
    ///
    /// # Errors
    ///
    /// The first error, as of [`unregister`](Self::unregister).
    ///
    /// # Cancel safety
    ///
    /// The discovery is closed even if the future is dropped or never polled.
    ///
    /// Source: `close`.
    pub fn close(&self) -> impl Future<Output = Result<(), Error>> + Send + use<T> {
        let all = self.registered().take().unwrap_or_default();
        let closing: Vec<_> = all.into_values().map(|one| one.node.close()).collect();
        async move {
            let mut result = Ok(());
            for one in closing {
                result = result.and(one.await);
            }
            result
        }
    }

    fn service_path(&self, name: &str) -> Result<String, Error> {
        let path = join(&self.inner.base_path, name);
        let refused =
            |why: &dyn fmt::Display| error::invalid_path("the name of a service", name, why);
        match paths::validate(&path) {
            _ if name.is_empty() => Err(refused(&"it is empty")),
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

/// A write that has begun.
struct Put {
    node: PersistentNode,
    /// The bytes, if they are the wanted ones already.
    repeats: Option<Vec<u8>>,
}

impl Put {
    async fn written(self) -> Result<(), Error> {
        match (self.node.written().await, self.repeats) {
            // It has failed before; the same bytes are another attempt.
            (Err(error), Some(bytes)) if error.kind() != ErrorKind::Closed => {
                self.node.set_data(bytes);
                self.node.written().await
            }
            (written, _) => written,
        }
    }
}

/// Changes a registered instance, and writes the bytes that `change` returns.
fn change<T>(
    all: &mut AllRegistered<T>,
    name: &str,
    id: &str,
    change: impl FnOnce(&mut Registered<T>) -> Result<Vec<u8>, Error>,
) -> Result<Put, Error> {
    let Some(registered) = all.get_mut(&(name.to_owned(), id.to_owned())) else {
        return Err(error::not_registered(name, id));
    };
    let bytes = change(registered)?;
    let node = registered.node.clone();
    if node.data() == bytes {
        return Ok(Put { node, repeats: Some(bytes) });
    }
    node.set_data(bytes);
    Ok(Put { node, repeats: None })
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
