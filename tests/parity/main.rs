//! docent sends the same requests as Curator: the same operations, paths, flags, data and watches, in the same order.
//!
//! Each file below `scenarios` is a scenario: its script, the frames of Curator that were recorded behind a proxy, and
//! the frames that docent does not send (`-`) or sends in addition (`+`), with the reasons. `scenarios/README.md` has
//! the notation; the last section of `docs/CURATOR.md` is made from their heads. Scenarios below `scenarios/rules` are
//! docent's own and have only a script.
//!
//! `DOCENT_SCENARIO=07` plays the scenarios whose title begins with `07`. `DOCENT_BLESS=1` writes docent's side of the
//! frames again.

mod frames;
mod play;
mod scenario;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use docent_tests::real::{RealServer, is_real, settings};
use tokio::{
    sync::Semaphore,
    task::{JoinSet, LocalSet, spawn_local},
};

use self::{
    play::Player,
    scenario::{Difference, Scenario},
};

/// The scenarios of a directory.
struct Area {
    directory: &'static str,
    /// The heading in docs/CURATOR.md. `None` for docent's own scenarios, which have a script and no frames of Curator.
    heading: Option<&'static str>,
    /// The peer, and its arguments after the connect string.
    program: &'static str,
    arguments: &'static [&'static str],
}

/// The scenarios of all areas that run at once. Most of them wait for timers, but some for an answer within a second.
static TURNS: Semaphore = Semaphore::const_new(4);

/// Plays the scenarios of an area, and reports all that fail.
async fn play(area: &'static Area) {
    let only = env::var("DOCENT_SCENARIO").unwrap_or_default();
    let blesses = env::var("DOCENT_BLESS").is_ok_and(|value| value == "1");
    let real = if is_real() {
        // The server must not remove empty containers during a scenario.
        let settings = settings(&[], &[("znode.container.checkIntervalMs", "3600000")]);
        let Some(real) = RealServer::start_with(settings).await else { return };
        Some(real)
    } else {
        None
    };
    let connect: Option<Arc<str>> = real.as_ref().map(|real| real.connect().into());
    let mut running = JoinSet::new();
    let files = files(area.directory);
    assert!(!files.is_empty(), "no scenarios of {}", area.directory);
    for path in files {
        let scenario = Scenario::read(path);
        if !scenario.title.starts_with(&only) {
            continue;
        }
        let connect = connect.clone();
        running.spawn_local(async move {
            let _turn = TURNS.acquire().await;
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
                // The message of the panic was printed already.
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
    ($($test:ident: $directory:expr, $heading:expr, $program:expr, $arguments:expr;)*) => {
        static AREAS: &[Area] = &[$(Area {
            directory: $directory,
            heading: $heading,
            program: $program,
            arguments: $arguments,
        }),*];

        $(
            #[tokio::test]
            async fn $test() {
                let area = AREAS.iter().find(|area| area.directory == $directory).unwrap();
                LocalSet::new().run_until(play(area)).await;
            }
        )*
    };
}

areas! {
    locks_send_curators_frames:
        "locks", Some("Locks"), "lock_peer", &["20000", "3"];
    barriers_and_atomic_values_send_curators_frames:
        "data", Some("Barriers and atomic values"), "recipe_peer", &["20000", "3", "none"];
    caches_send_curators_frames:
        "cache", Some("Caches"), "recipe_peer", &["20000", "3", "none"];
    service_discovery_sends_curators_frames:
        "discovery", Some("Service discovery"), "recipe_peer", &["20000", "3", "none"];
    ensemble_trackers_send_curators_frames:
        "tracker", Some("Ensemble tracker"), "recipe_peer", &["20000", "3", "tracker"];
    leaders_and_kept_nodes_send_curators_frames:
        "leader", Some("Leader election, kept nodes, groups"), "recipe_peer", &["20000", "5", "100", "standard"];
    rules_without_a_recording_hold:
        "rules", None, "recipe_peer", &["6000", "10", "100", "standard"];
}

/// The heading of the last section of docs/CURATOR.md. The text after it is made from the files.
const HEADING: &str = "\n## Differences that recorded scenarios show\n";

#[test]
fn the_differences_in_the_document_are_those_of_the_files() {
    let path = xtask::workspace::root().join("docs/CURATOR.md");
    let document = fs::read_to_string(&path).unwrap();
    let (by_hand, _) = document.split_once(HEADING).unwrap();
    let made = format!("{by_hand}{HEADING}{}", differences());
    if env::var("DOCENT_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, &made).unwrap();
    }
    let is_current = fs::read_to_string(path).unwrap() == made;
    assert!(is_current, "docs/CURATOR.md is not what the files say: run this with DOCENT_BLESS=1");
}

#[test]
fn every_difference_has_its_reason() {
    let recorded = AREAS.iter().filter(|area| area.heading.is_some());
    for scenario in recorded.flat_map(|area| files(area.directory)).map(Scenario::read) {
        let (title, reasons) = (&scenario.title, scenario.differences("why").count());
        assert_eq!(reasons > 0, scenario.has_differences(), "{title}: {reasons} reasons");
    }
}

/// The scenarios of an area share the real server, and run at once.
#[test]
fn no_two_scenarios_share_a_node() {
    for area in AREAS {
        let mut owners = BTreeMap::new();
        let shared = files(area.directory).into_iter().map(Scenario::read);
        for scenario in shared.filter(|scenario| scenario.head("server").next().is_none()) {
            let words = scenario.script.iter().flat_map(|(_, step)| step.split([' ', ':', '=']));
            let paths = words.filter_map(|word| word.strip_prefix('/')?.split('/').next());
            for root in paths.filter(|root| !root.is_empty()) {
                let owner = owners.entry(root.to_owned()).or_insert_with(|| scenario.title.clone());
                assert_eq!(*owner, scenario.title, "both use /{root}");
            }
        }
    }
}

/// The text above the first table.
const INTRODUCTION: &str = "
Each scenario was recorded from Curator behind a proxy, and docent plays it: the test compares the frames client by client, and
the file marks each line that only one side has. *Equal* are the same requests in the same order, but for what is so everywhere.
[The notation](../tests/parity/scenarios/README.md) says what is compared.

These tables are made from the heads of the files: `DOCENT_BLESS=1 cargo test -p docent-tests --test parity differences` writes
them.
";

/// A row of a table.
#[derive(Default)]
struct Row {
    curator: String,
    docent: String,
    shown_by: BTreeSet<String>,
}

fn differences() -> String {
    let mut list = INTRODUCTION.to_owned();
    for Area { directory, heading, .. } in AREAS {
        let Some(heading) = heading else { continue };
        let path = format!("../tests/parity/scenarios/{directory}");
        let scenarios: Vec<_> = files(directory).into_iter().map(Scenario::read).collect();
        let (mut rows, mut equal) = (BTreeMap::<_, Row>::new(), 0);
        for scenario in &scenarios {
            let title = &scenario.title;
            let number = title.split('-').next().unwrap_or_default();
            let all = scenario.differences("why").chain(scenario.differences("beside"));
            for Difference { name, is_everywhere, text } in all.filter(|d| d.name != "recording") {
                let row = rows.entry(order(name)).or_default();
                row.shown_by.insert(match is_everywhere {
                    true => " everywhere".to_owned(),
                    false => format!("[{number}]({path}/{title}.txt)"),
                });
                if let Some((curator, docent)) = text {
                    assert!(row.docent.is_empty(), "{title}: a second text of {name}");
                    (row.curator, row.docent) = (curator.to_owned(), docent.to_owned());
                }
            }
            let is_own = |d: Difference<'_>| !d.is_everywhere && d.name != "recording";
            equal += usize::from(!scenario.differences("why").any(is_own));
        }
        let all = scenarios.len();
        let _ = write!(
            list,
            "\n### {heading}\n\nEqual: {equal} of {all} [scenarios]({path}).\n\n\
             | | Curator | docent | scenario |\n|---|---|---|---|\n"
        );
        for ((kind, number), Row { curator, docent, shown_by }) in rows {
            let name = kind + &number.map_or_else(String::new, |number: u32| number.to_string());
            assert!(!docent.is_empty(), "{directory}: no text of {name}");
            let shown_by = Vec::from_iter(shown_by).join(", ");
            let _ = writeln!(list, "| {name} | {curator} | {docent} | {} |", shown_by.trim());
        }
    }
    list
}

/// The name of a difference without its number, and its number: `L9` is before `L10`.
fn order(name: &str) -> (String, Option<u32>) {
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (kind.to_owned(), name[kind.len()..].parse().ok())
}
