//! The instances of a service in memory.
//!
//! The list is never behind an event that a reader has seen.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use docent_recipes::cache::{CacheEvent, CacheOptions, CuratorCache};
use docent_session::{Client, Error, Events, watch::NodePath};
use serde_json::Value;

use crate::{InstanceSerializer, ServiceInstance, view::View};

/// The instances of one service in memory, kept up to date by a watch. Created by
/// [`ServiceDiscovery::service_cache`](crate::ServiceDiscovery::service_cache).
///
/// Reads send nothing and never wait. While the connection is lost the instances stay readable, and
/// [`is_stale`](Self::is_stale) is true. The service need not have instances; no node is created for it.
///
/// A node whose data is not an instance is left out, and listed by [`failures`](Self::failures). If it was an instance
/// before, that one stays.
///
/// Clones are the same cache; dropping the last one closes it in the background.
///
/// ```
/// # use docent_discovery::{ServiceCacheEvent, ServiceDiscovery, ServiceInstance};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent_session::Client::connect(&server.connect_string()).await?;
/// let discovery = ServiceDiscovery::new(&client, "/services")?;
/// let cache = discovery.service_cache("web")?;
/// cache.initialized().await?;
/// let mut events = cache.events();
/// discovery.register(ServiceInstance::new("web", "1").with_port(80)).await?;
/// if let Some(ServiceCacheEvent::Added { instance }) = events.next().await {
///     assert_eq!(instance.port(), Some(80));
/// }
/// assert_eq!(cache.instances().len(), 1);
/// cache.close().await;
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: `ServiceCacheImpl`, on a [`CuratorCache`] of the direct children.
pub struct ServiceCache<T = Value> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    cache: CuratorCache,
    serializer: Arc<dyn InstanceSerializer<T>>,
    current: Mutex<Current<T>>,
}

/// The instances up to the last event that was looked at.
struct Current<T> {
    view: View<T>,
    events: Events<CacheEvent>,
    instances: Arc<[Arc<ServiceInstance<T>>]>,
}

impl<T: 'static> Current<T> {
    /// Applies the events that have arrived.
    fn update(&mut self) {
        let mut changes: Vec<ServiceCacheEvent<T>> = Vec::new();
        let mut is_changed = false;
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            // The budget of the calling task does not limit it: otherwise an event could be left behind.
            let next = pin!(tokio::task::unconstrained(self.events.next()));
            match next.poll(&mut cx) {
                Poll::Ready(Some(event)) => self.view.apply(event, &mut changes),
                Poll::Ready(None) => {
                    self.view.clear();
                    is_changed = true;
                    break;
                }
                Poll::Pending => break,
            }
            is_changed = true;
            changes.clear();
        }
        if is_changed {
            self.instances = self.view.instances();
        }
    }
}

impl<T: Send + Sync + 'static> ServiceCache<T> {
    pub(crate) fn start(
        client: &Client,
        path: &str,
        serializer: Arc<dyn InstanceSerializer<T>>,
    ) -> Result<Self, Error> {
        let options = CacheOptions::direct_children();
        let cache = CuratorCache::start_with(client, path, options)?;
        let (state, events) = cache.state_and_events();
        let view = View::new(path, Arc::clone(&serializer), &state);
        let instances = view.instances();
        let current = Mutex::new(Current { view, events, instances });
        Ok(Self { inner: Arc::new(Inner { cache, serializer, current }) })
    }

    /// Waits until all instances are loaded.
    ///
    /// # Errors
    ///
    /// `Closed` when the cache or the client is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `start`, and the latch of `startImmediate`.
    pub async fn initialized(&self) -> Result<(), Error> {
        self.inner.cache.initialized().await
    }

    /// Whether changes may have gone unnoticed: the connection was lost, and not every node was read again.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.inner.cache.is_stale()
    }

    /// The instances, in the order of the names of their nodes, disabled ones included.
    ///
    /// Source: `getInstances`.
    #[must_use]
    pub fn instances(&self) -> Arc<[Arc<ServiceInstance<T>>]> {
        let mut current = self.inner.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.update();
        Arc::clone(&current.instances)
    }

    /// The nodes that cannot be read, by path: those whose data is not an instance, and those that the server does not
    /// return.
    #[must_use]
    pub fn failures(&self) -> Vec<(NodePath, Error)> {
        let mut failures = self.inner.cache.failures();
        let mut current = self.inner.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.update();
        failures.extend(current.view.failures());
        failures
    }

    /// The events from now on, until the cache is closed or the client has ended.
    /// [`Initialized`](ServiceCacheEvent::Initialized) is one of them if the first load is not complete at the call, as is
    /// every instance that it adds. A reader that is more than 1,024 events behind receives a
    /// [`Lagged`](ServiceCacheEvent::Lagged), and then the differences to the current state.
    ///
    /// Source: `addListener`; Curator's `cacheChanged` has no argument.
    #[must_use]
    pub fn events(&self) -> Events<ServiceCacheEvent<T>> {
        // One moment: the events follow the nodes and the state.
        let (state, events) = self.inner.cache.state_and_events();
        let serializer = Arc::clone(&self.inner.serializer);
        let view = View::new(self.inner.cache.path(), serializer, &state);
        let reader = Reader { view, events, ready: VecDeque::new() };
        Events::unfold(reader, |mut reader| async move { Some((reader.next().await?, reader)) })
    }

    /// Closes the cache: removes its watch from the server, and forgets the instances.
    ///
    /// # Cancel safety
    ///
    /// The cache is closed even if the future is dropped or never polled.
    ///
    /// Source: `close`.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<T> {
        self.inner.cache.close()
    }
}

impl<T> Clone for ServiceCache<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> fmt::Debug for ServiceCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCache").field("cache", &self.inner.cache).finish_non_exhaustive()
    }
}

/// What a [`ServiceCache`] has noticed.
///
/// An instance that was registered anew by another session is removed and added, although its id is the same.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceCacheEvent<T = Value> {
    /// An instance is new, or found by the first load.
    Added {
        /// The instance.
        instance: Arc<ServiceInstance<T>>,
    },
    /// The data of an instance was written, possibly with the same content.
    Changed {
        /// The instance before.
        old: Arc<ServiceInstance<T>>,
        /// The instance now.
        new: Arc<ServiceInstance<T>>,
    },
    /// An instance is gone.
    Removed {
        /// The instance as it was last known.
        instance: Arc<ServiceInstance<T>>,
    },
    /// The first load is complete. Reported once.
    Initialized {
        /// The number of instances.
        len: usize,
    },
    /// Changes may go unnoticed from now on: the connection was lost. The instances stay readable. Not reported before
    /// [`Initialized`](Self::Initialized).
    Stale,
    /// The cache has caught up with the server after [`Stale`](Self::Stale). The differences were reported before.
    Resynced {
        /// The number of instances.
        len: usize,
    },
    /// This reader was too slow and has missed events. The differences to the current state follow.
    Lagged,
    /// The data of a node is not an instance, or the node cannot be read.
    Unreadable {
        /// The path of the node.
        path: NodePath,
        /// The reason.
        error: Error,
    },
}

/// Reads the events of a [`ServiceCache`].
struct Reader<T> {
    view: View<T>,
    events: Events<CacheEvent>,
    ready: VecDeque<ServiceCacheEvent<T>>,
}

impl<T: Send + Sync + 'static> Reader<T> {
    async fn next(&mut self) -> Option<ServiceCacheEvent<T>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let event = self.events.next().await?;
            self.view.apply(event, &mut self.ready);
        }
    }
}
