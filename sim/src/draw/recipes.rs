//! Draws caches with changes of the tree, atomic numbers and values, and barriers.
//!
//! The draws have a generator of their own: the plans without them stay what they were.

use fastrand::Rng;

use super::{FAULTY_MS, add_faults, one_in, pick};
use crate::plan::{
    AtomicOp, AtomicStep, BarrierOp, BarrierStep, CacheEnd, CacheKind, CacheStep, ClientPlan,
    DoubleStep, Fault, FaultKind, Plan, ProcessPlan, Retry, Step, TreeOp, TreeStep,
};

/// Adds these workloads to two of five plans, in half of them instead of everything else.
pub(super) fn add(plan: &mut Plan) -> bool {
    let mut rng = Rng::with_seed(plan.seed ^ 0xCAC4_EC0D_BA44_1E45);
    let rng = &mut rng;
    let share = rng.u8(..5);
    if share > 1 {
        return false;
    }
    if share == 0 {
        plan.processes.clear();
        plan.faults.clear();
        plan.peace_at_ms = pick(rng, &[8_000, 20_000, FAULTY_MS]);
        // Without addWatch, caches use one-shot watches.
        plan.servers.version = one_in(rng, 4).then(|| "3.5".to_owned());
    }
    let before = plan.processes.len();
    let mix = Mix::draw(rng);
    let timeout = pick(rng, &[4_000, 6_000, 10_000]);
    let drifts = one_in(rng, 3);
    let most = plan.peace_at_ms;
    let count = if share == 0 { rng.usize(2..=5) } else { rng.usize(1..=3) };
    plan.processes.extend((0..count).map(|_| process(rng, &mix, timeout, drifts, most)));
    add_faults(plan, rng, before, share == 0);
    hand_over(plan);
    true
}

/// One of four caches starts with the nodes of another one. To one of three ensembles a process is added that does nothing
/// but start such caches, while members lag: it knows more than its server then.
fn hand_over(plan: &mut Plan) {
    // The plans without them stay what they were.
    let mut rng = Rng::with_seed(plan.seed ^ 0x1417_1A10_0DE5_1417);
    let rng = &mut rng;
    let mut caches = Vec::new();
    let workers = plan.processes.iter_mut().flat_map(|process| &mut process.workers);
    for step in workers.flatten() {
        if let Step::Cache(step) = step {
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
        steps.push(Step::Cache(CacheStep {
            initial: true,
            max_events: 1_024,
            pause_ms: 0,
            for_ms: rng.u64(100..2_000),
            end: CacheEnd::Close,
            ..of.clone()
        }));
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
    plan.faults.sort_by_key(|fault| fault.at_ms);
}

/// Which steps a plan has, and how often.
struct Mix {
    tree: u32,
    cache: u32,
    number: u32,
    value: u32,
    barrier: u32,
    double: u32,
    names: u8,
    numbers: u8,
    attempts: u32,
    promotes: bool,
    retry: Retry,
    members: u8,
    /// Whether caches stay.
    keeps: bool,
}

impl Mix {
    fn draw(rng: &mut Rng) -> Self {
        let caches = pick(rng, &[0, 2, 4]);
        Self {
            tree: if caches == 0 { 0 } else { pick(rng, &[3, 6, 10]) },
            cache: caches,
            number: pick(rng, &[0, 2, 8]),
            value: pick(rng, &[0, 2, 8]),
            barrier: pick(rng, &[0, 0, 6]),
            double: pick(rng, &[0, 0, 6]),
            names: rng.u8(1..=3),
            numbers: rng.u8(1..=3),
            attempts: pick(rng, &[0, 1, 10]),
            promotes: one_in(rng, 2),
            retry: pick(rng, &[Retry::Default, Retry::Never, Retry::ThreeTimes, Retry::Forever]),
            members: rng.u8(1..=3),
            keeps: one_in(rng, 2),
        }
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let weights = [self.tree, self.cache, self.number, self.value, self.barrier, self.double];
        let sleep = 2;
        let mut at = rng.u32(..weights.iter().sum::<u32>() + sleep);
        let kind = weights.iter().position(|weight| match at.checked_sub(*weight) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        match kind {
            Some(0) => {
                let count = if one_in(rng, 2) { 1 } else { rng.usize(2..12) };
                Step::Tree((0..count).map(|_| self.tree_step(rng)).collect())
            }
            Some(1) => Step::Cache(self.cache(rng)),
            Some(2) => Step::Atomic(self.atomic(
                rng,
                &[
                    AtomicOp::Increment,
                    AtomicOp::Decrement,
                    AtomicOp::Add,
                    AtomicOp::Add,
                    AtomicOp::Get,
                ],
            )),
            Some(3) => Step::Atomic(self.atomic(
                rng,
                &[
                    AtomicOp::TrySet,
                    AtomicOp::CompareAndSet,
                    AtomicOp::CompareAndSet,
                    AtomicOp::ForceSet,
                    AtomicOp::Initialize,
                ],
            )),
            Some(4) => Step::Barrier(self.barrier(rng)),
            Some(5) => Step::Double(self.double(rng)),
            _ => Step::Sleep { ms: rng.u64(..2_000) },
        }
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
            for_ms: if keeps { rng.u64(..1_000) } else { duration(rng) },
            end: if keeps {
                CacheEnd::Keep
            } else {
                pick(
                    rng,
                    &[CacheEnd::Close, CacheEnd::Close, CacheEnd::CancelledClose, CacheEnd::Drop],
                )
            },
        }
    }

    fn atomic(&self, rng: &mut Rng, ops: &[AtomicOp]) -> AtomicStep {
        AtomicStep {
            number: rng.u8(..self.numbers),
            op: pick(rng, ops),
            attempts: self.attempts,
            promotion_ms: (self.promotes && one_in(rng, 2)).then(|| rng.u64(..5_000)),
            retry: self.retry,
            cancel_ms: one_in(rng, 8).then(|| rng.u64(1..2_000)),
        }
    }

    fn barrier(&self, rng: &mut Rng) -> BarrierStep {
        BarrierStep {
            number: rng.u8(..self.numbers),
            op: match rng.u8(..8) {
                0 | 1 => BarrierOp::Set,
                2 => BarrierOp::Remove,
                3 => BarrierOp::Cycle,
                4 | 5 => BarrierOp::Wait,
                _ => BarrierOp::WaitFor(if one_in(rng, 4) { 0 } else { rng.u64(..20_000) }),
            },
            retry: self.retry,
            cancel_ms: if one_in(rng, 4) { rng.u64(1..2_000) } else { rng.u64(10_000..60_000) },
        }
    }

    fn double(&self, rng: &mut Rng) -> DoubleStep {
        DoubleStep {
            number: 0,
            members: self.members,
            rounds: rng.u8(1..=3),
            wait_ms: (!one_in(rng, 4)).then(|| if one_in(rng, 6) { 0 } else { rng.u64(..20_000) }),
            cancel_ms: if one_in(rng, 6) { rng.u64(1..2_000) } else { 60_000 },
            hold_ms: if one_in(rng, 4) { rng.u64(..6_000) } else { rng.u64(..200) },
            drops: one_in(rng, 6),
        }
    }
}

fn process(
    rng: &mut Rng,
    mix: &Mix,
    session_timeout_ms: u64,
    drifts: bool,
    most: u64,
) -> ProcessPlan {
    let client = ClientPlan {
        session_timeout_ms,
        request_timeout_ms: one_in(rng, 6).then(|| rng.u64(200..5_000)),
        max_requests: one_in(rng, 8).then(|| rng.usize(3..10)),
        read_only: one_in(rng, 4),
        is_dropped: one_in(rng, 8),
        waits_when_full: one_in(rng, 4),
        max_watch_events: one_in(rng, 4).then(|| rng.usize(1..4)),
        ..ClientPlan::default()
    };
    let workers = (0..rng.usize(1..=3)).map(|_| {
        let count = rng.usize(2..=14);
        (0..count).map(|_| mix.step(rng)).collect()
    });
    ProcessPlan {
        workers: workers.collect(),
        starts_at_ms: if one_in(rng, 3) { rng.u64(..most / 2) } else { rng.u64(..200) },
        drift_ppm: if drifts { rng.i64(-15_000..=15_000) } else { 0 },
        client,
        resumes: None,
    }
}

/// For how long a cache is used.
fn duration(rng: &mut Rng) -> u64 {
    match rng.u8(..8) {
        0 => rng.u64(..100),
        1..=5 => rng.u64(..4_000),
        _ => rng.u64(4_000..30_000),
    }
}
