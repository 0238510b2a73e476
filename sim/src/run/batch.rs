//! Runs many plans on all processors: one world per thread, the results in the order of the seeds.

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, RangeInclusive},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

use super::{self as run, Outcome, Watch};
use crate::{
    recipes::step::Plan,
    world::{
        history::{History, What},
        lock::lock,
    },
};

/// Makes the plan of a seed.
pub type Planner = Arc<dyn Fn(u64) -> Plan + Send + Sync>;

/// How a batch is run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The number of threads.
    pub threads: usize,
    /// Real time after which a seed counts as hanging. No virtual limit ends a loop inside one poll.
    pub hang_after: Duration,
    /// Whether each outcome keeps its whole history, not only the broken rules.
    pub keeps_histories: bool,
    /// Whether histories have requests, replies and events too.
    pub shows_frames: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: thread::available_parallelism().map_or(1, usize::from),
            hang_after: Duration::from_secs(60),
            keeps_histories: false,
            shows_frames: false,
        }
    }
}

/// The sums of a batch.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Totals {
    /// The seeds that were run.
    pub seeds: u64,
    /// Their faults.
    pub faults: usize,
    /// Their virtual time.
    pub virtual_time: Duration,
    /// The rules that were broken.
    pub violations: usize,
    /// The number of seeds in which each excuse was used.
    pub excuses: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// Adds an outcome.
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.faults += outcome.faults;
        self.virtual_time += outcome.virtual_time;
        self.violations += outcome.history.violations().count();
        for excuse in outcome.history.excuses() {
            *self.excuses.entry(excuse).or_default() += 1;
        }
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hours = self.virtual_time.as_secs_f64() / 3_600.0;
        let Self { seeds, faults, violations, .. } = self;
        write!(
            f,
            "{seeds} seeds, {faults} faults, {hours:.1} virtual hours, {violations} violations"
        )
    }
}

/// The seed that a thread is running.
type Current = Arc<Mutex<Option<(u64, Instant, Watch)>>>;

/// Runs the plans of these seeds and calls `each` with the outcomes, in the order of the seeds. Ends early if `each`
/// breaks, or if a seed hangs: its outcome is the last one then, and its thread is left behind.
pub fn run(
    seeds: RangeInclusive<u64>,
    planner: &Planner,
    options: Options,
    mut each: impl FnMut(u64, Outcome) -> ControlFlow<()>,
) -> Totals {
    let (first, last) = seeds.into_inner();
    let Some(after_first) = last.checked_sub(first) else { return Totals::default() };
    let next = Arc::new(AtomicU64::new(0));
    let (sender, outcomes) = channel();
    let mut workers = Vec::new();
    for _ in 0..options.threads.max(1) {
        let (next, planner, sender) = (Arc::clone(&next), Arc::clone(planner), sender.clone());
        let current = Current::default();
        workers.push(Arc::clone(&current));
        thread::spawn(move || {
            loop {
                let offset = next.fetch_add(1, Ordering::Relaxed);
                if offset > after_first {
                    return;
                }
                let seed = first + offset;
                let frames = options.shows_frames;
                let watch = if frames { Watch::with_frames() } else { Watch::default() };
                *lock(&current) = Some((seed, Instant::now(), watch.clone()));
                let mut outcome = run::run_watched(&planner(seed), &watch);
                *lock(&current) = None;
                if !options.keeps_histories {
                    outcome.history.keep_judgement();
                }
                if sender.send((seed, outcome)).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut totals = Totals::default();
    let mut early = BTreeMap::new();
    let mut seed = first;
    loop {
        let hanging = match outcomes.recv_timeout(Duration::from_millis(500)) {
            Ok((seed, outcome)) => {
                early.insert(seed, outcome);
                None
            }
            Err(_) => hanging(&workers, options.hang_after),
        };
        while let Some(outcome) = early.remove(&seed) {
            totals.add(&outcome);
            if each(seed, outcome).is_break() || seed == last {
                // No further seed is begun.
                next.store(after_first, Ordering::Relaxed);
                next.fetch_add(1, Ordering::Relaxed);
                return totals;
            }
            seed += 1;
        }
        if let Some((hanging, outcome)) = hanging {
            early.insert(hanging, outcome);
            for (seed, outcome) in early {
                totals.add(&outcome);
                let _ = each(seed, outcome);
            }
            return totals;
        }
    }
}

/// A seed that takes too long, with the history of its world so far.
fn hanging(workers: &[Current], hang_after: Duration) -> Option<(u64, Outcome)> {
    for current in workers {
        let Some((seed, since, watch)) = lock(current).clone() else { continue };
        if since.elapsed() < hang_after {
            continue;
        }
        let mut history = watch.history().unwrap_or_default();
        let at = history.records.last().map_or(0, |record| record.at);
        let text = format!("hang: a poll did not end within {} s", hang_after.as_secs());
        history.push(at, What::Violation(text));
        return Some((
            seed,
            Outcome { history, faults: 0, virtual_time: Duration::from_nanos(at) },
        ));
    }
    None
}

impl History {
    /// Drops all records except broken rules and counted effects.
    fn keep_judgement(&mut self) {
        let is_kept = |what: &What| matches!(what, What::Violation(_) | What::Counted { .. });
        self.records.retain(|record| is_kept(&record.what));
    }
}
