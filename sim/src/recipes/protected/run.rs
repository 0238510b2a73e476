//! Protected creates: a lost reply leaves no second node, and a create that fails or is dropped leaves none.

use docent::{CreateMode, create_protected_with};

use super::steps::{Mode, Step};
use crate::{
    checks::ORPHAN_AFTER,
    recipes::worker::Worker,
    world::time::{MILLISECOND, Nanos},
};

/// How long the background may search and delete without faults: a pause, its requests, and a session that ends.
const CLEANED_WITHIN: Nanos = 2 * ORPHAN_AFTER;

/// The creates of a worker.
#[derive(Default)]
struct Created(Vec<Protected>);

/// A protected create that has come to its end.
struct Protected {
    parent: String,
    /// The part of the name behind the GUID, which no other create has.
    label: String,
    /// The node that was reported, and the session that owns it; 0 for a persistent node. `None`: the create has failed,
    /// or its future was dropped.
    made: Option<(String, i64)>,
}

/// Does one step.
pub(super) async fn run(worker: &Worker, step: &Step) {
    let parent = format!("/protected/{}", step.parent);
    for path in ["/protected", &parent] {
        let made = worker.client.create(path, b"", CreateMode::Persistent).await;
        if let Err(error) = made {
            worker.say(format!("creates {path}: {error}"));
        }
    }
    let label = format!("n{}-", worker.world.next_number());
    let path = format!("{parent}/{label}");
    worker.say(format!("creates {path} with protection"));
    let using = worker.world.use_path(worker.pid, &parent);
    let (client, data, options) = (&worker.client, label.as_bytes(), step.retry.lock_options());
    let create = create_protected_with(client, &path, data, mode(step.mode), &options);
    let created = worker.within(step.cancel_ms.unwrap_or(600_000), create).await;
    drop(using);
    let made = match created {
        None => {
            worker.say(format!("drops the create of {path}"));
            None
        }
        Some(Err(error)) => {
            worker.say(format!("does not create {path}: {error}"));
            None
        }
        Some(Ok(path)) => {
            worker.say(format!("has created {path}"));
            worker.keep(worker.world.use_path(worker.pid, &path));
            Some((path.clone(), judge_created(worker, &label, &path)))
        }
    };
    worker.memory.with(|created: &mut Created| created.0.push(Protected { parent, label, made }));
}

const fn mode(mode: Mode) -> CreateMode {
    match mode {
        Mode::Persistent => CreateMode::Persistent,
        Mode::PersistentSequential => CreateMode::PersistentSequential,
        Mode::Ephemeral => CreateMode::Ephemeral,
        Mode::EphemeralSequential => CreateMode::EphemeralSequential,
    }
}

/// A node that was reported as created was created by this call. Returns the session that owns it.
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

/// Compares the nodes of all protected creates with what they have reported, once the background has had its time.
pub(super) async fn judge(worker: &Worker) {
    let Created(created) = worker.memory.take();
    if created.is_empty() {
        return;
    }
    let settled_at =
        worker.world.core().disturbances.peace_at.max(worker.world.now()) + CLEANED_WITHIN;
    let wait = settled_at - worker.world.now();
    worker.sleep(wait / MILLISECOND + 1_000).await;
    for Protected { parent, label, made } in &created {
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
        // The background works until the client ends.
        let others = nodes.into_iter().filter(|path| Some(*path) != expected);
        for path in others.filter(|_| worker.client.ended().is_none()) {
            let made = expected.map_or("no node", String::as_str);
            worker.violation(&format!("{path} is left: the create of {label} made {made}"));
        }
    }
}
