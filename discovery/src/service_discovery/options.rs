//! Options of a service discovery.

use std::{fmt, sync::Arc};

use docent_recipes::locks::LockOptions;
use serde_json::Value;

use crate::{InstanceSerializer, JsonInstanceSerializer, Payload};

/// Options of a [`ServiceDiscovery`](crate::ServiceDiscovery).
pub struct DiscoveryOptions<T = Value> {
    pub(super) serializer: Arc<dyn InstanceSerializer<T>>,
    pub(super) lock: LockOptions,
    pub(super) watches_instances: bool,
}

impl<T> DiscoveryOptions<T> {
    /// Options with a form of the instances in their nodes. The payload need not have JSON.
    ///
    /// ```
    /// use docent_discovery::{
    ///     DiscoveryOptions, InstanceSerializer, SerializerError, ServiceDiscovery, ServiceInstance,
    /// };
    ///
    /// /// The id alone; the rest is agreed upon.
    /// struct IdSerializer;
    ///
    /// /// A type without serde.
    /// struct Zone;
    ///
    /// impl InstanceSerializer<Zone> for IdSerializer {
    ///     fn serialize(&self, instance: &ServiceInstance<Zone>) -> Result<Vec<u8>, SerializerError> {
    ///         Ok(instance.id().into())
    ///     }
    ///
    ///     fn deserialize(&self, bytes: &[u8]) -> Result<ServiceInstance<Zone>, SerializerError> {
    ///         Ok(ServiceInstance::new("web", std::str::from_utf8(bytes)?))
    ///     }
    /// }
    ///
    /// # fn example(client: &docent_session::Client) -> Result<(), docent_discovery::Error> {
    /// let options = DiscoveryOptions::new(IdSerializer);
    /// let discovery: ServiceDiscovery<Zone> =
    ///     ServiceDiscovery::with_options(client, "/services", options)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn new(serializer: impl InstanceSerializer<T>) -> Self {
        let (serializer, lock) = (Arc::new(serializer), LockOptions::default());
        Self { serializer, lock, watches_instances: false }
    }

    /// Takes over what other processes write to the nodes of the instances that are registered here; an operator drains
    /// an instance in this way. [`ServiceDiscovery::instance`](crate::ServiceDiscovery::instance) returns that form, the
    /// event [`DataAdopted`](crate::NodeEvent::DataAdopted) reports it, and after a lost session the instance is
    /// registered with it. Data that is not an instance, or one of another name, id or type, is left in the node and not
    /// taken over. By default, such writes stay in the node until it is created again, and are not noticed.
    ///
    /// An [`update`](crate::ServiceDiscovery::update) at the same time wins. Sends getData (4) with watch instead of
    /// exists (3).
    ///
    /// Source: `ServiceDiscoveryBuilder.watchInstances`.
    #[must_use]
    pub const fn with_watched_instances(mut self) -> Self {
        self.watches_instances = true;
        self
    }

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
        Self::new(JsonInstanceSerializer::new())
    }
}

impl<T> Clone for DiscoveryOptions<T> {
    fn clone(&self) -> Self {
        let (serializer, lock) = (Arc::clone(&self.serializer), self.lock.clone());
        Self { serializer, lock, watches_instances: self.watches_instances }
    }
}

impl<T> fmt::Debug for DiscoveryOptions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiscoveryOptions")
            .field("lock", &self.lock)
            .field("watches_instances", &self.watches_instances)
            .finish_non_exhaustive()
    }
}
