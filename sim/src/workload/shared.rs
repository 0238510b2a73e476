//! `SharedValue`s: each version is replaced by one `try_set_value`, values never go back, and in peace all agree.

use docent::{SharedValue, VersionedValue};

use super::Worker;
use crate::{
    plan::{SharedOp, SharedStep},
    world::{MILLISECOND, SECOND},
};

/// A value, and the last state of it that was seen.
pub(crate) struct Shared {
    path: String,
    value: SharedValue,
    seen: VersionedValue,
}

/// Does one step.
pub(crate) async fn run(worker: &Worker, step: &SharedStep) {
    let path = format!("/shared/{}", step.number);
    if !worker.stash().shared.contains_key(&step.number) {
        let started = worker.within(5_000, SharedValue::start(&worker.client, &path, "seed")).await;
        match started {
            Some(Ok(value)) => {
                let shared = Shared { path: path.clone(), seen: value.versioned_value(), value };
                worker.stash().shared.insert(step.number, shared);
            }
            Some(Err(error)) => return worker.say(format!("{path} does not start: {error}")),
            None => return worker.say(format!("{path} does not start in time")),
        }
    }
    let (value, seen) = {
        let stash = worker.stash();
        let shared = &stash.shared[&step.number];
        (shared.value.clone(), shared.seen.clone())
    };
    let new = worker.world.calls().next_value(&path, 0);
    match (step.op, step.cancel_ms) {
        (SharedOp::Set, None) => {
            let set = value.set_value(new).await;
            worker.say(format!("sets {path}: {:?}", set.err().map(|error| error.kind())));
        }
        (SharedOp::Set, Some(ms)) => drop(worker.within(ms, value.set_value(new)).await),
        (SharedOp::TrySet, cancel_ms) => {
            let set = value.try_set_value(&seen, new.clone());
            let set = worker.within(cancel_ms.unwrap_or(600_000), set).await;
            worker.say(format!("tries to set {path} behind version {}: {set:?}", seen.version));
            if let Some(Ok(true)) = set {
                worker.world.calls().swaps.push((path, seen.version, new));
            }
        }
        (SharedOp::Wait(ms), _) => {
            let mut receiver = value.subscribe();
            let _ = worker.within(ms, receiver.changed()).await;
        }
    }
    look(worker, step.number);
}

/// Looks at a value, which has not gone back.
fn look(worker: &Worker, number: u8) {
    let mut stash = worker.stash();
    let Some(shared) = stash.shared.get_mut(&number) else { return };
    let now = shared.value.versioned_value();
    let before = std::mem::replace(&mut shared.seen, now.clone());
    let path = shared.path.clone();
    drop(stash);
    if now.mzxid < before.mzxid || now.mzxid == before.mzxid && now != before {
        worker.violation(&format!("{path} went back from {before:?} to {now:?}"));
    }
    let states = worker.world.core().servers.truth.states(&path);
    let is_known = states.iter().filter_map(|state| state.node.as_ref()).any(|(value, stat)| {
        (stat.mzxid, stat.version) == (now.mzxid, now.version) && *value == now.value
    });
    if !is_known {
        worker.violation(&format!("{path} was never {now:?}"));
    }
}

/// Compares the values with the servers', a while after the peace.
pub(crate) async fn judge(worker: &Worker) {
    let numbers: Vec<u8> = worker.stash().shared.keys().copied().collect();
    if numbers.is_empty() {
        return;
    }
    let settled_at = worker.world.core().peace_at + 30 * SECOND;
    let now = worker.world.now();
    worker.sleep((settled_at.saturating_sub(now)) / MILLISECOND + 1_000).await;
    for number in numbers {
        look(worker, number);
        let (path, seen) = {
            let stash = worker.stash();
            let shared = &stash.shared[&number];
            (shared.path.clone(), shared.seen.clone())
        };
        let states = worker.world.core().servers.truth.states(&path);
        let last = states.last().filter(|last| last.at + 15 * SECOND < worker.world.now());
        let last = last.and_then(|last| Some((last.node.as_ref()?.1.mzxid, last.zxid)));
        if let Some((mzxid, _)) = last
            && mzxid != seen.mzxid
            && worker.client.ended().is_none()
        {
            worker.violation(&format!("{path} is {seen:?}, but zxid {mzxid:#x} has changed it"));
        }
    }
}
