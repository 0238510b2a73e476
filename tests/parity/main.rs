//! docent sends the same requests as Curator: the same operations, paths, flags, data and watches, in the same order.
//!
//! Each file below `scenarios` is a scenario: what is played, the frames of Curator that were recorded behind a proxy, and
//! which of them docent does not send (`-`) or sends in addition (`+`), with the reasons. `scenarios/README.md` has the
//! notation; `docs/CURATOR.md` lists all scenarios.
//!
//! `DOCENT_SCENARIO=07` plays those whose title begins so. `DOCENT_BLESS=1` writes docent's side of the frames again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "clippy knows test functions, but not the functions that they call"
)]

mod frames;
mod play;
mod scenario;

use std::{
    env, fs,
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
        program: "lock_peer",
        arguments: &["20000", "3"],
    };
    barriers_and_atomic_values_send_curators_frames: Area {
        directory: "data",
        program: "recipe_peer",
        arguments: &["20000", "3", "none"],
    };
    caches_send_curators_frames: Area {
        directory: "cache",
        program: "recipe_peer",
        arguments: &["20000", "3", "none"],
    };
    service_discovery_sends_curators_frames: Area {
        directory: "discovery",
        program: "recipe_peer",
        arguments: &["20000", "3", "none"],
    };
    ensemble_trackers_send_curators_frames: Area {
        directory: "tracker",
        program: "recipe_peer",
        arguments: &["20000", "3", "tracker"],
    };
    leaders_and_kept_nodes_send_curators_frames: Area {
        directory: "leader",
        program: "recipe_peer",
        arguments: &["20000", "5", "100", "standard"],
    };
}

#[test]
fn every_scenario_is_listed_with_its_reasons() {
    let document = include_str!("../../docs/CURATOR.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").map(str::trim).collect())
        .collect();
    let mut listed = 0;
    for path in AREAS.iter().flat_map(|area| files(area.directory)) {
        let scenario = Scenario::read(path);
        let title = scenario.title.as_str();
        let found: Vec<_> = rows.iter().filter(|row| is_row_of(row, title)).collect();
        let [row] = found[..] else { panic!("{} rows of {title} in CURATOR.md", found.len()) };
        let reasons: Vec<_> = scenario.reasons().collect();
        assert_eq!(!reasons.is_empty(), scenario.has_differences(), "{title}: {reasons:?}");
        // `recording`: from how the recording was made. `everywhere`: the document states it for all scenarios.
        for reason in &reasons {
            let name = reason.trim_start_matches("everywhere, ");
            let is_row = name == "recording" || rows.iter().any(|row| row[0] == name);
            assert!(is_row, "no row {name}: {title}");
        }
        let is_common =
            |reason: &&str| *reason == "recording" || reason.starts_with("everywhere, ");
        let own: Vec<_> = reasons.into_iter().filter(|reason| !is_common(reason)).collect();
        assert_eq!(row[1].starts_with("equal"), own.is_empty(), "{row:?}: {own:?}");
        let mut ids = own.iter().filter(|reason| reason.len() < 4);
        assert!(ids.all(|id| row[1].contains(id)), "{row:?}: {own:?}");
        listed += 1;
    }
    // Rows without a file.
    let is_played = |row: &&Vec<&str>| is_scenario(row[0]) && !row[1].starts_with("not played");
    assert_eq!(rows.iter().filter(is_played).count(), listed);
}

/// Whether a row is of this scenario: it begins with the title, or with its number.
fn is_row_of(row: &[&str], title: &str) -> bool {
    let number = title.split('-').next();
    row[0] == title || row[0].split(' ').next() == number
}

/// Whether the first cell of a row is a title, or begins with a number: `01-...`, `R01-...`, `D01 ...`.
fn is_scenario(cell: &str) -> bool {
    let number = cell.split(['-', ' ']).next().unwrap_or_default();
    let digits = number.trim_start_matches(['R', 'D']);
    digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit())
}
