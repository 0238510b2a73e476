//! Apache Curator's service discovery over `docent-session`: services register where they can be reached, and other
//! processes find them.
//!
//! The nodes, their JSON and the frames are those of Curator's `curator-x-discovery`, so that Rust and Java processes find
//! each other. Curator's defects are not mirrored: `docs/CURATOR.md` lists them, with the tests.
//!
//! | type | Curator | |
//! |---|---|---|
//! | [`ServiceInstance`] | the same | where one instance of a service can be reached, with a payload of the application's |
//! | [`ServiceDiscovery`] | `ServiceDiscoveryImpl` | registers instances and keeps them registered; reads those of others |
//! | [`ServiceCache`] | `ServiceCacheImpl` | the instances of a service in memory |
//! | [`ServiceProvider`] | `ServiceProviderImpl` | picks one instance: at random, in turn, or the same one again; leaves failing ones out |
//! | [`JsonInstanceSerializer`] | the same | the bytes of an instance's node |
//! | [`UriSpec`] | the same | a template for the URI of an instance |
//!
//! # Example
//!
//! ```
//! use docent_discovery::{ServiceDiscovery, ServiceInstance};
//! use docent_session::Client;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = docent_testing::TestingServer::start().await?;
//! # let connect_string = server.connect_string();
//! let client = Client::connect(&connect_string).await?;
//! let discovery = ServiceDiscovery::new(&client, "/services")?;
//!
//! let instance = ServiceInstance::new("printer", "7").with_address("10.0.0.7").with_port(631);
//! discovery.register(instance).await?;
//!
//! // In another process:
//! let provider = discovery.service_provider("printer")?;
//! provider.initialized().await?;
//! if let Some(printer) = provider.instance() {
//!     println!("{:?}:{:?}", printer.address(), printer.port());
//!     // After a failed call: left out for a while, once there are several.
//!     provider.note_error(&printer);
//! }
//! # assert_eq!(provider.instance().unwrap().port(), Some(631));
//! discovery.close().await?;
//! # client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Programs without async
//!
//! A `docent::blocking::Client` is passed as it is, and `docent::blocking::wait` waits for each call:
//!
//! ```
//! use std::time::Duration;
//! use docent::blocking::{Client, wait, wait_timeout};
//! use docent_discovery::{ServiceCacheEvent, ServiceDiscovery, ServiceInstance};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Runtime::new()?;
//! # let server = runtime.block_on(docent_testing::TestingServer::start())?;
//! # let connect_string = server.connect_string();
//! let client = Client::connect(&connect_string)?;
//! let discovery = ServiceDiscovery::new(&client, "/services")?;
//! let printer = ServiceInstance::new("printer", "7").with_address("10.0.0.7").with_port(631);
//! wait(|| discovery.register(printer))?;
//!
//! // In another process:
//! let provider = discovery.service_provider("printer")?;
//! wait_timeout(Duration::from_secs(30), || provider.initialized())?.ok_or("no list of printers yet")?;
//! assert_eq!(provider.instance().and_then(|printer| printer.port()), Some(631));
//!
//! // Follows the instances, here until the first is drained.
//! let mut events = provider.cache().events();
//! wait(|| discovery.set_enabled("printer", "7", false))?;
//! while let Some(event) = wait(async || Ok(events.next().await))? {
//!     if matches!(event, ServiceCacheEvent::Changed { new, .. } if !new.is_enabled()) {
//!         break;
//!     }
//! }
//! wait(|| discovery.close())?;
//! client.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! The node of an instance is `<base path>/<service name>/<instance id>`, with its JSON as data. The parents are containers,
//! which the server removes when they are empty. Names and ids have no slash. The node of a
//! [sequential](ServiceType::DynamicSequential) instance has another name than its id.
//!
//! # Errors
//!
//! Those of the session. `BadReply` with the outcome `NotApplied` is about the data of a node: it is not an instance, as the
//! detail says. With the outcome `Unknown`, it is a reply of the server that has no valid format.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod down_instances;
mod error;
mod instance_serializer;
mod jackson;
mod json_instance_serializer;
mod payload;
mod provider_strategy;
mod service_cache;
mod service_discovery;
mod service_instance;
mod service_provider;
mod uri_spec;
mod view;

pub use docent_recipes::{locks::LockOptions, nodes::NodeEvent};
pub use docent_session::{Error, ErrorKind, Events, Outcome};
pub use down_instances::DownInstancePolicy;
pub use instance_serializer::{InstanceSerializer, SerializerError};
pub use json_instance_serializer::JsonInstanceSerializer;
pub use payload::Payload;
pub use provider_strategy::{ProviderStrategy, RandomStrategy, RoundRobinStrategy, StickyStrategy};
pub use service_cache::{ServiceCache, ServiceCacheEvent};
pub use service_discovery::{DiscoveryOptions, ServiceDiscovery};
pub use service_instance::{ServiceInstance, ServiceType};
pub use service_provider::{ProviderOptions, ServiceProvider};
pub use uri_spec::{InvalidUriSpec, UriPart, UriSpec};
