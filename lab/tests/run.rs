//! Runs of scripts: they repeat, a fault leaves what was before it as it was, and each lesson shows what it claims.

use docent_lab::{
    lessons,
    run::run,
    script::{Script, schedule_line},
    timeline::Timeline,
};
use docent_sim::exhaust::{Schedule, Scope, search};

fn timeline(script: &str) -> Timeline {
    run(&script.parse::<Script>().unwrap()).unwrap()
}

#[test]
fn each_lesson_shows_what_it_claims() {
    let lessons = lessons::all().unwrap();
    let mut failed = Vec::new();
    for lesson in &lessons {
        let timeline = timeline(&lesson.script);
        if let Err(error) = lesson.check(&timeline) {
            let beliefs = timeline.beliefs.iter();
            let beliefs: Vec<_> =
                beliefs.map(|of| (&timeline.clients[of.client], of.from, of.to)).collect();
            failed.push(format!("{}: {error}: {beliefs:?}", lesson.name));
        }
        assert_eq!(timeline.violations, [""; 0], "{}", lesson.name);
        assert!(!lesson.claims.is_empty() && lesson.choices.len() > 1, "{}", lesson.name);
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

const SCRIPT: &str = "servers 3; session 4s; run 20s; A: mutex 5s; B: wait 500ms, mutex 3s";

/// The parts of a timeline before a time, as text.
fn before(timeline: &Timeline, at: u64) -> String {
    let frames = timeline.frames.iter().filter(|frame| frame.sent < at);
    // A frame may arrive later, or never.
    let frames: Vec<_> = frames.map(|frame| (frame.sent, frame.client, &frame.text)).collect();
    let queues: Vec<_> = timeline.queues.iter().filter(|of| of.at < at).collect();
    let notes: Vec<_> = timeline.notes.iter().filter(|of| of.at < at).collect();
    let begins: Vec<_> = timeline.beliefs.iter().map(|of| of.from).filter(|of| *of < at).collect();
    format!("{frames:?}\n{queues:?}\n{notes:?}\n{begins:?}")
}

#[test]
fn equal_scripts_give_equal_timelines() {
    let json = |script| serde_json::to_string(&timeline(script)).unwrap();
    assert!(json(SCRIPT) == json(SCRIPT));
    assert!(json(SCRIPT) != json(&format!("seed 2; {SCRIPT}")), "another seed differs");
}

#[test]
fn a_fault_leaves_what_was_before_it_as_it_was() {
    let without = timeline(SCRIPT);
    let last = without.frames.iter().filter_map(|frame| frame.delivery).max().unwrap();
    for fault in [
        "stop A for 5s",
        "kill B",
        "expire A",
        "cut A",
        "lose A for 3s",
        "lose to B for 3s",
        "delay from A for 2s",
        "skew A 20%",
        "delete first",
        "delete /lock",
        "isolate s0 for 5s",
        "stop s1 for 3s",
        "lag s2 for 3s",
    ] {
        let with = timeline(&format!("{SCRIPT}; at 2500ms {fault}"));
        assert!(before(&with, 2_500_000) == before(&without, 2_500_000), "{fault}");
        assert!(with != without, "{fault} has no effect");
        assert_eq!(with.violations, [""; 0], "{fault}");
    }
    let frame = without.frames.iter().rfind(|frame| !frame.to_server && frame.client == 0).unwrap();
    let delivery = frame.delivery.unwrap();
    assert!(delivery <= last);
    let with = timeline(&format!("{SCRIPT}; drop {delivery} to A"));
    assert!(before(&with, frame.sent) == before(&without, frame.sent));
    let dropped = with.frames.iter().find(|of| of.sent == frame.sent && of.text == frame.text);
    assert_eq!(dropped.unwrap().arrived, None);
}

#[test]
fn a_seed_of_the_simulator_is_shown() {
    let timeline = timeline("plan 17");
    assert!(
        timeline.frames.len() > 20 && !timeline.faults.is_empty() && timeline.clients.len() > 1
    );
}

/// The file that `cargo xtask exhaust` writes opens: the run is the one that breaks the rule.
#[test]
fn a_schedule_of_the_search_is_shown() {
    let mut scope = Scope::named("mutex-2").unwrap();
    scope.plan.plant = Some("granted-late".to_owned());
    let found = search(&scope, None, |_| {}).found.expect("a broken rule");
    let file = found.schedule.to_ron(&found.rule, "a diagram");
    let line = schedule_line(&Schedule::from_ron(&file).unwrap());
    let timeline = timeline(&line);
    assert!(timeline.violations.contains(&found.rule), "{:?}", timeline.violations);
    assert_eq!(timeline.clients, ["p0", "p1"]);
    let steps: Vec<_> = timeline.frames.iter().filter_map(|frame| frame.step).collect();
    assert!(steps.contains(&"lock-1") && !timeline.takes_faults, "{steps:?}");
    // A schedule of another version of the scope.
    let stale = "schedule (scope:\"mutex-2\",choices:[250])".parse::<Script>().unwrap();
    assert!(run(&stale).unwrap_err().contains("has no such schedule any more"));
}

#[test]
fn no_script_within_the_limits_runs_away() {
    let clients: String = (0..16).map(|n| format!("c{n}: naive 1s, naive 1s, naive 1s;")).collect();
    let timeline =
        timeline(&format!("{clients} run 600s; session 2s; delay 1ms; at 3s stop s0 for 300s"));
    assert!(timeline.frames.len() < 200_000);
}

#[test]
fn only_a_strict_mutex_has_no_overlap_when_a_server_that_is_cut_off_answers() {
    for (kind, is_safe) in [("mutex", false), ("strict", true)] {
        let script = format!(
            "servers 3; delay 60ms; A: {kind} 20s; B: wait 1s, {kind} 3s; at 3s isolate s1 for 20s"
        );
        assert_eq!(timeline(&script).overlaps.is_empty(), is_safe, "{kind}");
    }
}
