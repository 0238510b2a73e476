//! Searches for the instances of a service. Caches and providers show no instance that was never registered, and in
//! peace all that are registered.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use docent::runtime::Instant;
use docent_discovery::{
    DownInstancePolicy, Events, ProviderOptions, ProviderStrategy, RandomStrategy,
    RoundRobinStrategy, ServiceCache, ServiceCacheEvent, ServiceDiscovery, ServiceInstance,
    ServiceProvider, StickyStrategy,
};
use docent_session::planted;

use super::{
    check::{Services, Shown},
    run::{WRITTEN_WITHIN_MS, discovery, service_path},
    steps::{FindStep, Strategy},
};
use crate::{
    recipes::{
        common::{CACHE_SETTLES as SETTLES, CloseKind, Reader, Retry},
        worker::Worker,
    },
    world::time::{MILLISECOND, SECOND},
};

/// An instance with errors is left out from the second error until this time after the first.
const DOWN_FOR: Duration = Duration::from_secs(5);
const DOWN_FROM: u32 = 2;

/// The interval of queries.
const QUERIES_EVERY: u64 = 2 * SECOND;

type Instances = [Arc<ServiceInstance>];

/// A cache or provider of a service, with the instances that its events lead to.
pub(super) struct Finder {
    discovery: ServiceDiscovery,
    /// The name of the service.
    service: String,
    cache: ServiceCache,
    provider: Option<ServiceProvider>,
    events: Events<ServiceCacheEvent>,
    /// The instances according to its events.
    shown: Vec<Shown>,
    is_initialized: bool,
    is_stale: bool,
    /// The errors of each instance: the time of the first, and their number.
    errors: BTreeMap<Shown, (Instant, u32)>,
    fails_one_in: u64,
    uses: u64,
}

fn shown(instance: &ServiceInstance) -> Shown {
    Shown {
        id: instance.id().to_owned(),
        address: instance.address().unwrap_or_default().to_owned(),
        is_enabled: instance.is_enabled(),
    }
}

fn all_shown<'a>(instances: impl IntoIterator<Item = &'a Arc<ServiceInstance>>) -> Vec<Shown> {
    let mut all: Vec<_> = instances.into_iter().map(|instance| shown(instance)).collect();
    all.sort();
    all
}

/// Looks for instances.
pub(super) async fn find(worker: &Worker, step: &FindStep) {
    let service = format!("s{}", step.service);
    let Some(discovery) = discovery(worker, Retry::Default) else { return };
    let provider = step.provider.map(|strategy| {
        let strategy: Box<dyn ProviderStrategy<_>> = match strategy {
            Strategy::RoundRobin => Box::new(RoundRobinStrategy::new()),
            Strategy::Random => Box::new(RandomStrategy::new(&worker.client)),
            Strategy::Sticky => Box::new(StickyStrategy::new(RoundRobinStrategy::new())),
        };
        let options = ProviderOptions::default()
            .with_strategy(Picks { strategy, first: Mutex::default() })
            .with_down_instance_policy(DownInstancePolicy::new(DOWN_FOR, DOWN_FROM));
        discovery.service_provider_with(&service, options)
    });
    let Some(provider) = worker.accepted(&service, provider.transpose()) else { return };
    let cache = match &provider {
        Some(provider) => Ok(provider.cache().clone()),
        None => discovery.service_cache(&service),
    };
    let Some(cache) = worker.accepted(&service, cache) else { return };
    worker.say(format!("looks for {service}: {:?}", step.provider));
    let events = cache.events();
    let mut finder = Finder {
        discovery,
        shown: all_shown(&*cache.instances()),
        service,
        cache,
        provider,
        events,
        is_initialized: false,
        is_stale: false,
        errors: BTreeMap::new(),
        fails_one_in: u64::from(step.fails_one_in),
        uses: 0,
    };
    let until = worker.world.now() + step.for_ms * MILLISECOND;
    while worker.world.now() < until {
        let next_query = if step.queries { worker.world.now() + QUERIES_EVERY } else { until };
        if !finder.read(worker, next_query.min(until), step.pause_ms).await {
            break;
        }
        if step.queries {
            finder.query(worker).await;
        }
    }
    finder.catch_up(worker);
    if step.end == CloseKind::Keep {
        return worker.judge_later(finder);
    }
    finder.end(worker, step.end).await;
}

/// Judges the caches that were kept, a while after the peace.
pub(super) async fn judge_kept(worker: &Worker) {
    let finders: Vec<Finder> = worker.memory.take();
    if finders.is_empty() {
        return;
    }
    worker.settle(SETTLES).await;
    for mut finder in finders {
        finder.settle(worker).await;
        finder.catch_up(worker);
        finder.converged(worker);
        finder.query(worker).await;
        finder.end(worker, CloseKind::Close).await;
    }
}

impl Reader for Finder {
    type Event = ServiceCacheEvent;

    async fn next(&mut self) -> Option<ServiceCacheEvent> {
        self.events.next().await
    }

    fn is_current(&self) -> bool {
        !self.cache.is_stale()
    }

    fn take(&mut self, worker: &Worker, event: ServiceCacheEvent) {
        match event {
            ServiceCacheEvent::Added { instance } => self.shown.push(shown(&instance)),
            ServiceCacheEvent::Changed { old, new } => {
                self.remove(worker, &shown(&old), "changed");
                self.shown.push(shown(&new));
            }
            ServiceCacheEvent::Removed { instance } => {
                self.remove(worker, &shown(&instance), "removed");
            }
            ServiceCacheEvent::Initialized { len } => {
                worker.say(format!("{} is initialized: {len} instances", self.service));
                if std::mem::replace(&mut self.is_initialized, true) || len != self.shown.len() {
                    let known = self.shown.len();
                    self.bad(worker, &format!("initialized with {len} instances, not {known}"));
                }
                self.is_stale = false;
            }
            ServiceCacheEvent::Stale => {
                let was_stale = std::mem::replace(&mut self.is_stale, true);
                if was_stale {
                    self.bad(worker, "stale out of turn");
                }
            }
            ServiceCacheEvent::Resynced { len } => {
                let was_stale = std::mem::replace(&mut self.is_stale, false);
                if !was_stale || len != self.shown.len() {
                    let known = self.shown.len();
                    self.bad(worker, &format!("resynced with {len} instances, not {known}"));
                }
            }
            ServiceCacheEvent::Unreadable { path, error } => {
                worker.say(format!("{path} cannot be read: {error}"));
            }
            _ => {}
        }
    }

    /// Checks that each of its instances was there, and uses one.
    fn look(&mut self, worker: &Worker) {
        let cached = self.cache.instances();
        self.were_there(worker, "has", &cached);
        let Some(provider) = self.provider.clone() else { return };
        let now = worker.client.now();
        let is_down = |of: &Shown| {
            self.errors.get(of).is_some_and(|(first, count)| {
                *count >= DOWN_FROM && now.saturating_duration_since(*first) < DOWN_FOR
            })
        };
        let picked = provider.instance();
        let usable = all_shown(&provider.instances());
        let mut expected = all_shown(&*cached);
        expected.retain(|of| of.is_enabled && !is_down(of));
        if usable != expected {
            self.bad(worker, &format!("provides {usable:?} instead of {expected:?}"));
        }
        let Some(picked) = picked else {
            if !usable.is_empty() {
                self.bad(worker, &format!("provides none of {usable:?}"));
            }
            return;
        };
        let of = shown(&picked);
        if !usable.contains(&of) {
            self.bad(worker, &format!("provides {of:?}, which is not one of {usable:?}"));
        }
        self.uses += 1;
        if self.fails_one_in > 0 && self.uses.is_multiple_of(self.fails_one_in) {
            provider.note_error(&picked);
            self.errors.retain(|_, (first, _)| now.saturating_duration_since(*first) < DOWN_FOR);
            self.errors.entry(of).or_insert((now, 0)).1 += 1;
        }
    }
}

impl Finder {
    fn bad(&self, worker: &Worker, text: &str) {
        worker.violation(&format!("{}: {text}", self.service));
    }

    fn remove(&mut self, worker: &Worker, of: &Shown, what: &str) {
        match self.shown.iter().position(|known| known == of) {
            Some(at) => drop(self.shown.swap_remove(at)),
            None => self.bad(worker, &format!("{of:?} is reported as {what}, not as there")),
        }
    }

    fn were_there(&self, worker: &Worker, verb: &str, instances: &Instances) {
        let service = service_path(&self.service);
        let services = worker.world.check::<Services>();
        let all = instances.iter().map(|instance| shown(instance));
        let never: Vec<_> = all.filter(|shown| !services.was_there(&service, shown)).collect();
        drop(services);
        if !never.is_empty() {
            self.bad(worker, &format!("{verb} {never:?}, which never was"));
        }
    }

    /// Takes all waiting events, and checks that they lead to the instances of the cache.
    fn catch_up(&mut self, worker: &Worker) {
        if !self.drain(worker) {
            return;
        }
        let cached = all_shown(&*self.cache.instances());
        self.shown.sort();
        if self.shown != cached {
            let text = format!("has {cached:?}, but its events lead to {:?}", self.shown);
            self.bad(worker, &text);
        }
    }

    /// The instances that are registered, if they have not changed for a while in peace.
    fn registered(&self, worker: &Worker, since: u64) -> Option<Vec<Shown>> {
        let service = service_path(&self.service);
        let peace_at = worker.world.core().disturbances.peace_at;
        let services = worker.world.check::<Services>();
        let changed_at = services.changed_at(&service).max(peace_at);
        let mut instances = services.instances(&service);
        drop(services);
        instances.sort();
        (changed_at + SETTLES / 2 < since).then_some(instances)
    }

    /// Checks that the cache has the registered instances, a while after the peace.
    fn converged(&self, worker: &Worker) {
        if worker.client.ended().is_some() {
            return;
        }
        if self.cache.is_stale() || !self.is_initialized {
            let failures = self.cache.failures();
            return self.bad(worker, &format!("is not up to date in peace: {failures:?}"));
        }
        let cached = all_shown(&*self.cache.instances());
        if let Some(registered) = self.registered(worker, worker.world.now())
            && registered != cached
        {
            self.bad(worker, &format!("has {cached:?} instead of {registered:?} in peace"));
        }
    }

    /// Queries the instances, and judges the result.
    async fn query(&self, worker: &Worker) {
        let since = worker.world.now();
        let query = self.discovery.query_for_instances(&self.service);
        let found = match worker.within(WRITTEN_WITHIN_MS, query).await {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                return worker.fails(format_args!("{} is not found", self.service), &error);
            }
            None => return worker.say(format!("{} is not found in time", self.service)),
        };
        let found: Vec<_> = found.into_iter().map(Arc::new).collect();
        self.were_there(worker, "finds", &found);
        let found = all_shown(&found);
        worker.say(format!("finds {} instances of {}", found.len(), self.service));
        if let Some(registered) = self.registered(worker, since)
            && registered != found
        {
            self.bad(worker, &format!("finds {found:?} instead of {registered:?} in peace"));
        }
    }

    async fn end(self, worker: &Worker, end: CloseKind) {
        let close = match &self.provider {
            Some(provider) => {
                Box::pin(provider.close()) as Pin<Box<dyn Future<Output = ()> + Send>>
            }
            None => Box::pin(self.cache.close()),
        };
        match end {
            CloseKind::Drop => drop(close),
            CloseKind::CancelledClose => drop(worker.within(0, close).await),
            CloseKind::Close | CloseKind::CloseTwice | CloseKind::Keep => {
                worker.close_in_time(&self.service, close).await;
                let left = self.cache.instances().len();
                let picked = self.provider.as_ref().and_then(ServiceProvider::instance);
                if left > 0 || picked.is_some() {
                    let text = format!("has {left} instances after its close, provides {picked:?}");
                    self.bad(worker, &text);
                }
            }
        }
    }
}

/// A strategy that may have a planted fault.
struct Picks {
    strategy: Box<dyn ProviderStrategy<serde_json::Value>>,
    first: Mutex<Option<Arc<ServiceInstance>>>,
}

impl ProviderStrategy<serde_json::Value> for Picks {
    fn instance(&self, instances: &Instances) -> Option<Arc<ServiceInstance>> {
        let picked = self.strategy.instance(instances);
        if planted::is("provider-remembers") {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            return first.get_or_insert(picked?).clone().into();
        }
        picked
    }
}
