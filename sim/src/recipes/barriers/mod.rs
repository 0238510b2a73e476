//! Barriers, and double barriers.

mod double;
mod run;
mod steps;

use std::ops::RangeInclusive;

use fastrand::Rng;

pub use self::steps::*;
use super::{common::Retry, recipe::Recipe, step, worker::Worker};
use crate::{
    faults::draw::{one_in, pick},
    plan::draw::{Setting, weighted},
};

/// Which steps a plan has, and how often.
pub(super) struct Barriers {
    barrier: u32,
    double: u32,
    numbers: u8,
    members: u8,
    retry: Retry,
}

impl Recipe for Barriers {
    type Step = Step;
    const WEIGHT: u32 = 3;
    const STEPS: RangeInclusive<usize> = 2..=14;

    fn draw(rng: &mut Rng) -> Self {
        let (barrier, double) = pick(rng, &[(6, 0), (0, 6), (6, 6)]);
        let (numbers, members) = (rng.u8(1..=3), pick(rng, &[1, 2, 2, 3]));
        Self { barrier, double, numbers, members, retry: Retry::draw(rng) }
    }

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        let step = match weighted(rng, &[(self.barrier, 0), (self.double, 1), (2, 2)]) {
            0 => Step::Barrier(self.barrier(rng)),
            1 => Step::Double(self.double(rng)),
            _ => return None,
        };
        Some(step.into())
    }

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Barrier(step) => run::run(worker, &step).await,
            Step::Double(step) => double::run(worker, &step).await,
        }
    }
}

impl Barriers {
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
            rounds: rng.u8(1..=6),
            wait_ms: (!one_in(rng, 4)).then(|| if one_in(rng, 6) { 0 } else { rng.u64(..20_000) }),
            cancel_ms: if one_in(rng, 6) { rng.u64(1..2_000) } else { 60_000 },
            hold_ms: if one_in(rng, 4) { rng.u64(..6_000) } else { rng.u64(..200) },
            drops: one_in(rng, 6),
        }
    }
}
