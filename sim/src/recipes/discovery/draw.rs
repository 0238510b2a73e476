//! Draws registrations of instances, and searches for them.

use fastrand::Rng;

use super::steps::{FindStep, ServeEnd, ServeKind, ServeStep, Step as Discovering, Strategy};
use crate::{
    faults::draw::{one_in, pick},
    plan::draw::{Setting, weighted, workers},
    recipes::{
        common::{CloseKind, Retry},
        step::{Plan, Step},
    },
};

/// Adds processes that register instances and look for them.
pub(super) fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
    let mix = Mix::draw(rng);
    for _ in 0..setting.processes(rng) {
        let workers = workers(rng, 1..=7, |rng| mix.step(rng));
        let client = setting.queueing_client(rng);
        plan.processes.push(setting.process(rng, client, workers));
    }
}

/// Which steps a plan has, and how often.
struct Mix {
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

impl Mix {
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

    fn step(&self, rng: &mut Rng) -> Step {
        let step = match weighted(rng, &[(self.serve, 0), (self.find, 1), (1, 2)]) {
            0 => Discovering::Serve(self.serve(rng)),
            1 => Discovering::Find(self.find(rng)),
            _ => return Step::Sleep { ms: rng.u64(..2_000) },
        };
        step.into()
    }

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
            for_ms: if keeps { rng.u64(..4_000) } else { duration(rng) },
            end: if keeps {
                ServeEnd::Keep
            } else {
                pick(
                    rng,
                    &[
                        ServeEnd::Unregister,
                        ServeEnd::Unregister,
                        ServeEnd::Close,
                        ServeEnd::CancelledUnregister,
                        ServeEnd::Drop,
                    ],
                )
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
            for_ms: if keeps { rng.u64(..1_000) } else { duration(rng) },
            end: if keeps { CloseKind::Keep } else { CloseKind::draw(rng) },
        }
    }
}

/// For how long an instance is registered, or looked for.
fn duration(rng: &mut Rng) -> u64 {
    match rng.u8(..8) {
        0 => rng.u64(..100),
        1..=5 => rng.u64(..6_000),
        _ => rng.u64(6_000..30_000),
    }
}
