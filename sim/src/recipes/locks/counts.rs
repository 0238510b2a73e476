//! The values of the counts that say how many leases a semaphore has.

use std::collections::BTreeMap;

use crate::world::check::{Check, Findings, View};

/// The values of all counts, oldest first.
#[derive(Default)]
pub(super) struct Counts(BTreeMap<String, Vec<Count>>);

struct Count {
    mzxid: i64,
    version: i32,
    value: usize,
}

impl Counts {
    /// A count may be created.
    pub(super) fn watch(&mut self, path: &str) {
        self.0.entry(path.to_owned()).or_default();
    }

    /// The largest value of a count since a change of it.
    pub(super) fn largest(&self, path: &str, since: i64) -> usize {
        let values = self.0.get(path).into_iter().flatten();
        let later = values.filter(|count| count.mzxid >= since).map(|count| count.value);
        later.max().unwrap_or(usize::MAX)
    }
}

impl Check for Counts {
    fn look(&mut self, view: &View<'_>, _found: &mut Findings) {
        let core = view.core();
        for (path, values) in &mut self.0 {
            let Some((data, stat)) = core.ensemble().node(path) else { continue };
            let last = values.last().map_or((0, -1), |last| (last.mzxid, last.version));
            if stat.mzxid > last.0 {
                if stat.version > last.1 + 1 {
                    // A value in between was not seen: it may have been any.
                    let unseen = Count { mzxid: last.0 + 1, version: last.1, value: usize::MAX };
                    values.push(unseen);
                }
                let value = data.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
                let value = usize::try_from(value).unwrap_or(0);
                values.push(Count { mzxid: stat.mzxid, version: stat.version, value });
            }
        }
    }
}
