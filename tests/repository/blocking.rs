//! `docent::blocking` has a guard for every lock and an iterator for every sequence of events, which `wait` alone
//! cannot provide.

use std::collections::BTreeSet;

use crate::read;

pub(crate) fn lines(library: &str) -> Vec<String> {
    read(&format!("docs/api/{library}.txt")).lines().map(str::to_owned).collect()
}

/// The types with an async function whose name and signature begin like this.
fn types_with(function: &str) -> BTreeSet<String> {
    let lines = ["docent-session", "docent-recipes"].into_iter().flat_map(lines);
    let of = |line: String| {
        let (path, _) = line.strip_prefix("pub async fn ")?.split_once(function)?;
        Some(path.rsplit("::").next()?.to_owned())
    };
    lines.filter_map(of).collect()
}

#[test]
fn every_lock_has_a_counterpart_for_threads() {
    let locks = types_with("::acquire_timeout(&self, wait: Duration)");
    assert!(locks.len() >= 5, "{locks:?}");
    let blocking = lines("docent");
    for lock in locks {
        let acquire = format!("pub fn docent::blocking::{lock}::acquire(");
        assert!(blocking.iter().any(|line| line.starts_with(&acquire)), "{lock}");
    }
}

#[test]
fn every_sequence_of_events_is_an_iterator_for_threads() {
    let sequences = types_with("::next(&mut self)");
    assert!(sequences.len() >= 3, "{sequences:?}");
    let sources = read("src/blocking/events.rs");
    let sources: BTreeSet<_> =
        sources.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect();
    assert!(sequences.is_subset(&sources), "missing: {:?}", &sequences - &sources);
}
