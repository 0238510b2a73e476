//! Draws registrations of instances, and searches for them.
//!
//! The draws have a generator of their own: the plans without them stay what they were.

use fastrand::Rng;

use super::{FAULTY_MS, add_faults, one_in, pick};
use crate::plan::{
    CacheEnd, ClientPlan, FindStep, Plan, ProcessPlan, Retry, ServeEnd, ServeKind, ServeStep, Step,
    Strategy,
};

/// Adds discovery to one of five plans, in half of them instead of everything else. Returns whether it did.
pub(super) fn add(plan: &mut Plan) -> bool {
    let mut rng = Rng::with_seed(plan.seed ^ 0xD15C_04E2_1D15_C04E);
    let rng = &mut rng;
    let share = rng.u8(..10);
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
    true
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
            retry: pick(rng, &[Retry::Default, Retry::Never, Retry::ThreeTimes, Retry::Forever]),
            waits: one_in(rng, 2),
            keeps: !one_in(rng, 3),
        }
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let sleep = 1;
        let at = rng.u32(..self.serve + self.find + sleep);
        if at < self.serve {
            return Step::Serve(self.serve(rng));
        }
        if at < self.serve + self.find {
            return Step::Find(self.find(rng));
        }
        Step::Sleep { ms: rng.u64(..2_000) }
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
            end: if keeps {
                CacheEnd::Keep
            } else {
                pick(rng, &[CacheEnd::Close, CacheEnd::CancelledClose, CacheEnd::Drop])
            },
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
        let count = rng.usize(1..=7);
        (0..count).map(|_| mix.step(rng)).collect()
    });
    let mut workers: Vec<Vec<Step>> = workers.collect();
    if one_in(rng, 2) {
        // What stays registered, or is left behind, is seen for a while.
        workers.push(vec![Step::Sleep { ms: rng.u64(most..most + 60_000) }]);
    }
    ProcessPlan {
        workers,
        starts_at_ms: if one_in(rng, 3) { rng.u64(..most / 2) } else { rng.u64(..200) },
        drift_ppm: if drifts { rng.i64(-15_000..=15_000) } else { 0 },
        client,
        resumes: None,
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
