//! Of the `try_set_value`s of one version one succeeds at most, and its value is the next version.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::world::check::{Check, Findings, View};

/// The successful `try_set_value`s: the path, the version before, and the value.
#[derive(Default)]
pub(super) struct Swaps(Vec<(String, i32, Bytes)>);

impl Swaps {
    pub(super) fn add(&mut self, path: String, version: i32, value: Bytes) {
        self.0.push((path, version, value));
    }
}

impl Check for Swaps {
    fn finish(&mut self, view: &View<'_>, found: &mut Findings) {
        let core = view.core();
        let mut seen: BTreeMap<(&str, i32), &Bytes> = BTreeMap::new();
        for (path, version, value) in &self.0 {
            if seen.insert((path, *version), value).is_some() {
                found.violation(format!("{path}: version {version} was replaced twice"));
            }
            let states = core.servers.truth.states(path);
            let mut next = states.iter().filter_map(|state| state.node.as_ref());
            if !next.any(|(of, stat)| stat.version == version + 1 && of == value) {
                let value = String::from_utf8_lossy(value);
                found.violation(format!("{path}: {value} did not replace version {version}"));
            }
        }
    }
}
