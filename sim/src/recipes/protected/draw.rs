//! Draws protected creates.

use fastrand::Rng;

use super::steps::{Mode, Step as Creating};
use crate::{
    faults::draw::{one_in, pick},
    plan::draw::{Setting, workers},
    recipes::{
        common::Retry,
        step::{Plan, Step},
    },
};

/// Adds processes that create nodes with protection.
pub(super) fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
    let retry = Retry::draw(rng);
    for _ in 0..setting.processes(rng) {
        let workers = workers(rng, 4..=20, |rng| step(rng, retry));
        let client = setting.queueing_client(rng);
        plan.processes.push(setting.process(rng, client, workers));
    }
}

fn step(rng: &mut Rng, retry: Retry) -> Step {
    if one_in(rng, 3) {
        return Step::Sleep { ms: rng.u64(..3_000) };
    }
    let modes =
        [Mode::Persistent, Mode::PersistentSequential, Mode::Ephemeral, Mode::EphemeralSequential];
    let step = Creating {
        parent: rng.u8(..2),
        mode: pick(rng, &modes),
        retry,
        cancel_ms: match rng.u8(..8) {
            0 => Some(0),
            1 => Some(rng.u64(1..3_000)),
            _ => None,
        },
    };
    step.into()
}
