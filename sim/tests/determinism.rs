//! A seed decides everything: its history is the same alone, in a batch, in any process, on any number of threads, and
//! on any machine.

use std::{fs, path::Path, process::Command};

use docent_sim::{Plan, run};

/// The standard output of the command, whose exit code must be 0.
fn output(arguments: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_docent-sim"));
    let output = command.args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The output of a run without the sums.
fn histories(output: &str) -> &str {
    output.trim_end().rsplit_once('\n').unwrap().0
}

#[test]
fn two_processes_give_equal_histories_with_one_thread_and_with_two() {
    let one = output("--seeds 1..40 --trace --threads 1");
    assert!(one.lines().count() > 40 * 50, "{} lines", one.lines().count());
    assert!(one == output("--seeds 1..40 --trace --threads 1"), "two processes differ");
    assert!(one == output("--seeds 1..40 --trace --threads 2"), "two threads differ from one");
}

#[test]
fn a_seed_gives_the_same_history_alone_and_in_a_batch() {
    let alone = output("--seed 17 --trace");
    let batch = output("--seeds 10..20 --trace");
    assert!(histories(&alone).lines().count() > 50);
    assert!(histories(&batch).contains(histories(&alone)));
    assert!(histories(&output("--seed 16 --trace")) != histories(&alone), "another seed differs");
}

/// The hash was stored by another machine. It changes when docent sends other frames, or at other times, and when the
/// simulator draws in another order: then, after a look at the difference, store the new one with
/// `DOCENT_BLESS=1 cargo test --test simulator determinism`, run in `sim/`.
#[test]
fn a_fixed_plan_gives_the_stored_history() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let plan = Plan::from_ron(&fs::read_to_string(directory.join("fixed.ron")).unwrap()).unwrap();
    let outcome = run::run(&plan);
    let lines = outcome.history.records.len();
    assert!(outcome.is_good() && lines > 20, "{}", outcome.history);
    let now = format!("{:016x} {lines} lines\n", outcome.history.hash());
    let file = directory.join("fixed.hash");
    if std::env::var_os("DOCENT_BLESS").is_some() {
        fs::write(&file, &now).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(now, stored, "the history has changed:\n{}", outcome.history);
}
