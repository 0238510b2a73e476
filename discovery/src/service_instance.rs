//! One instance of a service.

use std::time::{SystemTime, UNIX_EPOCH};

use docent_protocol::CreateMode;
use serde_json::Value;

use crate::UriSpec;

/// How long the node of an instance lives.
///
/// Source: `ServiceType`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServiceType {
    /// As long as the session that registered it: an ephemeral node.
    #[default]
    Dynamic,
    /// A persistent node, which is deleted when its discovery is closed.
    Static,
    /// A persistent node, which is deleted only by [`unregister`](crate::ServiceDiscovery::unregister).
    Permanent,
    /// As [`Dynamic`](Self::Dynamic); the name of the node is a prefix with a GUID, the id, and a number that the server
    /// appends: `_c_<GUID>-<id>0000000007`. The id in the JSON remains without them. Calls about an instance that is
    /// registered here take its id; queries, which look nodes up, take and return the name of the node. Curator's has no
    /// prefix (C28 in `docs/CURATOR.md`).
    DynamicSequential,
}

impl ServiceType {
    const ALL: [Self; 4] = [Self::Dynamic, Self::Static, Self::Permanent, Self::DynamicSequential];

    /// Its name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "DYNAMIC",
            Self::Static => "STATIC",
            Self::Permanent => "PERMANENT",
            Self::DynamicSequential => "DYNAMIC_SEQUENTIAL",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service_type| service_type.name() == name)
    }

    /// By its place in Curator's enumeration.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    pub(crate) const fn create_mode(self) -> CreateMode {
        match self {
            Self::Dynamic => CreateMode::Ephemeral,
            Self::Static | Self::Permanent => CreateMode::Persistent,
            Self::DynamicSequential => CreateMode::EphemeralSequential,
        }
    }

    /// Whether the end of its session deletes the node.
    #[must_use]
    pub const fn is_dynamic(self) -> bool {
        matches!(self, Self::Dynamic | Self::DynamicSequential)
    }
}

/// One instance of a service: where it can be reached, and a payload of the application's.
///
/// ```
/// use docent_discovery::ServiceInstance;
///
/// let instance = ServiceInstance::new("web", "i1")
///     .with_address("10.1.1.1")
///     .with_port(8080)
///     .with_payload("eu-west".to_owned());
/// assert_eq!(instance.payload().map(String::as_str), Some("eu-west"));
/// ```
///
/// Source: `ServiceInstance`, `ServiceInstanceBuilder`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceInstance<T = Value> {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) address: Option<String>,
    pub(crate) port: Option<i32>,
    pub(crate) ssl_port: Option<i32>,
    pub(crate) payload: Option<T>,
    pub(crate) registration_time_utc: i64,
    pub(crate) service_type: ServiceType,
    pub(crate) uri_spec: Option<UriSpec>,
    pub(crate) enabled: bool,
}

impl<T> ServiceInstance<T> {
    /// A dynamic instance that is enabled, registered now, and has neither address nor payload yet.
    /// [`ServiceDiscovery::new_instance`](crate::ServiceDiscovery::new_instance) chooses the id.
    #[must_use]
    pub fn new(name: &str, id: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            name: name.to_owned(),
            id: id.to_owned(),
            address: None,
            port: None,
            ssl_port: None,
            payload: None,
            registration_time_utc: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
            service_type: ServiceType::default(),
            uri_spec: None,
            enabled: true,
        }
    }

    /// Sets the host name or address. Default: none. Curator's is that of a network interface.
    #[must_use]
    pub fn with_address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Sets the port.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = Some(port.into());
        self
    }

    /// Sets the port for TLS.
    #[must_use]
    pub fn with_ssl_port(mut self, port: u16) -> Self {
        self.ssl_port = Some(port.into());
        self
    }

    /// Sets the payload.
    #[must_use]
    pub fn with_payload(mut self, payload: T) -> Self {
        self.payload = Some(payload);
        self
    }

    /// Sets the time of the registration, in milliseconds since 1970. Default: the time of [`new`](Self::new).
    #[must_use]
    pub const fn with_registration_time_utc(mut self, millis: i64) -> Self {
        self.registration_time_utc = millis;
        self
    }

    /// Sets how long the node lives.
    #[must_use]
    pub const fn with_service_type(mut self, service_type: ServiceType) -> Self {
        self.service_type = service_type;
        self
    }

    /// Sets the template of its URI.
    #[must_use]
    pub fn with_uri_spec(mut self, uri_spec: UriSpec) -> Self {
        self.uri_spec = Some(uri_spec);
        self
    }

    /// Sets whether providers use the instance.
    #[must_use]
    pub const fn with_enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// The name of the service.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id of the instance, unique among those of the service.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The host name or address.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// The port. Java's integer, so the instances of others may have any number.
    #[must_use]
    pub const fn port(&self) -> Option<i32> {
        self.port
    }

    /// The port for TLS.
    #[must_use]
    pub const fn ssl_port(&self) -> Option<i32> {
        self.ssl_port
    }

    /// The payload.
    #[must_use]
    pub const fn payload(&self) -> Option<&T> {
        self.payload.as_ref()
    }

    /// The time of the registration, in milliseconds since 1970.
    #[must_use]
    pub const fn registration_time_utc(&self) -> i64 {
        self.registration_time_utc
    }

    /// How long the node lives.
    #[must_use]
    pub const fn service_type(&self) -> ServiceType {
        self.service_type
    }

    /// The template of its URI.
    #[must_use]
    pub const fn uri_spec(&self) -> Option<&UriSpec> {
        self.uri_spec.as_ref()
    }

    /// Whether providers use the instance.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The URI of the instance, if it has a template.
    ///
    /// Source: `buildUriSpec`.
    #[must_use]
    pub fn build_uri(&self) -> Option<String> {
        self.uri_spec.as_ref().map(|uri_spec| uri_spec.build(self))
    }
}
