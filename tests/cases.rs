//! docs/CASES.md and docs/PEERS.md name tests and functions that exist.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, not the helpers they call")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn functions() -> BTreeSet<String> {
    let mut functions = BTreeSet::new();
    for directory in ["protocol", "session", "recipes", "testing", "tests", "cli"] {
        collect(&root().join(directory), &mut functions);
    }
    functions
}

#[test]
fn every_function_that_docent_has_beside_its_peers_is_there() {
    let functions = functions();
    let peers = fs::read_to_string(root().join("docs/PEERS.md")).unwrap();
    let cells = peers.lines().filter_map(|line| line.strip_prefix('|')?.split('|').nth(1));
    let names: BTreeSet<_> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|name| name.trim_end_matches("()"))
        .filter(|name| name.contains('_') && !name.contains(['/', '.', ' ', ':']))
        .collect();
    assert!(names.len() > 8, "only {names:?}: has the form of the table changed?");
    let missing: Vec<_> = names.iter().filter(|name| !functions.contains(**name)).collect();
    assert!(missing.is_empty(), "no such functions: {missing:?}");
}

#[test]
fn every_test_that_the_cases_name_is_there() {
    let functions = functions();
    let cases = fs::read_to_string(root().join("docs/CASES.md")).unwrap();
    let rows = cases.lines().filter(|line| line.starts_with('|'));
    let names: BTreeSet<_> = rows
        .filter_map(|row| row.trim_end_matches(" |").rsplit_once('|'))
        .flat_map(|(_, tests)| tests.split('`').skip(1).step_by(2))
        .filter(|name| name.contains('_'))
        .collect();
    assert!(names.len() > 100, "only {} names: has the form of the table changed?", names.len());
    let missing: Vec<_> = names.iter().filter(|name| !functions.contains(**name)).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
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
