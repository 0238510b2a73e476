//! Draws caches, and changes of the tree that they hold.

use fastrand::Rng;

use super::steps::{CacheKind, CacheStep, Step as Caching, TreeOp, TreeStep};
use crate::{
    faults::{
        Fault, FaultKind,
        draw::{one_in, pick},
    },
    plan::{
        ClientPlan, ProcessPlan,
        draw::{Setting, weighted, workers},
    },
    recipes::{
        common::CloseKind,
        step::{Plan, Step},
    },
};

/// Adds processes that keep caches of one tree, and change it.
pub(super) fn draw(rng: &mut Rng, plan: &mut Plan, setting: &Setting) {
    let mix = Mix::draw(rng);
    for _ in 0..setting.processes(rng) {
        let workers = workers(rng, 2..=14, |rng| mix.step(rng));
        let client = setting.queueing_client(rng);
        plan.processes.push(setting.process(rng, client, workers));
    }
}

/// One of four caches starts with the nodes of another one. To one of three ensembles a process is added that does nothing
/// but start such caches, while members lag: it knows more than its server then.
pub(super) fn adjust(rng: &mut Rng, plan: &mut Plan) {
    let mut caches = Vec::new();
    for step in plan.all_steps_mut() {
        if let Step::Caches(Caching::Cache(step)) = step {
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
        steps.push(Step::Sleep { ms: rng.u64(..2_000) });
        let step = CacheStep {
            initial: true,
            max_events: 1_024,
            pause_ms: 0,
            for_ms: rng.u64(100..2_000),
            end: CloseKind::Close,
            ..of.clone()
        };
        steps.push(Caching::Cache(step).into());
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

/// Which steps a plan has, and how often.
struct Mix {
    tree: u32,
    cache: u32,
    names: u8,
    /// Whether caches stay.
    keeps: bool,
}

impl Mix {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            tree: pick(rng, &[3, 6, 10]),
            cache: pick(rng, &[2, 4]),
            names: rng.u8(1..=3),
            keeps: one_in(rng, 2),
        }
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let step = match weighted(rng, &[(self.tree, 0), (self.cache, 1), (2, 2)]) {
            0 => {
                let count = if one_in(rng, 2) { 1 } else { rng.usize(2..12) };
                Caching::Tree((0..count).map(|_| self.tree_step(rng)).collect())
            }
            1 => Caching::Cache(self.cache(rng)),
            _ => return Step::Sleep { ms: rng.u64(..2_000) },
        };
        step.into()
    }

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
            root: if one_in(rng, 4) { self.path(rng) } else { Vec::new() },
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

/// For how long a cache is used.
fn used_ms(rng: &mut Rng) -> u64 {
    match rng.u8(..8) {
        0 => rng.u64(..100),
        1..=5 => rng.u64(..4_000),
        _ => rng.u64(4_000..30_000),
    }
}
