//! Orphans: nodes that a running process neither holds nor acquires.

use std::collections::{BTreeMap, BTreeSet};

use super::ORPHAN_AFTER;
use crate::world::{
    check::{Check, Findings, View},
    time::{Nanos, SECOND},
};

/// The interval at which orphans are looked for.
const LOOKS_EVERY: Nanos = SECOND;

/// The ephemeral nodes that no process uses.
#[derive(Default)]
pub(crate) struct Orphans {
    next_look: Nanos,
    /// The orphans, with the time of their discovery.
    unused: BTreeMap<String, Nanos>,
    reported: BTreeSet<String>,
}

impl Check for Orphans {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        if view.now < self.next_look {
            return;
        }
        self.next_look = view.now + LOOKS_EVERY;
        let core = view.core();
        let mut unused = BTreeMap::new();
        for (pid, process) in core.processes.iter().enumerate() {
            let Some(session) = process.session else { continue };
            // The nodes of a resumed session are those of the process before: they stay as long as the session.
            let is_resumed = process.resumed == Some(session);
            if !core.is_active(pid) || is_resumed || core.disturbed_until(pid) > view.now {
                continue;
            }
            for path in core.ensemble().ephemerals(session) {
                if core.uses(pid, &path) {
                    continue;
                }
                let since = *self.unused.get(&path).unwrap_or(&view.now);
                unused.insert(path, since.max(core.disturbed_until(pid)));
            }
        }
        for (path, since) in &unused {
            if view.now > since + ORPHAN_AFTER && self.reported.insert(path.clone()) {
                found.violation(format!("{path} is an orphan"));
            }
        }
        self.unused = unused;
    }
}
