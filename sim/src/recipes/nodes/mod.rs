//! Kept nodes and groups.

mod check;
mod run;
mod steps;

use std::ops::RangeInclusive;

use fastrand::Rng;

pub use self::steps::*;
use super::{
    common::{CloseKind, Retry, lasting_ms},
    recipe::Recipe,
    step,
    worker::Worker,
};
use crate::{
    faults::draw::{one_in, pick},
    plan::{
        ClientPlan,
        draw::{Setting, weighted},
    },
    world::check::Checks,
};

/// Which steps a plan has, and how often.
pub(super) struct Nodes {
    kept: u32,
    member: u32,
    deletes: u32,
    nodes: u8,
    retry: Retry,
    closes: bool,
}

impl Recipe for Nodes {
    type Step = Step;
    const WEIGHT: u32 = 4;
    const STEPS: RangeInclusive<usize> = 1..=6;

    fn draw(rng: &mut Rng) -> Self {
        Self {
            kept: pick(rng, &[2, 6, 6]),
            member: pick(rng, &[2, 4, 8]),
            deletes: pick(rng, &[0, 0, 1]),
            nodes: rng.u8(1..=4),
            retry: Retry::draw(rng),
            closes: one_in(rng, 2),
        }
    }

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        let choices = [(self.kept, 0), (self.member, 1), (self.deletes, 2), (2, 3)];
        let step = match weighted(rng, &choices) {
            0 => {
                let mode = match rng.u8(..12) {
                    0..=1 => KeepMode::Persistent,
                    2 => KeepMode::PersistentSequential,
                    3..=6 => KeepMode::Ephemeral,
                    7 => KeepMode::EphemeralSequential,
                    8 => KeepMode::Container,
                    9 => KeepMode::Ttl(rng.u64(1_000..10_000)),
                    _ => KeepMode::Touched(rng.u64(2_000..10_000)),
                };
                Step::Keep(self.keep(rng, mode))
            }
            1 => Step::Keep(self.keep(rng, KeepMode::Member)),
            2 => Step::DeleteKept { node: rng.u8(..self.nodes) },
            _ => return None,
        };
        Some(step.into())
    }

    fn client(&self, rng: &mut Rng, setting: &Setting) -> ClientPlan {
        setting.client(rng)
    }

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Keep(step) => run::run(worker, &step).await,
            Step::DeleteKept { node } => {
                worker.delete_as_operator(&format!("/kept/{node}")).await;
                worker.delete_as_operator(&format!("{}/{node}", run::GROUP)).await;
            }
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::AllKept::default())
    }
}

impl Nodes {
    fn keep(&self, rng: &mut Rng, mode: KeepMode) -> KeepStep {
        KeepStep {
            node: rng.u8(..self.nodes),
            mode,
            protected: one_in(rng, 4),
            adopts: one_in(rng, 4),
            without_parents: one_in(rng, 16),
            retry: self.retry,
            for_ms: lasting_ms(rng),
            sets: if one_in(rng, 2) { rng.u8(1..8) } else { 0 },
            end: CloseKind::draw_any(rng, self.closes),
        }
    }
}
