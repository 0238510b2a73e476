//! The instances of a service, as the events of a cache change them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use docent_recipes::cache::{CacheEvent, CacheState, CachedNode};
use docent_session::{Error, watch::NodePath};

use crate::{InstanceSerializer, ServiceCacheEvent, ServiceInstance, error};

/// Applies the events of a cache. Each reader of a cache has one.
pub(crate) struct View<T> {
    /// The path of the service.
    root: Arc<str>,
    serializer: Arc<dyn InstanceSerializer<T>>,
    /// By path: the order of the instances.
    known: BTreeMap<Box<str>, Known<T>>,
    /// Whether `Initialized` was reported, or was so from the beginning.
    is_initialized: bool,
    /// The same of `Stale`.
    is_stale: bool,
}

/// The node of an instance.
struct Known<T> {
    czxid: i64,
    mzxid: i64,
    /// The last data of this node that could be read.
    instance: Option<Arc<ServiceInstance<T>>>,
    /// Why its data cannot be read.
    error: Option<Error>,
}

impl<T: 'static> View<T> {
    /// The instances at one moment. Its state is known to the reader, and not reported.
    pub(crate) fn new(
        root: &str,
        serializer: Arc<dyn InstanceSerializer<T>>,
        state: &CacheState,
    ) -> Self {
        let (known, root, is_initialized) = (BTreeMap::new(), root.into(), state.initialized);
        let is_stale = state.initialized && state.stale;
        let mut view = Self { root, serializer, known, is_initialized, is_stale };
        let mut events = Vec::new();
        state.nodes.iter().for_each(|node| view.create(node, &mut events));
        view
    }

    /// The instances, in the order of the names of their nodes.
    pub(crate) fn instances(&self) -> Arc<[Arc<ServiceInstance<T>>]> {
        self.known.values().filter_map(|known| known.instance.clone()).collect()
    }

    /// The nodes whose data is not an instance.
    pub(crate) fn failures(&self) -> Vec<(NodePath, Error)> {
        let failed = self.known.iter();
        failed.filter_map(|(path, known)| Some(((&**path).into(), known.error.clone()?))).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    fn len(&self) -> usize {
        self.known.values().filter(|known| known.instance.is_some()).count()
    }

    /// Applies an event of the cache, and appends what it means for the instances.
    pub(crate) fn apply(
        &mut self,
        event: CacheEvent,
        events: &mut impl Extend<ServiceCacheEvent<T>>,
    ) {
        match event {
            CacheEvent::Created { node } => self.create(&node, events),
            CacheEvent::Changed { new, .. } => self.change(&new, events),
            CacheEvent::Deleted { node } => self.delete(node.path(), events),
            CacheEvent::Initialized { .. } => self.set_state(true, false, events),
            CacheEvent::Stale => self.set_state(self.is_initialized, true, events),
            CacheEvent::Resynced { .. } => self.set_state(self.is_initialized, false, events),
            CacheEvent::Failed { path, error } => {
                events.extend([ServiceCacheEvent::Unreadable { path, error }]);
            }
            CacheEvent::Lagged { nodes, initialized, stale } => {
                events.extend([ServiceCacheEvent::Lagged]);
                self.replace(&nodes, events);
                self.set_state(initialized, stale, events);
            }
            _ => {}
        }
    }

    fn set_state(
        &mut self,
        initialized: bool,
        stale: bool,
        events: &mut impl Extend<ServiceCacheEvent<T>>,
    ) {
        // Before the first load is complete, nothing has become stale.
        if !initialized {
            return;
        }
        let len = self.len();
        if !std::mem::replace(&mut self.is_initialized, true) {
            events.extend([ServiceCacheEvent::Initialized { len }]);
        }
        match (std::mem::replace(&mut self.is_stale, stale), stale) {
            (false, true) => events.extend([ServiceCacheEvent::Stale]),
            (true, false) => events.extend([ServiceCacheEvent::Resynced { len }]),
            _ => {}
        }
    }

    fn read(&self, node: &CachedNode) -> Result<Arc<ServiceInstance<T>>, Error> {
        let data = node.data().map(|data| &**data).unwrap_or_default();
        let instance = self.serializer.deserialize(data);
        instance.map(Arc::new).map_err(|error| error::unreadable(node.path(), &error))
    }

    fn create(&mut self, node: &CachedNode, events: &mut impl Extend<ServiceCacheEvent<T>>) {
        if node.path() == &*self.root {
            return;
        }
        let (czxid, mzxid) = (node.stat().czxid, node.stat().mzxid);
        let known = match self.read(node) {
            Ok(instance) => {
                events.extend([ServiceCacheEvent::Added { instance: Arc::clone(&instance) }]);
                Known { czxid, mzxid, instance: Some(instance), error: None }
            }
            Err(error) => {
                let (path, error) = (node.path().into(), error);
                events.extend([ServiceCacheEvent::Unreadable { path, error: error.clone() }]);
                Known { czxid, mzxid, instance: None, error: Some(error) }
            }
        };
        self.known.insert(node.path().into(), known);
    }

    /// The data of a node has changed. If it is not an instance, the last one is kept.
    fn change(&mut self, node: &CachedNode, events: &mut impl Extend<ServiceCacheEvent<T>>) {
        let read = self.read(node);
        let Some(known) = self.known.get_mut(node.path()) else {
            return self.create(node, events);
        };
        known.mzxid = node.stat().mzxid;
        match read {
            Ok(new) => {
                known.error = None;
                let event = match known.instance.replace(Arc::clone(&new)) {
                    Some(old) => ServiceCacheEvent::Changed { old, new },
                    None => ServiceCacheEvent::Added { instance: new },
                };
                events.extend([event]);
            }
            Err(error) => {
                known.error = Some(error.clone());
                let path = node.path().into();
                events.extend([ServiceCacheEvent::Unreadable { path, error }]);
            }
        }
    }

    fn delete(&mut self, path: &str, events: &mut impl Extend<ServiceCacheEvent<T>>) {
        if let Some(Known { instance: Some(instance), .. }) = self.known.remove(path) {
            events.extend([ServiceCacheEvent::Removed { instance }]);
        }
    }

    /// Events were missed: compares with all nodes.
    fn replace(&mut self, nodes: &[CachedNode], events: &mut impl Extend<ServiceCacheEvent<T>>) {
        let there: BTreeSet<&str> = nodes.iter().map(CachedNode::path).collect();
        let gone = self.known.keys().filter(|path| !there.contains(&***path));
        for path in gone.cloned().collect::<Vec<_>>() {
            self.delete(&path, events);
        }
        for node in nodes {
            let known = self.known.get(node.path()).map(|known| (known.czxid, known.mzxid));
            match known {
                Some((czxid, mzxid)) if czxid == node.stat().czxid => {
                    if mzxid != node.stat().mzxid {
                        self.change(node, events);
                    }
                }
                _ => {
                    self.delete(node.path(), events);
                    self.create(node, events);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use docent_protocol::CreateMode;
    use docent_recipes::cache::CuratorCache;
    use docent_session::Config;
    use docent_testing::TestingServer;

    use super::*;
    use crate::JsonInstanceSerializer;

    /// The view of a cache that has not loaded anything.
    #[tokio::test]
    async fn nothing_is_stale_before_the_first_load() {
        let client = Config::new("127.0.0.1:1").unwrap().start().unwrap();
        let (state, _) = CuratorCache::start(&client, "/web").unwrap().state_and_events();
        let apply_to = |state: &CacheState, events: Vec<CacheEvent>| {
            let serializer = Arc::new(JsonInstanceSerializer::new());
            let mut view: View<serde_json::Value> = View::new("/web", serializer, state);
            let mut seen = Vec::new();
            events.into_iter().for_each(|event| view.apply(event, &mut seen));
            format!("{seen:?}")
        };
        let apply = |events| apply_to(&state, events);
        let initialized = || CacheEvent::Initialized { len: 0 };
        let lagged =
            |initialized, stale| CacheEvent::Lagged { nodes: Vec::new(), initialized, stale };
        let once = "[Initialized { len: 0 }]";
        assert_eq!(apply(vec![CacheEvent::Stale, CacheEvent::Resynced { len: 0 }]), "[]");
        assert_eq!(apply(vec![CacheEvent::Stale, initialized()]), once);
        let lagging = "[Lagged, Lagged, Initialized { len: 0 }]";
        assert_eq!(apply(vec![lagged(false, true), lagged(true, false)]), lagging);
        let lagging = "[Lagged, Initialized { len: 0 }, Stale, Lagged, Resynced { len: 0 }]";
        assert_eq!(apply(vec![lagged(true, true), lagged(true, false)]), lagging);
        let later = vec![initialized(), CacheEvent::Stale, CacheEvent::Resynced { len: 0 }];
        assert_eq!(apply(later), "[Initialized { len: 0 }, Stale, Resynced { len: 0 }]");
        // A reader that begins while the cache is stale is notified of the end of that state.
        let mut stale = state.clone();
        (stale.initialized, stale.stale) = (true, true);
        let fresh = vec![CacheEvent::Resynced { len: 0 }];
        assert_eq!(apply_to(&stale, fresh), "[Resynced { len: 0 }]");
    }

    /// Two sessions register the same instance one after the other: the second one does not change the first one's.
    #[tokio::test]
    async fn an_instance_that_is_registered_anew_during_a_lag_is_removed_and_added() {
        let server = TestingServer::start().await.unwrap();
        let client = Config::new(&server.connect_string()).unwrap().connect().await.unwrap();
        let serializer = Arc::new(JsonInstanceSerializer::new());
        let data = |port| {
            let one = ServiceInstance::new("web", "i1").with_port(port).with_payload(());
            serializer.serialize(&one).unwrap()
        };
        let state = async || {
            let cache = CuratorCache::start(&client, "/web").unwrap();
            cache.initialized().await.unwrap();
            cache.state_and_events().0
        };
        let mode = CreateMode::Persistent;
        for path in ["/web", "/web/anew", "/web/written"] {
            client.create(path, &data(80), mode).await.unwrap();
        }
        let mut view = View::<()>::new("/web", serializer.clone(), &state().await);
        client.delete("/web/anew", None).await.unwrap();
        client.create("/web/anew", &data(81), mode).await.unwrap();
        client.set_data("/web/written", &data(82), None).await.unwrap();
        let nodes = state().await.nodes;
        let mut seen = Vec::new();
        // The second lag has missed nothing.
        for nodes in [nodes.clone(), nodes] {
            view.apply(CacheEvent::Lagged { nodes, initialized: true, stale: false }, &mut seen);
        }
        let text = |event: &ServiceCacheEvent<_>| match event {
            ServiceCacheEvent::Lagged => "lagged".to_owned(),
            ServiceCacheEvent::Removed { instance } => format!("removed {:?}", instance.port()),
            ServiceCacheEvent::Added { instance } => format!("added {:?}", instance.port()),
            ServiceCacheEvent::Changed { new, .. } => format!("changed {:?}", new.port()),
            other => panic!("{other:?}"),
        };
        let seen: Vec<_> = seen.iter().map(text).collect();
        let wanted = ["lagged", "removed Some(80)", "added Some(81)", "changed Some(82)", "lagged"];
        assert_eq!(seen, wanted);
    }
}
