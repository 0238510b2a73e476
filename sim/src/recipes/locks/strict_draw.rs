//! Draws strict mutexes.

use fastrand::Rng;

use super::{HoldEnd, LockName, LockStep, Step as Locking};
use crate::{
    faults::{
        FaultKind,
        draw::{one_in, pick},
    },
    plan::sequences,
    recipes::{
        common::HoldWatch,
        step::{Plan, Step},
    },
};

/// Makes all locks of one in six plans strict. The clocks of these plans may differ by as much as the proof allows.
pub(super) fn adjust(rng: &mut Rng, plan: &mut Plan) {
    if !one_in(rng, 6) {
        return;
    }
    let locks = pick(rng, &[1, 1, 2]);
    // The proof allows no clock that jumps ahead of the true time: a rival would not wait long enough.
    for fault in &mut plan.faults {
        if let FaultKind::Suspend { jump_ms, .. } = &mut fault.kind {
            *jump_ms = 0;
        }
    }
    // These faults replace all others, but a process whose session is resumed must be killed.
    let resumes = plan.processes.iter().any(|process| process.resumes.is_some());
    let is_at_claims = !one_in(rng, 3) && !resumes;
    // Holds that last beyond the end of a session, and waits that last beyond the claim of a lost holder.
    let is_long = one_in(rng, 2);
    let is_fast = one_in(rng, 2);
    for process in &mut plan.processes {
        // A strict mutex refuses a client that accepts read-only servers.
        process.client.read_only = false;
        process.drift_ppm = match rng.u8(..4) {
            0 => -10_000,
            1 => 10_000,
            _ => process.drift_ppm.clamp(-10_000, 10_000),
        };
        if is_fast {
            process.client.session_timeout_ms = pick(rng, &[2_000, 4_000]);
        }
        for step in process.workers.iter_mut().flatten() {
            match step {
                Step::Locks(Locking::Lock(step)) => make_strict(rng, step, locks, is_long),
                Step::Locks(Locking::DeleteNode { lock }) => {
                    *lock = LockName::Strict(rng.u8(..locks));
                }
                Step::Locks(_) => *step = Step::Sleep { ms: 100 },
                _ => {}
            }
        }
    }
    if is_at_claims {
        // Two contenders that notice nothing while they hold the lock.
        let contenders: Vec<_> = plan.holders().into_iter().take(2).collect();
        let holds_ms = if one_in(rng, 3) { 8_000..30_000 } else { 3_000..8_000 };
        for (number, process) in plan.processes.iter_mut().enumerate() {
            let lock = |hold_ms| {
                let (lock, watch) = (LockName::Strict(0), HoldWatch::Nothing);
                let step = LockStep { lock, hold_ms, watch, writes: 1, ..LockStep::default() };
                Locking::Lock(step).into()
            };
            process.workers = if contenders.contains(&number) {
                vec![(0..6).map(|_| lock(rng.u64(holds_ms.clone()))).collect()]
            } else {
                Vec::new()
            };
            process.starts_at_ms = process.starts_at_ms.min(1_000);
            process.client.session_timeout_ms = pick(rng, &[2_000, 4_000]);
        }
        // In half of these plans, the two clocks differ by as much as the proof allows.
        if let (&[slow, fast], true) = (&*contenders, one_in(rng, 2)) {
            plan.processes[slow].drift_ppm = -10_000;
            plan.processes[fast].drift_ppm = 10_000;
        }
        sequences::at_the_end_of_claims(plan, rng, &contenders);
    }
}

fn make_strict(rng: &mut Rng, step: &mut LockStep, locks: u8, is_long: bool) {
    step.lock = LockName::Strict(rng.u8(..locks));
    (step.owner, step.revocable, step.quantity) = (None, false, 0);
    step.then.clear();
    if step.end == HoldEnd::Keep {
        // It is not re-entrant: the process could not acquire it again.
        step.end = HoldEnd::Drop;
    }
    if is_long && one_in(rng, 2) {
        step.hold_ms = rng.u64(1_000..12_000);
        step.wait_ms = step.wait_ms.map(|_| rng.u64(4_000..20_000));
        step.cancel_ms = None;
    }
}
