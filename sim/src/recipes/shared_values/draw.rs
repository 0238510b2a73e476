//! Draws `SharedValue`s.

use fastrand::Rng;

use super::steps::{Op, Step as Sharing};
use crate::{
    faults::draw::one_in,
    plan::draw::{Setting, workers},
    recipes::step::{Plan, Step},
};

/// Adds processes that share two values.
pub(super) fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
    for _ in 0..setting.processes(rng) {
        let (client, workers) = (setting.queueing_client(rng), workers(rng, 4..=30, step));
        plan.processes.push(setting.process(rng, client, workers));
    }
}

fn step(rng: &mut Rng) -> Step {
    if one_in(rng, 3) {
        return Step::Sleep { ms: rng.u64(..500) };
    }
    let step = Sharing {
        number: rng.u8(..2),
        op: match rng.u8(..4) {
            0 => Op::Set,
            1 => Op::Wait(rng.u64(..3_000)),
            _ => Op::TrySet,
        },
        cancel_ms: one_in(rng, 8).then(|| rng.u64(1..500)),
    };
    step.into()
}
