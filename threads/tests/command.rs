//! The command: its quick part, its planted faults, a schedule that is run again, and wrong usage.

use std::process::{Command, Output};

fn run(arguments: &str) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_docent-threads"));
    let output = command.args(arguments.split_whitespace()).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

#[test]
fn the_quick_part_finds_nothing() {
    let (output, text) = run("--quick");
    assert!(output.status.success(), "{text}");
    assert_eq!(text.lines().count(), 14, "{text}");
    assert!(
        text.lines().all(|line| line.contains(" preemptions, complete, 0 failures, ")),
        "{text}"
    );
}

#[test]
fn the_planted_faults_are_found_without_luck() {
    let (output, text) = run("--plants");
    assert!(output.status.success(), "{text}");
    let failures = [
        ("lock-order-inverted", "deadlock!"),
        ("slot-released-twice", "a slot is released twice"),
        ("wake-up-lost", "deadlock!"),
    ];
    for (plant, failure) in failures {
        let found = text.lines().find(|line| line.contains(plant)).unwrap();
        assert!(found.contains(failure), "{found}");
    }
}

#[test]
fn a_schedule_that_fails_is_kept_and_fails_again() {
    let (output, text) = run("wake-up-while-task-sleeps --plant wake-up-lost --random 0");
    assert_eq!(output.status.code(), Some(1), "{text}");
    let file = text.split_once("--schedule ").unwrap().1.split_once(')').unwrap().0;
    let (output, text) = run(&format!("--schedule {file}"));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("wake-up-while-task-sleeps: deadlock!"), "{text}");
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    for arguments in ["no-scenario", "--plant no-fault", "--schedule no-file", "--quick --plants=1"]
    {
        let (output, text) = run(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments}: {text}");
    }
}
