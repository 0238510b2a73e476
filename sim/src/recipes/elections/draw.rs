//! Draws elections.

use fastrand::Rng;

use super::steps::{LeadBy, LeadSettings, LeadStep, Step as Leading};
use crate::{
    faults::draw::{one_in, pick},
    plan::draw::{Setting, weighted, workers},
    recipes::{
        common::{CloseKind, HoldWatch, Retry, lasting_ms},
        step::{Plan, Step},
    },
};

/// Adds processes that take part in elections.
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
    latch: u32,
    selector: u32,
    deletes: u32,
    elections: u8,
    settings: LeadSettings,
    closes: bool,
}

impl Mix {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            latch: pick(rng, &[0, 4, 8, 8]),
            selector: pick(rng, &[0, 2, 4, 8]),
            deletes: pick(rng, &[0, 0, 1]),
            elections: pick(rng, &[1, 1, 2]),
            settings: LeadSettings {
                retry: Retry::draw(rng),
                keeps_over_cuts: one_in(rng, 2),
                notifies: one_in(rng, 2),
                namespaced: one_in(rng, 8),
                renew_ms: None,
            },
            closes: one_in(rng, 2),
        }
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let choices = [(self.latch, 0), (self.selector, 1), (self.deletes, 2), (2, 3)];
        let step = match weighted(rng, &choices) {
            0 => Leading::Lead(self.lead(rng, LeadBy::Latch)),
            1 => {
                let requeues = rng.bool();
                let by = if requeues { LeadBy::Requeued(rng.u8(1..=5)) } else { LeadBy::Selector };
                Leading::Lead(self.lead(rng, by))
            }
            2 => Leading::DeleteLeader { election: rng.u8(..self.elections) },
            _ => return Step::Sleep { ms: rng.u64(..2_000) },
        };
        step.into()
    }

    fn lead(&self, rng: &mut Rng, by: LeadBy) -> LeadStep {
        LeadStep {
            election: rng.u8(..self.elections),
            by,
            options: self.settings,
            for_ms: lasting_ms(rng),
            term_ms: if one_in(rng, 4) { rng.u64(..8_000) } else { rng.u64(..300) },
            watch: pick(rng, &[HoldWatch::Nothing, HoldWatch::Lost, HoldWatch::Token]),
            cancel_ms: one_in(rng, 4).then(|| rng.u64(1..2_000)),
            writes: if one_in(rng, 2) { rng.u8(1..4) } else { 0 },
            end: CloseKind::draw_any(rng, self.closes),
        }
    }
}
