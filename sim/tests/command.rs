//! The command line: what is printed, and the exit codes.

use std::{
    fs,
    ops::ControlFlow,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use docent_sim::{
    Plan,
    recipes::draw,
    run::batch::{self, Options, Planner},
};

fn run(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_docent-sim"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn last_line(output: &Output) -> &str {
    stdout(output).lines().last().unwrap_or_default()
}

/// A file with this text, removed on drop.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("docent-sim-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn name(&self) -> std::path::Display<'_> {
        self.0.display()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_last_line_has_the_sums() {
    let output = run("--seeds 1..3");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output).lines().count(), 1, "{output:?}");
    let words: Vec<_> = last_line(&output).split(' ').collect();
    let [seeds, "seeds,", faults, "faults,", hours, "virtual", "hours,", "0", "violations"] =
        words[..]
    else {
        panic!("{words:?}")
    };
    assert_eq!(seeds, "3");
    assert!(faults.parse::<usize>().unwrap() > 10);
    assert_eq!(hours.split_once('.').unwrap().1.len(), 1, "{hours}");
    assert_only_counts(&output);
}

/// Standard error has the excuses, and no progress without a terminal.
fn assert_only_counts(output: &Output) {
    let text = std::str::from_utf8(&output.stderr).unwrap();
    assert!(text.lines().all(|line| line.starts_with("cargo xtask sim: excused in ")), "{text}");
}

#[test]
fn overlaps_on_a_cut_ensemble_are_counted_and_no_violations() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/overlap-on-a-cut-ensemble.ron");
    let output = run(&format!("--scenario {scenario}"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("excused in 1 seeds by members without each other"), "{text}");
}

/// The seed decides delays only: each of these plans cuts the holder's server off the others.
#[test]
fn a_batch_with_cuts_counts_its_overlaps() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/overlap-on-a-cut-ensemble.ron");
    let plan = Plan::from_ron(&fs::read_to_string(file).unwrap()).unwrap();
    let planner: Planner = Arc::new(move |seed| Plan { seed, ..plan.clone() });
    let each = |_, _| ControlFlow::Continue(());
    let totals = batch::run(1..=20, &planner, Options::default(), each);
    assert!(totals.excuses["members without each other"] > 0, "{totals:?}");
    assert_eq!((totals.seeds, totals.violations), (20, 0), "{totals:?}");
}

#[test]
fn wrong_usage_is_one_line_and_64() {
    let broken = File::new("broken.ron", "(\n  seed: x,\n)\n");
    let unknown = File::new("unknown.ron", "(seed: 1, wrong: 2)");
    for arguments in [
        "--bogus",
        "surplus",
        "--seed x",
        "--seed -1",
        "--seed",
        "--seeds 7",
        "--seeds 1..",
        "--seeds 9..1",
        "--seeds 1..x",
        "--threads 0",
        "--plant nothing",
        "--servers 3.3",
        "--shrink x",
        "--seed 1 --seeds 1..2",
        "--scenario /does/not/exist.ron",
        &format!("--scenario {}", broken.name()),
        &format!("--scenario {}", unknown.name()),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments}: {output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.ends_with('\n') && text.lines().count() == 1, "{arguments}: {text}");
    }
    let text = String::from_utf8(run(&format!("--scenario {}", broken.name())).stderr).unwrap();
    assert!(text.contains(&format!("{}:2:", broken.name())), "the place is named: {text}");
}

#[test]
fn help_and_the_list_of_plants_are_no_errors() {
    for arguments in ["--help", "--list-plants"] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        assert!(stdout(&output).lines().count() >= 12, "{arguments}");
    }
}

#[test]
fn a_broken_rule_names_its_seed_and_what_replays_it() {
    let output = run("--seeds 1..3 --plant lease-too-short");
    assert_eq!(output.status.code(), Some(1));
    let first = stdout(&output).lines().next().unwrap();
    assert!(first.starts_with("seed 1: "), "{first}");
    let replay = "(replay: cargo xtask sim --seed 1 --plant lease-too-short --trace)";
    assert!(first.ends_with(replay), "{first}");
    assert!(!last_line(&output).ends_with(" 0 violations"), "{output:?}");
}

#[test]
fn panics_and_livelocks_are_broken_rules() {
    let output = run("--seeds 1..2 --plant panic");
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("seed 1: panic: as planted at src/faults/planted.rs:"));
    assert_only_counts(&output);
    let output = run("--seed 1 --plant livelock");
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("seed 1: livelock: "), "{output:?}");
}

/// A poll cannot be stopped from outside: the process reports the hang, and exits.
#[test]
fn an_endless_loop_is_a_hang_with_its_trace() {
    let output = run("--seeds 1..9 --threads 1 --plant endless-loop --hang-after 1");
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("seed 1: hang: "), "{output:?}");
    assert!(last_line(&output).ends_with(" 1 violations"), "{output:?}");
    let trace = String::from_utf8_lossy(&output.stderr);
    assert!(trace.contains("VIOLATION: hang"), "{trace}");
}

#[test]
fn a_shrunk_plan_is_short_and_breaks_the_same_rule() {
    // The seed that finds this fault changes whenever docent sends other frames.
    let planner: Planner =
        Arc::new(|seed| Plan { plant: Some("one-lease-too-many".to_owned()), ..draw::plan(seed) });
    let mut found = None;
    batch::run(1..=300, &planner, Options::default(), |seed, outcome| {
        if !outcome.history.violations().any(|rule| rule.contains(" leases of ")) {
            return ControlFlow::Continue(());
        }
        found = Some(seed);
        ControlFlow::Break(())
    });
    let seed = found.expect("a seed that finds it");
    let output = run(&format!("--shrink {seed} --plant one-lease-too-many"));
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains(" leases of ") && text.contains("sequenceDiagram"), "{text}");
    assert!(last_line(&output).ends_with(" violations"), "{text}");
    let shrunk = File::new("shrunk.ron", text);
    let replayed = run(&format!("--scenario {}", shrunk.name()));
    assert_eq!(replayed.status.code(), Some(1), "{replayed:?}");
    assert!(stdout(&replayed).contains(" leases of "), "{replayed:?}");
    let plan = Plan::from_ron(text).unwrap();
    assert!(plan.faults.len() < 10 && plan.steps() < 20, "{text}");
}

#[test]
fn there_is_nothing_to_shrink_in_a_good_seed() {
    let output = run("--shrink 1");
    assert_eq!(output.status.code(), Some(0));
    assert!(last_line(&output).ends_with(" 0 violations"));
    assert_eq!(output.stderr, b"cargo xtask sim: seed 1 breaks no rule\n");
}
