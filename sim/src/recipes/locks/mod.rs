//! Locks: acquired, held, released, in every way in which a program can.

mod belief;
mod check;
mod counts;
mod draw;
mod held;
mod objects;
mod run;
pub mod steps;
mod strict;
mod strict_draw;

use fastrand::Rng;

use super::{recipe::Recipe, step::Plan, worker::Worker};
use crate::{plan::draw::Setting, world::check::Checks};

pub(super) struct Locks;

impl Recipe for Locks {
    type Step = steps::Step;

    const WEIGHT: u32 = 10;

    fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
        draw::draw(rng, plan, setting);
    }

    fn adjust(rng: &mut Rng, plan: &mut Plan) {
        strict_draw::adjust(rng, plan);
    }

    async fn run(worker: &Worker, step: steps::Step) {
        match step {
            steps::Step::Lock(step) => run::run(worker, step).await,
            steps::Step::Revoke { lock } => run::revoke(worker, &lock).await,
            steps::Step::DeleteNode { lock } => run::delete_node(worker, &lock).await,
            steps::Step::SetCount { number, count } => run::set_count(worker, number, count).await,
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Holds::default()).with(counts::Counts::default())
    }
}
