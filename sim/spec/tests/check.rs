//! The specifications are checked: their invariants hold in every state, and each of them is broken by a mistake.

use std::{fmt::Debug, hash::Hash};

use docent_spec::{lock_internals::LockInternals, strict_mutex::StrictMutex};
use stateright::{Checker as _, Expectation, HasDiscoveries, Model, Property};

/// The rules that some state breaks, and the number of states. Each `sometimes` must have been seen.
fn broken<M>(model: M) -> (Vec<&'static str>, usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (found, properties) = (checker.discoveries(), checker.model().properties());
    let is_broken = |property: &Property<M>| {
        found.contains_key(property.name) == (property.expectation == Expectation::Always)
    };
    let mut broken: Vec<_> =
        properties.iter().filter(|of| is_broken(of)).map(|of| of.name).collect();
    if broken.len() > 1 {
        // A search that has found a broken invariant has not seen all states.
        broken.retain(|name| found.contains_key(name));
    }
    (broken, checker.unique_state_count())
}

#[test]
fn lock_internals_keeps_its_invariants() {
    // Clients, attempts, connections that break, sessions that begin, and whether the ensemble is cut.
    for (clients, attempts, cuts, renewals, is_cut) in
        [(2, 1, 1, 1, false), (2, 1, 0, 1, true), (3, 1, 0, 0, false)]
    {
        let mistake = "";
        let model = LockInternals { clients, attempts, cuts, renewals, is_cut, mistake };
        let (broken, states) = broken(model);
        println!("{clients} {attempts} {cuts} {renewals} {is_cut}: {states} states");
        assert_eq!(broken, Vec::<&str>::new());
    }
}

#[test]
fn each_mistake_in_lock_internals_breaks_an_invariant() {
    let one_holder = "at most one client holds, unless the ensemble is cut";
    let proven = "at most one client holds within its proven bound";
    let first = "a proven holder has the first node of the queue";
    let left = "each node has an attempt that will delete it, or its session is over";
    let woken = "nobody waits for a node that is gone, unless an event is on its way or the session is over";
    for (mistake, clients, rules) in [
        ("claims after the listing", 2, [first, one_holder, proven]),
        ("holds when woken", 2, [first, one_holder, proven]),
        ("holds when the node ahead is missing", 3, [first, one_holder, proven]),
        ("gives up without a search", 2, [left; 3]),
        ("deletes only once", 2, [left; 3]),
        ("waits for a missing node", 2, [woken; 3]),
    ] {
        let (cuts, renewals) = if clients == 2 { (1, 1) } else { (0, 0) };
        let model = LockInternals { clients, attempts: 1, cuts, renewals, is_cut: false, mistake };
        let (broken, states) = broken(model);
        println!("{mistake}: {broken:?} after {states} states");
        assert!(broken.iter().any(|rule| rules.contains(rule)), "{mistake}: {broken:?}");
    }
}

/// What a plain hold does not promise: on a cut ensemble, two clients may hold the lock.
#[test]
fn two_plain_holds_overlap_on_a_cut_ensemble() {
    let model = LockInternals {
        clients: 2,
        attempts: 1,
        renewals: 1,
        is_cut: true,
        ..LockInternals::default()
    };
    // The same behaviours, judged as if no ensemble were ever cut.
    let overlap = |state: &docent_spec::lock_internals::State| state.holders(false).count() > 1;
    let mut new = model.init_states();
    let mut known = std::collections::HashSet::new();
    let mut overlaps = false;
    while let Some(state) = new.pop().filter(|_| !overlaps) {
        overlaps = overlap(&state);
        new.extend(model.next_states(&state).into_iter().filter(|next| known.insert(next.clone())));
    }
    assert!(overlaps, "{} states", known.len());
}

#[test]
fn strict_mutex_keeps_its_invariants() {
    for (clients, acquires, time) in [(2, 3, 5), (3, 3, 2)] {
        let (broken, states) =
            broken(StrictMutex { clients, acquires, time, claim: 2, mistake: "" });
        println!("{clients} {acquires} {time}: {states} states");
        assert_eq!(broken, Vec::<&str>::new());
    }
}

#[test]
fn each_mistake_in_strict_mutex_breaks_an_invariant() {
    let (one, again) = (
        "at most one client holds within its claim",
        "a claim that has ended does not begin again",
    );
    let rise = "fencing tokens rise from holder to holder";
    for (mistake, rule) in [
        ("waits for half of the claim", one),
        ("counts the claim from the reply", one),
        ("renews a claim that has ended", again),
        ("renews without its node", rise),
        ("acts out of turn", rise),
    ] {
        let (broken, states) =
            broken(StrictMutex { clients: 2, acquires: 2, time: 5, claim: 2, mistake });
        println!("{mistake}: {broken:?} after {states} states");
        assert_eq!(broken, [rule], "{mistake}");
    }
}
