//! The search: all schedules of a scope, those with the fewest choices other than the first one before the others.

use std::{
    collections::BTreeMap,
    fmt,
    sync::PoisonError,
    time::{Duration, Instant},
};

use super::{Schedule, Scope, parallel::thousands};
use crate::{
    faults::planted,
    run::{Outcome, Watch},
    world::director::{Choice, KnownStates},
};

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The rule.
    pub rule: String,
    /// A schedule that breaks it. None has fewer choices other than the first one.
    pub schedule: Schedule,
}

/// The result of a search, and its sums.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// The name of the scope.
    pub scope: String,
    /// The runs.
    pub schedules: u64,
    /// The different states with a move.
    pub states: usize,
    /// The scripts that were not run: 0 if the search is complete.
    pub left: usize,
    /// The rule that ended the search.
    pub found: Option<Found>,
    /// Real time.
    pub took: Duration,
}

impl Report {
    /// Whether there is no other schedule.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.left == 0 && self.found.is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (schedules, states) = (thousands(self.schedules), thousands(self.states as u64));
        write!(f, "{}: {schedules} schedules, {states} states, ", self.scope)?;
        if self.is_complete() {
            write!(f, "complete, ")?;
        } else {
            write!(f, "incomplete: {} branches left, ", thousands(self.left as u64))?;
        }
        let minutes = self.took.as_secs_f64() / 60.0;
        write!(f, "{} violations, {minutes:.1} min", u8::from(self.found.is_some()))
    }
}

/// The scripts still to run, by the number of their choices other than the first one.
#[derive(Default)]
pub(super) struct Scripts(BTreeMap<usize, Vec<Box<[u8]>>>);

impl Scripts {
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let mut first = self.0.first_entry()?;
        let script = first.get_mut().pop();
        if first.get().is_empty() {
            first.remove();
        }
        script.map(Vec::from)
    }

    fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Adds a script for each alternative behind the first `from` choices of a run.
    pub(super) fn add(&mut self, taken: &[Choice], from: usize) {
        let choices: Vec<u8> = taken.iter().map(|(choice, _)| *choice).collect();
        let deviations = choices.iter().filter(|choice| **choice > 0).count();
        for (at, (_, alternatives)) in taken.iter().enumerate().skip(from) {
            for other in 1..*alternatives {
                let script = choices[..at].iter().copied().chain([other]).collect();
                self.0.entry(deviations + 1).or_default().push(script);
            }
        }
    }
}

/// Runs all schedules of a scope until a rule is broken, or the time is over. A planted fault must break a rule of its own.
pub fn search(scope: &Scope, limit: Option<Duration>, mut progress: impl FnMut(&Report)) -> Report {
    let (start, known) = (Instant::now(), KnownStates::default());
    let watch = if scope.mistake.is_some() { Watch::with_frames() } else { Watch::default() };
    let states = || known.lock().unwrap_or_else(PoisonError::into_inner).len();
    let mut report = Report { scope: scope.name.clone(), ..Report::default() };
    let mut scripts = Scripts::default();
    let mut next = Some(Vec::new());
    while let Some(script) = next {
        let from = script.len();
        let (outcome, taken, refused) = scope.run(script, KnownStates::clone(&known), &watch);
        report.schedules += 1;
        scripts.add(&taken, from);
        (report.took, report.states) = (start.elapsed(), states());
        report.found = broken(scope, refused, &outcome, &taken);
        if report.found.is_some() || limit.is_some_and(|limit| report.took > limit) {
            break;
        }
        if report.schedules.is_multiple_of(1_000) {
            report.left = scripts.len();
            progress(&report);
        }
        next = scripts.pop();
    }
    report.left = scripts.len();
    report
}

fn broken(
    scope: &Scope,
    refused: Option<String>,
    outcome: &Outcome,
    taken: &[Choice],
) -> Option<Found> {
    let plant = scope.plan.plant.as_deref().and_then(planted::plant_named);
    let breaks = |rule: &&str| plant.is_none_or(|plant| plant.breaks(rule));
    let rule = outcome.history.violations().find(breaks).filter(|_| scope.mistake.is_none());
    let rule = rule.map(str::to_owned).or(refused)?;
    let mut choices: Vec<u8> = taken.iter().map(|(choice, _)| *choice).collect();
    // Behind its end, a script goes on with first choices.
    let end = choices.iter().rposition(|choice| *choice > 0).map_or(0, |at| at + 1);
    choices.truncate(end);
    let (scope, plant) = (scope.name.clone(), scope.plan.plant.clone());
    Some(Found { rule, schedule: Schedule { scope, plant, choices } })
}
