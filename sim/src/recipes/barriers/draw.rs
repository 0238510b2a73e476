//! Draws barriers.

use fastrand::Rng;

use super::steps::{BarrierOp, BarrierStep, DoubleStep, Step as Meeting};
use crate::{
    faults::draw::{one_in, pick},
    plan::draw::{Setting, weighted, workers},
    recipes::{
        common::Retry,
        step::{Plan, Step},
    },
};

/// Adds processes that set, remove, and wait on barriers.
pub(super) fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
    let mix = Mix::draw(rng);
    for _ in 0..setting.processes(rng) {
        let workers = workers(rng, 2..=14, |rng| mix.step(rng));
        let client = setting.queueing_client(rng);
        plan.processes.push(setting.process(rng, client, workers));
    }
}

/// Which steps a plan has, and how often.
struct Mix {
    barrier: u32,
    double: u32,
    numbers: u8,
    members: u8,
    retry: Retry,
}

impl Mix {
    fn draw(rng: &mut Rng) -> Self {
        let (barrier, double) = pick(rng, &[(6, 0), (0, 6), (6, 6)]);
        let (numbers, members) = (rng.u8(1..=3), rng.u8(1..=3));
        Self { barrier, double, numbers, members, retry: Retry::draw(rng) }
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let step = match weighted(rng, &[(self.barrier, 0), (self.double, 1), (2, 2)]) {
            0 => Meeting::Barrier(self.barrier(rng)),
            1 => Meeting::Double(self.double(rng)),
            _ => return Step::Sleep { ms: rng.u64(..2_000) },
        };
        step.into()
    }

    fn barrier(&self, rng: &mut Rng) -> BarrierStep {
        BarrierStep {
            number: rng.u8(..self.numbers),
            op: match rng.u8(..8) {
                0 | 1 => BarrierOp::Set,
                2 => BarrierOp::Remove,
                3 => BarrierOp::Cycle,
                4 | 5 => BarrierOp::Wait,
                _ => BarrierOp::WaitFor(if one_in(rng, 4) { 0 } else { rng.u64(..20_000) }),
            },
            retry: self.retry,
            cancel_ms: if one_in(rng, 4) { rng.u64(1..2_000) } else { rng.u64(10_000..60_000) },
        }
    }

    fn double(&self, rng: &mut Rng) -> DoubleStep {
        DoubleStep {
            number: 0,
            members: self.members,
            rounds: rng.u8(1..=3),
            wait_ms: (!one_in(rng, 4)).then(|| if one_in(rng, 6) { 0 } else { rng.u64(..20_000) }),
            cancel_ms: if one_in(rng, 6) { rng.u64(1..2_000) } else { 60_000 },
            hold_ms: if one_in(rng, 4) { rng.u64(..6_000) } else { rng.u64(..200) },
            drops: one_in(rng, 6),
        }
    }
}
