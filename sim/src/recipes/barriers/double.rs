//! Double barriers: members enter together and leave together, and a member that gives up leaves no node.

use std::{collections::BTreeSet, time::Duration};

use docent::DistributedDoubleBarrier;

use super::{
    run::{BEHIND, PASSES_WITHIN},
    steps::DoubleStep,
};
use crate::{
    checks::causes::GRANTED_WITHIN,
    recipes::worker::Worker,
    world::{
        time::{Nanos, SECOND},
        truth::Truth,
    },
};

/// The name of the node that says that all members have entered.
const READY: &str = "ready";

/// Does one step.
pub(super) async fn run(worker: &Worker, step: &DoubleStep) {
    let count = usize::from(step.members.max(1));
    let path = format!("/double-{}-of-{count}", step.number);
    let made = DistributedDoubleBarrier::new(&worker.client, &path, count);
    let Some(mut barrier) = worker.accepted(&path, made) else { return };
    for _ in 0..step.rounds.max(1) {
        if worker.client.ended().is_some() {
            return;
        }
        // Its node is deleted soon after the round.
        let using = worker.world.use_path(worker.pid, &path);
        round(worker, step, &mut barrier).await;
        if step.drops {
            drop(barrier);
            worker.say(format!("drops its member of {path}"));
            return drop(using);
        }
    }
}

/// The longest time from an event to the end of a call that began at `from`.
fn passes_within(worker: &Worker, from: Nanos) -> Nanos {
    let core = worker.world.core();
    let are_settled = (0..core.processes.len()).all(|pid| core.is_settled(pid, from));
    if are_settled { GRANTED_WITHIN } else { PASSES_WITHIN }
}

/// Whether nothing has disturbed the process or the servers since a call began.
fn is_quiet(worker: &Worker, from: Nanos) -> bool {
    worker.world.core().is_calm(worker.pid, from, worker.world.now())
}

async fn round(worker: &Worker, step: &DoubleStep, barrier: &mut DistributedDoubleBarrier) {
    let path = barrier.path().to_owned();
    let from = worker.world.now();
    let limit = step.wait_ms.map(Duration::from_millis);
    let entered = worker.limited("an enter", limit, async {
        match limit {
            Some(limit) => barrier.enter_timeout(limit).await,
            None => barrier.enter().await.map(|()| true),
        }
    });
    let entered = worker.within(step.cancel_ms, entered).await;
    let member = format!("{path}/{}", barrier.member_id());
    worker.say(format!("enters {member}: {entered:?}"));
    worker.explain_end(entered.as_ref());
    let is_inside = barrier.is_inside();
    if is_inside != matches!(entered, Some(Ok(true))) {
        worker.violation(&format!("{member}: entered {entered:?}, but inside: {is_inside}"));
    }
    judge_enter(worker, step, from, &path, &member, entered.as_ref().map(|e| e.as_ref().ok()));
    if !is_inside {
        return;
    }
    worker.sleep(step.hold_ms).await;
    if step.drops {
        return;
    }
    let from = worker.world.now();
    let left = worker.limited("a leave", limit, async {
        match limit {
            Some(limit) => barrier.leave_timeout(limit).await,
            None => barrier.leave().await.map(|()| true),
        }
    });
    let left = worker.within(step.cancel_ms, left).await;
    worker.say(format!("leaves {member}: {left:?}"));
    worker.explain_end(left.as_ref());
    if barrier.is_inside() {
        worker.violation(&format!("{member} is inside after its leave"));
    }
    judge_leave(worker, from, &path, &member, left.as_ref().map(|left| left.as_ref().ok()));
}

/// The members of a barrier over time.
struct Timeline {
    /// The members after each change, with its time and zxid.
    moments: Vec<(Nanos, i64, BTreeSet<String>)>,
    /// The zxids at which `ready` was created or written, with their times.
    ready: Vec<(Nanos, i64)>,
}

impl Timeline {
    fn new(truth: &Truth, path: &str) -> Self {
        let below = format!("{path}/");
        let mut members = BTreeSet::new();
        let mut moments = vec![(0, 0, BTreeSet::new())];
        let mut ready = Vec::new();
        for applied in &truth.changes {
            let Some(name) = applied.change.path.strip_prefix(&below) else { continue };
            let (at, zxid) = (applied.at, applied.change.zxid);
            let is_there = applied.change.node.is_some();
            if name == READY {
                ready.extend(is_there.then_some((at, zxid)));
                continue;
            }
            if is_there {
                members.insert(name.to_owned());
            } else {
                members.remove(name);
            }
            moments.push((at, zxid, members.clone()));
        }
        Self { moments, ready }
    }

    /// Since when all members are gone that a listing at this time may have shown, but for this one; `None`: some stay.
    fn alone_since(&self, from: Nanos, member: &str) -> Option<Nanos> {
        let first = self.moments.iter().rposition(|(at, ..)| *at + BEHIND < from).unwrap_or(0);
        let later = &self.moments[first..];
        let shown = later.iter().take_while(|(at, ..)| *at <= from + BEHIND);
        let mut others: BTreeSet<_> = shown.flat_map(|(.., members)| members).collect();
        others.retain(|name| !member.ends_with(name.as_str()));
        let is_gone = |members: &BTreeSet<String>| members.iter().all(|of| !others.contains(of));
        let alone = later.iter().rev().take_while(|(.., members)| is_gone(members));
        alone.last().map(|(at, ..)| (*at).max(from))
    }
}

/// `entered`: `None` if its future was dropped, `Some(None)` after an error.
fn judge_enter(
    worker: &Worker,
    step: &DoubleStep,
    from: Nanos,
    path: &str,
    member: &str,
    entered: Option<Option<&bool>>,
) {
    let now = worker.world.now();
    let is_quiet = is_quiet(worker, from);
    let count = usize::from(step.members.max(1));
    let core = worker.world.core();
    let timeline = Timeline::new(&core.servers.truth, path);
    let states = core.servers.truth.states(member);
    let everybody = 0..core.processes.len();
    let calm_since = everybody.map(|pid| core.undisturbed_since(pid)).max().unwrap_or(0);
    let own_calm_since = core.undisturbed_since(worker.pid);
    drop(core);
    let own = states.iter().rfind(|state| state.node.is_some());
    if entered == Some(Some(&true)) {
        let Some(own) = own else {
            return worker.violation(&format!("{member} has entered without a node"));
        };
        // The round began after the last change, before the node of this member, that left no members.
        let before = timeline.moments.iter().filter(|(_, zxid, _)| *zxid < own.zxid);
        let began = before.filter(|(.., members)| members.is_empty()).map(|(_, zxid, _)| *zxid);
        let began = began.max().unwrap_or(0);
        let is_open = timeline
            .moments
            .iter()
            .any(|(at, zxid, members)| *zxid > began && *at <= now && members.len() >= count);
        if !is_open {
            worker.violation(&format!("{member} has entered, but {count} were never there"));
        }
        return;
    }
    // The node may still be that of the last round.
    let Some(own) = own.filter(|own| own.at >= from) else { return };
    if entered == Some(Some(&false)) && is_quiet {
        if own.end_at > now {
            worker.violation(&format!("{member} has given up, but its node is there"));
        }
        let opened =
            timeline.ready.iter().find(|(_, zxid)| (own.zxid..own.end_zxid).contains(zxid));
        if let Some((_, zxid)) = opened {
            worker.violation(&format!("{member} has given up, but {zxid:#x} opened the barrier"));
        }
    }
    if entered.is_some_and(|entered| entered.is_none()) || worker.client.ended().is_some() {
        return;
    }
    let (until, within) = (own.end_at.min(now), passes_within(worker, from));
    let opened = timeline.ready.iter().find(|(_, zxid)| *zxid > own.zxid);
    if opened.is_some_and(|(at, _)| until > at.max(&own_calm_since) + within) {
        worker.violation(&format!("{member} does not see that the barrier is open"));
    }
    // Since when there have been enough members without a gap.
    let mut enough_since = None;
    for (at, _, members) in timeline.moments.iter().filter(|(at, ..)| *at <= until) {
        enough_since = (members.len() >= count).then(|| enough_since.unwrap_or(*at));
    }
    let enough_since = enough_since.map(|at| at.max(own.at).max(calm_since));
    if enough_since.is_some_and(|at| until > at + within + SECOND) {
        worker.violation(&format!("{member} waits, although {count} members are there"));
    }
}

/// `left`: `None` if its future was dropped, `Some(None)` after an error.
fn judge_leave(
    worker: &Worker,
    from: Nanos,
    path: &str,
    member: &str,
    left: Option<Option<&bool>>,
) {
    let now = worker.world.now();
    if !is_quiet(worker, from) {
        return;
    }
    let core = worker.world.core();
    let timeline = Timeline::new(&core.servers.truth, path);
    let is_there = core.ensemble().node(member).is_some();
    let states = core.servers.truth.states(member);
    drop(core);
    if matches!(left, Some(Some(_))) && is_there {
        worker.violation(&format!("{member} has left, but its node is there"));
    }
    let alone_since = timeline.alone_since(from, member);
    if alone_since.is_some_and(|at| now > at + passes_within(worker, from) + SECOND) {
        worker.violation(&format!("{member} leaves late"));
    }
    // If the node of a member is gone, the others may leave without it.
    let had_node = states.iter().any(|state| state.node.is_some() && state.end_at > from);
    if left != Some(Some(&true)) || !had_node {
        return;
    }
    let from = from - BEHIND;
    // The members that were there before the leave, and have stayed.
    let before = timeline.moments.iter().rfind(|(at, ..)| *at < from);
    let mut stayed = before.map(|(.., members)| members.clone()).unwrap_or_default();
    for (.., members) in timeline.moments.iter().filter(|(at, ..)| (from..=now).contains(at)) {
        stayed.retain(|name| members.contains(name));
    }
    if !stayed.is_empty() {
        worker.violation(&format!("{member} has left before {stayed:?}"));
    }
}
