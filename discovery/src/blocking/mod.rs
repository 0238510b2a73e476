//! Service discovery for programs without async, beside [`docent::blocking`]: the types of this crate with methods that
//! wait.
//!
//! The names are those of this crate without `.await`. Instances, options, strategies, serializers, events and errors are
//! the same types. Needs the feature `blocking`.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use docent::blocking::{Client, Events};
//! use docent_discovery::{ServiceCacheEvent, ServiceInstance, blocking::ServiceDiscovery};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Runtime::new()?;
//! # let server = runtime.block_on(docent_testing::TestingServer::start())?;
//! # let connect_string = server.connect_string();
//! let client = Client::connect(&connect_string)?;
//! let discovery = ServiceDiscovery::new(&client, "/services")?;
//! discovery.register(ServiceInstance::new("printer", "7").with_address("10.0.0.7").with_port(631))?;
//!
//! // In another process:
//! let provider = discovery.service_provider("printer")?;
//! if !provider.initialized_timeout(Duration::from_secs(30))? {
//!     return Err("no list of printers yet".into());
//! }
//! if let Some(printer) = provider.instance() {
//!     println!("{:?}:{:?}", printer.address(), printer.port());
//!     // After a failed call: left out for a while, once there are several.
//!     provider.note_error(&printer);
//! }
//! # assert_eq!(provider.instance().unwrap().port(), Some(631));
//!
//! // Follows the instances, here for one event. Without a limit of time, the loop ends with the cache.
//! let mut events = provider.cache().events();
//! discovery.set_enabled("printer", "7", false)?;
//! for event in events.timeout_iter(Duration::from_secs(1)).take(1) {
//!     if let ServiceCacheEvent::Changed { new, .. } = event? {
//!         assert!(!new.is_enabled());
//!     }
//! }
//! discovery.close()?;
//! client.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What differs from the async types
//!
//! | async | blocking |
//! |---|---|
//! | `tokio::time::timeout` around a wait | the method with the suffix `_timeout` |
//! | a future that is dropped: `drop(discovery.register(instance))` | `discovery.register_timeout(instance, Duration::ZERO)` |
//! | `next` of events | iterators over results; with a limit of time: the trait [`Events`](docent::blocking::Events) |
//! | `close` of caches and providers, which returns no `Result` | a `Result`, which is an error inside a runtime only |
//! | `RandomStrategy::new(&client)` | `RandomStrategy::new(client.async_client())` |
//!
//! # Threads
//!
//! Every type here is usable from any thread, and its clones by several at once. The instances of other processes are read on
//! the [client's thread](docent::blocking#threads), so a cache follows them whatever the threads of the program do.
//!
//! Strategies and filters of a provider are called on the thread that asks it for an instance. A serializer is called there
//! or on the client's thread, and with a lock held: it must not call the client or the discovery.
//!
//! # Inside an async runtime
//!
//! A method that waits sends nothing there, changes nothing, and fails with
//! [`ErrorKind::WouldBlock`](crate::ErrorKind::WouldBlock): see
//! [`docent::blocking`](docent::blocking#inside-an-async-runtime). Use the async types of this crate instead.
//!
//! # The end
//!
//! A drop never waits, except for the last one of a [client](docent::blocking::Client#the-end) and of everything that was
//! made from it. The last drop of a discovery unregisters its instances in the background.

mod service_cache;
mod service_discovery;
mod service_provider;

pub use docent::blocking::nodes::NodeEvents;
pub use service_cache::{ServiceCache, ServiceCacheEvents};
pub use service_discovery::ServiceDiscovery;
pub use service_provider::ServiceProvider;
