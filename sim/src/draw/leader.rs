//! Draws elections, kept nodes and groups.
//!
//! The draws have a generator of their own: the plans without them stay what they were.

use fastrand::Rng;

use super::{FAULTY_MS, add_faults, one_in, pick};
use crate::plan::{
    ClientPlan, CloseKind, HoldWatch, KeepMode, KeepStep, LeadBy, LeadSettings, LeadStep, Plan,
    ProcessPlan, Retry, Step,
};

/// Adds elections to one of two plans, in half of them instead of everything else.
pub(super) fn add(plan: &mut Plan) -> bool {
    let mut rng = Rng::with_seed(plan.seed ^ 0x1EAD_E51E_AD0F_A11E);
    let rng = &mut rng;
    let share = rng.u8(..4);
    if share > 1 {
        return false;
    }
    if share == 0 {
        plan.processes.clear();
        plan.faults.clear();
        plan.peace_at_ms = pick(rng, &[8_000, 20_000, FAULTY_MS]);
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
    latch: u32,
    selector: u32,
    kept: u32,
    member: u32,
    deletes: u32,
    elections: u8,
    nodes: u8,
    settings: LeadSettings,
    closes: bool,
}

impl Mix {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            latch: pick(rng, &[0, 4, 8]),
            selector: pick(rng, &[0, 2, 8]),
            kept: pick(rng, &[0, 2, 6]),
            member: pick(rng, &[0, 0, 4]),
            deletes: pick(rng, &[0, 0, 1]),
            elections: pick(rng, &[1, 1, 2]),
            nodes: rng.u8(1..=4),
            settings: LeadSettings {
                retry: retry(rng),
                keeps_over_cuts: one_in(rng, 2),
                notifies: one_in(rng, 2),
                namespaced: one_in(rng, 8),
                renew_ms: None,
            },
            closes: one_in(rng, 2),
        }
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let sleep = 2;
        let total = self.latch + self.selector + self.kept + self.member + self.deletes + sleep;
        let mut at = rng.u32(..total);
        let mut is = |weight: u32| match at.checked_sub(weight) {
            Some(rest) => {
                at = rest;
                false
            }
            None => {
                at = u32::MAX;
                true
            }
        };
        if is(self.latch) {
            return Step::Lead(self.lead(rng, LeadBy::Latch));
        }
        if is(self.selector) {
            let by = if rng.bool() { LeadBy::Selector } else { LeadBy::Requeued(rng.u8(1..=5)) };
            return Step::Lead(self.lead(rng, by));
        }
        if is(self.kept) {
            let mode = match rng.u8(..12) {
                0..=1 => KeepMode::Persistent,
                2 => KeepMode::PersistentSequential,
                3..=6 => KeepMode::Ephemeral,
                7 => KeepMode::EphemeralSequential,
                8 => KeepMode::Container,
                9 => KeepMode::Ttl(rng.u64(1_000..10_000)),
                _ => KeepMode::Touched(rng.u64(2_000..10_000)),
            };
            return Step::Keep(self.keep(rng, mode));
        }
        if is(self.member) {
            return Step::Keep(self.keep(rng, KeepMode::Member));
        }
        if is(self.deletes) {
            return if rng.bool() {
                Step::DeleteLeader { election: rng.u8(..self.elections) }
            } else {
                Step::DeleteKept { node: rng.u8(..self.nodes) }
            };
        }
        Step::Sleep { ms: rng.u64(..2_000) }
    }

    fn lead(&self, rng: &mut Rng, by: LeadBy) -> LeadStep {
        LeadStep {
            election: rng.u8(..self.elections),
            by,
            options: LeadSettings { retry: self.settings.retry, ..self.settings },
            for_ms: duration(rng),
            term_ms: if one_in(rng, 4) { rng.u64(..8_000) } else { rng.u64(..300) },
            watch: pick(rng, &[HoldWatch::Nothing, HoldWatch::Lost, HoldWatch::Token]),
            cancel_ms: one_in(rng, 4).then(|| rng.u64(1..2_000)),
            writes: if one_in(rng, 2) { rng.u8(1..4) } else { 0 },
            end: self.end(rng),
        }
    }

    fn keep(&self, rng: &mut Rng, mode: KeepMode) -> KeepStep {
        KeepStep {
            node: rng.u8(..self.nodes),
            mode,
            protected: one_in(rng, 4),
            adopts: one_in(rng, 4),
            without_parents: one_in(rng, 16),
            retry: self.settings.retry,
            for_ms: duration(rng),
            sets: if one_in(rng, 2) { rng.u8(1..8) } else { 0 },
            end: self.end(rng),
        }
    }

    fn end(&self, rng: &mut Rng) -> CloseKind {
        if self.closes {
            return CloseKind::Close;
        }
        match rng.u8(..8) {
            0 => CloseKind::CloseTwice,
            1 => CloseKind::CancelledClose,
            2 => CloseKind::Drop,
            3 => CloseKind::Keep,
            _ => CloseKind::Close,
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
        ..ClientPlan::default()
    };
    let mut workers: Vec<Vec<Step>> = (0..rng.usize(1..=3))
        .map(|_| {
            let count = rng.usize(1..=6);
            (0..count).map(|_| mix.step(rng)).collect()
        })
        .collect();
    if one_in(rng, 2) {
        // What is kept, or left behind, is seen for a while.
        workers.push(vec![Step::Sleep { ms: rng.u64(most..most + 60_000) }]);
    }
    ProcessPlan {
        starts_at_ms: if one_in(rng, 3) { rng.u64(..most / 2) } else { rng.u64(..200) },
        drift_ppm: if drifts { rng.i64(-15_000..=15_000) } else { 0 },
        client,
        resumes: None,
        workers,
    }
}

/// For how long something is open: sometimes beyond the peace.
fn duration(rng: &mut Rng) -> u64 {
    match rng.u8(..8) {
        0 => rng.u64(..100),
        1..=4 => rng.u64(..4_000),
        5..=6 => rng.u64(4_000..20_000),
        _ => rng.u64(20_000..90_000),
    }
}

fn retry(rng: &mut Rng) -> Retry {
    pick(rng, &[Retry::Default, Retry::Default, Retry::Never, Retry::ThreeTimes, Retry::Forever])
}
