//! The search through all orders: it ends, and it finds a planted fault without a seed.

use std::process::{Command, Output};

use docent_sim::exhaust::{Scope, search};

fn run(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_docent-sim"));
    command.arg("exhaust").args(arguments.split_whitespace()).output().unwrap()
}

#[test]
fn a_small_scope_is_complete_and_a_planted_fault_in_it_is_found() {
    let report = search(&Scope::named("mutex-1-late-1").unwrap(), None, |_| {});
    assert!(report.is_complete() && report.states > 1_000, "{report}: {:?}", report.found);
    assert!(report.to_string().contains(" states, complete, 0 violations, "), "{report}");

    let mut scope = Scope::named("mutex-2").unwrap();
    scope.plan.plant = Some("granted-late".to_owned());
    let report = search(&scope, None, |_| {});
    let found = report.found.as_ref().expect("a broken rule");
    assert!(found.rule.contains("is free, but not granted"), "{found:?}");
    assert!(!report.is_complete() && report.to_string().contains(" branches left, 1 violations, "));
    let (outcome, diagram) = found.schedule.run().unwrap();
    assert!(outcome.history.violations().any(|rule| rule == found.rule), "{}", outcome.history);
    assert!(diagram.contains("VIOLATION"), "{diagram}");
}

#[test]
fn the_scopes_find_their_planted_faults() {
    let output = run("--plants");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.ends_with("\n0 planted faults were not found\n"),
        "{text}"
    );
    assert!(text.lines().count() > 70, "{text}");
}

#[test]
fn wrong_usage_is_one_line_and_64() {
    let cases = [
        ("mutex-9", "no scope is called `mutex-9`; sim/scopes has atomic-promotion-2, "),
        ("--schedule missing.ron", "missing.ron: No such file"),
        ("--budget 0", "a number of minutes above 0 is expected"),
        ("--plant nothing", "no planted fault has this name"),
    ];
    for (arguments, text) in cases {
        let output = run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{error}");
        assert!(error.starts_with("cargo xtask exhaust: ") && error.contains(text), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
