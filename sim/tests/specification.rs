//! The traces of the simulator are behaviours of the specification of `LockInternals`; a change in either is seen.

use docent_sim::exhaust::{Report, Scope, search};

fn compared(name: &str, plant: Option<&str>, mistake: &'static str) -> Report {
    let mut scope = Scope::named(name).unwrap();
    scope.plan.plant = plant.map(str::to_owned);
    scope.mistake = Some(mistake);
    let report = search(&scope, None, |_| {});
    println!("{plant:?} {mistake:?} {report}");
    report
}

fn assert_refused(report: &Report, request: &str) {
    let rule = report.found.as_ref().map(|found| found.rule.as_str()).unwrap_or_default();
    let is_refused = rule.starts_with("no step of the specification: ") && rule.contains(request);
    assert!(is_refused, "{report}: {rule}");
}

#[test]
fn each_trace_of_a_small_scope_is_a_behaviour_of_the_specification() {
    let report = compared("mutex-2", None, "");
    assert!(report.is_complete(), "{report}: {:?}", report.found);
    assert!(report.schedules > 1_000, "{report}");
}

#[test]
fn planted_faults_are_no_steps_of_the_specification() {
    for (plant, scope) in [
        ("one-guid", "mutex-2"),
        ("unknown-create-forgotten", "mutex-2-failed-1"),
        ("waiter-leaves-node", "mutex-2-give-up-1"),
    ] {
        assert_refused(&compared(scope, Some(plant), ""), "");
    }
}

#[test]
fn a_mistake_in_the_specification_is_refused_by_traces() {
    assert_refused(&compared("mutex-2", None, "holds when woken"), " holds /mutex-0 as ");
}
