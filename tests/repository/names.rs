//! A program that depends on `docent` alone can name every type in its signatures, and the root has about 50 names.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocking::lines;

/// The types of a library, by their last name, with all their paths.
fn types(library: &str) -> BTreeMap<String, Vec<String>> {
    let mut types: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in lines(library) {
        let line = line.trim_start_matches("#[non_exhaustive] ");
        let Some((kind, rest)) = line.strip_prefix("pub ").and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        if ["struct", "enum", "trait", "type"].contains(&kind) {
            let of_path = |c: char| c.is_alphanumeric() || "_:".contains(c);
            let path: String = rest.chars().take_while(|c| of_path(*c)).collect();
            let path = path.trim_end_matches(':').to_owned();
            types.entry(last(&path).to_owned()).or_default().push(path);
        }
    }
    types
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// The items of other libraries that a library re-exports: the paths after `pub use`.
fn shown(library: &str) -> BTreeSet<String> {
    let lines = lines(library).into_iter();
    lines
        .filter_map(|line| Some(line.strip_prefix("pub use ")?.split_once(" as ")?.0.into()))
        .collect()
}

#[test]
fn docent_has_every_type_of_the_client_and_the_recipes() {
    let shown = shown("docent");
    for (name, paths) in types("docent-session").into_iter().chain(types("docent-recipes")) {
        let is_shown = |path: &String| {
            shown.contains(path)
                || path.rmatch_indices("::").any(|(at, _)| shown.contains(&path[..at]))
        };
        assert!(paths.iter().any(is_shown), "{name}: {paths:?}");
    }
}

/// The machine's methods take requests of the protocol, so its users depend on `docent-protocol` too.
#[test]
fn docent_has_the_types_of_the_protocol_that_its_signatures_have() {
    let outer = ["docent", "docent-session", "docent-recipes", "docent-testing"];
    let mut named: BTreeSet<String> = outer
        .iter()
        .flat_map(|library| shown(library))
        .map(|path| last(&path).to_owned())
        .collect();
    named.extend(outer.iter().flat_map(|library| types(library).into_keys()));
    // Names of the standard library.
    named.extend(["Item", "Sync"].map(String::from));
    let protocol = types("docent-protocol");
    let mut found = 0;
    for line in outer.iter().flat_map(|library| lines(library)) {
        let is_signature = line.contains("fn ") || line.starts_with("field ");
        if !is_signature || line.contains("::machine::") {
            continue;
        }
        let paths = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let words = paths.map(|path| last(path.trim_end_matches(':')));
        for word in words.filter(|word| protocol.contains_key(*word)) {
            found += 1;
            assert!(named.contains(word), "{word}: {line}");
        }
    }
    assert!(found > 50, "{found}");
}

#[test]
fn the_root_has_about_fifty_names() {
    let of_root = |line: &String| {
        let (_, name) = line.strip_prefix("pub use ")?.split_once(" as docent::")?;
        let is_module = name.starts_with(|c: char| c.is_lowercase()) && name != "create_protected";
        (!name.contains("::") && !is_module).then(|| name.to_owned())
    };
    let names: Vec<_> = lines("docent").iter().filter_map(of_root).collect();
    assert!((40..=55).contains(&names.len()), "{}: {names:?}", names.len());
}
