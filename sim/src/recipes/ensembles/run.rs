//! Ensembles whose members change, and clients that follow them.

use std::{collections::BTreeSet, sync::Arc};

use docent::{EnsembleConfig, EnsembleTracker, Host, Reconfig};

use super::steps::MemberChange;
use crate::{
    recipes::worker::Worker,
    world::time::{MILLISECOND, Nanos, SECOND},
};

/// The node of the configuration.
const CONFIG: &str = "/zookeeper/config";

/// How long after the peace and the last change clients know the configuration: a session may have to end first.
const FOLLOWED_WITHIN: Nanos = 40 * SECOND;

/// How long a client may need for its next connection without faults.
const CONNECTED_WITHIN: Nanos = 30 * SECOND;

/// The tracker that stays until the end of its worker.
#[derive(Default)]
struct Kept(Option<Tracking>);

/// A tracker, with the version seen last.
struct Tracking {
    tracker: EnsembleTracker,
    seen: i64,
}

/// Follows the members for a time, and then until the end of the worker if `stays`.
pub(super) async fn track(worker: &Worker, for_ms: u64, stays: bool) {
    if worker.memory.with(|kept: &mut Kept| kept.0.is_some()) {
        // Several trackers of one client disturb each other.
        return worker.sleep(for_ms).await;
    }
    worker.say("follows the members");
    let tracker = EnsembleTracker::new(&worker.client);
    let mut config = tracker.config();
    let mut tracking = Tracking { tracker, seen: -1 };
    let followed = async {
        loop {
            tracking.look(worker);
            if config.changed().await.is_err() {
                return std::future::pending::<()>().await;
            }
        }
    };
    let _ = worker.within(for_ms, followed).await;
    if stays {
        worker.memory.with(|kept: &mut Kept| kept.0 = Some(tracking));
    } else {
        drop(tracking);
        worker.say("follows the members no more");
    }
}

impl Tracking {
    /// How the configuration in use differs from that of the servers, or that there is no connection.
    fn difference(&self, worker: &Worker) -> Option<String> {
        let node = worker.world.core().ensemble().node(CONFIG);
        let newest = node
            .and_then(|(data, _)| String::from_utf8_lossy(&data).parse::<EnsembleConfig>().ok());
        let used = self.tracker.config().borrow().clone();
        let state = *worker.client.state().borrow();
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
        let config = self.tracker.config().borrow().clone();
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

/// Whether the servers have had this configuration. The first one is not written by a change: it gets its version from the
/// first leader.
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
pub(super) async fn judge(worker: &Worker) {
    let Kept(Some(mut tracking)) = worker.memory.take() else { return };
    let began_at = worker.world.now();
    loop {
        let (peace_at, changed_at) = {
            let core = worker.world.core();
            let last = core.servers.truth.of(CONFIG).next_back().map(|applied| applied.at);
            (core.disturbances.peace_at, last.unwrap_or(0))
        };
        let now = worker.world.now();
        let settled_at = began_at.max(peace_at).max(changed_at) + FOLLOWED_WITHIN;
        let Some(left) = settled_at.checked_sub(now).filter(|left| *left > 0) else { break };
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
pub(super) async fn reconfigure(worker: &Worker, member: u8, change: MemberChange) {
    let client = &worker.client;
    if let Err(error) = client.add_auth("digest", b"super:test").await {
        return worker.say(format!("is not the super user: {error}"));
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
    match client.reconfig(change, None).await {
        Ok(node) => worker.say(format!("has changed the members: {:#x}", node.stat.mzxid)),
        Err(error) => worker.say(format!("does not change the members: {error}")),
    }
}
