//! Each rule refuses the histories that break it, and accepts those that nearly do: `sim/judge/tests/histories` has a
//! file for each.
//!
//! A file consists of cases with an empty line between them. A case has its expectations (`accept`, `refuse FINDING`
//! for each violation, `error TEXT` for a history that cannot be judged, `counted TEXT`, `figure NAME: VALUE`), and
//! lines that are added to those of `base.txt`. `-TEXT` removes the lines of `base.txt` that begin with TEXT. `field=!`
//! leaves a field out.

mod search;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use docent_judge::judge;

const BASE: &str = include_str!("base.txt");

/// The words that begin the expectations of a case.
const EXPECTATIONS: [&str; 5] = ["accept", "refuse", "error", "counted", "figure"];

/// Adds the default fields that a line does not name, and converts its times to nanoseconds.
fn complete(line: &str) -> String {
    let (word, own) = line.split_once(' ').unwrap_or((line, ""));
    let prefix = format!("default {word} ");
    let defaults = BASE.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or("");
    let name = |field: &str| field.split('=').next().unwrap().to_owned();
    let own: Vec<&str> = own.split(' ').filter(|field| !field.is_empty()).collect();
    let names: BTreeSet<_> = own.iter().map(|field| name(field)).collect();
    let missing =
        defaults.split(' ').filter(|field| !field.is_empty() && !names.contains(&name(field)));
    let fields = own.iter().copied().chain(missing).filter(|field| !field.ends_with("=!"));
    fields.fold(word.to_owned(), |line, field| format!("{line} {}", in_nanos(field)))
}

/// A field with its times in nanoseconds.
fn in_nanos(field: &str) -> String {
    let Some((name, value)) = field.split_once('=') else { return field.to_owned() };
    let time = |part: &str| {
        let seconds = part.strip_suffix('s').and_then(|seconds| seconds.parse::<f64>().ok());
        seconds.map_or_else(|| part.to_owned(), |of| ((of * 1e3) as u64 * 1_000_000).to_string())
    };
    format!("{name}={}", value.split('-').map(time).collect::<Vec<_>>().join("-"))
}

/// A history of `base.txt` and these lines.
fn history(lines: &[&str]) -> String {
    let is_base =
        |line: &&str| !line.is_empty() && !line.starts_with('#') && !line.starts_with("default ");
    let removed: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix('-')).collect();
    let kept =
        BASE.lines().filter(is_base).filter(|line| !removed.iter().any(|of| line.starts_with(of)));
    let added = lines.iter().copied().filter(|line| !line.starts_with('-'));
    added.chain(kept).map(|line| complete(line) + "\n").collect()
}

/// How the judgement of a case differs from its expectations; `None` if it does not.
fn difference(case: &[&str]) -> Option<String> {
    let (expected, lines): (Vec<_>, Vec<_>) =
        case.iter().partition(|line| EXPECTATIONS.contains(&line.split(' ').next().unwrap()));
    let texts = |word: &str| {
        let of = |line: &&str| line.strip_prefix(word)?.strip_prefix(' ').map(str::to_owned);
        expected.iter().filter_map(of).collect::<Vec<_>>()
    };
    let judged = judge(&history(&lines));
    let judgement = match (&judged, texts("error").first()) {
        (Err(found), Some(text)) if found.contains(text) => return None,
        (Err(_), _) | (Ok(_), Some(_)) => return Some(format!("{judged:?}")),
        (Ok(judgement), None) => judgement,
    };
    let agree = |found: &[(u64, String)], texts: &[String]| {
        found.len() == texts.len()
            && found.iter().zip(texts).all(|((_, found), text)| found.contains(text))
    };
    let has_figure = |text: &String| judgement.to_string().contains(&format!("figure {text}\n"));
    let is_good = expected.contains(&"accept") == texts("refuse").is_empty()
        && agree(&judgement.violations, &texts("refuse"))
        && agree(&judgement.counted, &texts("counted"))
        && texts("figure").iter().all(has_figure);
    (!is_good).then(|| judgement.to_string())
}

/// The files, with their cases.
fn files() -> Vec<(String, Vec<String>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let file = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, text.split("\n\n").map(str::to_owned).collect())
    };
    paths.map(file).collect()
}

fn lines(case: &str) -> Vec<&str> {
    case.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

// Case (Found in docent itself): the judge of real histories accepted proven holds that overlapped without tokens, an overlap
// of 492 s after a fault of 5 s, one of docent with the blame on Curator, reads of values never written, a session that
// missed its own write, sets that were never read, and an empty history.
#[test]
fn histories_are_judged_as_they_say() {
    let mut wrong = String::new();
    for (name, cases) in files() {
        let mut kinds = BTreeSet::new();
        for case in &cases {
            let case = lines(case);
            let is_accepted = case.contains(&"accept");
            kinds.insert(is_accepted);
            if let Some(found) = difference(&case) {
                wrong += &format!("{name}:\n{}\nis judged:\n{found}\n\n", case.join("\n"));
            }
        }
        assert_eq!(kinds.len(), 2, "{name}: one that is refused and one that is accepted");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn each_rule_of_the_document_has_its_histories() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CHAOS.md");
    let document = fs::read_to_string(document).unwrap();
    let rules = document.lines().filter_map(|line| line.strip_prefix("* `")?.split_once("`: "));
    let rules: BTreeSet<_> = rules.map(|(rule, _)| rule.to_owned()).collect();
    let names: BTreeSet<_> = files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(rules, names);
    for (name, cases) in files() {
        for finding in cases
            .iter()
            .flat_map(|case| case.lines())
            .filter_map(|line| line.strip_prefix("refuse "))
        {
            assert!(finding.starts_with(&format!("{name}: ")), "{name}: {finding}");
        }
    }
}
