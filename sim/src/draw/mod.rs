//! Draws a plan from a seed, swarm-style: first which kinds of faults there are and how often, then the faults.

mod data;
mod discovery;
mod leader;
mod locks;
mod members;
mod protected;
mod recipes;
mod renewals;
mod sequences;
mod strict;
mod versions;

use fastrand::Rng;

use crate::plan::{
    ClientPlan, Direction, Fault, FaultKind, Flow, KillKind, NetworkPlan, Plan, ProcessPlan,
    ServersPlan, Sides, Trap,
};

/// The time with faults.
const FAULTY_MS: u64 = 40_000;

/// The plan of a seed.
#[must_use]
pub fn plan(seed: u64) -> Plan {
    let mut rng = Rng::with_seed(seed);
    let rng = &mut rng;
    let servers = ServersPlan {
        count: if rng.u8(..3) == 0 { 1 } else { 3 },
        tick_ms: pick(rng, &[200, 500, 1_000]),
        sync_limit: pick(rng, &[3, 5]),
        container_check_ms: pick(rng, &[1_000, 60_000]),
        election_ms: 0,
        min_session_timeout_ms: None,
        reconfig: false,
        version: None,
    };
    let network = NetworkPlan {
        delay_us: pick(rng, &[50, 500, 5_000]),
        spikes_one_in: pick(rng, &[0, 0, 200, 30]),
        short_one_in: pick(rng, &[0, 0, 20, 3]),
    };
    let drifts = rng.u8(..3) == 0;
    let timeout = pick(rng, &[4_000, 6_000, 10_000]);
    let locks = locks::Locks::draw(rng);
    let processes: Vec<_> =
        (0..rng.usize(2..=5)).map(|_| process(rng, timeout, drifts, &locks)).collect();
    let faults = faults(rng, processes.len(), servers.count);
    let mut plan = Plan {
        seed,
        servers,
        network,
        puts_off_one_in: pick(rng, &[0, 0, 50, 8]),
        peace_at_ms: FAULTY_MS,
        processes,
        faults,
        plant: None,
    };
    let has_data = data::add(&mut plan);
    let has_elections = leader::add(&mut plan);
    let has_recipes = recipes::add(&mut plan);
    let has_discovery = discovery::add(&mut plan);
    // The plans of caches and numbers stay what they were: few of them find the faults planted there.
    let has_protected = !has_recipes && protected::add(&mut plan);
    let has_members = !has_recipes && members::add(&mut plan);
    let has_nodes = has_protected || has_members;
    let has_more = has_elections || has_recipes || has_discovery || has_nodes;
    let has_locks_only = !has_data && !has_more;
    strict::add(&mut plan);
    sequences::add(&mut plan, has_locks_only);
    renewals::add(&mut plan);
    versions::add(&mut plan);
    plan
}

fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())]
}

fn one_in(rng: &mut Rng, chances: u32) -> bool {
    rng.u32(..chances) == 0
}

fn process(
    rng: &mut Rng,
    session_timeout_ms: u64,
    drifts: bool,
    locks: &locks::Locks,
) -> ProcessPlan {
    let starts_at_ms = if one_in(rng, 3) { rng.u64(..FAULTY_MS / 2) } else { rng.u64(..200) };
    let client = ClientPlan {
        session_timeout_ms,
        request_timeout_ms: if one_in(rng, 4) { Some(rng.u64(200..5_000)) } else { None },
        max_requests: if one_in(rng, 5) { Some(rng.usize(3..10)) } else { None },
        read_only: one_in(rng, 6),
        is_dropped: one_in(rng, 6),
        ..ClientPlan::default()
    };
    ProcessPlan {
        starts_at_ms,
        drift_ppm: if drifts { rng.i64(-15_000..=15_000) } else { 0 },
        client,
        resumes: None,
        workers: locks.workers(rng),
    }
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
];

fn faults(rng: &mut Rng, processes: usize, members: usize) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (mean_ms, draw) in KINDS {
        if one_in(rng, 2) {
            continue;
        }
        let mean_ms = mean_ms * pick(rng, &[1, 1, 3, 10]);
        let mut at_ms = rng.u64(..mean_ms * 2);
        while at_ms < FAULTY_MS {
            faults.push(Fault { at_ms, kind: draw(rng, processes, members) });
            at_ms += rng.u64(1..=mean_ms * 2);
        }
    }
    faults.sort_by_key(|fault| fault.at_ms);
    faults
}

/// Adds faults of the processes from `first` on, and of the servers too if there are none of them yet.
fn add_faults(plan: &mut Plan, rng: &mut Rng, first: usize, with_servers: bool) {
    let mut more = faults(rng, plan.processes.len(), plan.servers.count);
    let peace_at_ms = plan.peace_at_ms;
    more.retain(|fault| {
        let is_wanted = fault.kind.process().map_or(with_servers, |process| process >= first);
        fault.at_ms < peace_at_ms && is_wanted
    });
    plan.faults.extend(more);
    plan.faults.sort_by_key(|fault| fault.at_ms);
}

fn duration(rng: &mut Rng) -> u64 {
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
