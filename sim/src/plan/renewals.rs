//! Draws which holds and leaderships renew their proven bound, and faults that test the renewals.

use fastrand::Rng;

use super::{Plan, PlanStep};
use crate::faults::{
    FaultKind, Flow,
    draw::{one_in, pick},
};

/// The session timeout in [`Sequence::LongTick`], where a tick is longer.
const LONG_TICK_TIMEOUT_MS: u64 = 4_000;

/// Makes some holds and leaderships of half of the plans renew their proven bound.
pub(crate) fn add<S: PlanStep>(plan: &mut Plan<S>, rng: &mut Rng) {
    let holders = plan.holders();
    if holders.is_empty() || one_in(rng, 2) {
        return;
    }
    let sequence = match rng.u8(..8) {
        0 => Some(Sequence::Apart),
        1..=2 => Some(Sequence::Deposed),
        3 => Some(Sequence::Late),
        4..=5 => Some(Sequence::LateApart),
        6 => Some(Sequence::LongTick),
        _ => None,
    };
    let sequence = sequence.filter(|_| plan.servers.min_session_timeout_ms.is_none());
    if let Some(sequence) = sequence {
        prepare(plan, sequence);
    }
    let all = sequence.is_some() || one_in(rng, 2);
    let is_long = all || one_in(rng, 2);
    // Most sequences last longer than a session: a hold that ends too late must have begun before the sequence.
    let longest_ms = if sequence.is_some() { plan.longest_timeout_ms() * 4 } else { 15_000 };
    for process in &mut plan.processes {
        let timeout = process.client.session_timeout_ms;
        process.client.direct_servers = one_in(rng, 2);
        // The same for all steps of a process: they share lock objects by their options.
        let every = match sequence {
            // Rare renewals: the member that is cut off must answer a ping first, because it refuses the reconnect of a
            // renewal.
            Some(Sequence::LateApart) => timeout / 2,
            _ => timeout / pick(rng, &[2, 3, 3, 3, 6, 20]),
        };
        for step in process.workers.iter_mut().flatten() {
            let renew_ms = if all || one_in(rng, 2) { Some(every) } else { None };
            if let Some(renews) = step.renew_ms() {
                *renews = renew_ms;
            }
            if let Some(hold_ms) = step.hold_ms()
                && is_long
                && one_in(rng, 2)
            {
                *hold_ms = rng.u64(2_000..longest_ms);
            }
        }
    }
    if let Some(sequence) = sequence {
        add_sequence(plan, rng, sequence, &holders);
    }
}

/// Restarts the leader at the start, which shifts the ticks of the next one. A leader learns of a follower's clients
/// each half tick: with this shift, only once before sessions end.
fn shift_ticks<S: PlanStep>(plan: &mut Plan<S>, rng: &mut Rng) {
    let slack_ms = (plan.servers.tick_ms / 2).saturating_sub(LONG_TICK_TIMEOUT_MS + 100);
    plan.add_fault(rng.u64(..slack_ms), FaultKind::StopMember { member: None, for_ms: 100 });
}

/// Sequences of faults that expose a wrong rule of renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    /// A member is cut off from the others, or their leader stands still: it answers its clients, but renews nothing.
    Apart,
    /// A leader stands still until there is another one. When it continues, it answers waiting clients before it knows
    /// that it was deposed.
    Deposed,
    /// Replies come late, and then nothing comes any more, or the process is stopped.
    Late,
    /// Replies come late, and then the member is cut off from the others.
    LateApart,
    /// The leader learns of a follower's clients too late: the tick is longer than the sessions' timeout. Replies come
    /// late.
    LongTick,
}

/// Sets the servers and the timeouts that a sequence needs, and deletes the faults that would end most holds early.
fn prepare<S: PlanStep>(plan: &mut Plan<S>, sequence: Sequence) {
    plan.servers.count = 3;
    plan.servers.max_session_timeout_ms = None;
    plan.faults.retain(|fault| !matches!(fault.kind, FaultKind::Limit { .. }));
    plan.retain_kills(|| false);
    (plan.servers.tick_ms, plan.servers.sync_limit) = match sequence {
        Sequence::Apart => (1_000, 5),
        Sequence::Deposed | Sequence::Late => (200, 3),
        // Short ticks, so that sessions end on time: a bound that counts from a receipt is late by a twentieth of the
        // timeout at most.
        Sequence::LateApart => (50, 100),
        Sequence::LongTick => (12_000, 5),
    };
    let timeout = match sequence {
        Sequence::Deposed | Sequence::LateApart => 10_000,
        Sequence::LongTick => LONG_TICK_TIMEOUT_MS,
        _ => 4_000,
    };
    if sequence == Sequence::LongTick {
        plan.servers.min_session_timeout_ms = Some(timeout);
    }
    for process in &mut plan.processes {
        process.client.session_timeout_ms = timeout;
        for step in process.workers.iter_mut().flatten() {
            if let Some(client) = step.client() {
                client.session_timeout_ms = timeout;
            }
        }
    }
}

fn add_sequence<S: PlanStep>(
    plan: &mut Plan<S>,
    rng: &mut Rng,
    sequence: Sequence,
    holders: &[usize],
) {
    let timeout = plan.longest_timeout_ms();
    let count = plan.processes.len();
    let whole = (0, plan.peace_at_ms);
    for process in (0..count).filter(|_| sequence != Sequence::Late) {
        // Member 0 is the first leader, which this sequence deposes.
        let home = if sequence == Sequence::Deposed { 0 } else { rng.usize(..3) };
        plan.separate(process, home, Flow::Lose, whole);
    }
    if sequence == Sequence::LongTick {
        shift_ticks(plan, rng);
    }
    let mut at_ms = rng.u64(2_000..6_000);
    while at_ms < plan.peace_at_ms {
        let lasts_ms = match sequence {
            Sequence::Apart => {
                let for_ms = rng.u64(6_000..14_000);
                let kind = if one_in(rng, 2) {
                    FaultKind::Isolate { member: Some(rng.usize(..3)), for_ms }
                } else {
                    let for_ms = rng.u64(timeout / 2..5_000);
                    FaultKind::PauseMember { member: None, for_ms, clients_first: rng.bool() }
                };
                plan.add_fault(at_ms, kind);
                for_ms
            }
            Sequence::Deposed => {
                let for_ms = rng.u64(1_000..timeout / 2);
                let kind = FaultKind::PauseMember { member: None, for_ms, clients_first: true };
                plan.add_fault(at_ms, kind);
                let silent_ms = rng.u64(timeout..timeout + 4_000);
                for process in 0..count {
                    let from_ms = at_ms + for_ms + rng.u64(2..100);
                    let span_ms = (from_ms, from_ms + silent_ms);
                    plan.add_link_faults(process, [None], Flow::Lose, span_ms);
                }
                for_ms + silent_ms
            }
            Sequence::Late => {
                for process in 0..count {
                    let (late_ms, for_ms) = (rng.u64(timeout / 4..timeout), timeout + 2_000);
                    let kind = slow(rng, process, timeout, late_ms);
                    plan.add_fault(at_ms, kind);
                    if one_in(rng, 4) {
                        let kind = FaultKind::Stop { process, for_ms };
                        plan.add_fault(at_ms + late_ms, kind);
                    } else {
                        let span_ms = (at_ms + late_ms, at_ms + late_ms + for_ms);
                        plan.add_link_faults(process, [None], Flow::Lose, span_ms);
                    }
                }
                timeout * 3
            }
            Sequence::LateApart => {
                let late_ms = rng.u64(timeout / 4..timeout);
                for process in 0..count {
                    let kind = slow(rng, process, timeout, late_ms);
                    plan.add_fault(at_ms, kind);
                }
                let (member, for_ms) = (Some(rng.usize(..3)), timeout + rng.u64(1_000..6_000));
                let kind = FaultKind::Isolate { member, for_ms };
                plan.add_fault(at_ms + late_ms, kind);
                late_ms + for_ms
            }
            Sequence::LongTick => {
                let process = holders[rng.usize(..holders.len())];
                let for_ms = rng.u64(timeout * 2..timeout * 6);
                let kind = slow(rng, process, timeout, for_ms);
                plan.add_fault(at_ms, kind);
                for_ms
            }
        };
        at_ms += lasts_ms + rng.u64(2_000..8_000);
    }
}

/// Delays messages by more than the margin between a bound and the end of its session. A planned reconnect takes four
/// messages, and may last a sixth of the timeout.
fn slow(rng: &mut Rng, process: usize, timeout: u64, for_ms: u64) -> FaultKind {
    FaultKind::Slow { process, by_ms: rng.u64(timeout / 33..timeout / 25), for_ms }
}
