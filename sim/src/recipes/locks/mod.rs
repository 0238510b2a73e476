//! Locks: acquired, held and released in every way.

mod belief;
mod check;
mod held;
mod objects;
mod run;
mod steps;
mod strict;
mod strict_draw;
mod waits;

use std::ops::RangeInclusive;

use fastrand::Rng;

pub use self::steps::*;
use super::{
    common::{HoldWatch, Retry},
    recipe::Recipe,
    step::{self, Plan},
    worker::Worker,
};
use crate::{
    faults::draw::{one_in, pick},
    plan::{
        ClientPlan,
        draw::{Setting, workers},
    },
    world::check::Checks,
};

/// The locks of a plan, and the kinds of its steps.
pub(super) struct Locks {
    names: Vec<LockName>,
    settings: Vec<LockSettings>,
    /// The longest of the long holds, in milliseconds.
    long_ms: u64,
    waits: bool,
    cancels: bool,
    drops: bool,
    owners: bool,
    inner: bool,
    fresh: bool,
    revokes: bool,
    writes: bool,
    unasked: bool,
    deletes: bool,
}

impl Recipe for Locks {
    type Step = Step;
    const WEIGHT: u32 = 11;
    const STEPS: RangeInclusive<usize> = 3..=16;

    fn draw(rng: &mut Rng) -> Self {
        let flag = |rng: &mut Rng| one_in(rng, 2);
        let count = pick(rng, &[1, 1, 2, 3]);
        let names: Vec<_> = (0..count).map(|_| name(rng)).collect();
        let settings = (0..rng.usize(1..=2))
            .map(|_| LockSettings {
                retry: Retry::draw(rng),
                pipelined: one_in(rng, 3),
                renew_ms: None,
            })
            .collect();
        // The loss of the last of several locks must be noticed, too.
        let has_several = names.iter().any(|name| matches!(name, LockName::Multi(_)));
        let deletes = one_in(rng, if has_several { 2 } else { 8 });
        let revokes = one_in(rng, 4);
        let is_counted = names.iter().any(|name| matches!(name, LockName::CountedSemaphore(_)));
        Self {
            names,
            settings,
            // Longer than the 15 s within which a holder must notice a deletion or a revocation, and a waiter a raised
            // count.
            long_ms: if deletes || revokes || is_counted { 25_000 } else { 5_000 },
            waits: flag(rng),
            cancels: flag(rng),
            drops: flag(rng),
            owners: flag(rng),
            inner: flag(rng),
            fresh: flag(rng),
            revokes,
            writes: flag(rng),
            unasked: flag(rng),
            deletes,
        }
    }

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        let lock = pick(rng, &self.names.iter().collect::<Vec<_>>()).clone();
        let step = match (rng.u8(..20), &lock) {
            (0..=3, _) => return None,
            (4..=5, _) if self.revokes => Step::Revoke { lock },
            (7..=8, LockName::CountedSemaphore(number)) => {
                Step::SetCount { number: *number, count: rng.u8(1..=4) }
            }
            _ => Step::Lock(self.lock_step(rng)),
        };
        Some(step.into())
    }

    fn client(&self, rng: &mut Rng, setting: &Setting) -> ClientPlan {
        setting.client(rng)
    }

    fn workers(&self, rng: &mut Rng, setting: &Setting) -> Vec<Vec<step::Step>> {
        let mut workers = workers(rng, Self::STEPS, |rng| self.step_or_pause(rng, setting));
        if one_in(rng, 8) {
            // This hold ends only with the process. Another worker would wait for it.
            workers.truncate(1);
            let last = LockStep { end: HoldEnd::Keep, ..self.lock_step(rng) };
            workers[0].push(Step::Lock(last).into());
            workers.push(vec![step::Step::Sleep { ms: rng.u64(..60_000) }]);
        } else if self.deletes {
            workers.push(self.operator(rng));
        }
        workers
    }

    fn adjust(rng: &mut Rng, plan: &mut Plan) {
        strict_draw::adjust(rng, plan);
    }

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Lock(step) => run::run(worker, step).await,
            Step::Revoke { lock } => run::revoke(worker, &lock).await,
            Step::DeleteNode { lock } => worker.delete_first(&lock.queue()).await,
            Step::SetCount { number, count } => run::set_count(worker, number, count).await,
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Holds::default())
    }
}

impl Locks {
    /// A worker that deletes nodes while others hold them: of several locks, that of the last one.
    fn operator(&self, rng: &mut Rng) -> Vec<step::Step> {
        let several = self.names.iter().find(|name| matches!(name, LockName::Multi(_)));
        let step = |rng: &mut Rng| match rng.u8(..2) {
            0 => step::Step::Sleep { ms: rng.u64(..4_000) },
            _ => {
                let lock = several.unwrap_or_else(|| &self.names[rng.usize(..self.names.len())]);
                Step::DeleteNode { lock: lock.clone() }.into()
            }
        };
        (0..rng.usize(Self::STEPS)).map(|_| step(rng)).collect()
    }

    fn lock_step(&self, rng: &mut Rng) -> LockStep {
        let lock = self.names[rng.usize(..self.names.len())].clone();
        let mut step = LockStep {
            wait_ms: (self.waits && one_in(rng, 2)).then(|| rng.u64(..4_000)),
            cancel_ms: (self.cancels && one_in(rng, 4)).then(|| rng.u64(..3_000)),
            cancel_polls: (self.cancels && one_in(rng, 4)).then(|| rng.u32(1..12)),
            hold_ms: if one_in(rng, 4) { rng.u64(..self.long_ms) } else { rng.u64(..200) },
            end: self.end(rng),
            options: self.settings[rng.usize(..self.settings.len())],
            fresh: self.fresh && one_in(rng, 2),
            revocable: self.revokes && one_in(rng, 2),
            watch: pick(rng, &[HoldWatch::Nothing, HoldWatch::Lost, HoldWatch::Token]),
            writes: if self.writes && one_in(rng, 2) { rng.u8(1..4) } else { 0 },
            unasked: self.unasked && one_in(rng, 2),
            first_ends_first: one_in(rng, 2),
            lock,
            ..LockStep::default()
        };
        match &step.lock {
            LockName::Semaphore { .. } | LockName::CountedSemaphore(_) if one_in(rng, 4) => {
                // Two workers that have some leases each, and wait for more, would wait for ever.
                step.quantity = rng.u8(2..=3);
                step.wait_ms = match rng.u64(..8_000) {
                    6_000.. => Some(40_000),
                    ms => Some(ms),
                };
            }
            LockName::Semaphore { .. }
            | LockName::CountedSemaphore(_)
            | LockName::SemaphoreMutex(_) => {}
            _ if self.owners && one_in(rng, 2) => {
                step.owner = Some(rng.u8(..2));
                step.fresh = false;
                step.revocable = false;
                if self.inner && one_in(rng, 2) {
                    step.then = (0..rng.usize(1..=3)).map(|_| self.inner(rng, &step)).collect();
                    // Only with one lock: an owner that has left the write lock, and still reads, would wait for itself
                    // there.
                    let is_same = step.then.iter().all(|inner| inner.lock == step.lock);
                    step.then.iter_mut().for_each(|of| of.after_exit = is_same && one_in(rng, 2));
                }
            }
            _ => {}
        }
        step
    }

    /// Draws a lock that the owner of a hold acquires too.
    fn inner(&self, rng: &mut Rng, step: &LockStep) -> InnerLock {
        let mut wait_ms = (self.waits && one_in(rng, 2)).then(|| rng.u64(..2_000));
        let lock = match &step.lock {
            LockName::Write(number) if one_in(rng, 2) => {
                // Another worker with this owner may be acquiring the read lock: it waits for the write lock, and the
                // acquires of an owner are served one after the other.
                wait_ms = Some(rng.u64(..2_000));
                LockName::Read(*number)
            }
            LockName::Read(number) if one_in(rng, 2) => {
                // A reader that acquires the write lock waits for itself.
                wait_ms = Some(rng.u64(..2_000));
                LockName::Write(*number)
            }
            lock => lock.clone(),
        };
        if matches!(lock, LockName::Multi(_)) && has_semaphore(&lock) {
            // A semaphore is not re-entrant.
            wait_ms = Some(rng.u64(..2_000));
        }
        InnerLock { lock, wait_ms, end: self.end(rng), after_exit: false }
    }

    fn end(&self, rng: &mut Rng) -> HoldEnd {
        match rng.u8(..4) {
            0 if self.drops => HoldEnd::Drop,
            1 if self.drops => HoldEnd::CancelledRelease,
            _ => HoldEnd::Release,
        }
    }
}

fn has_semaphore(lock: &LockName) -> bool {
    match lock {
        LockName::Multi(names) => names.iter().any(has_semaphore),
        lock => matches!(lock, LockName::SemaphoreMutex(_)),
    }
}

fn name(rng: &mut Rng) -> LockName {
    let number = rng.u8(..2);
    match rng.u8(..14) {
        0..=2 => LockName::Mutex(number),
        3 => LockName::Namespaced(number),
        4 => LockName::SemaphoreMutex(number),
        5 => LockName::Semaphore { number, leases: rng.u8(1..=3) },
        6 | 13 => LockName::CountedSemaphore(number),
        7..=8 => LockName::Read(0),
        9..=10 => LockName::Write(0),
        _ => {
            // All list their locks in one order, or they would wait for each other.
            let choices = [
                LockName::Mutex(0),
                LockName::Mutex(1),
                LockName::Namespaced(0),
                LockName::SemaphoreMutex(0),
                if one_in(rng, 2) { LockName::Read(0) } else { LockName::Write(0) },
            ];
            let mut names: Vec<_> = choices.into_iter().filter(|_| one_in(rng, 2)).collect();
            if names.is_empty() {
                names.push(LockName::Mutex(0));
            }
            LockName::Multi(names)
        }
    }
}
