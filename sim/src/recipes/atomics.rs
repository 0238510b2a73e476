//! Atomic numbers and values.
//!
//! A number is only changed by additions. Each change is the delta of one operation: applied once if the operation says
//! that it has succeeded, never if it says that it has not, and at most once otherwise. The writes of values are
//! recorded as calls.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use bytes::Bytes;
use docent::{
    AtomicOptions, DistributedAtomicInteger, DistributedAtomicLong, DistributedAtomicValue, Error,
    Outcome,
    atomic::{AtomicValue, PromotedToLock},
    retry::RetryNTimes,
};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::{
    calls::{CallResult, WriteKind},
    common::Retry,
    recipe::Recipe,
    step,
    worker::Worker,
};
use crate::{
    faults::draw::{one_in, pick},
    plan::{
        PlanStep,
        draw::{Setting, weighted},
    },
    world::{
        check::{Check, Checks, Findings, View},
        time::Nanos,
        truth::Truth,
    },
};

/// An operation on an atomic number or value.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// The number of the node. Even numbers stand for a `DistributedAtomicLong`, odd ones for a
    /// `DistributedAtomicInteger`; values have other nodes.
    pub number: u8,
    /// The operation.
    pub op: Op,
    /// The number of further attempts after another writer was faster.
    pub attempts: u32,
    /// The longest wait for the lock of a promotion, in milliseconds; `None`: no promotion.
    pub promotion_ms: Option<u64>,
    /// The retry policy of requests.
    pub retry: Retry,
    /// The time after which its future is dropped; `None`: never.
    pub cancel_ms: Option<u64>,
}

/// An operation on an atomic number or value.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Adds 1 to a number.
    #[default]
    Increment,
    /// Subtracts 1 from a number.
    Decrement,
    /// Adds a number that no other step adds.
    Add,
    /// `get` of a number.
    Get,
    /// `try_set` of a value.
    TrySet,
    /// `compare_and_set` of a value, which expects the one read last.
    CompareAndSet,
    /// `force_set` of a value.
    ForceSet,
    /// `initialize` of a value.
    Initialize,
}

impl PlanStep for Step {}

/// Which steps a plan has, and how often.
pub(super) struct Atomics {
    number: u32,
    value: u32,
    numbers: u8,
    attempts: u32,
    promotes: bool,
    retry: Retry,
}

impl Recipe for Atomics {
    type Step = Step;
    const WEIGHT: u32 = 2;
    const STEPS: RangeInclusive<usize> = 2..=14;

    fn draw(rng: &mut Rng) -> Self {
        Self {
            number: pick(rng, &[0, 2, 8]),
            value: pick(rng, &[0, 2, 8]),
            numbers: pick(rng, &[1, 1, 2, 3]),
            attempts: pick(rng, &[0, 0, 1, 10]),
            promotes: one_in(rng, 2),
            retry: Retry::draw(rng),
        }
    }

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        let ops = match weighted(rng, &[(self.number, 0), (self.value, 1), (2, 2)]) {
            0 => [Op::Increment, Op::Decrement, Op::Add, Op::Add, Op::Get],
            1 => [Op::TrySet, Op::CompareAndSet, Op::CompareAndSet, Op::ForceSet, Op::Initialize],
            _ => return None,
        };
        let step = Step {
            number: rng.u8(..self.numbers),
            op: pick(rng, &ops),
            attempts: self.attempts,
            promotion_ms: self.promotes.then(|| rng.u64(..5_000)),
            retry: self.retry,
            cancel_ms: one_in(rng, 8).then(|| rng.u64(1..2_000)),
        };
        Some(step.into())
    }

    async fn run(worker: &Worker, step: Step) {
        let is_number = matches!(step.op, Op::Increment | Op::Decrement | Op::Add | Op::Get);
        let path = format!("/{}/{}", if is_number { "counters" } else { "cells" }, step.number);
        let lock = format!("/atomic-lock-{}", step.number);
        let _using = worker.world.use_path(worker.pid, &lock);
        let operation = async {
            if is_number {
                number(worker, &step, &path, &lock).await;
            } else {
                value(worker, &step, &path, &lock).await;
            }
        };
        if worker.within(step.cancel_ms.unwrap_or(600_000), operation).await.is_none() {
            worker.say(format!("{:?} of {path} is dropped", step.op));
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(Additions::default())
    }
}

fn options(step: &Step, lock: &str) -> AtomicOptions {
    let pause = Duration::from_millis(10);
    let options = AtomicOptions::default()
        .with_retry_policy(RetryNTimes::new(step.attempts, pause))
        .with_lock_options(step.retry.lock_options());
    match step.promotion_ms {
        Some(ms) => options.with_promotion(
            PromotedToLock::new(lock)
                .with_timeout(Duration::from_millis(ms))
                .with_retry_policy(RetryNTimes::new(1, pause)),
        ),
        None => options,
    }
}

async fn number(worker: &Worker, step: &Step, path: &str, lock: &str) {
    let delta = match step.op {
        Op::Increment => 1,
        Op::Decrement => -1,
        // No other operation adds it.
        Op::Add => 1_000 + 7 * i64::try_from(worker.world.next_number()).unwrap_or(0),
        _ => 0,
    };
    let call = (delta != 0).then(|| {
        let (path, called_at) = (path.to_owned(), worker.world.now());
        let addition = Addition { by: worker.name(), path, delta, called_at, made: None };
        let Additions { calls, .. } = &mut *worker.world.check::<Additions>();
        calls.push(addition);
        calls.len() - 1
    });
    let small = i32::try_from(delta).unwrap_or_default();
    /// Runs the operation on a counter of this type. Returns the values before and after it.
    macro_rules! operate {
        ($counter:ident, $delta:ident) => {{
            let made = $counter::with_options(&worker.client, path, options(step, lock));
            let Some(counter) = worker.accepted(path, made) else { return };
            let result = match step.op {
                Op::Increment => counter.increment().await,
                Op::Decrement => counter.decrement().await,
                Op::Add => counter.add($delta).await,
                _ => counter.get().await,
            };
            result.map(|value| (i64::from(value.pre_value), value.post_value.map(i64::from)))
        }};
    }
    let result = if step.number.is_multiple_of(2) {
        operate!(DistributedAtomicLong, delta)
    } else {
        operate!(DistributedAtomicInteger, small)
    };
    worker.say(format!("{:?} of {path}: {result:?}", step.op));
    worker.explain_end(Some(&result));
    let now = worker.world.now();
    let Additions { calls, reads } = &mut *worker.world.check::<Additions>();
    match (call, result) {
        (Some(call), Ok((pre, Some(post)))) => calls[call].made = Some(Made::Done(now, pre, post)),
        (Some(call), Ok((_, None))) => calls[call].made = Some(Made::NotDone),
        (Some(call), Err(error)) => calls[call].made = Some(Made::Failed(error.outcome())),
        (None, Ok((number, _))) => reads.push((path.to_owned(), number)),
        (None, Err(_)) => {}
    }
}

async fn value(worker: &Worker, step: &Step, path: &str, lock: &str) {
    let made = DistributedAtomicValue::with_options(&worker.client, path, options(step, lock));
    let Some(cell) = worker.accepted(path, made) else { return };
    let new = worker.world.next_value(path, 0);
    let expected = match step.op {
        Op::CompareAndSet => match cell.get().await {
            Ok(value) => value.post_value.flatten(),
            Err(error) => return worker.fails(format_args!("does not read {path}"), &error),
        },
        _ => None,
    };
    let call = worker.call(path, WriteKind::Put, None, new.clone());
    let swapped = |result: Result<AtomicValue<Option<Bytes>>, Error>| {
        let value = match result {
            Ok(value) => value,
            Err(error) => return CallResult::failed(&error),
        };
        let Some(post) = value.post_value else { return CallResult::NotDone };
        if post.as_ref() != Some(&new) {
            worker.violation(&format!("{path}: {post:?} was written instead of {new:?}"));
        }
        CallResult::Replaced(value.pre_value)
    };
    let result = match step.op {
        Op::TrySet => swapped(cell.try_set(new.clone()).await),
        Op::CompareAndSet => {
            let expected = expected.unwrap_or_default();
            let result = swapped(cell.compare_and_set(expected.clone(), new.clone()).await);
            if let CallResult::Replaced(pre) = &result
                && pre.as_ref() != Some(&expected)
            {
                worker.violation(&format!("{path}: {pre:?} was replaced, not {expected:?}"));
            }
            result
        }
        Op::ForceSet => match cell.force_set(new.clone()).await {
            Ok(()) => CallResult::Written(Vec::new()),
            Err(error) => CallResult::failed(&error),
        },
        _ => match cell.initialize(new.clone()).await {
            Ok(true) => CallResult::Replaced(None),
            Ok(false) => CallResult::NotDone,
            Err(error) => CallResult::failed(&error),
        },
    };
    worker.say(format!("{:?} of {path}: {result:?}", step.op));
    worker.record_result(call, result);
}

/// All additions to numbers.
#[derive(Default)]
struct Additions {
    calls: Vec<Addition>,
    /// The numbers that were read.
    reads: Vec<(String, i64)>,
}

struct Addition {
    by: String,
    path: String,
    delta: i64,
    called_at: Nanos,
    /// `None`: its future was dropped, or its process has ended.
    made: Option<Made>,
}

/// The result that an addition has returned.
enum Made {
    /// It has succeeded: the time of its return, and the numbers before and after it.
    Done(Nanos, i64, i64),
    NotDone,
    Failed(Outcome),
}

/// The number in a node.
fn decode(data: &[u8]) -> Option<i64> {
    match data.len() {
        0 => Some(0),
        8 => Some(i64::from_be_bytes(data.try_into().ok()?)),
        4 => Some(i64::from(i32::from_be_bytes(data.try_into().ok()?))),
        _ => None,
    }
}

impl Check for Additions {
    fn finish(&mut self, view: &View<'_>, found: &mut Findings) {
        let core = view.core();
        let truth = &core.servers.truth;
        let mut by_path: BTreeMap<&str, Vec<&Addition>> = BTreeMap::new();
        for call in &self.calls {
            by_path.entry(&call.path).or_default().push(call);
        }
        for (path, calls) in by_path {
            let may_begin_again = core.disturbances.is_invalidated_by_others(path);
            judge_number(path, &calls, truth, may_begin_again, found);
        }
        for (path, number) in &self.reads {
            let states = truth.states(path);
            let mut numbers = states
                .iter()
                .map(|state| decode(state.node.as_ref().map_or(&[][..], |(data, _)| data)));
            if !numbers.any(|known| known == Some(*number)) {
                found.violation(format!("{path} was read as {number}, which it never was"));
            }
        }
    }
}

/// A write of a number.
struct Write {
    at: Nanos,
    before: i64,
    after: i64,
    /// The values that earlier nodes of the path had at the version that was replaced. The writer of a node that another
    /// client has deleted cannot tell it from the next one: versions begin again.
    earlier: Vec<i64>,
}

/// `may_begin_again`: another client deletes the number.
fn judge_number(
    path: &str,
    calls: &[&Addition],
    truth: &Truth,
    may_begin_again: bool,
    found: &mut Findings,
) {
    let (mut writes, mut versions, mut before) = (Vec::new(), BTreeMap::<i32, Vec<i64>>::new(), 0);
    let mut applied: BTreeMap<i64, usize> = BTreeMap::new();
    for state in truth.states(path) {
        let Some((data, stat)) = &state.node else {
            before = 0;
            continue;
        };
        let Some(after) = decode(data) else {
            found.violation(format!("{path} is no number: {data:?}"));
            continue;
        };
        let mut earlier = versions.get(&(stat.version - 1)).cloned().unwrap_or_default();
        if stat.version > 0 {
            // The last one is of this node.
            earlier.pop();
        }
        writes.push(Write { at: state.at, before, after, earlier });
        versions.entry(stat.version).or_default().push(after);
        *applied.entry(after.wrapping_sub(before)).or_default() += 1;
        before = after;
    }
    // How often each delta was added, at least and at most, according to the calls.
    let mut asked: BTreeMap<i64, (usize, usize)> = BTreeMap::new();
    for call in calls {
        let (least, most) = asked.entry(call.delta).or_default();
        match call.made {
            Some(Made::Done(done, pre, post)) => {
                (*least, *most) = (*least + 1, *most + 1);
                let text = format!("{}: {path} did not go from {pre} to {post}", call.by);
                let is_within = |of: &&Write| (call.called_at..=done).contains(&of.at);
                let mut within = writes.iter().filter(is_within).filter(|of| of.after == post);
                if within.clone().any(|of| of.before == pre) {
                    continue;
                }
                let Some(write) = within.find(|of| may_begin_again && of.earlier.contains(&pre))
                else {
                    found.violation(text);
                    continue;
                };
                found.counted("a number deleted by another client", &text);
                let applied_as = applied.entry(post.wrapping_sub(write.before)).or_default();
                *applied_as = applied_as.saturating_sub(1);
                *applied.entry(call.delta).or_default() += 1;
            }
            None | Some(Made::Failed(Outcome::Unknown)) => *most += 1,
            Some(_) => {}
        }
    }
    let is_unknown = |call: &&&Addition| {
        matches!(call.made, None | Some(Made::Failed(Outcome::Unknown))) && may_begin_again
    };
    let mut unknown: Vec<_> = calls.iter().filter(is_unknown).collect();
    let deltas: std::collections::BTreeSet<_> = applied.keys().chain(asked.keys()).collect();
    for delta in deltas {
        let count = applied.get(delta).copied().unwrap_or_default();
        let (least, mut most) = asked.get(delta).copied().unwrap_or_default();
        // A write of unknown outcome may have replaced the next node, too.
        for write in writes.iter().filter(|of| of.after.wrapping_sub(of.before) == *delta) {
            let is_by = |call: &&&Addition| {
                call.called_at <= write.at
                    && write.earlier.contains(&write.after.wrapping_sub(call.delta))
            };
            if count > most
                && let Some(index) = unknown.iter().position(is_by)
            {
                let call = unknown.swap_remove(index);
                let text =
                    format!("{}: {path} went from {} to {}", call.by, write.before, write.after);
                found.counted("a number deleted by another client", &text);
                most += 1;
            }
        }
        if !(least..=most).contains(&count) {
            found.violation(format!(
                "{path}: {delta} was added {count} times, not {least} to {most}"
            ));
        }
    }
}
