//! Caches: the handle `cache:PATH[#x]`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use docent::{CacheEvent, CacheOptions, CuratorCache, Events, cache::CachedNode};

use super::{
    Answer, Failure, Object, Peer, done, gzip, has, list, lock,
    node_operations::{bytes_token, exception},
    parts, say,
};

/// The stored nodes of closed caches, by the name of the storage.
pub(super) type Storages = Mutex<HashMap<String, Vec<CachedNode>>>;

/// Curator's listener whose events this one imitates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrapper {
    None,
    PathChildrenCache,
    TreeCache,
    NodeCache,
}

/// How the data of nodes are encoded.
#[derive(Debug, Clone, Copy)]
struct Format {
    /// Whether the data are gzip. Data that cannot be decompressed are reported as they are, after a
    /// `cacheerror` (C41).
    is_compressed: bool,
}

pub(super) struct CacheObject {
    peer: Arc<Peer>,
    /// `cache:PATH[#x]`.
    handle: String,
    cache: Option<CuratorCache>,
    format: Format,
    /// The name of the storage that keeps the nodes when the cache is closed.
    storage: Option<String>,
}

impl CacheObject {
    pub(super) const fn new(peer: Arc<Peer>, handle: String) -> Self {
        let format = Format { is_compressed: false };
        Self { peer, handle, cache: None, format, storage: None }
    }

    fn start(&mut self, options: &[&str]) -> Answer {
        let path = parts(&self.handle).1.to_owned();
        self.format = Format { is_compressed: has(options, "compressed") };
        let mut cache_options = CacheOptions::default();
        if has(options, "single") {
            cache_options = CacheOptions::single_node();
        }
        if has(options, "pcc") {
            cache_options = CacheOptions::direct_children();
        }
        if has(options, "nodata") {
            cache_options = cache_options.without_data();
        }
        if has(options, "keep") {
            cache_options = cache_options.without_clear_on_close();
        }
        let storage = options.iter().find_map(|option| option.strip_prefix("storage="));
        self.storage = storage.map(str::to_owned);
        if let Some(name) = &self.storage {
            let storages = lock(&self.peer.storages);
            let nodes = storages.get(name).cloned().unwrap_or_default();
            cache_options = cache_options.with_initial_nodes(nodes);
        }
        let wrapper = if has(options, "pcc") {
            Wrapper::PathChildrenCache
        } else if has(options, "tree") {
            Wrapper::TreeCache
        } else if has(options, "node") {
            Wrapper::NodeCache
        } else {
            Wrapper::None
        };
        let client = &self.peer.client;
        let (cache, events) = CuratorCache::start_with_events(client, &path, cache_options)?;
        let reporter =
            Reporter { handle: self.handle.clone(), root: path, wrapper, format: self.format };
        tokio::spawn(reporter.report(events));
        self.cache = Some(cache);
        done()
    }
}

impl Object for CacheObject {
    async fn answer(&mut self, verb: &str, args: &[&str]) -> Answer {
        if verb == "cstart" {
            return self.start(args);
        }
        let not_started = || {
            let text = format!("{} is not started", self.handle);
            Failure("IllegalStateException".to_owned(), text)
        };
        let cache = self.cache.as_ref().ok_or_else(not_started)?;
        let result = match (verb, args) {
            ("cget", [path]) => {
                cache.get(path).map_or_else(|| "-".to_owned(), |node| self.format.value(&node))
            }
            ("csize", []) => cache.len().to_string(),
            ("clist", []) => {
                let nodes = cache.snapshot();
                let node = |node: &CachedNode| format!("{}={}", node.path(), node.stat().version);
                let mut words: Vec<String> = nodes.iter().map(node).collect();
                words.sort_unstable();
                list(words)
            }
            ("cclose", []) => {
                cache.close().await;
                if let Some(name) = &self.storage {
                    let mut storages = lock(&self.peer.storages);
                    storages.insert(name.clone(), cache.snapshot());
                }
                String::new()
            }
            _ => return Err(Failure::unknown(verb, args)),
        };
        Ok(Some(result))
    }
}

impl Format {
    /// Whether the data of a node are compressed, if they have to be.
    fn is_valid(self, node: &CachedNode) -> bool {
        let data = node.data().filter(|data| self.is_compressed && !data.is_empty());
        data.is_none_or(|data| gzip::decompress(data).is_some())
    }

    /// `VERSION BYTES`.
    fn value(self, node: &CachedNode) -> String {
        let data = node.data().map(|data| match self.is_compressed {
            true => gzip::decompress(data).unwrap_or_else(|| data.to_vec()),
            false => data.to_vec(),
        });
        format!("{} {}", node.stat().version, bytes_token(data.as_deref()))
    }
}

/// Reports the events of a cache.
struct Reporter {
    handle: String,
    root: String,
    wrapper: Wrapper,
    format: Format,
}

impl Reporter {
    async fn report(self, mut events: Events<CacheEvent>) {
        let handle = &self.handle;
        while let Some(event) = events.next().await {
            let node = match &event {
                CacheEvent::Created { node } | CacheEvent::Deleted { node } => Some(node),
                CacheEvent::Changed { new, .. } => Some(new),
                _ => None,
            };
            let is_node = node.is_some();
            let line = match self.wrapper {
                Wrapper::None => self.plain(&event),
                Wrapper::PathChildrenCache => self.child(&event, node),
                Wrapper::TreeCache => {
                    self.wrapped(&event, ["NODE_ADDED", "NODE_UPDATED", "NODE_REMOVED"])
                }
                Wrapper::NodeCache => is_node.then(|| "nodeChanged".to_owned()),
            };
            if let CacheEvent::Failed { error, .. } = &event {
                say(&format!("! cacheerror {handle} {}", exception(error.kind())));
            }
            let is_new = !matches!(event, CacheEvent::Deleted { .. });
            if is_new && node.is_some_and(|node| !self.format.is_valid(node)) {
                say(&format!("! cacheerror {handle} DataInconsistencyException"));
            }
            if let Some(line) = line {
                say(&format!("! cache {handle} {line}"));
            }
        }
    }

    fn plain(&self, event: &CacheEvent) -> Option<String> {
        let value = |node: &CachedNode| self.format.value(node);
        Some(match event {
            CacheEvent::Created { node } => format!("created {} {}", node.path(), value(node)),
            CacheEvent::Changed { old, new } => {
                format!("changed {} {} was {}", new.path(), value(new), value(old))
            }
            CacheEvent::Deleted { node } => format!("deleted {} {}", node.path(), value(node)),
            CacheEvent::Initialized { len } => format!("initialized {len}"),
            CacheEvent::Resynced { len } => format!("resynced {len}"),
            CacheEvent::Lagged { nodes, .. } => format!("lagged {}", nodes.len()),
            _ => return None,
        })
    }

    /// The line of a listener for all nodes; `words` name a created, a changed and a deleted node.
    fn wrapped(&self, event: &CacheEvent, words: [&str; 3]) -> Option<String> {
        let [added, updated, removed] = words;
        let line = |word: &str, node: &CachedNode| {
            format!("{word} {} {}", node.path(), self.format.value(node))
        };
        Some(match event {
            CacheEvent::Created { node } => line(added, node),
            CacheEvent::Changed { new, .. } => line(updated, new),
            CacheEvent::Deleted { node } => line(removed, node),
            CacheEvent::Initialized { .. } => "INITIALIZED".to_owned(),
            _ => return None,
        })
    }

    /// The line of a listener for direct children. Curator's wrapper reports all descendants (C10).
    fn child(&self, event: &CacheEvent, node: Option<&CachedNode>) -> Option<String> {
        let is_child = |node: &CachedNode| {
            let below = node.path().strip_prefix(self.root.trim_end_matches('/'));
            below.is_some_and(|below| below.len() > 1 && below.matches('/').count() == 1)
        };
        if node.is_some_and(|node| !is_child(node)) {
            return None;
        }
        self.wrapped(event, ["CHILD_ADDED", "CHILD_UPDATED", "CHILD_REMOVED"])
    }
}
