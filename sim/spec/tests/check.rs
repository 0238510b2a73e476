//! The specification is checked: its invariants hold in every state, and each of them is broken by a mistake.

use docent_spec::lock_internals::LockInternals;
use stateright::{Checker as _, HasDiscoveries, Model};

/// The rules that some state breaks, and the number of states.
fn broken<M>(model: M) -> (Vec<&'static str>, usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + std::fmt::Debug + std::hash::Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static,
{
    let properties = model.properties().len();
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut all: Vec<_> = checker.discoveries().into_keys().collect();
    all.sort_unstable();
    let _ = properties;
    (all, checker.unique_state_count())
}

#[test]
fn probe() {
    for (clients, attempts, cuts, renewals, is_cut) in [(2, 1, 1, 1, false), (2,2,1,0,false), (2, 1, 1, 1, true), (3, 1, 0, 0, false), (3,1,1,0,false)] {
        let start = std::time::Instant::now();
        let model = LockInternals { clients, attempts, cuts, renewals, is_cut, mistake: "" };
        println!("{clients} {attempts} {cuts} {renewals} {is_cut}: {:?} {:?}", broken(model), start.elapsed());
    }
}
