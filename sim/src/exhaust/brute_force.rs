//! What tests compare the search with.

use std::collections::HashSet;

use super::{Scope, search::Scripts};
use crate::{
    run::Watch,
    world::{director::KnownStates, lock::lock},
};

/// The states that the search meets, with both orders of moves that commute, or one.
#[must_use]
pub fn searched_states(scope: &Scope, leaves_nothing_out: bool) -> HashSet<u64> {
    let watch = if scope.mistake.is_some() { Watch::with_frames() } else { Watch::default() };
    let (known, mut scripts) = (KnownStates::default(), Scripts::default());
    let mut next = Some(Vec::new());
    while let Some(script) = next {
        let from = script.len();
        let mut director = scope.director(script, KnownStates::clone(&known));
        director.leaves_nothing_out = leaves_nothing_out;
        let (_, director) = scope.run_directed(director, &watch);
        scripts.add(&director.taken, from);
        next = scripts.pop();
    }
    let known = lock(&known);
    known.clone()
}

/// The states of all schedules, and their number, without a memory of other runs and with both orders of moves that commute.
///
/// # Panics
///
/// If a rule is broken.
#[must_use]
pub fn states_of_every_schedule(scope: &Scope) -> (HashSet<u64>, usize) {
    let (mut met, mut count, mut scripts) = (HashSet::new(), 0, Scripts::default());
    let mut next = Some(Vec::new());
    while let Some(script) = next {
        let from = script.len();
        let known = KnownStates::default();
        let mut director = scope.director(script, KnownStates::clone(&known));
        director.leaves_nothing_out = true;
        let (outcome, director) = scope.run_directed(director, &Watch::default());
        assert!(outcome.is_good(), "{}", outcome.history);
        met.extend(lock(&known).iter());
        scripts.add(&director.taken, from);
        (next, count) = (scripts.pop(), count + 1);
    }
    (met, count)
}

/// The states and the moves of one schedule, in their order. What a move concerns is text; `World`: a fault.
///
/// # Panics
///
/// If a rule is broken.
#[must_use]
pub fn states_and_moves(scope: &Scope, script: Vec<u8>) -> Vec<(u64, String)> {
    let mut director = scope.director(script, KnownStates::default());
    director.path = Some(Vec::new());
    let (outcome, director) = scope.run_directed(director, &Watch::default());
    assert!(outcome.is_good(), "{}", outcome.history);
    let path = director.path.into_iter().flatten();
    path.map(|(state, place)| (state, format!("{place:?}"))).collect()
}
