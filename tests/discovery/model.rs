//! Random registrations of three clients under random faults: in the end, each instance that is wanted is there once, by a
//! client that wants it, in the form registered last, and caches have the same instances.
//!
//! `DOCENT_DISCOVERY_SCENARIOS=1000`: a long run.

use std::collections::BTreeMap;

use docent::{OpCode, retry::RetryNTimes};
use docent_discovery::ServiceCache;
use docent_testing::{fault::Fault, tap::TapClient};
use tokio::task::JoinHandle;

use super::*;

const IDS: [&str; 4] = ["i0", "i1", "i2", "i3"];

/// One of the clients that register.
struct Registrar {
    label: String,
    client: Client,
    tap: TapClient,
    discovery: ServiceDiscovery,
    /// The form of each instance that this client wants to be registered: port, enabled.
    wanted: BTreeMap<&'static str, (u16, bool)>,
    /// An instance must not be registered again before these end.
    leaving: BTreeMap<&'static str, JoinHandle<()>>,
}

/// A small generator (SplitMix64), so that a seed is a scenario.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }
}

impl Registrar {
    async fn start(fixture: &Fixture, label: &str) -> Self {
        let (client, tap) = fixture.client(label).await;
        let options = LockOptions::default().with_retry_policy(RetryNTimes::new(5, ms(5)));
        let options = DiscoveryOptions::default().with_lock_options(options);
        let discovery = ServiceDiscovery::with_options(&client, &fixture.path, options).unwrap();
        let (wanted, leaving) = (BTreeMap::new(), BTreeMap::new());
        Self { label: label.to_owned(), client, tap, discovery, wanted, leaving }
    }

    async fn step(&mut self, fixture: &Fixture, random: &mut Random) {
        let id = IDS[random.below(IDS.len())];
        match random.below(12) {
            0..4 => {
                if let Some(leaving) = self.leaving.remove(id) {
                    within_deadline("the end", leaving).await.unwrap();
                }
                let port = u16::try_from(random.below(1000)).unwrap();
                self.wanted.insert(id, (port, true));
                drop(self.discovery.register(web(id, port)));
            }
            4..7 => {
                if self.wanted.remove(id).is_some() {
                    let leaving = self.discovery.unregister("web", id);
                    let leaving = tokio::spawn(async move { drop(leaving.await) });
                    self.leaving.insert(id, leaving);
                }
            }
            7 => {
                if let Some((_, enabled)) = self.wanted.get_mut(id) {
                    *enabled = !*enabled;
                    drop(self.discovery.set_enabled("web", id, *enabled));
                }
            }
            8 => self.tap.cut(),
            // Without a connection there is no session to kill.
            9 => drop(self.tap.kill_session(support::DEADLINE).await),
            10 => {
                let ops = [OpCode::Create2, OpCode::SetData, OpCode::Delete, OpCode::Exists];
                let op = ops[random.below(ops.len())];
                let fault =
                    [Fault::drop_reply(op), Fault::drop_before(op)][random.below(2)].clone();
                fixture.tap.inject(fault.of(&self.label));
            }
            _ => tokio::task::yield_now().await,
        }
    }
}

/// `id:port:enabled` of all instances.
fn described<'a>(instances: impl IntoIterator<Item = &'a ServiceInstance>) -> Vec<String> {
    let text = |one: &ServiceInstance| {
        format!("{}:{}:{}", one.id(), one.port().unwrap(), one.is_enabled())
    };
    instances.into_iter().map(text).collect()
}

async fn scenario(seed: u64) {
    let mut random = Random(seed);
    let fixture = Fixture::embedded().await;
    let mut registrars = Vec::new();
    for label in ["A", "B", "C"] {
        registrars.push(Registrar::start(&fixture, label).await);
    }
    let (reader, reader_tap) = fixture.client("R").await;
    let discovery = discovery(&fixture, &reader);
    let cache: ServiceCache = discovery.service_cache("web").unwrap();
    for _ in 0..60 {
        // No other client deletes an instance: a setData in flight could then hit the one that takes its place, as the
        // documentation of `PersistentNode::set_data` says.
        if random.below(20) == 0 {
            reader_tap.cut();
        } else {
            let registrar = random.below(registrars.len());
            registrars[registrar].step(&fixture, &mut random).await;
        }
    }
    fixture.tap.clear_faults();
    let observer = fixture.observer().await;
    for id in IDS {
        eventually(&format!("seed {seed}: {id}"), async || {
            let wanted = registrars.iter().filter_map(|one| Some((one, one.wanted.get(id)?)));
            let wanted: Vec<_> = wanted.collect();
            let Ok(found) = observer.get_data(&node(&fixture, id)).await else {
                return wanted.is_empty().then_some(());
            };
            let owner = wanted.iter().find(|(one, _)| {
                let session = one.client.session();
                session.is_some_and(|one| one.session_id() == found.stat.ephemeral_owner)
            });
            let (_, (port, enabled)) = owner?;
            let text = String::from_utf8_lossy(&found.data);
            let is_last = text.contains(&format!("\"port\":{port},"))
                && text.contains("\"enabled\":false") != *enabled;
            is_last.then_some(())
        })
        .await;
    }
    eventually(&format!("seed {seed}: the cache"), async || {
        let queried = discovery.query_for_instances("web").await.ok()?;
        let cached = cache.instances();
        (described(&queried) == described(cached.iter().map(|one| &**one)) && !cache.is_stale())
            .then_some(())
    })
    .await;
    // Nothing is left of a discovery that is closed.
    for registrar in &registrars {
        let _ = within_deadline("the close", registrar.discovery.close()).await;
    }
    fixture.children(&format!("{}/web", fixture.path), 0).await;
    for registrar in registrars {
        within_deadline("the close", registrar.client.close()).await.unwrap();
    }
    reader.close().await.unwrap();
}

#[tokio::test]
async fn instances_converge_to_the_registered_ones_under_random_faults() {
    let count = std::env::var("DOCENT_DISCOVERY_SCENARIOS");
    let count = count.map_or(6, |count| count.parse().unwrap());
    for seed in 1..=count {
        scenario(seed).await;
    }
}
