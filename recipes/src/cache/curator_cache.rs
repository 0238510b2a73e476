//! The cache.

use std::{fmt, future::Future, sync::Arc};

use docent_protocol::path as paths;
use docent_session::{Client, Error, ErrorKind, Events, watch::NodePath};
use tokio_util::sync::CancellationToken;

use super::{
    cache_event::CacheEvent,
    engine::Engine,
    event::Reader,
    node::CachedNode,
    options::CacheOptions,
    shared::Shared,
    tree::{NOT_LISTED, Tree},
    updater::Updater,
};
use crate::error;

/// A node and its descendants in memory, kept up to date by a watch.
///
/// Reads of the cache send nothing and never wait. They may return a state that the server has left already, but none
/// that never was, and for each node never an older one than before, unless the ensemble was restored from a backup, or
/// a read-only server, which may be far behind, has given the client a new session. While the connection is lost the nodes
/// stay readable, and [`is_stale`](Self::is_stale) is true.
///
/// The node need not exist; it is not created. A cache of `/` includes the server's own nodes below `/zookeeper`.
///
/// On servers without persistent watches (ZooKeeper before 3.6, and ClickHouse Keeper, whose events have the wrong path)
/// the cache sets two one-shot watches on each node. That is found out once for each session. When a node is deleted and
/// created again together with its children, a child may be reported once more as deleted and created: it can be read
/// before its parent.
///
/// Clones are the same cache; dropping the last one closes it in the background.
///
/// # Example
///
/// ```
/// use docent::{CacheEvent, CacheOptions, CreateMode, CuratorCache};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent::Client::connect(&server.connect_string()).await?;
/// client.create("/settings", b"", CreateMode::Persistent).await?;
/// client.create("/settings/colour", b"red", CreateMode::Persistent).await?;
///
/// let cache = CuratorCache::start(&client, "/settings")?;
/// cache.initialized().await?;
/// let colour = cache.get("/settings/colour").expect("it exists");
/// assert_eq!(colour.data().map(|data| &**data), Some(&b"red"[..]));
///
/// let mut events = cache.events();
/// client.set_data("/settings/colour", b"blue", None).await?;
/// if let Some(CacheEvent::Changed { old, new }) = events.next().await {
///     println!("{}: {:?} instead of {:?}", new.path(), new.data(), old.data());
/// }
/// cache.close().await;
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: `CuratorCache`; the bridge to `TreeCache` for older servers is included. The modules `engine` and `updater`
/// of this crate list the steps and their frames.
#[derive(Clone)]
pub struct CuratorCache {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    path: Arc<str>,
    shared: Arc<Shared>,
    closing: CancellationToken,
}

impl CuratorCache {
    /// As [`start_with`](Self::start_with), with the default [`CacheOptions`]: the whole tree.
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub fn start(client: &Client, path: &str) -> Result<Self, Error> {
        Self::start_with(client, path, CacheOptions::default())
    }

    /// Starts to cache a node. Returns at once: a task waits for a connection, sets the watch and reads the nodes.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath).
    ///
    /// Source: `CuratorCache.build`, `start`.
    pub fn start_with(client: &Client, path: &str, options: CacheOptions) -> Result<Self, Error> {
        Self::start_with_events(client, path, options).map(|(cache, _)| cache)
    }

    /// As [`start_with`](Self::start_with), with all events from the start.
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub fn start_with_events(
        client: &Client,
        path: &str,
        options: CacheOptions,
    ) -> Result<(Self, Events<CacheEvent>), Error> {
        if let Err(invalid) = paths::validate(path) {
            let why = format_args!("{path:?} cannot be the path of a cache: {invalid}");
            return Err(error::invalid_path(why).caused_by(invalid));
        }
        Ok(Self::start_checked(client, path, options))
    }

    /// As [`start_with_events`](Self::start_with_events), of a path that is valid.
    pub(crate) fn start_checked(
        client: &Client,
        path: &str,
        mut options: CacheOptions,
    ) -> (Self, Events<CacheEvent>) {
        let root: Arc<str> = path.into();
        let mut tree = Tree::default();
        for node in std::mem::take(&mut options.initial) {
            if options.depth(&root, node.path()).is_some() {
                tree.insert(node, NOT_LISTED);
            }
        }
        let shared = Arc::new(Shared::new(options.max_events, tree));
        let events = Reader::new(shared.subscribe(), Arc::clone(&shared), 0).events();
        let closing = CancellationToken::new();
        // Made here: a task that is dropped with its runtime may never have been polled.
        let end = CloseOnDrop { shared: Arc::clone(&shared), clears: options.clears };
        let updater = Updater {
            client: client.clone(),
            root: Arc::clone(&root),
            single: options.max_depth == 0,
            max_reads: options.max_reads,
            engine: Engine::new(Arc::clone(&root), options, Arc::clone(&shared)),
            closing: closing.clone(),
        };
        client.runtime().spawn(Box::pin(async move {
            updater.run().await;
            drop(end);
        }));
        let inner = Inner { client: client.clone(), path: root, shared, closing };
        (Self { inner: Arc::new(inner) }, events)
    }

    /// The path of the cached node.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Waits until the first load is complete.
    ///
    /// # Errors
    ///
    /// `Closed` when the cache or the client is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `CuratorCacheListener.initialized`, which Curator calls although reads have failed (C2).
    pub async fn initialized(&self) -> Result<(), Error> {
        let mut status = self.inner.shared.status.subscribe();
        match status.wait_for(|status| status.initialized || status.closed).await {
            Ok(status) if !status.closed => Ok(()),
            _ => {
                let why = format_args!("the cache of {} is closed", self.inner.path);
                Err(Error::refused(ErrorKind::Closed, why))
            }
        }
    }

    /// Whether the first load is complete.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.inner.shared.read().initialized
    }

    /// Whether changes may have gone unnoticed: the connection was lost, and not every node was read again.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.inner.shared.read().stale
    }

    /// A node, if the cache has it.
    ///
    /// Source: `CuratorCache.get`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<CachedNode> {
        self.inner.shared.read().tree.get(path).map(|slot| slot.node.clone())
    }

    /// The children of a node, in the order of their paths.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<CachedNode> {
        self.inner.shared.read().tree.children(path)
    }

    /// All nodes at one moment, ancestors first.
    ///
    /// Source: `CuratorCache.stream`.
    #[must_use]
    pub fn snapshot(&self) -> Vec<CachedNode> {
        self.inner.shared.read().tree.nodes().cloned().collect()
    }

    /// The number of nodes.
    ///
    /// Source: `CuratorCache.size`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.shared.read().tree.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The nodes that cannot be read or listed now, with the errors. They are missing in the cache, or older than the
    /// others, or their children are incomplete. A refused read is repeated with growing pauses from 1 s to
    /// one minute, and so is a listing over the limit once its children have changed.
    ///
    /// Source: `CuratorCacheBuilder.withExceptionHandler`.
    #[must_use]
    pub fn failures(&self) -> Vec<(NodePath, Error)> {
        let state = self.inner.shared.read();
        state
            .failed
            .iter()
            .map(|(path, failure)| (Arc::clone(path).into(), failure.error.clone()))
            .collect()
    }

    /// The events from now on, until the cache is closed or the client has ended. A reader that is more than
    /// [`with_max_events`](CacheOptions::with_max_events) behind receives a [`Lagged`](CacheEvent::Lagged) with a snapshot
    /// in place of all of them.
    ///
    /// Source: `CuratorCache.listenable`.
    #[must_use]
    pub fn events(&self) -> Events<CacheEvent> {
        self.snapshot_and_events().1
    }

    /// All nodes at one moment, and the events from that moment on.
    #[must_use]
    pub fn snapshot_and_events(&self) -> (Vec<CachedNode>, Events<CacheEvent>) {
        let (state, events) = self.state_and_events();
        (state.nodes, events)
    }

    /// As [`snapshot_and_events`](Self::snapshot_and_events), with the state of the cache at that moment. The state of
    /// [`is_initialized`](Self::is_initialized) is another one, if an event comes in between.
    #[must_use]
    pub fn state_and_events(&self) -> (CacheState, Events<CacheEvent>) {
        let shared = &self.inner.shared;
        let receiver = shared.subscribe();
        let state = shared.read();
        let (initialized, stale) = (state.initialized, state.stale);
        let nodes = state.tree.nodes().cloned().collect();
        let events = Reader::new(receiver, Arc::clone(shared), state.number).events();
        (CacheState { nodes, initialized, stale }, events)
    }

    /// Closes the cache: removes the watch from the server, and forgets all nodes. Waits for the reply, at most for the
    /// connection timeout. No event follows, and nothing is stored any more.
    ///
    /// # Cancel safety
    ///
    /// The cache is closed even if the future is dropped or never polled.
    ///
    /// Source: `CuratorCache.close`.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.inner.closing.cancel();
        let mut status = self.inner.shared.status.subscribe();
        async move {
            // The sender lives as long as the task.
            drop(status.wait_for(|status| status.closed).await);
        }
    }
}

/// A cache at one moment. Created by [`CuratorCache::state_and_events`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CacheState {
    /// All nodes, ancestors first.
    pub nodes: Vec<CachedNode>,
    /// Whether the first load is complete.
    pub initialized: bool,
    /// Whether changes may have gone unnoticed.
    pub stale: bool,
}

/// Ends the cache with its task, also when the runtime ends.
struct CloseOnDrop {
    shared: Arc<Shared>,
    clears: bool,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.shared.close(self.clears);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl fmt::Debug for CuratorCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.shared.read();
        f.debug_struct("CuratorCache")
            .field("path", &self.inner.path)
            .field("len", &state.tree.len())
            .field("initialized", &state.initialized)
            .field("stale", &state.stale)
            .field("is_connected", &self.inner.client.state().get().is_some())
            .finish_non_exhaustive()
    }
}
