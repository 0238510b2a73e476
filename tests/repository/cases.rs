//! docs/ARCHITECTURE.md, docs/CASES.md, docs/CURATOR.md, docs/KEEPER.md, docs/PEERS.md, docs/MIGRATING.md and docs/SIMULATION.md name tests,
//! functions, scenarios and planted faults that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_test_that_the_cases_name_is_there() {
    let cases = document("docs/CASES.md");
    let rows = cases.lines().filter(|line| line.starts_with('|'));
    let names: BTreeSet<_> = rows
        .filter_map(|row| row.trim_end_matches(" |").rsplit_once('|'))
        .flat_map(|(_, tests)| tests.split('`').skip(1).step_by(2))
        .filter(|name| name.contains('_') || is_parity_scenario(name))
        .collect();
    assert!(names.len() > 100, "only {} names: has the form of the table changed?", names.len());
    assert_exist(&names);
}

#[test]
fn every_test_that_the_gaps_of_a_keeper_name_is_there() {
    let keeper = document("docs/KEEPER.md");
    let rows = keeper.lines().filter(|line| line.starts_with("| ") && line.contains('#'));
    let names: BTreeSet<_> = rows
        .filter_map(|row| row.trim_end_matches(" |").rsplit_once('|'))
        .flat_map(|(_, tests)| tests.split('`').skip(1).step_by(2))
        .collect();
    assert!(names.len() > 5, "only {names:?}: has the form of the table changed?");
    assert_exist(&names);
}

#[test]
fn every_test_that_the_way_from_curator_names_is_there() {
    let curator = document("docs/CURATOR.md");
    // A name of a test is a sentence.
    let is_name = |text: &&str| {
        let is_of_a_function =
            text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        is_of_a_function && text.matches('_').count() >= 3 || is_parity_scenario(text)
    };
    let rows = curator.lines().filter(|line| line.starts_with('|'));
    let names: BTreeSet<_> =
        rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(is_name).collect();
    assert!(names.len() > 70, "only {} names", names.len());
    assert_exist(&names);
}

#[test]
fn every_test_and_planted_fault_of_a_rule_is_there() {
    let rules = section("docs/ARCHITECTURE.md", "Rules of more than one module");
    let cells = |column: usize| {
        let rows = rules.lines().filter(|line| line.starts_with("| "));
        let cells = rows.filter_map(move |row| row.split('|').nth(column));
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2))
    };
    let tests: BTreeSet<_> = cells(3).collect();
    assert!(tests.len() > 15, "only {tests:?}: has the form of the table changed?");
    assert_exist(&tests);
    let plants = plants();
    let is_unknown = |name: &&str| !name.contains(['_', ':']) && !plants.contains(*name);
    let unknown: Vec<_> = cells(4).filter(is_unknown).collect();
    assert!(unknown.is_empty(), "no planted faults: {unknown:?}");
}

#[test]
fn every_function_that_docent_has_beside_its_peers_is_there() {
    let peers = document("docs/PEERS.md");
    let cells = peers.lines().filter_map(|line| line.strip_prefix('|')?.split('|').nth(1));
    let names: BTreeSet<_> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|name| name.trim_end_matches("()"))
        .filter(|name| name.contains('_') && !name.contains(['/', '.', ' ', ':']))
        .collect();
    assert!(names.len() > 8, "only {names:?}: has the form of the table changed?");
    assert_exist(&names);
}

#[test]
fn every_name_that_replaces_one_of_another_client_is_public() {
    let guide = document("docs/MIGRATING.md");
    let mut api = BTreeSet::new();
    for crate_name in ["docent", "docent-protocol", "docent-recipes", "docent-session"] {
        let text = document(&format!("docs/api/{crate_name}.txt"));
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
fn every_finding_of_the_simulator_names_what_shows_it() {
    let findings = section("docs/SIMULATION.md", "Findings");
    let rows: Vec<_> = findings.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 50, "{} rows: has the form of the table changed?", rows.len());
    let (scenarios, plants) = (scenarios(), plants());
    let mut tests = BTreeSet::new();
    for row in rows {
        let (_, shown_by) = row.trim_end_matches(" |").rsplit_once("| ").unwrap();
        let names: Vec<_> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty() || shown_by.starts_with("none: "), "nothing shows it: {row}");
        for name in names {
            if name.ends_with(".ron") {
                assert!(scenarios.contains(name), "no such scenario: {row}");
            } else if name.contains('_') {
                tests.insert(name);
            } else {
                assert!(plants.contains(name), "no such planted fault: {row}");
            }
        }
    }
    assert!(tests.len() > 15, "only {} tests", tests.len());
    assert_exist(&tests);
}

#[test]
fn every_scenario_and_planted_fault_of_the_simulator_is_documented() {
    let document = document("docs/SIMULATION.md");
    let unnamed: Vec<_> =
        scenarios().into_iter().filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(unnamed.is_empty(), "scenarios that the document does not name: {unnamed:?}");
    let planted = section("docs/SIMULATION.md", "The checker is checked: planted faults");
    let cells = planted.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let named: BTreeSet<_> =
        cells.flat_map(|cell| cell.split("`, `")).map(|name| name.trim_end_matches('`')).collect();
    let plants = plants();
    assert_eq!(named, plants.iter().map(String::as_str).collect::<BTreeSet<_>>());
}

/// The part of a document below a heading.
fn section(path: &str, heading: &str) -> String {
    let document = document(path);
    let (_, rest) = document.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap().to_owned()
}

/// The files of the simulator's scenarios.
fn scenarios() -> BTreeSet<String> {
    let directory = xtask::workspace::root().join("sim/scenarios");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    files.map(|name| name.into_string().unwrap()).collect()
}

/// The names of the planted faults.
fn plants() -> BTreeSet<String> {
    let source = document("sim/src/faults/planted.rs");
    let (_, list) = source.split_once("pub const PLANTS").unwrap();
    let (list, _) = list.split_once("];").unwrap();
    let calls = list.split("plant(").skip(1).flat_map(|call| call.split("assumption("));
    let names = calls.filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
    names.chain(["endless-loop"]).map(str::to_owned).collect()
}

fn document(path: &str) -> String {
    fs::read_to_string(xtask::workspace::root().join(path)).unwrap()
}

#[track_caller]
fn assert_exist(names: &BTreeSet<&str>) {
    let root = xtask::workspace::root();
    let mut functions = BTreeSet::new();
    for directory in [
        "protocol",
        "session",
        "recipes",
        "discovery",
        "gssapi",
        "testing",
        "tests",
        "cli",
        "tools/chaos/tests",
    ] {
        collect(&root.join(directory), &mut functions);
    }
    let scenarios = root.join("tests/parity/scenarios");
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

/// The names of all functions below a directory.
fn collect(directory: &Path, functions: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, functions);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            functions.extend(
                source
                    .split("fn ")
                    .skip(1)
                    .filter_map(|rest| rest.split_once('(').map(|(name, _)| name.to_owned())),
            );
        }
    }
}
