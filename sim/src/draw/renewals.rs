//! Draws which holds and leaderships renew their proven bound, and faults that are about it.
//!
//! They have a generator of their own: everything else in a plan stays what it was.

use fastrand::Rng;

use super::{duration, one_in, pick};
use crate::plan::{Fault, FaultKind, Plan, Step};

/// Makes some holds and leaderships of half of the plans renew their proven bound.
pub(super) fn add(plan: &mut Plan) {
    let mut rng = Rng::with_seed(plan.seed ^ 0x2b0d_91e7_2b0d_91e7);
    let rng = &mut rng;
    if one_in(rng, 2) {
        return;
    }
    let all = one_in(rng, 2);
    let is_long = one_in(rng, 2);
    for process in &mut plan.processes {
        let timeout = process.client.session_timeout_ms;
        process.client.direct_servers = one_in(rng, 2);
        // The same for all steps of a process: they share lock objects by their options.
        let every = timeout / pick(rng, &[2, 3, 3, 3, 6, 20]);
        for step in process.workers.iter_mut().flatten() {
            let renew_ms = if all || one_in(rng, 2) { Some(every) } else { None };
            match step {
                Step::Lock(step) => {
                    step.options.renew_ms = renew_ms;
                    if is_long && one_in(rng, 2) {
                        step.hold_ms = rng.u64(2_000..15_000);
                    }
                }
                Step::Lead(step) => step.options.renew_ms = renew_ms,
                _ => {}
            }
        }
    }
    if plan.servers.count == 3 && one_in(rng, 2) {
        stall_members(plan, rng);
    }
    plan.faults.sort_by_key(|fault| fault.at_ms);
}

/// Members stand still and are cut off each other, while clients are connected to them.
fn stall_members(plan: &mut Plan, rng: &mut Rng) {
    let mut at_ms = rng.u64(500..6_000);
    while at_ms < plan.peace_at_ms {
        let member = pick(rng, &[None, None, Some(0), Some(1), Some(2)]);
        let for_ms = duration(rng) + rng.u64(..6_000);
        let kind = match rng.u8(..4) {
            0 => FaultKind::Isolate { member, for_ms },
            1 => FaultKind::CutMembers { from: rng.usize(..3), to: rng.usize(..3), for_ms },
            _ => FaultKind::PauseMember { member, for_ms, clients_first: rng.bool() },
        };
        plan.faults.push(Fault { at_ms, kind });
        at_ms += rng.u64(1_000..10_000);
    }
}
