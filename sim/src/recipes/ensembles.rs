//! Ensembles whose members change by `reconfig`, and clients that follow them.

use std::{collections::BTreeSet, ops::RangeInclusive, sync::Arc};

use docent::{
    EnsembleTracker,
    config::Host,
    ensemble::{EnsembleConfig, Reconfig},
};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::{
    recipe::Recipe,
    step::{self, Plan},
    worker::Worker,
};
use crate::{
    faults::draw::pick,
    plan::{PlanStep, draw::Setting},
    world::{
        disturbances::Away,
        time::{MILLISECOND, Nanos, SECOND},
    },
};

/// The node of the configuration.
const CONFIG: &str = "/zookeeper/config";

/// The time from the peace and the last change until clients know the configuration: a session may have to end first.
const FOLLOWED_WITHIN: Nanos = 40 * SECOND;

/// The longest time that a client needs for its next connection without faults.
const CONNECTED_WITHIN: Nanos = 30 * SECOND;

/// A step with the members of the ensemble.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Follows the members of the ensemble.
    Track {
        /// The duration.
        for_ms: u64,
        /// Whether it continues after that, until the worker has done its steps.
        stays: bool,
    },
    /// Changes the members of the ensemble, as an operator does.
    Reconfigure {
        /// The number of the member.
        member: u8,
        /// Its new role.
        change: MemberChange,
    },
}

impl PlanStep for Step {}

/// A change of the members of an ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// It leaves.
    Leave,
    /// It joins, and votes.
    Join,
    /// It joins as an observer.
    Observe,
}

/// Whether the workers change the members. Otherwise they follow them.
pub(super) struct Ensembles {
    is_operator: bool,
}

impl Recipe for Ensembles {
    type Step = Step;
    const WEIGHT: u32 = 1;
    const STEPS: RangeInclusive<usize> = 3..=12;

    fn draw(_rng: &mut Rng) -> Self {
        Self { is_operator: false }
    }

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        let step = match (rng.bool(), self.is_operator) {
            (false, _) => return None,
            (true, false) => Step::Track { for_ms: rng.u64(..6_000), stays: false },
            (true, true) => {
                let changes = [MemberChange::Leave, MemberChange::Join, MemberChange::Observe];
                Step::Reconfigure { member: rng.u8(..3), change: pick(rng, &changes) }
            }
        };
        Some(step.into())
    }

    fn add(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        plan.servers.count = 3;
        plan.servers.reconfig = true;
        // 3.4 has no `reconfig`.
        plan.servers.version = Some(pick(rng, &["3.8", "3.9"]).to_owned());
        for number in 0..rng.usize(2..=3) {
            let mix = Self { is_operator: number == 0 };
            let mut workers = mix.workers(rng, setting);
            workers.truncate(1);
            if !mix.is_operator {
                let for_ms = rng.u64(1_000..60_000);
                workers[0].push(Step::Track { for_ms, stays: true }.into());
            }
            let client = setting.client(rng);
            plan.processes.push(setting.process(rng, client, workers));
        }
    }

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Track { for_ms, stays } => track(worker, for_ms, stays).await,
            Step::Reconfigure { member, change } => reconfigure(worker, member, change).await,
        }
    }

    async fn finish(worker: &Worker) {
        judge(worker).await;
    }
}

/// A tracker, with the version seen last.
struct Tracking {
    tracker: EnsembleTracker,
    seen: i64,
}

/// Follows the members for a time, and then until the end of the worker if `stays`.
async fn track(worker: &Worker, for_ms: u64, stays: bool) {
    if worker.memory.with(|kept: &mut Vec<Tracking>| !kept.is_empty()) {
        // Several trackers of one client disturb each other.
        return worker.sleep(for_ms).await;
    }
    worker.say("follows the members");
    worker.world.core().process_mut(worker.pid).relies_on_few = true;
    let tracker = EnsembleTracker::new(&worker.client);
    let mut config = tracker.config();
    let mut tracking = Tracking { tracker, seen: -1 };
    let followed = async {
        loop {
            tracking.look(worker);
            if config.next().await.is_none() {
                return std::future::pending::<()>().await;
            }
        }
    };
    let _ = worker.within(for_ms, followed).await;
    if stays {
        worker.judge_later(tracking);
    } else {
        drop(tracking);
        worker.say("follows the members no more");
    }
}

impl Tracking {
    /// How the configuration in use differs from that of the servers, or that the client has no connection.
    fn difference(&self, worker: &Worker) -> Option<String> {
        let node = worker.world.core().ensemble().node(CONFIG);
        let newest = node
            .and_then(|(data, _)| String::from_utf8_lossy(&data).parse::<EnsembleConfig>().ok());
        let used = self.tracker.config().get();
        let state = worker.client.state().get();
        if newest.as_ref() != used.as_deref() {
            return Some(format!("the client uses {used:?}, not {newest:?}"));
        }
        let is_connected = state.is_some_and(docent::ConnectionState::is_connected);
        (!is_connected).then(|| format!("the client is {state:?} with {used:?}"))
    }

    /// Looks at the configuration in use.
    fn look(&mut self, worker: &Worker) {
        let client = &worker.client;
        if client.servers().is_empty() {
            worker.violation("the client has no server");
        }
        let config = self.tracker.config().get();
        let Some(config) = config else { return };
        if config.version < self.seen {
            let (version, seen) = (config.version, self.seen);
            worker.violation(&format!("the configuration {version:#x} follows {seen:#x}"));
        }
        if config.version > self.seen {
            worker.say(format!("knows the configuration {:#x}", config.version));
        }
        self.seen = config.version;
        if hosts(client.servers()) != hosts(config.client_hosts()) {
            let servers = client.servers();
            worker.violation(&format!("the client uses {servers:?} with {config:?}"));
        }
        if !was_written(worker, &config) {
            worker.violation(&format!("the configuration was never {config:?}"));
        }
    }
}

fn hosts(hosts: Vec<Host>) -> BTreeSet<String> {
    hosts.iter().map(ToString::to_string).collect()
}

/// Whether the servers have had this configuration. The first one is not written by a change: it gets its version from
/// the first leader.
fn was_written(worker: &Worker, config: &Arc<EnsembleConfig>) -> bool {
    let core = worker.world.core();
    let written = core.servers.truth.of(CONFIG).filter_map(|applied| {
        let (data, _) = applied.change.node.as_ref()?;
        String::from_utf8_lossy(data).parse::<EnsembleConfig>().ok()
    });
    let is_first = config.version.trailing_zeros() >= 32 || config.version == 0;
    is_first || written.into_iter().any(|written| written == **config)
}

/// Compares the configuration in use with that of the servers, a while after the peace and the last change.
async fn judge(worker: &Worker) {
    let Some(mut tracking) = worker.memory.take::<Vec<Tracking>>().pop() else { return };
    let began_at = worker.world.now();
    loop {
        let settled_at = {
            let core = worker.world.core();
            let changed = core.servers.truth.of(CONFIG).next_back().map_or(0, |last| last.at);
            began_at.max(core.disturbances.peace_at).max(changed) + FOLLOWED_WITHIN
        };
        let left = settled_at.saturating_sub(worker.world.now());
        if left == 0 {
            break;
        }
        worker.sleep(left / MILLISECOND + 1_000).await;
    }
    // Where sessions end although nothing fails, the client may be between two of them.
    let mut wrong = None;
    for _ in 0..CONNECTED_WITHIN / SECOND {
        tracking.look(worker);
        wrong = tracking.difference(worker);
        if wrong.is_none() || worker.client.ended().is_some() {
            return;
        }
        worker.sleep(1_000).await;
    }
    wrong.into_iter().for_each(|text| worker.violation(&text));
}

/// Changes the members, as an operator does.
async fn reconfigure(worker: &Worker, member: u8, change: MemberChange) {
    let client = &worker.client;
    if let Err(error) = client.add_auth("digest", b"super:test").await {
        return worker.fails("is not the super user", &error);
    }
    let number = member + 1;
    let server = |role| {
        let (quorum, election) = (2_888 + u16::from(member), 3_888 + u16::from(member));
        format!("server.{number}=127.0.0.1:{quorum}:{election}:{role};s{member}:2181")
    };
    let (joining, leaving) = match change {
        MemberChange::Leave => (None, Some(number.to_string())),
        MemberChange::Join => (Some(server("participant")), None),
        MemberChange::Observe => (Some(server("observer")), None),
    };
    let change = Reconfig::Incremental { joining: joining.as_deref(), leaving: leaving.as_deref() };
    worker.say(format!("changes the members: {change:?}"));
    worker.world.core().servers.has_changed_members = true;
    match client.reconfig(change, None).await {
        Ok(node) => {
            worker.say(format!("has changed the members: {:#x}", node.stat.mzxid));
            // A member that has another role than before closes its connections.
            let now = worker.world.now();
            worker.world.core().disturb(None, Away::All, now);
        }
        Err(error) => worker.fails("does not change the members", &error),
    }
}
