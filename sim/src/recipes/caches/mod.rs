//! Caches: every node they show has existed, their events lead to their nodes, and in peace they have the servers'
//! data.

mod run;
mod steps;
mod tree;

use std::ops::RangeInclusive;

use fastrand::Rng;

pub use self::steps::*;
use super::{
    common::{CloseKind, used_ms},
    recipe::Recipe,
    step::{self, Plan},
    worker::Worker,
};
use crate::{
    faults::{
        Fault, FaultKind,
        draw::{one_in, pick},
    },
    plan::{
        ClientPlan, ProcessPlan,
        draw::{Setting, weighted},
    },
    world::check::Checks,
};

/// Which steps a plan has, and how often.
pub(super) struct Caches {
    tree: u32,
    cache: u32,
    names: u8,
    /// Whether caches stay.
    keeps: bool,
}

impl Recipe for Caches {
    type Step = Step;
    const WEIGHT: u32 = 4;
    const STEPS: RangeInclusive<usize> = 2..=14;

    fn draw(rng: &mut Rng) -> Self {
        Self {
            tree: pick(rng, &[3, 6, 10]),
            cache: pick(rng, &[2, 4]),
            names: rng.u8(1..=3),
            keeps: one_in(rng, 2),
        }
    }

    fn step(&self, rng: &mut Rng, _setting: &Setting) -> Option<step::Step> {
        let step = match weighted(rng, &[(self.tree, 0), (self.cache, 1), (2, 2)]) {
            0 => {
                let count = if one_in(rng, 2) { 1 } else { rng.usize(2..12) };
                Step::Tree((0..count).map(|_| self.tree_step(rng)).collect())
            }
            1 => Step::Cache(self.cache(rng)),
            _ => return None,
        };
        Some(step.into())
    }

    /// One in four caches starts with the nodes of another one. In one of three plans with three servers, a process is
    /// added that only starts such caches, while members lag: it then knows more than its server.
    fn adjust(rng: &mut Rng, plan: &mut Plan) {
        let mut caches = Vec::new();
        for step in plan.all_steps_mut() {
            if let step::Step::Caches(Step::Cache(step)) = step {
                caches.push(step.clone());
                step.initial = one_in(rng, 4);
            }
        }
        let most = plan.peace_at_ms;
        if caches.is_empty() || plan.servers.count == 1 || !one_in(rng, 3) {
            return;
        }
        let of = &caches[rng.usize(..caches.len())];
        let mut steps = Vec::new();
        for _ in 0..rng.usize(3..10) {
            steps.push(step::Step::Sleep { ms: rng.u64(..2_000) });
            let step = CacheStep {
                initial: true,
                max_events: 1_024,
                pause_ms: 0,
                for_ms: rng.u64(100..2_000),
                end: CloseKind::Close,
                ..of.clone()
            };
            steps.push(Step::Cache(step).into());
        }
        let client = ClientPlan {
            session_timeout_ms: pick(rng, &[4_000, 6_000, 10_000]),
            ..ClientPlan::default()
        };
        plan.processes.push(ProcessPlan {
            starts_at_ms: rng.u64(..2_000),
            drift_ppm: 0,
            client,
            resumes: None,
            workers: vec![steps],
        });
        for member in 0..plan.servers.count {
            let mut at_ms = rng.u64(..4_000);
            while at_ms < most {
                let for_ms = rng.u64(1_000..6_000);
                plan.faults.push(Fault { at_ms, kind: FaultKind::Lag { member, for_ms } });
                at_ms += for_ms + rng.u64(..4_000);
            }
        }
    }

    async fn run(worker: &Worker, step: Step) {
        match step {
            Step::Cache(step) => run::run(worker, &step).await,
            Step::Tree(steps) => tree::run(worker, &steps).await,
        }
    }

    async fn finish(worker: &Worker) {
        run::judge_kept(worker).await;
    }

    fn checks(checks: Checks) -> Checks {
        checks.with(run::Snapshots::default())
    }
}

impl Caches {
    fn path(&self, rng: &mut Rng) -> Vec<u8> {
        let depth = pick(rng, &[0, 1, 1, 1, 2, 2, 3]);
        (0..depth).map(|_| rng.u8(..self.names)).collect()
    }

    fn tree_step(&self, rng: &mut Rng) -> TreeStep {
        let path = self.path(rng);
        let op = match rng.u8(..12) {
            0..=4 => TreeOp::Create,
            5 => TreeOp::CreateEphemeral,
            6..=8 => TreeOp::Set,
            9 => TreeOp::Replace,
            _ => TreeOp::Delete,
        };
        TreeStep { path, op }
    }

    fn cache(&self, rng: &mut Rng) -> CacheStep {
        let keeps = self.keeps && one_in(rng, 2);
        CacheStep {
            root: match rng.u8(..8) {
                0..=1 => self.path(rng),
                // A node that never exists.
                2 => vec![self.names],
                _ => Vec::new(),
            },
            kind: pick(
                rng,
                &[CacheKind::Tree, CacheKind::Tree, CacheKind::Children, CacheKind::Single],
            ),
            without_data: one_in(rng, 4),
            initial: false,
            max_reads: pick(rng, &[1, 3, 128]),
            max_events: pick(rng, &[1, 4, 1_024]),
            pause_ms: if one_in(rng, 3) { rng.u64(1..800) } else { 0 },
            for_ms: if keeps { rng.u64(..1_000) } else { used_ms(rng) },
            end: if keeps { CloseKind::Keep } else { CloseKind::draw(rng) },
        }
    }
}
