//! Service discovery: the handle `disc:BASE[#x]`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use docent_discovery::{
    DiscoveryOptions, DownInstancePolicy, InstanceSerializer, JsonInstanceSerializer,
    ProviderOptions, RoundRobinStrategy, ServiceCache, ServiceCacheEvent, ServiceDiscovery,
    ServiceInstance, ServiceProvider,
};
use serde_json::Value;

use super::{Answer, Failure, Object, Peer, done, has, list, millis, parts, say};

pub(super) struct DiscoveryObject {
    peer: Arc<Peer>,
    /// `disc:BASE[#x]`.
    handle: String,
    open: Option<Open>,
}

struct Open {
    discovery: ServiceDiscovery,
    serializer: JsonInstanceSerializer,
    /// The services of the registered instances, by id.
    services: HashMap<String, String>,
    caches: HashMap<String, ServiceCache>,
    providers: HashMap<String, ServiceProvider>,
}

impl DiscoveryObject {
    pub(super) const fn new(peer: Arc<Peer>, handle: String) -> Self {
        Self { peer, handle, open: None }
    }

    fn open(&mut self, options: &[&str]) -> Answer {
        let base = parts(&self.handle).1;
        let mut serializer = JsonInstanceSerializer::new();
        if has(options, "new") {
            serializer = serializer.with_enabled();
        }
        let is_watching = has(options, "watch");
        let mut options = DiscoveryOptions::default()
            .with_serializer(serializer)
            .with_lock_options(self.peer.data_options.clone());
        if is_watching {
            options = options.with_watched_instances();
        }
        let discovery = ServiceDiscovery::with_options(&self.peer.client, base, options)?;
        let (services, caches) = (HashMap::new(), HashMap::new());
        let providers = HashMap::new();
        self.open = Some(Open { discovery, serializer, services, caches, providers });
        done()
    }
}

impl Open {
    fn instance(&mut self, json: &[&str]) -> Result<ServiceInstance, Failure> {
        let json = json.join(" ");
        let instance: Result<ServiceInstance<Value>, _> =
            self.serializer.deserialize(json.as_bytes());
        let instance = instance.map_err(|error| Failure::command(format!("{json}: {error}")))?;
        self.services.insert(instance.id().to_owned(), instance.name().to_owned());
        Ok(instance)
    }

    async fn run(&mut self, handle: &str, verb: &str, args: &[&str]) -> Answer {
        match (verb, args) {
            ("dreg", [_, ..]) => {
                let instance = self.instance(args)?;
                self.discovery.register(instance).await?;
            }
            ("dupdate", [_, ..]) => {
                let instance = self.instance(args)?;
                self.discovery.update(instance).await?;
            }
            ("dunreg", [id]) => {
                if let Some(name) = self.services.remove(*id) {
                    self.discovery.unregister(&name, id).await?;
                }
            }
            ("dnames", []) => return sorted(self.discovery.query_for_names().await?),
            ("dids", [name]) => {
                let instances = self.discovery.query_for_instances(name).await?;
                return sorted(instances.iter().map(|one| one.id().to_owned()).collect());
            }
            ("dget", [name, id]) => {
                let Some(instance) = self.discovery.query_for_instance(name, id).await? else {
                    return Ok(Some("-".to_owned()));
                };
                let json = self.serializer.serialize(&instance);
                let json = json.map_err(|error| Failure::command(error.to_string()))?;
                return Ok(Some(String::from_utf8_lossy(&json).into_owned()));
            }
            ("dclose", []) => self.discovery.close().await?,
            ("scstart", [name]) => {
                let cache = self.discovery.service_cache(name)?;
                cache.initialized().await?;
                let count = cache.instances().len();
                tokio::spawn(report(format!("{handle} {name}"), cache.clone()));
                self.caches.insert((*name).to_owned(), cache);
                return Ok(Some(count.to_string()));
            }
            ("sclist", [name]) => {
                let cache = self.caches.get(*name).ok_or_else(|| Failure::not_started(name))?;
                let line = |one: &Arc<ServiceInstance>| {
                    let port =
                        one.port().map_or_else(|| "null".to_owned(), |port| port.to_string());
                    format!("{}={}:{port}", one.id(), one.address().unwrap_or("null"))
                };
                return sorted(cache.instances().iter().map(line).collect());
            }
            ("scclose", [name]) => {
                if let Some(cache) = self.caches.remove(*name) {
                    cache.close().await;
                }
            }
            ("pstart", [name, strategy, policy @ ..]) => {
                let options = self.provider_options(strategy, policy)?;
                let provider = self.discovery.service_provider_with(name, options)?;
                provider.initialized().await?;
                self.providers.insert((*name).to_owned(), provider);
            }
            ("pget", [name]) => {
                let instance = self.provider(name)?.instance();
                let id = instance.map_or_else(|| "-".to_owned(), |one| one.id().to_owned());
                return Ok(Some(id));
            }
            ("pall", [name]) => {
                let instances = self.provider(name)?.instances();
                return sorted(instances.iter().map(|one| one.id().to_owned()).collect());
            }
            ("perror", [name, id]) => {
                let instances = self.discovery.query_for_instances(name).await?;
                for instance in instances.iter().filter(|one| one.id() == *id) {
                    self.provider(name)?.note_error(instance);
                }
            }
            ("pclose", [name]) => {
                if let Some(provider) = self.providers.remove(*name) {
                    provider.close().await;
                }
            }
            _ => return Err(Failure::unknown(verb, args)),
        }
        done()
    }

    fn provider(&self, name: &str) -> Result<&ServiceProvider, Failure> {
        self.providers.get(name).ok_or_else(|| Failure::not_started(name))
    }

    fn provider_options(
        &self,
        strategy: &str,
        policy: &[&str],
    ) -> Result<ProviderOptions, Failure> {
        let mut options = ProviderOptions::default();
        options = match strategy {
            "rr" => options.with_strategy(RoundRobinStrategy::new()),
            _ => return Err(Failure::command(format!("{strategy} is no strategy"))),
        };
        if let [threshold, timeout] = policy {
            let threshold = threshold.parse();
            let threshold = threshold.map_err(|_| Failure::command("no threshold"))?;
            let timeout: Duration = millis(timeout)?;
            let policy = DownInstancePolicy::new(timeout, threshold);
            options = options.with_down_instance_policy(policy);
        }
        Ok(options)
    }
}

fn sorted(mut words: Vec<String>) -> Answer {
    words.sort_unstable();
    Ok(Some(list(words)))
}

/// Reports each change of a cache, until it is closed.
async fn report(name: String, cache: ServiceCache) {
    let mut events = cache.events();
    while let Some(event) = events.next().await {
        let is_change = matches!(
            event,
            ServiceCacheEvent::Added { .. }
                | ServiceCacheEvent::Changed { .. }
                | ServiceCacheEvent::Removed { .. }
        );
        if is_change {
            say(&format!("! svc {name} {}", cache.instances().len()));
        }
    }
}

impl Object for DiscoveryObject {
    async fn answer(&mut self, verb: &str, args: &[&str]) -> Answer {
        if verb == "dopen" {
            return self.open(args);
        }
        let handle = self.handle.clone();
        let open = self.open.as_mut().ok_or_else(|| Failure::not_started(&handle))?;
        open.run(&handle, verb, args).await
    }
}
