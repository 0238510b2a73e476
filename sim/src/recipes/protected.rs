//! Protected creates: a lost reply leaves no second node, and a create that fails or is dropped leaves none.

use std::ops::RangeInclusive;

use docent::{CreateMode, create_protected, nodes::ProtectedOptions};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::{common::Retry, recipe::Recipe, step, worker::Worker};
use crate::{
    checks::ORPHAN_AFTER,
    faults::draw::{one_in, pick},
    plan::{PlanStep, draw::Setting},
    world::time::{MILLISECOND, Nanos},
};

/// The longest time that the background needs without faults: a pause, its requests, and the end of a session.
const CLEANED_WITHIN: Nanos = 2 * ORPHAN_AFTER;

/// A `create_protected` below `/protected`. The node stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The number of the parent node.
    pub parent: u8,
    pub mode: Mode,
    /// The retry policy.
    #[serde(default)]
    pub retry: Retry,
    /// The time after which its future is dropped; `None`: never.
    #[serde(default)]
    pub cancel_ms: Option<u64>,
}

impl PlanStep for Step {}

/// The mode of a protected node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// A persistent node.
    Persistent,
    /// A persistent sequential node.
    PersistentSequential,
    /// An ephemeral node.
    Ephemeral,
    /// An ephemeral sequential node.
    EphemeralSequential,
}

const fn mode(mode: Mode) -> CreateMode {
    match mode {
        Mode::Persistent => CreateMode::Persistent,
        Mode::PersistentSequential => CreateMode::PersistentSequential,
        Mode::Ephemeral => CreateMode::Ephemeral,
        Mode::EphemeralSequential => CreateMode::EphemeralSequential,
    }
}

/// The retry policy of a plan.
pub(super) struct Protected(Retry);

impl Recipe for Protected {
    type Step = Step;
    const WEIGHT: u32 = 2;
    const STEPS: RangeInclusive<usize> = 4..=20;

    fn draw(rng: &mut Rng) -> Self {
        Self(Retry::draw(rng))
    }

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        if one_in(rng, 3) {
            return None;
        }
        let modes = [
            Mode::Persistent,
            Mode::PersistentSequential,
            Mode::Ephemeral,
            Mode::EphemeralSequential,
        ];
        let step = Step {
            parent: rng.u8(..2),
            mode: pick(rng, &modes),
            retry: self.0,
            cancel_ms: match rng.u8(..8) {
                0 => Some(0),
                1 => Some(rng.u64(1..3_000)),
                _ => None,
            },
        };
        Some(step.into())
    }

    async fn run(worker: &Worker, step: Step) {
        create(worker, &step).await;
    }

    async fn finish(worker: &Worker) {
        judge(worker).await;
    }
}

/// A protected create that has ended.
struct Created {
    parent: String,
    /// The part of the name behind the GUID, which no other create has.
    label: String,
    /// The node that was reported, and the session that owns it; 0 for a persistent node. `None`: the create has
    /// failed, or its future was dropped.
    made: Option<(String, i64)>,
}

async fn create(worker: &Worker, step: &Step) {
    let parent = format!("/protected/{}", step.parent);
    for path in ["/protected", &parent] {
        let made = worker.client.create(path, b"", CreateMode::Persistent).await;
        if let Err(error) = made {
            worker.fails(format_args!("creates {path}"), &error);
        }
    }
    let label = format!("n{}-", worker.world.next_number());
    let path = format!("{parent}/{label}");
    worker.say(format!("creates {path} with protection"));
    let using = worker.world.use_path(worker.pid, &parent);
    let options = step.retry.protected_options(ProtectedOptions::new(mode(step.mode)));
    let create = create_protected(&worker.client, &path, label.as_bytes(), options);
    let created = worker.within(step.cancel_ms.unwrap_or(600_000), create).await;
    drop(using);
    let made = match created {
        None => {
            worker.say(format!("drops the create of {path}"));
            None
        }
        Some(Err(error)) => {
            worker.fails(format_args!("does not create {path}"), &error);
            None
        }
        Some(Ok(path)) => {
            worker.say(format!("has created {path}"));
            worker.keep(worker.world.use_path(worker.pid, &path));
            Some((path.clone(), judge_created(worker, &label, &path)))
        }
    };
    worker.judge_later(Created { parent, label, made });
}

/// Checks that a node that was reported as created was created by this call. Returns the session that owns it.
fn judge_created(worker: &Worker, label: &str, path: &str) -> i64 {
    let created = {
        let core = worker.world.core();
        let first = core.servers.truth.of(path).next();
        first.and_then(|first| first.change.node.clone())
    };
    match created {
        Some((data, stat)) if data == label => stat.ephemeral_owner,
        other => {
            worker.violation(&format!("{path} was reported, but the servers have {other:?}"));
            0
        }
    }
}

/// Compares the nodes of all protected creates with the reported ones, once the background has had time to clean up.
async fn judge(worker: &Worker) {
    let created: Vec<Created> = worker.memory.take();
    if created.is_empty() {
        return;
    }
    let settled_at =
        worker.world.core().disturbances.peace_at.max(worker.world.now()) + CLEANED_WITHIN;
    let wait = settled_at - worker.world.now();
    worker.sleep(wait / MILLISECOND + 1_000).await;
    for Created { parent, label, made } in &created {
        let (nodes, sessions) = {
            let core = worker.world.core();
            let ensemble = core.ensemble();
            (ensemble.child_paths(parent), ensemble.session_ids())
        };
        let nodes: Vec<_> =
            nodes.iter().filter(|path| path.contains(&format!("-{label}"))).collect();
        let expected = made.as_ref().map(|(path, _)| path);
        if let Some((path, owner)) = made
            && !nodes.contains(&path)
            && (*owner == 0 || sessions.contains(owner))
        {
            worker.violation(&format!("{path} was created, and is gone"));
        }
        // The background cleans up only until the client ends.
        let others = nodes.into_iter().filter(|path| Some(*path) != expected);
        for path in others.filter(|_| worker.client.ended().is_none()) {
            let made = expected.map_or("no node", String::as_str);
            worker.violation(&format!("{path} is left: the create of {label} made {made}"));
        }
    }
}
