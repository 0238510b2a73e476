//! Draws plans: servers, network, clients and processes, for all recipes.
//!
//! Swarm testing: each plan has only some kinds of steps and faults, so that the rare ones meet. Each part of a plan
//! has its own generator, made from the seed and the part's name: a new recipe does not change what the others draw.

use fastrand::Rng;

use super::{ClientPlan, NetworkPlan, Plan, ProcessPlan, ServersPlan};
use crate::faults::draw::{one_in, pick};

/// The longest time with faults.
const FAULTY_MS: u64 = 40_000;

/// The generator of a part of a plan.
pub(crate) fn generator(seed: u64, part: &str) -> Rng {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    Rng::with_seed(seed ^ part.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// A plan without processes and faults.
pub(crate) fn empty<S>(seed: u64, rng: &mut Rng) -> Plan<S> {
    Plan {
        seed,
        servers: ServersPlan {
            count: if one_in(rng, 3) { 1 } else { 3 },
            tick_ms: pick(rng, &[200, 500, 1_000]),
            sync_limit: pick(rng, &[3, 5]),
            container_check_ms: pick(rng, &[1_000, 60_000]),
            election_ms: pick(rng, &[0, 0, 0, 200, 1_500]),
            min_session_timeout_ms: None,
            max_session_timeout_ms: one_in(rng, 6).then(|| rng.u64(2_000..8_000)),
            local_sessions: one_in(&mut generator(seed, "local-sessions"), 8),
            reconfig: false,
            // 3.5 has no addWatch (106); 3.4 has no create2 (15), containers and removeWatches (18) either.
            version: one_in(rng, 4).then(|| pick(rng, &["3.4", "3.5", "3.5"]).to_owned()),
        },
        network: NetworkPlan {
            delay_us: pick(rng, &[50, 500, 5_000]),
            spikes_one_in: pick(rng, &[0, 0, 200, 30]),
            short_one_in: pick(rng, &[0, 0, 20, 3]),
        },
        puts_off_one_in: pick(rng, &[0, 0, 50, 8]),
        // An eighth of the plans has hardly any fault, for the rules of what must not end without a cause.
        peace_at_ms: if one_in(rng, 8) {
            1_500
        } else {
            pick(rng, &[20_000, FAULTY_MS, FAULTY_MS, FAULTY_MS])
        },
        processes: Vec::new(),
        faults: Vec::new(),
        plant: None,
    }
}

/// Settings that the processes of a plan share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Whether only one recipe takes part.
    pub(crate) is_alone: bool,
    /// The number of servers.
    pub(crate) members: usize,
    /// The end of all faults.
    pub(crate) peace_at_ms: u64,
    session_timeout_ms: u64,
    drifts: bool,
}

impl Setting {
    pub(crate) fn draw<S>(rng: &mut Rng, plan: &Plan<S>, is_alone: bool) -> Self {
        Self {
            is_alone,
            members: plan.servers.count,
            peace_at_ms: plan.peace_at_ms,
            session_timeout_ms: pick(rng, &[4_000, 6_000, 10_000]),
            drifts: one_in(rng, 3),
        }
    }

    /// The number of processes of a recipe.
    pub(crate) fn processes(&self, rng: &mut Rng) -> usize {
        if self.is_alone { rng.usize(2..=5) } else { rng.usize(2..=3) }
    }

    /// The settings of a client with which every recipe works.
    pub(crate) fn client(&self, rng: &mut Rng) -> ClientPlan {
        ClientPlan {
            session_timeout_ms: self.session_timeout_ms,
            request_timeout_ms: one_in(rng, 5).then(|| rng.u64(200..5_000)),
            max_requests: one_in(rng, 6).then(|| rng.usize(3..10)),
            read_only: one_in(rng, 5),
            is_dropped: one_in(rng, 6),
            ..ClientPlan::default()
        }
    }

    /// The settings of a client of a recipe that works with limited queues too.
    pub(crate) fn queueing_client(&self, rng: &mut Rng) -> ClientPlan {
        ClientPlan {
            waits_when_full: one_in(rng, 4),
            max_watch_events: one_in(rng, 4).then(|| rng.usize(1..4)),
            ..self.client(rng)
        }
    }

    /// A process that starts in the first half of the time before the peace.
    pub(crate) fn process<S>(
        &self,
        rng: &mut Rng,
        client: ClientPlan,
        workers: Vec<Vec<S>>,
    ) -> ProcessPlan<S> {
        let late = self.peace_at_ms / 2;
        ProcessPlan {
            starts_at_ms: if one_in(rng, 3) { rng.u64(..late) } else { rng.u64(..200) },
            drift_ppm: if self.drifts { rng.i64(-15_000..=15_000) } else { 0 },
            client,
            resumes: None,
            workers,
        }
    }
}

/// Draws the workers of a process, each with a number of steps in this range.
pub(crate) fn workers<S>(
    rng: &mut Rng,
    steps: std::ops::RangeInclusive<usize>,
    mut step: impl FnMut(&mut Rng) -> S,
) -> Vec<Vec<S>> {
    let mut worker = |rng: &mut Rng| (0..rng.usize(steps.clone())).map(|_| step(rng)).collect();
    (0..rng.usize(1..=3)).map(|_| worker(rng)).collect()
}

/// Draws one of these by their weights.
pub(crate) fn weighted<T: Copy>(rng: &mut Rng, choices: &[(u32, T)]) -> T {
    let mut at = rng.u32(..choices.iter().map(|(weight, _)| *weight).sum::<u32>());
    let chosen = choices.iter().find(|(weight, _)| {
        let is_it = at < *weight;
        at = at.saturating_sub(*weight);
        is_it
    });
    chosen.expect("a choice with a weight").1
}
