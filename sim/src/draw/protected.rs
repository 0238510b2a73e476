//! Draws protected creates.
//!
//! The draws have a generator of their own: the plans without them stay what they were.

use fastrand::Rng;

use super::{add_faults, one_in, pick};
use crate::plan::{ClientPlan, Plan, ProcessPlan, ProtectedMode, ProtectedStep, Retry, Step};

/// Adds processes that create protected nodes to one of eight plans. Returns whether it did.
pub(super) fn add(plan: &mut Plan) -> bool {
    let mut rng = Rng::with_seed(plan.seed ^ 0x9407_EC7E_D000_C4EA);
    let rng = &mut rng;
    if !one_in(rng, 8) {
        return false;
    }
    let before = plan.processes.len();
    let most = plan.peace_at_ms;
    let timeout = pick(rng, &[4_000, 6_000, 10_000]);
    let retry = pick(rng, &[Retry::Default, Retry::Never, Retry::ThreeTimes, Retry::Forever]);
    for _ in 0..rng.usize(1..=2) {
        plan.processes.push(process(rng, timeout, retry, most));
    }
    add_faults(plan, rng, before, false);
    true
}

fn process(rng: &mut Rng, session_timeout_ms: u64, retry: Retry, most: u64) -> ProcessPlan {
    let client = ClientPlan {
        session_timeout_ms,
        request_timeout_ms: one_in(rng, 4).then(|| rng.u64(200..5_000)),
        max_requests: one_in(rng, 8).then(|| rng.usize(3..10)),
        read_only: one_in(rng, 4),
        is_dropped: one_in(rng, 8),
        waits_when_full: one_in(rng, 4),
        ..ClientPlan::default()
    };
    let workers = (0..rng.usize(1..=2)).map(|_| {
        let count = rng.usize(4..=20);
        (0..count).map(|_| step(rng, retry)).collect()
    });
    ProcessPlan {
        workers: workers.collect(),
        starts_at_ms: if one_in(rng, 3) { rng.u64(..most / 2) } else { rng.u64(..200) },
        drift_ppm: 0,
        client,
        resumes: None,
    }
}

fn step(rng: &mut Rng, retry: Retry) -> Step {
    if one_in(rng, 3) {
        return Step::Sleep { ms: rng.u64(..3_000) };
    }
    let modes = [
        ProtectedMode::Persistent,
        ProtectedMode::PersistentSequential,
        ProtectedMode::Ephemeral,
        ProtectedMode::EphemeralSequential,
    ];
    Step::Protected(ProtectedStep {
        parent: rng.u8(..2),
        mode: pick(rng, &modes),
        retry,
        cancel_ms: match rng.u8(..8) {
            0 => Some(0),
            1 => Some(rng.u64(1..3_000)),
            _ => None,
        },
    })
}
