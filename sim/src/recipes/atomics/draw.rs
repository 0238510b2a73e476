//! Draws atomic numbers and values.

use fastrand::Rng;

use super::steps::{Op, Step as Changing};
use crate::{
    faults::draw::{one_in, pick},
    plan::draw::{Setting, weighted, workers},
    recipes::{
        common::Retry,
        step::{Plan, Step},
    },
};

/// Adds processes that change a few numbers and values.
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
    number: u32,
    value: u32,
    numbers: u8,
    attempts: u32,
    promotes: bool,
    retry: Retry,
}

impl Mix {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            number: pick(rng, &[0, 2, 8]),
            value: pick(rng, &[0, 2, 8]),
            numbers: pick(rng, &[1, 1, 2, 3]),
            attempts: pick(rng, &[0, 0, 1, 10]),
            promotes: one_in(rng, 2),
            retry: Retry::draw(rng),
        }
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let ops = match weighted(rng, &[(self.number, 0), (self.value, 1), (2, 2)]) {
            0 => [Op::Increment, Op::Decrement, Op::Add, Op::Add, Op::Get],
            1 => [Op::TrySet, Op::CompareAndSet, Op::CompareAndSet, Op::ForceSet, Op::Initialize],
            _ => return Step::Sleep { ms: rng.u64(..2_000) },
        };
        let step = Changing {
            number: rng.u8(..self.numbers),
            op: pick(rng, &ops),
            attempts: self.attempts,
            promotion_ms: self.promotes.then(|| rng.u64(..5_000)),
            retry: self.retry,
            cancel_ms: one_in(rng, 8).then(|| rng.u64(1..2_000)),
        };
        step.into()
    }
}
