//! Service discovery: instances are registered and found.

mod check;
mod find;
mod run;
mod steps;

use std::ops::RangeInclusive;

use fastrand::Rng;

pub use self::steps::*;
use super::{
    common::{CloseKind, Retry, used_ms},
    recipe::Recipe,
    step,
    worker::Worker,
};
use crate::{
    faults::draw::{one_in, pick},
    plan::draw::{Setting, weighted},
    world::check::Checks,
};

/// Which steps a plan has, and how often.
pub(super) struct Discovery {
    serve: u32,
    find: u32,
    services: u8,
    /// The number of ids that processes share; 0: none.
    instances: u8,
    kinds: Vec<ServeKind>,
    retry: Retry,
    waits: bool,
    keeps: bool,
}

impl Recipe for Discovery {
    type Step = Step;
    const WEIGHT: u32 = 3;
    const STEPS: RangeInclusive<usize> = 1..=7;

    fn draw(rng: &mut Rng) -> Self {
        let all =
            [ServeKind::Dynamic, ServeKind::Sequential, ServeKind::Static, ServeKind::Permanent];
        Self {
            serve: pick(rng, &[2, 4, 8]),
            find: pick(rng, &[2, 4, 8]),
            services: rng.u8(1..=2),
            instances: pick(rng, &[0, 1, 3]),
            kinds: match rng.u8(..3) {
                0 => vec![ServeKind::Dynamic],
                1 => vec![ServeKind::Dynamic, ServeKind::Sequential],
                _ => all.to_vec(),
            },
            retry: Retry::draw(rng),
            waits: one_in(rng, 2),
            keeps: !one_in(rng, 3),
        }
    }

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        let step = match weighted(rng, &[(self.serve, 0), (self.find, 1), (1, 2)]) {
            0 => Step::Serve(self.serve(rng)),
            1 => Step::Find(self.find(rng)),
            _ => return None,
        };
        Some(step.into())
    }

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Serve(step) => run::serve(worker, &step).await,
            Step::Find(step) => find::find(worker, &step).await,
        }
    }

    async fn finish(worker: &Worker) {
        find::judge_kept(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(check::Services::default())
    }
}

impl Discovery {
    fn serve(&self, rng: &mut Rng) -> ServeStep {
        let keeps = self.keeps && one_in(rng, 2);
        let is_shared = self.instances > 0 && !one_in(rng, 3);
        ServeStep {
            service: rng.u8(..self.services),
            instance: is_shared.then(|| rng.u8(..self.instances)),
            kind: self.kinds[rng.usize(..self.kinds.len())],
            retry: self.retry,
            changes: if one_in(rng, 3) { 0 } else { rng.u8(1..8) },
            waits: self.waits,
            for_ms: if keeps { rng.u64(..4_000) } else { used_ms(rng) },
            end: if keeps {
                ServeEnd::Keep
            } else {
                use ServeEnd::{CancelledUnregister, Close, Drop, Unregister};
                pick(rng, &[Unregister, Unregister, Close, CancelledUnregister, Drop])
            },
        }
    }

    fn find(&self, rng: &mut Rng) -> FindStep {
        let keeps = self.keeps && one_in(rng, 2);
        FindStep {
            service: rng.u8(..self.services),
            provider: match rng.u8(..4) {
                0 => None,
                1 => Some(Strategy::RoundRobin),
                2 => Some(Strategy::Random),
                _ => Some(Strategy::Sticky),
            },
            fails_one_in: pick(rng, &[0, 1, 3]),
            queries: one_in(rng, 2),
            pause_ms: if one_in(rng, 3) { rng.u64(1..800) } else { 0 },
            for_ms: if keeps { rng.u64(..1_000) } else { used_ms(rng) },
            end: if keeps { CloseKind::Keep } else { CloseKind::draw(rng) },
        }
    }
}
