//! Caches, compared with the servers' data and with their own events.

use std::collections::{BTreeMap, BTreeSet};

use docent::{CacheEvent, CacheOptions, CuratorCache, Events, OpCode, cache::CachedNode};

use super::{
    steps::{CacheKind, CacheStep},
    tree,
};
use crate::{
    checks::requests,
    recipes::{
        common::{CACHE_SETTLES as SETTLES, CloseKind, Reader, poll_once},
        worker::Worker,
    },
    world::{
        check::Check,
        disturbances::is_at_or_below,
        time::{MILLISECOND, Nanos, Pid, SECOND},
    },
};

/// How far a server may be behind its leader, without a fault.
const BEHIND: Nanos = SECOND;

/// The last period before the caches are judged, in milliseconds. Their process must send few requests in it.
const PERIOD_MS: u64 = 5_000;

/// The caches of all processes. It has no rule: it is a check because caches of different workers share it.
#[derive(Default)]
pub(super) struct Snapshots {
    /// The number of open caches of each process, by their roots.
    pub(super) open: BTreeMap<(Pid, String), usize>,
    /// The last nodes of a cache, by its root, its depth, and whether it keeps data.
    pub(super) last: BTreeMap<(String, usize, bool), Vec<CachedNode>>,
}

impl Check for Snapshots {}

/// A cache, with the nodes that its events lead to.
pub(crate) struct Cache {
    cache: CuratorCache,
    root: String,
    depth: usize,
    keeps_data: bool,
    started_at: Nanos,
    events: Events<CacheEvent>,
    /// The nodes according to its events.
    nodes: BTreeMap<String, CachedNode>,
    is_initialized: bool,
    is_stale: bool,
    /// The nodes that could not be read.
    failed: BTreeSet<String>,
    /// The nodes that were deleted since the last outage, by their `czxid`, each with that of its parent.
    deleted: BTreeMap<i64, Option<i64>>,
    /// The newest state of each path that was seen: `czxid` and `mzxid`.
    newest: BTreeMap<String, (i64, i64)>,
}

/// The identity of a state of a node.
fn state(node: &CachedNode) -> (i64, i64, i32) {
    (node.stat().czxid, node.stat().mzxid, node.stat().version)
}

/// Does one step.
pub(crate) async fn run(worker: &Worker, step: &CacheStep) {
    let root = tree::path(&step.root);
    let options = match step.kind {
        CacheKind::Tree => CacheOptions::default(),
        CacheKind::Children => CacheOptions::direct_children(),
        CacheKind::Single => CacheOptions::single_node(),
    };
    let options = options.with_max_reads(step.max_reads).with_max_events(step.max_events);
    let options = if step.without_data { options.without_data() } else { options };
    let depth = match step.kind {
        CacheKind::Tree => usize::MAX,
        CacheKind::Children => 1,
        CacheKind::Single => 0,
    };
    let kind = (root.clone(), depth, !step.without_data);
    let known = worker.world.check::<Snapshots>().last.get(&kind).cloned();
    let initial = known.filter(|_| step.initial).unwrap_or_default();
    let options = options.with_initial_nodes(initial.clone());
    let made = CuratorCache::start_with_events(&worker.client, &root, options);
    let Some((cache, events)) = worker.accepted(&root, made) else { return };
    let session = worker.session_id();
    let from = if step.initial { format!(" from {} nodes", initial.len()) } else { String::new() };
    worker.say(format!("caches {root}: {:?}{from}", step.kind));
    *worker.world.check::<Snapshots>().open.entry((worker.pid, root.clone())).or_default() += 1;
    let mut cache = Cache {
        cache,
        depth,
        root,
        keeps_data: !step.without_data,
        started_at: worker.world.now(),
        events,
        nodes: initial.into_iter().map(|node| (node.path().to_owned(), node)).collect(),
        is_initialized: false,
        is_stale: false,
        failed: BTreeSet::new(),
        deleted: BTreeMap::new(),
        newest: BTreeMap::new(),
    };
    // Looks at the initial nodes, before any read.
    cache.look(worker);
    let until = worker.world.now() + step.for_ms * MILLISECOND;
    cache.read(worker, until, step.pause_ms).await;
    cache.catch_up(worker);
    if step.end == CloseKind::Keep {
        return worker.judge_later(cache);
    }
    cache.end(worker, step.end, session).await;
}

/// Judges the caches that were kept, a while after the peace.
pub(crate) async fn judge_kept(worker: &Worker) {
    let caches: Vec<Cache> = worker.memory.take();
    if caches.is_empty() {
        return;
    }
    let settled_at = worker.world.core().disturbances.peace_at + SETTLES;
    let left_ms = settled_at.saturating_sub(worker.world.now()) / MILLISECOND + 4_000;
    // The changes of the last steps are read before this period.
    let period_ms = PERIOD_MS.min(left_ms - 1_000);
    worker.sleep(left_ms - period_ms).await;
    let before = requests::Count::now(&worker.world, worker.pid, &worker.client);
    worker.sleep(period_ms).await;
    let after = requests::Count::now(&worker.world, worker.pid, &worker.client);
    if let Some(text) = after.too_many_since(before, period_ms / 1_000, caches.len()) {
        worker.violation(&format!("with caches: {text}"));
    }
    for mut cache in caches {
        cache.settle(worker).await;
        cache.catch_up(worker);
        cache.converged(worker);
        let session = worker.session_id();
        cache.end(worker, CloseKind::Close, session).await;
    }
}

impl Reader for Cache {
    type Event = CacheEvent;

    async fn next(&mut self) -> Option<CacheEvent> {
        self.events.next().await
    }

    fn is_current(&self) -> bool {
        self.cache.is_initialized() && !self.cache.is_stale()
    }

    fn take(&mut self, worker: &Worker, event: CacheEvent) {
        match event {
            CacheEvent::Created { node } => {
                let path = node.path().to_owned();
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                if path != self.root && !self.nodes.contains_key(parent) {
                    self.bad(worker, &format!("reports {path}, and not its parent"));
                }
                // If the parent was created again, a child that was read before is deleted and reported again with it.
                let parent = self.nodes.get(parent).map(|parent| parent.stat().czxid);
                if self.deleted.get(&node.stat().czxid).is_some_and(|of| *of == parent) {
                    self.bad(worker, &format!("reports {node:?} again, after its deletion"));
                }
                if self.nodes.insert(path, node.clone()).is_some() {
                    self.bad(worker, &format!("reports {node:?} as created twice"));
                }
            }
            CacheEvent::Changed { old, new } => {
                let known = self.nodes.insert(new.path().to_owned(), new.clone());
                if known.as_ref().map(state) != Some(state(&old)) {
                    self.bad(worker, &format!("reports {old:?} as changed, not {known:?}"));
                }
                if new.stat().mzxid <= old.stat().mzxid || new.stat().czxid != old.stat().czxid {
                    self.bad(worker, &format!("reports {new:?} as a change of {old:?}"));
                }
            }
            CacheEvent::Deleted { node } => {
                let known = self.nodes.remove(node.path());
                if known.as_ref().map(state) != Some(state(&node)) {
                    self.bad(worker, &format!("reports {node:?} as deleted, not {known:?}"));
                }
                // A stale cache may have a new session, in which a lagging server hides a node and shows it again.
                if self.is_initialized && !self.is_stale {
                    let parent = node.path().rsplit_once('/').map_or("", |(parent, _)| parent);
                    let parent = self.nodes.get(parent).map(|parent| parent.stat().czxid);
                    self.deleted.insert(node.stat().czxid, parent);
                }
                let below = format!("{}/", node.path());
                if self.nodes.keys().any(|path| path.starts_with(&below)) {
                    self.bad(worker, &format!("reports {node:?} as deleted before its children"));
                }
            }
            CacheEvent::Initialized { len } => {
                worker.say(format!("the cache of {} is initialized: {len} nodes", self.root));
                if std::mem::replace(&mut self.is_initialized, true) || len != self.nodes.len() {
                    let known = self.nodes.len();
                    self.bad(worker, &format!("is initialized with {len} nodes, not {known}"));
                }
                self.is_stale = false;
                self.check_initialized(worker);
            }
            CacheEvent::Stale => {
                self.deleted.clear();
                if !self.is_initialized || std::mem::replace(&mut self.is_stale, true) {
                    self.bad(worker, "is stale out of turn");
                }
            }
            CacheEvent::Resynced { len } => {
                let was_stale = std::mem::replace(&mut self.is_stale, false);
                if !self.is_initialized || !was_stale || len != self.nodes.len() {
                    let known = self.nodes.len();
                    self.bad(worker, &format!("is resynced with {len} nodes, not {known}"));
                }
            }
            CacheEvent::Failed { path, error } => {
                worker.say(format!("the cache of {} cannot read {path}: {error}", self.root));
                self.failed.insert(path.to_string());
            }
            CacheEvent::Lagged { nodes, initialized, stale } => {
                worker.say(format!("the cache of {}: its reader has lagged", self.root));
                self.nodes = nodes.into_iter().map(|node| (node.path().to_owned(), node)).collect();
                (self.is_initialized, self.is_stale) = (initialized, stale);
                self.deleted.clear();
            }
            _ => {}
        }
    }

    /// Checks that each of its nodes was there, and that none goes back.
    fn look(&mut self, worker: &Worker) {
        let snapshot = self.cache.snapshot();
        let core = worker.world.core();
        let mut wrong = Vec::new();
        // A read-only server serves new sessions from an old tree.
        let may_lag = worker.client.config().read_only();
        for node in &snapshot {
            let mut states = core.servers.truth.of(node.path());
            let was_there = states.any(|applied| {
                applied.change.node.as_ref().is_some_and(|(data, stat)| {
                    (stat.czxid, stat.mzxid, stat.version) == state(node)
                        && node.data().is_none_or(|known| known == data)
                })
            });
            let seen = (node.stat().czxid, node.stat().mzxid);
            let before = self.newest.entry(node.path().to_owned()).or_default();
            if !was_there || node.data().is_some() != self.keeps_data {
                wrong.push(format!("has {node:?}, which never was"));
            } else if seen < *before && !may_lag {
                wrong.push(format!("went back to {node:?} from {before:x?}"));
            }
            *before = seen.max(*before);
        }
        drop(core);
        wrong.iter().for_each(|text| self.bad(worker, text));
        let kind = (self.root.clone(), self.depth, self.keeps_data);
        let before = worker.world.check::<Snapshots>().last.insert(kind, snapshot);
        drop(before);
    }
}

impl Cache {
    fn bad(&self, worker: &Worker, text: &str) {
        worker.violation(&format!("the cache of {} {text}", self.root));
    }

    /// Whether a cache of this root and depth holds a path.
    fn holds(&self, path: &str) -> bool {
        let Some(below) = path.strip_prefix(&self.root) else { return false };
        below.is_empty() || below.starts_with('/') && below.matches('/').count() <= self.depth
    }

    /// Whether the cache has reported that it cannot read a node, or one above it: it then knows of no children.
    fn is_unreadable(&self, path: &str) -> bool {
        self.failed.iter().any(|failed| is_at_or_below(path, failed))
    }

    /// Takes all waiting events, and checks that they lead to the nodes of the cache.
    fn catch_up(&mut self, worker: &Worker) {
        if !self.drain(worker) {
            return;
        }
        let snapshot = self.cache.snapshot();
        let shown: BTreeMap<_, _> =
            snapshot.iter().map(|node| (node.path(), state(node))).collect();
        let replayed: BTreeMap<_, _> =
            self.nodes.iter().map(|(path, node)| (path.as_str(), state(node))).collect();
        if shown != replayed {
            self.bad(worker, &format!("has {shown:x?}, but its events lead to {replayed:x?}"));
        }
    }

    /// Checks that the first load has the nodes that were there from the start of the cache on.
    fn check_initialized(&self, worker: &Worker) {
        let core = worker.world.core();
        // A server that lags may hide them.
        let from = self.started_at.saturating_sub(BEHIND);
        if core.disturbances.until > from {
            return;
        }
        let mut missing = Vec::new();
        for path in core.servers.truth.paths().filter(|path| self.holds(path)) {
            let states = core.servers.truth.states(path);
            let first = states.iter().find(|state| state.at < from && state.end_at >= from);
            let node = first.and_then(|state| state.node.as_ref());
            let Some(czxid) = node.map(|(_, stat)| stat.czxid) else { continue };
            let mut later = core.servers.truth.of(path).filter(|applied| applied.at >= from);
            let stayed = later.all(|applied| {
                applied.change.node.as_ref().is_some_and(|(_, stat)| stat.czxid == czxid)
            });
            if stayed && !self.nodes.contains_key(path) && !self.is_unreadable(path) {
                missing.push(path.to_owned());
            }
        }
        drop(core);
        if !missing.is_empty() {
            self.bad(worker, &format!("is initialized without {missing:?}"));
        }
    }

    /// Checks that the cache has the servers' data, a while after the peace.
    fn converged(&self, worker: &Worker) {
        if worker.client.ended().is_some() {
            return;
        }
        if !self.is_current() {
            let failures = self.cache.failures();
            return self.bad(worker, &format!("is not up to date in peace: {failures:?}"));
        }
        let snapshot = self.cache.snapshot();
        let shown: BTreeMap<&str, _> =
            snapshot.iter().map(|node| (node.path(), state(node))).collect();
        let now = worker.world.now();
        let core = worker.world.core();
        let mut wrong = Vec::new();
        for path in core.servers.truth.paths().filter(|path| self.holds(path)) {
            let states = core.servers.truth.states(path);
            let Some(last) = states.last().filter(|last| last.at + SETTLES / 2 < now) else {
                continue;
            };
            let last = last.node.as_ref().map(|(_, stat)| (stat.czxid, stat.mzxid, stat.version));
            let shown = shown.get(path).copied();
            if last != shown {
                wrong.push(format!("has {path} as {shown:x?} instead of {last:x?} in peace"));
            }
        }
        drop(core);
        wrong.iter().for_each(|text| self.bad(worker, text));
    }

    async fn end(self, worker: &Worker, end: CloseKind, session: Option<i64>) {
        let Self { cache, root, .. } = self;
        let forget = || {
            if let Some(count) =
                worker.world.check::<Snapshots>().open.get_mut(&(worker.pid, root.clone()))
            {
                *count -= 1;
            }
        };
        match end {
            CloseKind::CancelledClose => {
                poll_once(cache.close()).await;
                forget();
            }
            CloseKind::Drop => {
                drop(cache);
                forget();
            }
            CloseKind::Close | CloseKind::CloseTwice | CloseKind::Keep => {
                let (pid, world) = (worker.pid, &worker.world);
                let name = format!("the cache of {root}");
                let began_at = worker.close_in_time(&name, cache.close()).await;
                forget();
                drop(cache);
                // One that began on an old server has one-shot watches on all its nodes.
                let has_others = || {
                    world.check::<Snapshots>().open.iter().any(|((of, other), count)| {
                        *of == pid && *count > 0 && is_at_or_below(&root, other)
                    })
                };
                if has_others() || worker.client.ended().is_some() {
                    return;
                }
                // The watch of another cache of this path may still be on its way.
                worker.sleep(BEHIND / MILLISECOND).await;
                let core = world.core();
                let is_quiet = core.is_calm(pid, began_at, world.now());
                let ensemble = &core.servers.ensemble;
                let watched = session.map(|id| ensemble.persistently_watched_paths(id));
                drop(core);
                // One-shot watches stay until they fire, and without addWatch nothing is removed.
                let lease = worker.client.session();
                let is_persistent = lease.is_some_and(|lease| !lease.lacks(OpCode::AddWatch));
                if is_quiet
                    && is_persistent
                    && !has_others()
                    && worker.session_id() == session
                    && worker.client.ended().is_none()
                    && watched.is_some_and(|paths| paths.contains(&root))
                {
                    worker.violation(&format!("the cache of {root} is closed, not its watch"));
                }
            }
        }
    }
}
