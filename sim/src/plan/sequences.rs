//! Draws sequences of faults that belong together, and would hardly ever meet by chance.

use fastrand::Rng;

use super::{Plan, PlanStep};
use crate::faults::{
    Direction, FaultKind, Flow, Sides, Trap,
    draw::{duration, one_in, pick},
};

/// Adds a sequence of faults to half of the plans with locks or elections. `has_holders_only`: only locks and elections
/// take part.
pub(crate) fn add<S: PlanStep>(plan: &mut Plan<S>, rng: &mut Rng, has_holders_only: bool) {
    if plan.servers.min_session_timeout_ms.is_some() || plan.holders().is_empty() {
        // The plan has a sequence of renewals already, or no holder.
        return;
    }
    let add_faults = match rng.u8(..6) {
        0 => split_site,
        1 => late_replies,
        2 => stale_reads,
        _ => return,
    };
    // Among many other faults, nothing would be held for long.
    let keeps = pick(rng, &[0, 0, 0, 4, 1]);
    plan.retain_kills(|| keeps > 0 && one_in(rng, keeps));
    add_faults(plan, rng, has_holders_only);
}

/// A member and some processes are cut off from the other members, and reach each other. The member may serve them
/// read-only.
fn split_site<S: PlanStep>(plan: &mut Plan<S>, rng: &mut Rng, has_holders_only: bool) {
    plan.servers.count = 3;
    let is_read_only = has_holders_only && !one_in(rng, 4);
    if is_read_only {
        // Later versions resume no session while they are read-only.
        plan.servers.version = Some("3.6".to_owned());
        // With short ticks, the member is read-only long before the sessions end.
        plan.servers.tick_ms = 200;
        plan.processes.iter_mut().for_each(|process| process.client.read_only = true);
    } else if one_in(rng, 2) {
        // The member goes on renewing sessions for 5 s.
        (plan.servers.tick_ms, plan.servers.sync_limit) = (1_000, 5);
    }
    let longest_timeout = plan.longest_timeout_ms();
    let (shortest_ms, hold_ms) = if is_read_only { (8_000, 25_000) } else { (2_000, 15_000) };
    lengthen(plan, rng, hold_ms);
    // In half of the plans there is one site, whose processes never reach another member.
    let home = if one_in(rng, 2) { None } else { Some(rng.usize(..3)) };
    let mut site: Vec<_> = (0..plan.processes.len()).filter(|_| one_in(rng, 2)).collect();
    if let Some(member) = home {
        let whole = (0, plan.peace_at_ms);
        site.iter().for_each(|process| plan.separate(*process, member, Flow::Lose, whole));
    }
    let mut at_ms = rng.u64(500..6_000);
    while at_ms < plan.peace_at_ms {
        let member = home.unwrap_or_else(|| rng.usize(..3));
        let for_ms = rng.u64(shortest_ms..16_000);
        let mut isolated_at = at_ms;
        if home.is_none() {
            // The processes are separated before the member is, so that they have time to connect to it.
            let gather_ms = pick(rng, &[0, 1_500, longest_timeout]);
            isolated_at += rng.u64(..=gather_ms);
            site = (0..plan.processes.len()).filter(|_| one_in(rng, 2)).collect();
            let flow = pick(rng, &[Flow::Lose, Flow::Stall]);
            let span_ms = (at_ms, isolated_at + for_ms);
            site.iter().for_each(|process| plan.separate(*process, member, flow, span_ms));
        }
        plan.add_fault(isolated_at, FaultKind::Isolate { member: Some(member), for_ms });
        at_ms = isolated_at + for_ms + rng.u64(1_000..8_000);
    }
}

/// Replies come late, and then nothing comes any more: for some processes, for longer than their sessions last.
fn late_replies<S: PlanStep>(plan: &mut Plan<S>, rng: &mut Rng, _has_holders_only: bool) {
    lengthen(plan, rng, 15_000);
    let mut at_ms = rng.u64(500..4_000);
    while at_ms < plan.peace_at_ms {
        let mut end = at_ms;
        for process in 0..plan.processes.len() {
            if one_in(rng, 2) {
                continue;
            }
            let timeout = plan.processes[process].client.session_timeout_ms;
            let late_ms = rng.u64(timeout / 10..timeout * 2 / 3);
            let late = if one_in(rng, 3) {
                FaultKind::Slow { process, by_ms: late_ms / 2, for_ms: late_ms }
            } else {
                stalled_replies(process, late_ms)
            };
            plan.add_fault(at_ms, late);
            let silent_at = at_ms + late_ms + rng.u64(1..200);
            let silent_until = silent_at + timeout + rng.u64(..4_000);
            plan.add_link_faults(process, [None], Flow::Lose, (silent_at, silent_until));
            end = end.max(silent_until);
        }
        at_ms = end + rng.u64(500..6_000);
    }
}

/// The servers' messages to a process are held back for this time, and arrive after it.
const fn stalled_replies(process: usize, for_ms: u64) -> FaultKind {
    let (direction, flow) = (Some(Direction::ToClient), Flow::Stall);
    FaultKind::Link { process, member: None, direction, flow, for_ms }
}

/// Disturbs these processes, one after another, close to the end of a claim, which is also the end of its session. For
/// locks whose holds no fault excuses.
pub(crate) fn at_the_end_of_claims<S: PlanStep>(
    plan: &mut Plan<S>,
    rng: &mut Rng,
    contenders: &[usize],
) {
    plan.faults.clear();
    let mut at_ms = rng.u64(1_000..4_000);
    while at_ms < plan.peace_at_ms && !contenders.is_empty() {
        let process = pick(rng, contenders);
        let timeout = plan.processes[process].client.session_timeout_ms;
        let end = if one_in(rng, 2) {
            // The node is deleted within a hundredth of the claim's time after its grant, whose reply may be late.
            plan.add_fault(at_ms, FaultKind::SeverAtGrant { process, for_ms: timeout * 3 / 2 });
            if one_in(rng, 2) {
                let (by_ms, for_ms) = (rng.u64(timeout / 40..timeout / 12), timeout * 3);
                plan.add_fault(at_ms, FaultKind::Slow { process, by_ms, for_ms });
            }
            at_ms + timeout * 3
        } else if one_in(rng, 2) {
            // The reply to a renewal is on its way while the session ends. A renewal is sent each third of a claim, and
            // the client gives the connection up after half of the timeout.
            let for_ms = rng.u64(timeout * 7 / 20..timeout * 9 / 20);
            plan.add_fault(at_ms, stalled_replies(process, for_ms));
            let end = at_ms + for_ms;
            let expired_at = end - rng.u64(timeout / 20..timeout / 6);
            plan.add_fault(expired_at, FaultKind::Expire { process });
            end
        } else {
            // The servers refuse renewals until the claim ends. Each refusal renews the session.
            plan.add_fault(at_ms, FaultKind::Throttle { requests: rng.u32(20..60) });
            at_ms + timeout
        };
        at_ms = end + rng.u64(1_000..timeout * 2);
    }
}

/// Members lag, and connections break while creates are in flight: their nodes are searched for at a member that may
/// not show them.
fn stale_reads<S: PlanStep>(plan: &mut Plan<S>, rng: &mut Rng, _has_holders_only: bool) {
    plan.servers.count = 3;
    let mut at_ms = rng.u64(..1_000);
    while at_ms < plan.peace_at_ms {
        let for_ms = duration(rng).max(500);
        for member in 0..3 {
            if !one_in(rng, 4) {
                plan.add_fault(at_ms, FaultKind::Lag { member, for_ms });
            }
        }
        let end = at_ms + for_ms;
        while at_ms < end.min(plan.peace_at_ms) {
            let trap = Trap {
                direction: Direction::ToClient,
                after: rng.u32(..3),
                keep_bytes: 0,
                sides: Sides::Both,
            };
            let process = rng.usize(..plan.processes.len());
            plan.add_fault(at_ms, FaultKind::Trap { process, trap });
            at_ms += rng.u64(20..600);
        }
        at_ms = end + rng.u64(..500);
    }
    let gives_up = pick(rng, &[1, 2, 4]);
    plan.all_steps_mut().filter(|_| one_in(rng, gives_up)).for_each(PlanStep::never_retry);
}

/// Makes some holds long, so that there are holders during long faults.
fn lengthen<S: PlanStep>(plan: &mut Plan<S>, rng: &mut Rng, longest_ms: u64) {
    for hold_ms in plan.all_steps_mut().filter_map(PlanStep::hold_ms) {
        if one_in(rng, 2) {
            *hold_ms = rng.u64(2_000..longest_ms);
        }
    }
}
