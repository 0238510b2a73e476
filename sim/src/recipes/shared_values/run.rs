//! `SharedValue`s: each version is replaced by one `try_set_value`, values never go back, and in peace all agree.

use std::collections::BTreeMap;

use docent::{SharedValue, VersionedValue};

use super::{
    check::Swaps,
    steps::{Op, Step},
};
use crate::{recipes::worker::Worker, world::time::SECOND};

/// The values of a worker, by their numbers.
#[derive(Default)]
struct Values(BTreeMap<u8, Shared>);

/// A value, and the last state of it that was seen.
#[derive(Clone)]
struct Shared {
    path: String,
    value: SharedValue,
    seen: VersionedValue,
}

/// Does one step.
pub(super) async fn run(worker: &Worker, step: &Step) {
    let path = format!("/shared/{}", step.number);
    if known(worker, step.number).is_none() {
        let started = worker.within(5_000, SharedValue::start(&worker.client, &path, "seed")).await;
        match started {
            Some(Ok(value)) => {
                let shared = Shared { path: path.clone(), seen: value.versioned_value(), value };
                worker.memory.with(|values: &mut Values| values.0.insert(step.number, shared));
            }
            Some(Err(error)) => return worker.say(format!("{path} does not start: {error}")),
            None => return worker.say(format!("{path} does not start in time")),
        }
    }
    let Some(Shared { value, seen, .. }) = known(worker, step.number) else { return };
    let new = worker.world.next_value(&path, 0);
    match (step.op, step.cancel_ms) {
        (Op::Set, None) => {
            let set = value.set_value(new).await;
            worker.say(format!("sets {path}: {:?}", set.err().map(|error| error.kind())));
        }
        (Op::Set, Some(ms)) => drop(worker.within(ms, value.set_value(new)).await),
        (Op::TrySet, cancel_ms) => {
            let set = value.try_set_value(&seen, new.clone());
            let set = worker.within(cancel_ms.unwrap_or(600_000), set).await;
            worker.say(format!("tries to set {path} behind version {}: {set:?}", seen.version));
            if let Some(Ok(true)) = set {
                worker.world.check::<Swaps>().add(path, seen.version, new);
            }
        }
        (Op::Wait(ms), _) => {
            let mut receiver = value.subscribe();
            let _ = worker.within(ms, receiver.changed()).await;
        }
    }
    look(worker, step.number);
}

fn known(worker: &Worker, number: u8) -> Option<Shared> {
    worker.memory.with(|values: &mut Values| values.0.get(&number).cloned())
}

/// Looks at a value, which has not gone back.
fn look(worker: &Worker, number: u8) {
    let Some(Shared { path, value, seen: before }) = known(worker, number) else { return };
    let now = value.versioned_value();
    let shared = Shared { path: path.clone(), value, seen: now.clone() };
    worker.memory.with(|values: &mut Values| values.0.insert(number, shared));
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
pub(super) async fn judge(worker: &Worker) {
    let numbers =
        worker.memory.with(|values: &mut Values| values.0.keys().copied().collect::<Vec<_>>());
    if numbers.is_empty() {
        return;
    }
    worker.settle(30 * SECOND).await;
    for number in numbers {
        look(worker, number);
        let Some(Shared { path, seen, .. }) = known(worker, number) else { continue };
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
