//! `SharedValue`s: each version is replaced by one `try_set_value`, values never go back, and in peace all agree.

use std::{collections::BTreeMap, ops::RangeInclusive};

use docent::{SharedValue, shared::VersionedValue};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::{
    calls::{CallResult, WriteKind},
    recipe::Recipe,
    step,
    worker::Worker,
};
use crate::{
    faults::draw::one_in,
    plan::{PlanStep, draw::Setting},
    world::time::SECOND,
};

/// A use of a `SharedValue` below `/shared`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The number of the value.
    pub number: u8,
    /// The operation.
    pub op: Op,
    /// The time after which its future is dropped; `None`: never.
    pub cancel_ms: Option<u64>,
}

impl PlanStep for Step {}

/// An operation on a `SharedValue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// `set_value`.
    Set,
    /// `try_set_value`, with the value seen last.
    TrySet,
    /// Waits for a change for this time.
    Wait(u64),
}

pub(super) struct SharedValues;

impl Recipe for SharedValues {
    type Step = Step;
    const WEIGHT: u32 = 2;
    const STEPS: RangeInclusive<usize> = 4..=30;
    const PAUSE_MS: u64 = 500;

    fn draw(_rng: &mut Rng) -> Self {
        Self
    }

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        if one_in(rng, 3) {
            return None;
        }
        let step = Step {
            number: rng.u8(..2),
            op: match rng.u8(..4) {
                0 => Op::Set,
                1 => Op::Wait(rng.u64(..3_000)),
                _ => Op::TrySet,
            },
            cancel_ms: one_in(rng, 8).then(|| rng.u64(1..500)),
        };
        Some(step.into())
    }

    async fn run(worker: &Worker, step: Step) {
        change(worker, &step).await;
    }

    async fn finish(worker: &Worker) {
        judge(worker).await;
    }
}

/// A value, and the last state of it that was seen.
#[derive(Clone)]
struct Shared {
    path: String,
    value: SharedValue,
    seen: VersionedValue,
}

/// The values of a worker, by their numbers.
type Values = BTreeMap<u8, Shared>;

async fn change(worker: &Worker, step: &Step) {
    let path = format!("/shared/{}", step.number);
    if known(worker, step.number).is_none() {
        let started = worker.within(5_000, SharedValue::start(&worker.client, &path, "seed")).await;
        match started {
            Some(Ok(value)) => {
                let shared = Shared { path: path.clone(), seen: value.versioned_value(), value };
                worker.memory.with(|values: &mut Values| values.insert(step.number, shared));
            }
            Some(Err(error)) => return worker.fails(format_args!("{path} does not start"), &error),
            None => return worker.say(format!("{path} does not start in time")),
        }
    }
    let Some(Shared { value, seen, .. }) = known(worker, step.number) else { return };
    let new = worker.world.next_value(&path, 0);
    match (step.op, step.cancel_ms) {
        (Op::Set, None) => {
            let set = value.set_value(new).await;
            worker.explain_end(Some(&set));
            worker.say(format!("sets {path}: {:?}", set.err().map(|error| error.kind())));
        }
        (Op::Set, Some(ms)) => drop(worker.within(ms, value.set_value(new)).await),
        (Op::TrySet, cancel_ms) => {
            let call = worker.call(&path, WriteKind::Set, Some(seen.version), new.clone());
            let set = value.try_set_value(&seen, new);
            let set = worker.within(cancel_ms.unwrap_or(600_000), set).await;
            worker.say(format!("tries to set {path} behind version {}: {set:?}", seen.version));
            match set {
                Some(Ok(true)) => worker.record_result(call, CallResult::Written(vec![None])),
                Some(Ok(false)) => {
                    worker.record_result(call, CallResult::NotDone);
                    if value.versioned_value().mzxid == seen.mzxid {
                        worker.violation(&format!("{path} does not show what replaced {seen:?}"));
                    }
                }
                Some(Err(error)) => worker.record_result(call, CallResult::failed(&error)),
                _ => {}
            }
        }
        (Op::Wait(ms), _) => {
            let mut receiver = value.subscribe();
            let _ = worker.within(ms, receiver.next()).await;
        }
    }
    look(worker, step.number);
}

fn known(worker: &Worker, number: u8) -> Option<Shared> {
    worker.memory.with(|values: &mut Values| values.get(&number).cloned())
}

/// Looks at a value, and checks that it has not gone back.
fn look(worker: &Worker, number: u8) {
    let Some(Shared { path, value, seen: before }) = known(worker, number) else { return };
    let now = value.versioned_value();
    let shared = Shared { path: path.clone(), value, seen: now.clone() };
    worker.memory.with(|values: &mut Values| values.insert(number, shared));
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
async fn judge(worker: &Worker) {
    let numbers =
        worker.memory.with(|values: &mut Values| values.keys().copied().collect::<Vec<_>>());
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
