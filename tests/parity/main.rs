//! docent sends the same requests as Curator: the same operations, paths, flags, data and watches, in the same order.
//!
//! Each file below `scenarios` is a scenario: its script, the frames of Curator that were recorded behind a proxy, and
//! which of them docent does not send (`-`) or sends in addition (`+`), with the reasons. `scenarios/README.md` has the
//! notation; `docs/SCENARIOS.md` lists all scenarios. Those below `scenarios/rules` are docent's own: a script alone.
//!
//! `DOCENT_SCENARIO=07` plays those whose title begins so. `DOCENT_BLESS=1` writes docent's side of the frames again.

mod frames;
mod play;
mod scenario;

use std::{
    collections::BTreeSet,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use docent_tests::real::{RealServer, is_real};
use tokio::{
    sync::Semaphore,
    task::{JoinSet, LocalSet, spawn_local},
};
use xtask::Settings;

use self::{play::Player, scenario::Scenario};

/// The scenarios of a directory.
struct Area {
    directory: &'static str,
    /// In docs/SCENARIOS.md. Without one, the scenarios are docent's own: a script, and no frames of Curator.
    heading: Option<&'static str>,
    /// The peer, and the arguments behind its connect string.
    program: &'static str,
    arguments: &'static [&'static str],
}

/// The number of scenarios that run at once: most wait for a time.
const AT_ONCE: usize = 6;

/// Plays the scenarios of an area, and reports all that fail.
async fn play(area: &'static Area) {
    let only = env::var("DOCENT_SCENARIO").unwrap_or_default();
    let blesses = env::var("DOCENT_BLESS").is_ok_and(|value| value == "1");
    // A real server that removes empty containers would do so during a scenario.
    let settings = || Settings {
        properties: vec![("znode.container.checkIntervalMs".into(), "3600000".into())],
        ..Settings::default()
    };
    let real = if is_real() { RealServer::start_with(settings()).await } else { None };
    if is_real() && real.is_none() {
        return;
    }
    let connect: Option<Arc<str>> = real.as_ref().map(|real| real.connect().into());
    let (mut running, limit) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    let files = files(area.directory);
    assert!(!files.is_empty(), "no scenarios of {}", area.directory);
    for path in files {
        let scenario = Scenario::read(path);
        if !scenario.title.starts_with(&only) {
            continue;
        }
        let (limit, connect) = (Arc::clone(&limit), connect.clone());
        running.spawn_local(async move {
            let _turn = limit.acquire_owned().await;
            let line = Arc::<AtomicUsize>::default();
            let at = Arc::clone(&line);
            let scenario = Arc::new(scenario);
            let played = Arc::clone(&scenario);
            let trace = spawn_local(async move {
                let player = Player::start(area, &played, connect.as_deref(), at).await;
                player.play(&played).await
            });
            let (path, line) = (scenario.path.display(), || line.load(Ordering::Relaxed));
            match trace.await {
                Ok(_) if area.heading.is_none() => Ok(()),
                Ok(trace) if blesses => {
                    scenario.bless(&trace);
                    Ok(())
                }
                Ok(trace) => scenario.compare(&trace),
                // Its message was printed.
                Err(error) => Err(format!("{path}:{}: the script fails: {error}", line())),
            }
        });
    }
    let mut failures = Vec::new();
    while let Some(result) = running.join_next().await {
        failures.extend(result.unwrap().err());
    }
    failures.sort();
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

/// The scenario files of a directory, by their names.
fn files(directory: &str) -> Vec<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/scenarios").join(directory);
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    files.sort();
    files
}

/// Defines the areas, each with its test.
macro_rules! areas {
    ($($test:ident: $area:expr;)*) => {
        static AREAS: &[Area] = &[$($area),*];

        $(
            #[tokio::test]
            async fn $test() {
                static AREA: Area = $area;
                LocalSet::new().run_until(play(&AREA)).await;
            }
        )*
    };
}

areas! {
    locks_send_curators_frames: Area {
        directory: "locks",
        heading: Some("Locks"),
        program: "lock_peer",
        arguments: &["20000", "3"],
    };
    barriers_and_atomic_values_send_curators_frames: Area {
        directory: "data",
        heading: Some("Barriers and atomic values"),
        program: "recipe_peer",
        arguments: &["20000", "3", "none"],
    };
    caches_send_curators_frames: Area {
        directory: "cache",
        heading: Some("Caches"),
        program: "recipe_peer",
        arguments: &["20000", "3", "none"],
    };
    service_discovery_sends_curators_frames: Area {
        directory: "discovery",
        heading: Some("Service discovery"),
        program: "recipe_peer",
        arguments: &["20000", "3", "none"],
    };
    ensemble_trackers_send_curators_frames: Area {
        directory: "tracker",
        heading: Some("Ensemble tracker"),
        program: "recipe_peer",
        arguments: &["20000", "3", "tracker"],
    };
    leaders_and_kept_nodes_send_curators_frames: Area {
        directory: "leader",
        heading: Some("Leader election, kept nodes, groups"),
        program: "recipe_peer",
        arguments: &["20000", "5", "100", "standard"],
    };
    rules_without_a_recording_hold: Area {
        directory: "rules",
        heading: None,
        program: "recipe_peer",
        arguments: &["6000", "10", "100", "standard"],
    };
}

#[test]
fn the_list_of_scenarios_is_that_of_the_files() {
    let (path, list) = (xtask::workspace::root().join("docs/SCENARIOS.md"), list_of_scenarios());
    if env::var("DOCENT_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, &list).unwrap();
    }
    let is_current = fs::read_to_string(path).unwrap() == list;
    assert!(
        is_current,
        "docs/SCENARIOS.md is not what the files say: run this with DOCENT_BLESS=1"
    );
}

#[test]
fn every_difference_has_its_reason_in_a_document() {
    let document = include_str!("../../docs/CURATOR.md");
    let rows: BTreeSet<_> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .map(str::trim)
        .collect();
    let recorded = AREAS.iter().filter(|area| area.heading.is_some());
    for scenario in recorded.flat_map(|area| files(area.directory)).map(Scenario::read) {
        let (title, reasons) = (&scenario.title, scenario.reasons().collect::<Vec<_>>());
        assert_eq!(!reasons.is_empty(), scenario.has_differences(), "{title}: {reasons:?}");
        for reason in &reasons {
            let name = reason.trim_start_matches("everywhere, ");
            assert!(name == "recording" || rows.contains(name), "no row {name}: {title}");
        }
    }
}

/// The head of docs/SCENARIOS.md.
const HEAD: &str = "# Recorded scenarios

Each was recorded from Curator behind a proxy, and docent plays it (`tests/parity`): the test compares the frames client by
client, and the file marks each line that only one side has. *Equal*: the same requests in the same order, but for what is
so everywhere. The names of the differences are those of [CURATOR.md](CURATOR.md);
[the notation](../tests/parity/scenarios/README.md) says what is compared.

This file is made from those of the scenarios: `DOCENT_BLESS=1 cargo test -p docent-tests --test parity list_of_scenarios`
writes it.
";

fn list_of_scenarios() -> String {
    let mut list = HEAD.to_owned();
    for Area { directory, heading, .. } in AREAS {
        let Some(heading) = heading else { continue };
        let scenarios: Vec<_> = files(directory).into_iter().map(Scenario::read).collect();
        let everywhere: BTreeSet<_> =
            scenarios.iter().flat_map(Scenario::differences_everywhere).collect();
        let equal = scenarios.iter().filter(|scenario| scenario.own_differences().next().is_none());
        let (equal, all) = (equal.count(), scenarios.len());
        let _ = write!(list, "\n## {heading}\n\nEqual: {equal} of {all}.");
        if !everywhere.is_empty() {
            let everywhere = everywhere.into_iter().collect::<Vec<_>>().join("; ");
            let _ = write!(list, " Everywhere: {everywhere}.");
        }
        list.push_str("\n\n| scenario | docent |\n|---|---|\n");
        for scenario in &scenarios {
            let title = &scenario.title;
            let mut verdict: Vec<_> = scenario.own_differences().collect();
            if verdict.is_empty() {
                verdict.push("equal");
            }
            verdict.extend(scenario.head("note"));
            let (link, verdict) =
                (format!("../tests/parity/scenarios/{directory}/{title}.txt"), verdict.join("; "));
            let _ = writeln!(list, "| [{title}]({link}) | {verdict} |");
        }
    }
    list
}
