//! Draws the workloads that are not locks, and the faults that came with them.
//!
//! The draws have a generator of their own: the plans of locks stay what they were.

use fastrand::Rng;

use super::{FAULTY_MS, duration, faults, one_in, pick};
use crate::plan::{
    ClientPlan, ClientStep, Fault, FaultKind, KillKind, Plan, ProcessPlan, RegisterOp,
    RegisterStep, SharedOp, SharedStep, Step, VisitEnd, VisitStep, WatchEnd, WatchStep,
    WatchTarget,
};

/// Adds data workloads to two of three plans, in one of them instead of the locks. Returns whether it did.
pub(super) fn add(plan: &mut Plan) -> bool {
    let mut rng = Rng::with_seed(plan.seed ^ 0x0DA7_A0DA_7A0D_A7A0);
    let rng = &mut rng;
    let share = rng.u8(..3);
    if share == 0 {
        return false;
    }
    if share == 1 {
        plan.processes.clear();
        plan.peace_at_ms = pick(rng, &[8_000, 20_000, FAULTY_MS]);
    }
    let most = plan.peace_at_ms;
    let timeout = pick(rng, &[4_000, 6_000, 10_000]);
    let drifts = one_in(rng, 3);
    let members = plan.servers.count;
    let mix = Mix::draw(rng);
    let mut kills = Vec::new();
    for _ in 0..rng.usize(2..=4) {
        let mut process = process(rng, &mix, timeout, drifts, members, most);
        if one_in(rng, 5) && !plan.processes.is_empty() {
            let of = rng.usize(..plan.processes.len());
            process.resumes = Some(of);
            process.starts_at_ms = rng.u64(1_000..most);
            // Two clients of one session fight for it, and one may close it: no holder of a lock can know that.
            if share == 2 || !one_in(rng, 4) {
                let how = pick(rng, &[KillKind::Killed, KillKind::PoweredOff, KillKind::ShutDown]);
                let at_ms = process.starts_at_ms - rng.u64(..900);
                kills.push(Fault { at_ms, kind: FaultKind::Kill { process: of, how } });
            }
        }
        plan.processes.push(process);
    }
    if share == 1 {
        plan.faults = faults(rng, plan.processes.len(), members);
        plan.faults.retain(|fault| fault.at_ms < most);
    }
    plan.servers.election_ms = pick(rng, &[0, 0, 200, 1_500]);
    plan.faults.extend(kills);
    plan.faults.extend(more_faults(rng, plan.processes.len(), members, most));
    plan.faults.sort_by_key(|fault| fault.at_ms);
    true
}

/// Which steps a seed has, and how often.
struct Mix {
    register: u32,
    burst: u32,
    watch: u32,
    shared: u32,
    client: u32,
    visit: u32,
    nodes: u8,
}

impl Mix {
    fn draw(rng: &mut Rng) -> Self {
        let mut weight = |choices: &[u32]| choices[rng.usize(..choices.len())];
        Self {
            register: weight(&[2, 6, 6]),
            burst: weight(&[0, 1, 4]),
            watch: weight(&[0, 2, 6]),
            shared: weight(&[0, 0, 1, 4]),
            client: weight(&[0, 0, 1]),
            visit: weight(&[0, 0, 1]),
            nodes: rng.u8(1..=3),
        }
    }
}

fn process(
    rng: &mut Rng,
    mix: &Mix,
    timeout: u64,
    drifts: bool,
    members: usize,
    most: u64,
) -> ProcessPlan {
    ProcessPlan {
        starts_at_ms: if one_in(rng, 3) { rng.u64(..most / 2) } else { rng.u64(..200) },
        drift_ppm: if drifts { rng.i64(-15_000..=15_000) } else { 0 },
        client: client(rng, timeout),
        resumes: None,
        workers: (0..rng.usize(1..=3))
            .map(|_| {
                let count = rng.usize(4..=30);
                (0..count).map(|_| step(rng, mix, timeout, members, true)).collect()
            })
            .collect(),
    }
}

fn client(rng: &mut Rng, session_timeout_ms: u64) -> ClientPlan {
    ClientPlan {
        session_timeout_ms,
        request_timeout_ms: if one_in(rng, 4) { Some(rng.u64(200..5_000)) } else { None },
        max_requests: if one_in(rng, 4) { Some(rng.usize(3..10)) } else { None },
        read_only: one_in(rng, 4),
        is_dropped: false,
        waits_when_full: one_in(rng, 3),
        max_request_bytes: if one_in(rng, 6) { Some(rng.usize(60..400)) } else { None },
        max_pending_bytes: if one_in(rng, 6) { Some(rng.usize(100..2_000)) } else { None },
        max_watch_events: if one_in(rng, 4) { Some(rng.usize(1..4)) } else { None },
        connection_timeout_ms: if one_in(rng, 4) { Some(rng.u64(1_000..8_000)) } else { None },
        direct_servers: false,
    }
}

fn step(rng: &mut Rng, mix: &Mix, timeout: u64, members: usize, visits: bool) -> Step {
    let visit = if visits { mix.visit } else { 0 };
    let sleep = 3;
    let total = mix.register + mix.burst + mix.watch + mix.shared + mix.client + visit + sleep;
    let mut at = rng.u32(..total);
    let mut is = |weight: u32| {
        let is = at < weight;
        at = at.saturating_sub(weight);
        // Not again for what follows.
        if is {
            at = u32::MAX;
        }
        is
    };
    if is(mix.register) {
        return Step::Register(register(rng, mix));
    }
    if is(mix.burst) {
        let count = rng.usize(2..12);
        return Step::Burst((0..count).map(|_| register(rng, mix)).collect());
    }
    if is(mix.watch) {
        return Step::Watch(watch(rng, mix));
    }
    if is(mix.shared) {
        return Step::Shared(SharedStep {
            number: rng.u8(..2),
            op: match rng.u8(..4) {
                0 => SharedOp::Set,
                1 => SharedOp::Wait(rng.u64(..3_000)),
                _ => SharedOp::TrySet,
            },
            cancel_ms: if one_in(rng, 8) { Some(rng.u64(1..500)) } else { None },
        });
    }
    if is(mix.client) {
        return Step::Client(match rng.u8(..12) {
            0 => ClientStep::Close,
            1 => ClientStep::Detach,
            _ => {
                let mut list: Vec<_> = (0..members).filter(|_| !one_in(rng, 2)).collect();
                if list.is_empty() {
                    list.push(rng.usize(..members));
                }
                ClientStep::UpdateServerList(list)
            }
        });
    }
    if is(visit) {
        let count = rng.usize(0..6);
        return Step::Visit(VisitStep {
            client: client(rng, timeout),
            steps: (0..count).map(|_| step(rng, mix, timeout, members, false)).collect(),
            end: pick(
                rng,
                &[
                    VisitEnd::Close,
                    VisitEnd::CloseTwice,
                    VisitEnd::CancelledClose,
                    VisitEnd::Drop,
                    VisitEnd::Resume,
                ],
            ),
        });
    }
    Step::Sleep { ms: if one_in(rng, 4) { rng.u64(..3_000) } else { rng.u64(..200) } }
}

fn register(rng: &mut Rng, mix: &Mix) -> RegisterStep {
    RegisterStep {
        node: rng.u8(..mix.nodes),
        op: match rng.u8(..18) {
            0..=3 => RegisterOp::Read,
            4..=5 => RegisterOp::SyncRead,
            6 => RegisterOp::Exists,
            7..=9 => RegisterOp::Set,
            10..=11 => RegisterOp::CompareAndSet,
            12..=14 => RegisterOp::Create,
            15 => RegisterOp::Delete,
            16 => RegisterOp::CompareAndDelete,
            _ => RegisterOp::Multi(rng.u8(..mix.nodes)),
        },
        size: pick(rng, &[0, 0, 0, 100, 600, 6_000]),
        cancel_ms: match rng.u8(..10) {
            0 => Some(0),
            1 => Some(rng.u64(1..200)),
            _ => None,
        },
    }
}

fn watch(rng: &mut Rng, mix: &Mix) -> WatchStep {
    let node = rng.u8(..mix.nodes);
    let keeps = one_in(rng, 3);
    WatchStep {
        target: match rng.u8(..7) {
            0 | 1 => WatchTarget::Data(node),
            2 => WatchTarget::Exists(node),
            3 => WatchTarget::Children,
            4 | 5 => WatchTarget::Persistent(node),
            _ => WatchTarget::Recursive,
        },
        for_ms: if keeps { rng.u64(..100) } else { rng.u64(..3_000) },
        end: if keeps {
            WatchEnd::Keep
        } else {
            pick(rng, &[WatchEnd::Drop, WatchEnd::Forget, WatchEnd::Remove])
        },
    }
}

fn more_faults(rng: &mut Rng, processes: usize, members: usize, most: u64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut some = |rng: &mut Rng, mean_ms: u64, draw: &dyn Fn(&mut Rng) -> FaultKind| {
        if one_in(rng, 2) {
            return;
        }
        let mean_ms = mean_ms * pick(rng, &[1, 3, 10]);
        let mut at_ms = rng.u64(..mean_ms * 2);
        while at_ms < most {
            faults.push(Fault { at_ms, kind: draw(rng) });
            at_ms += rng.u64(1..=mean_ms * 2);
        }
    };
    some(rng, 10_000, &|rng| FaultKind::RestartAll { for_ms: duration(rng) });
    some(rng, 4_000, &|rng| FaultKind::PauseMember {
        member: if one_in(rng, 2) { None } else { Some(rng.usize(..members)) },
        for_ms: duration(rng),
        clients_first: rng.bool(),
    });
    some(rng, 6_000, &|rng| FaultKind::Suspend {
        process: rng.usize(..processes),
        for_ms: duration(rng),
        jump_ms: if rng.bool() { 0 } else { rng.u64(..20_000) },
    });
    faults
}
