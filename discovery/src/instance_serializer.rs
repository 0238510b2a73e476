//! The form of an instance in its node.

use crate::ServiceInstance;

/// Why an instance cannot be written, or bytes are not an instance.
pub type SerializerError = Box<dyn std::error::Error + Send + Sync>;

/// How an instance becomes the bytes of its node, and back. [`JsonInstanceSerializer`](crate::JsonInstanceSerializer) is
/// the one that Curator's peers understand.
///
/// `set_enabled` and `instance` of [`ServiceDiscovery`](crate::ServiceDiscovery) call it with the lock of all registered
/// instances held, and caches call it on the task that applies events. It must not call the same discovery, and a slow
/// one delays them.
///
/// Source: `InstanceSerializer`.
pub trait InstanceSerializer<T>: Send + Sync + 'static {
    /// The bytes of an instance.
    ///
    /// # Errors
    ///
    /// An instance that has no such form.
    fn serialize(&self, instance: &ServiceInstance<T>) -> Result<Vec<u8>, SerializerError>;

    /// The instance of these bytes, which may come from any process.
    ///
    /// # Errors
    ///
    /// Bytes that are no instance.
    fn deserialize(&self, bytes: &[u8]) -> Result<ServiceInstance<T>, SerializerError>;
}
