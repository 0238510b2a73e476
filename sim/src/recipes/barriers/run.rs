//! Barriers that a process sets and removes: a wait ends soon after the barrier opens, and not before.

use std::time::Duration;

use docent::DistributedBarrier;

use super::steps::{BarrierOp, BarrierStep};
use crate::{
    checks::causes::GRANTED_WITHIN,
    recipes::worker::Worker,
    world::{
        time::{Nanos, SECOND},
        truth::State,
    },
};

/// The longest time from an opening to the end of a wait, without faults. Pauses of retries are up to 5 s.
pub(super) const PASSES_WITHIN: Nanos = 20 * SECOND;

/// How far a server may be behind its leader, without a fault.
pub(super) const BEHIND: Nanos = SECOND;

/// Does one step.
pub(super) async fn run(worker: &Worker, step: &BarrierStep) {
    let path = format!("/barriers/{}", step.number);
    let options = step.retry.lock_options();
    let made = DistributedBarrier::with_options(&worker.client, &path, options);
    let Some(barrier) = worker.accepted(&path, made) else { return };
    match step.op {
        BarrierOp::Set => set(worker, step, &barrier).await,
        BarrierOp::Remove => remove(worker, step, &barrier).await,
        BarrierOp::Cycle => {
            remove(worker, step, &barrier).await;
            set(worker, step, &barrier).await;
        }
        BarrierOp::Wait => wait(worker, step, &barrier, None).await,
        BarrierOp::WaitFor(ms) => wait(worker, step, &barrier, Some(ms)).await,
    }
}

/// Whether a node was there, or was missing, at some time between two instants.
fn was(worker: &Worker, path: &str, is_there: bool, from: Nanos, to: Nanos) -> bool {
    let states = worker.world.core().servers.truth.states(path);
    let mut between = states.iter().filter(|state| state.at <= to && state.end_at >= from);
    between.any(|state| state.node.is_some() == is_there)
}

async fn set(worker: &Worker, step: &BarrierStep, barrier: &DistributedBarrier) {
    let (path, from) = (barrier.path(), worker.world.now());
    let done = worker.within(step.cancel_ms, barrier.set_barrier()).await;
    worker.say(format!("sets {path}: {done:?}"));
    worker.explain_end(done.as_ref());
    if matches!(done, Some(Ok(()))) && !was(worker, path, true, from, worker.world.now()) {
        worker.violation(&format!("{path} is set, but was not there"));
    }
}

async fn remove(worker: &Worker, step: &BarrierStep, barrier: &DistributedBarrier) {
    let (path, from) = (barrier.path(), worker.world.now());
    let done = worker.within(step.cancel_ms, barrier.remove_barrier()).await;
    worker.say(format!("removes {path}: {done:?}"));
    worker.explain_end(done.as_ref());
    if matches!(done, Some(Ok(()))) && !was(worker, path, false, from, worker.world.now()) {
        worker.violation(&format!("{path} is removed, but was always there"));
    }
}

async fn wait(
    worker: &Worker,
    step: &BarrierStep,
    barrier: &DistributedBarrier,
    wait_ms: Option<u64>,
) {
    let (path, pid, from) = (barrier.path(), worker.pid, worker.world.now());
    let limit = wait_ms.map(Duration::from_millis);
    let waited = worker.limited("a wait", limit, async {
        match limit {
            Some(limit) => barrier.wait_on_barrier_timeout(limit).await,
            None => barrier.wait_on_barrier().await.map(|()| true),
        }
    });
    let waited = worker.within(step.cancel_ms, waited).await;
    let now = worker.world.now();
    worker.say(format!("waits on {path}: {waited:?}"));
    worker.explain_end(waited.as_ref());
    let core = worker.world.core();
    // A server that lags may show an older state.
    let undisturbed_since = core.undisturbed_since(pid);
    let is_quiet = core.is_calm(pid, from, now);
    let shows_now = core.disturbances.until + BEHIND < from;
    let within =
        if core.is_settled(pid, from) && is_quiet { GRANTED_WITHIN } else { PASSES_WITHIN };
    drop(core);
    // Without a connection, a wait times out although it has read nothing.
    if let Some(Ok(is_open)) = waited
        && if is_open { shows_now } else { is_quiet }
        && !was(worker, path, !is_open, from - BEHIND, now)
    {
        worker.violation(&format!("{path}: waited for {is_open}, which it never was"));
    }
    if worker.client.ended().is_some() || matches!(waited, Some(Err(_))) {
        return;
    }
    let states = worker.world.core().servers.truth.states(path);
    let is_missed = |state: &State| {
        let began = state.at.max(from).max(undisturbed_since);
        // The wait had seen the node before, so it must notice the opening even if the node is set again.
        let is_reopened = is_quiet && state.at > from + BEHIND && now > began + within;
        is_reopened || state.end_at.min(now) > began + within
    };
    if states.iter().any(|state| state.node.is_none() && is_missed(state)) {
        worker.violation(&format!("{path} was open, but the wait ended with {waited:?} late"));
    }
}
