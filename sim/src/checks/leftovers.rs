//! Leftovers: after a run no session, no ephemeral node, no empty container and no task is left, and all members have
//! the same data.

use crate::world::check::{Check, Findings, View};

/// Finds everything that must not be left after a run.
pub(crate) struct Leftovers {
    /// Whether the servers had time to remove empty containers.
    pub(crate) removes_containers: bool,
}

impl Check for Leftovers {
    fn finish(&mut self, view: &View<'_>, found: &mut Findings) {
        let core = view.core();
        let ensemble = core.ensemble();
        let sessions = ensemble.session_ids();
        let mut left: Vec<_> =
            sessions.iter().map(|session| format!("session {session:#x} is left")).collect();
        let mut paths = ensemble.child_paths("/");
        while let Some(path) = paths.pop() {
            let Some((_, stat)) = ensemble.node(&path) else { continue };
            // The owner of a container is `i64::MIN`. A container that never had a child stays, as on a real server.
            let is_empty = stat.num_children == 0 && stat.cversion > 0;
            let is_empty_container =
                stat.ephemeral_owner == i64::MIN && is_empty && self.removes_containers;
            // Nodes with a time to live have no session: the first byte of their owner is 0xff.
            let has_session = (stat.ephemeral_owner as u64) >> 56 != 0xff;
            let is_ephemeral = has_session && ![0, i64::MIN].contains(&stat.ephemeral_owner);
            if is_ephemeral || is_empty_container {
                left.push(format!("{path} is left"));
            }
            paths.extend(ensemble.child_paths(&path));
        }
        if let Some(path) = ensemble.diverging_path() {
            left.push(format!("the members differ at {path}"));
        }
        let dead = core.processes_with_tasks().into_iter();
        left.extend(dead.map(|pid| format!("p{pid} has a task left after its clients")));
        left.into_iter().for_each(|text| found.violation(text));
    }
}
