//! Draws kept nodes and groups.

use fastrand::Rng;

use super::steps::{KeepMode, KeepStep, Step as Keeping};
use crate::{
    faults::draw::{one_in, pick},
    plan::draw::{Setting, weighted, workers},
    recipes::{
        common::{CloseKind, Retry, lasting_ms},
        step::{Plan, Step},
    },
};

/// Adds processes that keep nodes and join a group.
pub(super) fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
    let mix = Mix::draw(rng);
    for _ in 0..setting.processes(rng) {
        let workers = workers(rng, 1..=6, |rng| mix.step(rng));
        let client = setting.client(rng);
        plan.processes.push(setting.process(rng, client, workers));
    }
}

/// Which steps a plan has, and how often.
struct Mix {
    kept: u32,
    member: u32,
    deletes: u32,
    nodes: u8,
    retry: Retry,
    closes: bool,
}

impl Mix {
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

    fn step(&self, rng: &mut Rng) -> Step {
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
                Keeping::Keep(self.keep(rng, mode))
            }
            1 => Keeping::Keep(self.keep(rng, KeepMode::Member)),
            2 => Keeping::DeleteKept { node: rng.u8(..self.nodes) },
            _ => return Step::Sleep { ms: rng.u64(..2_000) },
        };
        step.into()
    }

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
