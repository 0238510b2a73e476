//! Draws strict mutexes.
//!
//! The draws have a generator of their own: the plans without them stay what they were.

use fastrand::Rng;

use super::{one_in, pick, renewals};
use crate::plan::{FaultKind, HoldEnd, HoldWatch, LockName, LockSettings, LockStep, Plan, Step};

/// Makes all locks of one in eight plans strict. Their clocks differ by what the proof allows for.
pub(super) fn add(plan: &mut Plan) {
    let mut rng = Rng::with_seed(plan.seed ^ SALT);
    let rng = &mut rng;
    if !one_in(rng, 8) {
        return;
    }
    let has_locks = |step: &Step| matches!(step, Step::Lock(_));
    if !plan.processes.iter().flat_map(|process| process.workers.iter().flatten()).any(has_locks) {
        return;
    }
    let locks = pick(rng, &[1, 1, 2]);
    // A clock that jumps ahead of the true time is beyond what the proof allows for: a rival would wait too short.
    for fault in &mut plan.faults {
        if let FaultKind::Suspend { jump_ms, .. } = &mut fault.kind {
            *jump_ms = 0;
        }
    }
    // Holds that last beyond the end of a session, and waits that last beyond the claim of a lost holder.
    let is_long = one_in(rng, 2);
    let is_fast = one_in(rng, 2);
    for process in &mut plan.processes {
        // A strict mutex refuses such a client.
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
                Step::Lock(step) => make_strict(rng, step, locks, is_long),
                Step::DeleteNode { lock } => *lock = LockName::Strict(rng.u8(..locks)),
                Step::Revoke { .. } | Step::SetCount { .. } => *step = Step::Sleep { ms: 100 },
                _ => {}
            }
        }
    }
    // Where a process resumes a session, a fault ends the one before.
    let resumes = plan.processes.iter().any(|process| process.resumes.is_some());
    if one_in(rng, 4) && !resumes {
        // Most of the run is calm: releases are handed over at once.
        plan.peace_at_ms = plan.peace_at_ms.min(2_000);
        let peace_at_ms = plan.peace_at_ms;
        plan.faults.retain(|fault| fault.at_ms < peace_at_ms);
        for process in &mut plan.processes {
            process.starts_at_ms = process.starts_at_ms.min(1_000);
            process.workers.iter_mut().for_each(|steps| steps.push(Step::Sleep { ms: 35_000 }));
            for number in 0..3 {
                let step = lock_step(LockName::Strict(0), number * 150);
                process.workers.iter_mut().for_each(|steps| steps.push(Step::Lock(step.clone())));
            }
        }
    } else if one_in(rng, 2) && !resumes {
        // Clocks that differ would hide what comes too late.
        for (number, process) in plan.processes.iter_mut().enumerate() {
            process.drift_ppm = 0;
            process.starts_at_ms = if number == 0 { 0 } else { rng.u64(2_500..6_000) };
            let hold_ms = if number == 0 { 30_000 } else { rng.u64(1_000..5_000) };
            let mut step = lock_step(LockName::Strict(0), hold_ms);
            step.watch = HoldWatch::Nothing;
            process.workers = vec![vec![Step::Sleep { ms: rng.u64(..1_400) }, Step::Lock(step)]];
        }
        renewals::end_slow_holder(plan, rng);
    }
}

/// So drawn that the seeds that find other planted faults keep their locks.
const SALT: u64 = 0x06B0_15E8_06C0_E207;

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

fn lock_step(lock: LockName, hold_ms: u64) -> LockStep {
    LockStep {
        lock,
        wait_ms: None,
        cancel_ms: None,
        cancel_polls: None,
        hold_ms,
        end: HoldEnd::Release,
        options: LockSettings::default(),
        fresh: false,
        revocable: false,
        owner: None,
        quantity: 0,
        watch: HoldWatch::default(),
        writes: 1,
        unasked: false,
        then: Vec::new(),
        first_ends_first: false,
    }
}
