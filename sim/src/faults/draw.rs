//! Draws faults.

use fastrand::Rng;

use super::{Direction, Fault, FaultKind, Flow, KillKind, Sides, Trap};

pub(crate) fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())]
}

pub(crate) fn one_in(rng: &mut Rng, chances: u32) -> bool {
    rng.u32(..chances) == 0
}

/// Draws a fault of one kind for these numbers of processes and members.
type Draw = fn(&mut Rng, usize, usize) -> FaultKind;

/// Kinds of faults, each with the mean interval of its faults when it is frequent, in milliseconds.
const KINDS: &[(u64, Draw)] = &[
    (700, |rng, processes, _| FaultKind::Cut {
        process: rng.usize(..processes),
        sides: sides(rng),
    }),
    (150, |rng, processes, _| FaultKind::Trap { process: rng.usize(..processes), trap: trap(rng) }),
    (2_000, |rng, processes, members| FaultKind::Link {
        process: rng.usize(..processes),
        member: if one_in(rng, 2) { None } else { Some(rng.usize(..members)) },
        direction: if one_in(rng, 2) { None } else { Some(direction(rng)) },
        flow: if one_in(rng, 2) { Flow::Stall } else { Flow::Lose },
        for_ms: duration(rng),
    }),
    (2_000, |rng, processes, _| FaultKind::Slow {
        process: rng.usize(..processes),
        by_ms: rng.u64(5..800),
        for_ms: duration(rng),
    }),
    (2_500, |rng, processes, _| FaultKind::Stop {
        process: rng.usize(..processes),
        for_ms: duration(rng),
    }),
    (12_000, |rng, processes, _| FaultKind::Kill {
        process: rng.usize(..processes),
        how: pick(rng, &[KillKind::Killed, KillKind::PoweredOff, KillKind::ShutDown]),
    }),
    (4_000, |rng, processes, _| FaultKind::Expire { process: rng.usize(..processes) }),
    (5_000, |rng, _, members| FaultKind::StopMember {
        member: if one_in(rng, 2) { None } else { Some(rng.usize(..members)) },
        for_ms: duration(rng),
    }),
    (1_500, |rng, _, members| FaultKind::Lag {
        member: rng.usize(..members),
        for_ms: duration(rng),
    }),
    (6_000, |rng, _, members| FaultKind::Isolate {
        member: if one_in(rng, 2) { None } else { Some(rng.usize(..members)) },
        for_ms: duration(rng),
    }),
    (5_000, |rng, _, members| FaultKind::CutMembers {
        from: rng.usize(..members),
        to: rng.usize(..members),
        for_ms: duration(rng),
    }),
    (3_000, |rng, _, members| FaultKind::IsolateFromClients {
        member: rng.usize(..members),
        for_ms: duration(rng),
    }),
    (1_000, |rng, _, _| FaultKind::Throttle { requests: rng.u32(1..12) }),
    (20_000, |rng, _, _| FaultKind::RestartAll { for_ms: duration(rng) }),
    (8_000, |rng, _, members| FaultKind::PauseMember {
        member: if one_in(rng, 2) { None } else { Some(rng.usize(..members)) },
        for_ms: duration(rng),
        clients_first: rng.bool(),
    }),
    (6_000, |rng, processes, _| FaultKind::Starve {
        process: rng.usize(..processes),
        task: if one_in(rng, 2) { 1 } else { rng.usize(..8) },
        for_ms: rng.u64(100..10_000),
    }),
    (6_000, |rng, processes, _| FaultKind::Clock {
        process: rng.usize(..processes),
        drift_ppm: rng.i64(-10_000..=10_000),
    }),
    (8_000, |rng, _, _| FaultKind::Deny {
        node: rng.u16(..),
        perms: rng.i32(2..16),
        for_ms: duration(rng),
    }),
    (15_000, |rng, _, members| FaultKind::Limit {
        member: if one_in(rng, 2) { None } else { Some(rng.usize(..members)) },
        timeout_ms: rng.u64(1_000..12_000),
    }),
    (8_000, |rng, processes, _| FaultKind::Suspend {
        process: rng.usize(..processes),
        for_ms: duration(rng),
        jump_ms: if rng.bool() { 0 } else { rng.u64(..20_000) },
    }),
    (6_000, |rng, _, _| FaultKind::StallDisks { for_ms: duration(rng) }),
    (8_000, |rng, _, members| FaultKind::Resolve {
        server: if one_in(rng, 2) { None } else { Some(rng.usize(..members)) },
        leads_to: if one_in(rng, 2) { None } else { Some(rng.usize(..members)) },
        for_ms: duration(rng),
    }),
    (8_000, |rng, _, _| FaultKind::UseUpQuota { node: rng.u16(..), for_ms: duration(rng) }),
];

/// Draws faults of some kinds, until the peace.
pub(crate) fn faults(
    rng: &mut Rng,
    processes: usize,
    members: usize,
    peace_at_ms: u64,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (mean_ms, draw) in KINDS {
        if one_in(rng, 2) {
            continue;
        }
        let mean_ms = mean_ms * pick(rng, &[1, 1, 3, 10]);
        let mut at_ms = rng.u64(..mean_ms * 2);
        while at_ms < peace_at_ms {
            faults.push(Fault { at_ms, kind: draw(rng, processes, members) });
            at_ms += rng.u64(1..=mean_ms * 2);
        }
    }
    faults.sort_by_key(|fault| fault.at_ms);
    faults
}

/// Draws how long a fault lasts, in milliseconds.
pub(crate) fn duration(rng: &mut Rng) -> u64 {
    match rng.u8(..4) {
        0 => rng.u64(1..100),
        1 | 2 => rng.u64(100..3_000),
        _ => rng.u64(3_000..12_000),
    }
}

fn sides(rng: &mut Rng) -> Sides {
    pick(rng, &[Sides::Both, Sides::Both, Sides::Client, Sides::Server])
}

fn direction(rng: &mut Rng) -> Direction {
    pick(rng, &[Direction::ToServer, Direction::ToClient])
}

fn trap(rng: &mut Rng) -> Trap {
    Trap {
        direction: direction(rng),
        after: rng.u32(..6),
        keep_bytes: if one_in(rng, 3) { rng.usize(1..40) } else { 0 },
        sides: sides(rng),
    }
}
