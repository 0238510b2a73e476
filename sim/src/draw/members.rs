//! Draws ensembles whose members change, and clients that follow them.
//!
//! The draws have a generator of their own: the plans without them stay what they were.

use fastrand::Rng;

use super::{add_faults, one_in, pick};
use crate::plan::{ClientPlan, MemberChange, Plan, ProcessPlan, Step};

/// Adds an operator and one or two clients that follow the members to one of 16 plans.
pub(super) fn add(plan: &mut Plan) -> bool {
    let mut rng = Rng::with_seed(plan.seed ^ 0x3E3B_E250_F3A1_57A7);
    let rng = &mut rng;
    if !one_in(rng, 16) || plan.servers.count == 1 {
        return false;
    }
    plan.servers.reconfig = true;
    // 3.4 has no `reconfig`.
    plan.servers.version.get_or_insert_with(|| pick(rng, &["3.8", "3.9"]).to_owned());
    let before = plan.processes.len();
    let timeout = pick(rng, &[4_000, 6_000, 10_000]);
    let changes = (0..rng.usize(3..=12)).flat_map(|_| {
        let pause = Step::Sleep { ms: rng.u64(..4_000) };
        let member = rng.u8(..3);
        let change = pick(rng, &[MemberChange::Leave, MemberChange::Join, MemberChange::Observe]);
        [pause, Step::Reconfigure { member, change }]
    });
    let changes = changes.collect();
    plan.processes.push(process(rng, timeout, changes));
    for _ in 0..rng.usize(1..=2) {
        let mut steps = Vec::new();
        for _ in 0..rng.usize(..3) {
            steps.push(Step::Track { for_ms: rng.u64(..6_000), stays: false });
            steps.push(Step::Sleep { ms: rng.u64(..2_000) });
        }
        steps.push(Step::Track { for_ms: rng.u64(1_000..60_000), stays: true });
        plan.processes.push(process(rng, timeout, steps));
    }
    add_faults(plan, rng, before, false);
    true
}

fn process(rng: &mut Rng, session_timeout_ms: u64, steps: Vec<Step>) -> ProcessPlan {
    let client = ClientPlan {
        session_timeout_ms,
        request_timeout_ms: one_in(rng, 4).then(|| rng.u64(200..5_000)),
        read_only: one_in(rng, 4),
        is_dropped: one_in(rng, 8),
        ..ClientPlan::default()
    };
    ProcessPlan {
        workers: vec![steps],
        starts_at_ms: rng.u64(..3_000),
        drift_ppm: 0,
        client,
        resumes: None,
    }
}
