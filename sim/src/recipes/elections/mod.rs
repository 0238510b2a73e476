//! Elections: latches and selectors that take part, lead, write as leaders, and leave in every way.

mod check;
mod queues;
mod run;
mod steps;

use std::ops::RangeInclusive;

use fastrand::Rng;

pub use self::steps::*;
use super::{
    common::{CloseKind, HoldWatch, Retry, lasting_ms},
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
pub(super) struct Elections {
    latch: u32,
    selector: u32,
    deletes: u32,
    elections: u8,
    settings: LeadSettings,
    closes: bool,
}

impl Recipe for Elections {
    type Step = Step;
    const WEIGHT: u32 = 8;
    const STEPS: RangeInclusive<usize> = 1..=6;

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

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        let choices = [(self.latch, 0), (self.selector, 1), (self.deletes, 2), (2, 3)];
        let step = match weighted(rng, &choices) {
            0 => Step::Lead(self.lead(rng, LeadBy::Latch)),
            1 => {
                let requeues = rng.bool();
                let by = if requeues { LeadBy::Requeued(rng.u8(1..=5)) } else { LeadBy::Selector };
                Step::Lead(self.lead(rng, by))
            }
            2 => Step::DeleteLeader { election: rng.u8(..self.elections) },
            _ => return None,
        };
        Some(step.into())
    }

    fn client(&self, rng: &mut Rng, setting: &Setting) -> ClientPlan {
        setting.client(rng)
    }

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Lead(step) => run::run(worker, &step).await,
            Step::DeleteLeader { election } => {
                worker.delete_first(&format!("/latch-{election}")).await;
                worker.delete_first(&format!("/selector-{election}")).await;
            }
        }
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Leaders::default())
    }
}

impl Elections {
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
