//! docs/CASES.md lists the cases in the comments above the tests. The names of tests, functions, scenarios and planted
//! faults in docs/ARCHITECTURE.md, docs/CURATOR.md, docs/KEEPER.md, docs/PEERS.md, docs/MIGRATING.md and
//! docs/SIMULATION.md exist.
//!
//! A case is a comment above its test:
//!
//! ```text
//! // Case (Pitfalls of the wire, 14): xids wrap, and 0 is skipped.
//! ```
//!
//! In a recorded scenario it is a line of the head: `case: (Pitfalls of the wire, 14): ...`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use xtask::workspace::root;

use crate::{files_below, read};

/// The sections of docs/CASES.md in their order, each with the text above its table.
const SECTIONS: &[(&str, &str)] = &[
    ("Pitfalls of the wire", ""),
    ("What broke other clients", ""),
    ("Failure cases", ""),
    (
        "Leader election and kept nodes",
        "L1 to L27 of [CURATOR.md](CURATOR.md) have their tests there. Beside them:",
    ),
    ("Caches", "C1 to C43 of [CURATOR.md](CURATOR.md) have their tests there. Beside them:"),
    (
        "Ensembles that change",
        "C34 and C35 of [CURATOR.md](CURATOR.md) have their tests there. Beside them:",
    ),
    ("The right server", ""),
    (
        "Service discovery",
        "C1, C10, C27 to C33 and C39 of [CURATOR.md](CURATOR.md) have their tests there. Beside them:",
    ),
    ("Programs without async", ""),
    ("Contracts of a call", "What happens to a call in each situation."),
    ("Renewed holds", ""),
    (
        "Strict mutexes",
        "Without a test: a hand that deletes the record and all nodes below it while the lock is held. The next holder cannot \
         know of the last one, and the documentation forbids it.",
    ),
    ("Contracts of docent lock", ""),
    (
        "Contracts of docent lead",
        "Those of `docent lock`, by the same code; `cli/tests/chaos.rs` plays each fault with both.",
    ),
];

/// The section that the list leaves out: nobody reads hundreds of fixed defects as a list.
const ONLY_ABOVE_TESTS: &str = "Found in docent itself";

/// The text above the first section.
const HEAD: &str = "# Cases, and the test that covers each

The known failures of ZooKeeper clients, each with the test that pins it here. This file is made from the comments `Case (...)`
above the tests: `DOCENT_BLESS=1 cargo test -p docent-tests --test repository cases` writes it.
[TESTING.md](TESTING.md) says where the tests are. Defects of docent itself stand above the tests that failed:
`git grep -A3 'Case (Found in docent itself)'`.
";

#[test]
fn the_list_of_cases_is_that_of_the_tests() {
    let (path, list) = (root().join("docs/CASES.md"), list_of_cases());
    if env::var("DOCENT_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, &list).unwrap();
    }
    let is_current = fs::read_to_string(path).unwrap() == list;
    assert!(is_current, "docs/CASES.md is not what the tests say: run this with DOCENT_BLESS=1");
}

/// A case, as its comment states it.
struct Case {
    /// Only some sections have numbers. Without them, the order is that of the files.
    number: Option<u32>,
    text: String,
    test: String,
}

fn list_of_cases() -> String {
    let mut cases = BTreeMap::<String, Vec<Case>>::new();
    for path in sources() {
        read_cases(&path, &mut cases);
    }
    cases.remove(ONLY_ABOVE_TESTS);
    let mut list = HEAD.to_owned();
    for (section, introduction) in SECTIONS {
        let mut cases = cases.remove(*section).unwrap_or_default();
        cases.sort_by_key(|case| case.number);
        let _ = write!(list, "\n## {section}\n\n");
        if !introduction.is_empty() {
            let _ = write!(list, "{introduction}\n\n");
        }
        let is_numbered = cases.iter().any(|case| case.number.is_some());
        list.push_str(if is_numbered {
            "| # | case | test |\n|---|---|---|\n"
        } else {
            "| case | test |\n|---|---|\n"
        });
        for Case { number, text, test } in cases {
            let number = number.map_or_else(String::new, |number| format!("| {number} "));
            let _ = writeln!(list, "{number}| {text} | `{test}` |");
        }
    }
    assert!(cases.is_empty(), "no sections of docs/CASES.md: {:?}", cases.keys());
    list
}

/// All sources, and the recorded scenarios, in the order of their paths.
fn sources() -> Vec<PathBuf> {
    let mut files = files_below(&root());
    files.retain(|path| path.extension().is_some_and(|e| e == "rs" || e == "txt"));
    files
}

/// Reads the cases of a file into their sections.
fn read_cases(path: &Path, cases: &mut BTreeMap<String, Vec<Case>>) {
    let source = fs::read_to_string(path).unwrap();
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    for (at, line) in lines.iter().enumerate() {
        let head = line.strip_prefix("// Case (").or_else(|| line.strip_prefix("case: ("));
        let Some(head) = head else { continue };
        let place = format!("{}:{}", path.display(), at + 1);
        let (section, begin) =
            head.split_once("): ").unwrap_or_else(|| panic!("{place}: no section"));
        let is_next = |line: &&&str| line.starts_with("// ") && !line.starts_with("// Case (");
        let rest = lines[at + 1..].iter().take_while(is_next);
        let text =
            [begin].into_iter().chain(rest.map(|line| &line[3..])).collect::<Vec<_>>().join(" ");
        let (section, number) = match section.split_once(", ") {
            Some((section, number)) => (section, Some(number.parse().unwrap())),
            None => (section, None),
        };
        let named = lines[at..].iter().find_map(|line| {
            let (_, function) = line.split_once("fn ").filter(|_| !line.starts_with("//"))?;
            function.split('(').next()
        });
        let file = path.file_name().unwrap().to_string_lossy();
        let name = match path.extension().unwrap().to_str() {
            Some("txt") => file.trim_end_matches(".txt").to_owned(),
            _ => named.unwrap_or_else(|| panic!("{place}: no test follows")).to_owned(),
        };
        cases.entry(section.to_owned()).or_default().push(Case {
            number,
            text: text.trim_end_matches('.').to_owned(),
            test: name,
        });
    }
}

/// A word with three underscores or more is a test's name, since test names are sentences.
#[test]
fn every_test_and_scenario_that_a_document_names_is_there() {
    let scenarios = scenarios();
    for (document, least) in
        [("ARCHITECTURE", 15), ("CURATOR", 20), ("KEEPER", 5), ("PEERS", 5), ("SIMULATION", 0)]
    {
        let text = read(&format!("docs/{document}.md"));
        let words = text.split('`').skip(1).step_by(2);
        let is_function = |word: &&str| {
            word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let is_name = |word: &&str| {
            is_function(word) && word.matches('_').count() >= 3 || is_parity_scenario(word)
        };
        let names: BTreeSet<_> = words.clone().filter(is_name).collect();
        assert!(names.len() >= least, "{document}: only {names:?}");
        assert_exist(&names);
        let recorded = words.filter_map(|word| word.strip_prefix("sim/scenarios/").or(Some(word)));
        for scenario in recorded.filter(|word| word.ends_with(".ron") && !word.contains(['/', ' ']))
        {
            assert!(scenarios.contains(scenario), "{document}: no scenario {scenario}");
        }
    }
}

#[test]
fn every_name_that_replaces_one_of_another_client_is_public() {
    let guide = read("docs/MIGRATING.md");
    let mut api = BTreeSet::new();
    for crate_name in ["docent", "docent-protocol", "docent-recipes", "docent-session"] {
        let text = read(&format!("docs/api/{crate_name}.txt"));
        let is_of_no_name = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        api.extend(text.split(is_of_no_name).map(str::to_owned));
    }
    let is_name = |word: &&str| {
        word.len() > 3 && (word.contains('_') || word.starts_with(|c: char| c.is_ascii_uppercase()))
    };
    // The second of three columns.
    let cells = guide.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split('|').collect();
        (cells.len() == 3).then(|| cells[1])
    });
    let names: BTreeSet<_> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(is_name)
        .collect();
    assert!(names.len() > 40, "only {names:?}: has the form of the tables changed?");
    let missing: Vec<_> = names.iter().filter(|name| !api.contains(**name)).collect();
    assert!(missing.is_empty(), "not public: {missing:?}");
}

#[test]
fn every_scenario_of_the_simulator_says_what_it_shows() {
    let plants = plants();
    for entry in fs::read_dir(root().join("sim/scenarios")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let mut head = text.lines().take_while(|line| line.starts_with("//"));
        let is_described =
            head.any(|line| !line.starts_with("// Seed ") && !line.starts_with("// Before: "));
        let plant = text.split_once("plant: \"").and_then(|(_, rest)| rest.split('"').next());
        let is_known = plant.map_or(is_described, |plant| plants.contains(plant));
        assert!(is_known, "the comment at the head does not say what went wrong: {path:?}");
    }
    let planted = section("docs/SIMULATION.md", "The checker is checked: planted faults");
    let cells = planted.lines().filter_map(|line| line.trim_end_matches(" |").rsplit_once("| `"));
    let names: Vec<_> =
        cells.flat_map(|(_, cell)| cell.trim_end_matches('`').split("`, `")).collect();
    assert!(names.len() > 5, "only {names:?}: has the form of the table changed?");
    let unknown: Vec<_> = names.iter().filter(|name| !plants.contains(**name)).collect();
    assert!(unknown.is_empty(), "no planted faults: {unknown:?}");
}

#[test]
fn every_planted_fault_is_found_by_a_scope_or_listed_with_the_reason() {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join("sim/scopes")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let finds = text.split_once("finds: [").and_then(|(_, rest)| rest.split(']').next());
        found.extend(finds.iter().flat_map(|finds| names_between(finds, '"')));
    }
    let section = section("docs/SIMULATION.md", "Exhausted");
    let (_, table) = section.split_once("\n| planted faults that no scope finds |").unwrap();
    let rows = table.lines().skip(2).map_while(|row| row.strip_prefix("| ")?.split('|').next());
    let listed: BTreeSet<_> = rows.flat_map(|names| names_between(names, '`')).collect();
    let both: Vec<_> = found.intersection(&listed).collect();
    assert!(both.is_empty(), "found after all: {both:?}");
    let known: BTreeSet<_> = found.union(&listed).cloned().collect();
    assert_eq!(known, plants());
}

/// The names between two such marks.
fn names_between(text: &str, mark: char) -> Vec<String> {
    text.split(mark).skip(1).step_by(2).map(str::to_owned).collect()
}

/// The part of a document below a heading.
fn section(path: &str, heading: &str) -> String {
    let document = read(path);
    let (_, rest) = document.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap().to_owned()
}

/// The files of the simulator's scenarios.
fn scenarios() -> BTreeSet<String> {
    let directory = root().join("sim/scenarios");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    files.map(|name| name.into_string().unwrap()).collect()
}

/// The names of the planted faults.
fn plants() -> BTreeSet<String> {
    let source = read("sim/src/faults/planted.rs");
    let (_, list) = source.split_once("pub const PLANTS").unwrap();
    let (list, _) = list.split_once("];").unwrap();
    let calls = list.split("plant(").skip(1).flat_map(|call| call.split("assumption("));
    let names = calls.filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
    names.chain(["endless-loop"]).map(str::to_owned).collect()
}

#[track_caller]
fn assert_exist(names: &BTreeSet<&str>) {
    let mut functions = BTreeSet::new();
    for path in sources().iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let source = fs::read_to_string(path).unwrap();
        let names = source.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
        functions.extend(names.map(str::to_owned));
    }
    let scenarios = root().join("tests/parity/scenarios");
    for area in fs::read_dir(scenarios).unwrap().map(|entry| entry.unwrap().path()) {
        let files = fs::read_dir(area).into_iter().flatten().map(|file| file.unwrap().path());
        functions.extend(files.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned())));
    }
    let missing: Vec<_> = names.iter().filter(|name| !functions.contains(**name)).collect();
    assert!(missing.is_empty(), "no such tests or functions: {missing:?}");
}

/// Whether a name is that of a recorded scenario: `09-...`, `R51-...`, `D16-...`.
fn is_parity_scenario(name: &str) -> bool {
    let number = name.split_once('-').map_or("", |(number, _)| number);
    let digits = number.trim_start_matches(['R', 'D']);
    digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit())
}
