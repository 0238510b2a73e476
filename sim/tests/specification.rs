//! The traces of the simulator are behaviours of the specifications of `LockInternals` and `StrictMutex`; a change in either
//! is seen.

use docent_sim::exhaust::{Report, Scope, search};

fn compared(name: &str, plant: Option<&str>, mistake: &'static str) -> Report {
    let mut scope = Scope::named(name).unwrap();
    scope.plan.plant = plant.map(str::to_owned);
    scope.mistake = Some(mistake);
    let report = search(&scope, None, |_| {});
    println!("{plant:?} {mistake:?} {report}");
    report
}

fn assert_refused(report: &Report, record: &str) {
    let rule = report.found.as_ref().map(|found| found.rule.as_str()).unwrap_or_default();
    let is_refused = rule.starts_with("no step of the specification: ") && rule.contains(record);
    assert!(is_refused, "{report}: {rule}");
}

#[test]
fn each_trace_of_a_small_scope_is_a_behaviour_of_the_specification() {
    for scope in ["mutex-2", "strict-1-pause-1"] {
        let report = compared(scope, None, "");
        assert!(report.is_complete(), "{report}: {:?}", report.found);
        assert!(report.schedules > 1_000, "{report}");
    }
}

#[test]
fn planted_faults_are_no_steps_of_the_specification() {
    for (plant, scope, record) in [
        ("one-guid", "mutex-2", ""),
        ("unknown-create-forgotten", "mutex-2-failed-1", ""),
        ("waiter-leaves-node", "mutex-2-give-up-1", ""),
        ("strict-waits-half", "strict-2-held", "NodeDataChanged /strict-0;"),
        ("strict-clean-early", "strict-2-expiry-1", "NodeDataChanged /strict-0;"),
        ("strict-from-receipt", "strict-2-expiry-1", " is held until "),
        ("strict-revived", "strict-1-pause-1", " is held until "),
        ("strict-without-drift", "strict-2-expiry-1", " is held until "),
        ("strict-grant-from-reply", "strict-2-grant-late-1", " is held until "),
    ] {
        assert_refused(&compared(scope, Some(plant), ""), record);
    }
}

#[test]
fn a_mistake_in_the_specification_is_refused_by_traces() {
    assert_refused(&compared("mutex-2", None, "holds when woken"), " holds /mutex-0 as ");
    assert_refused(&compared("strict-1-pause-1", None, "renews nothing"), " is held until ");
}
