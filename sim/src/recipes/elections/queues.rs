//! The queues of elections: one node for each participant, none after its close.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    checks::{ORPHAN_AFTER, REQUEST_ARRIVES_WITHIN},
    world::{
        check::{Findings, View},
        time::{Nanos, Pid},
    },
};

/// A participant that was closed.
struct Closed {
    pid: Pid,
    at: Nanos,
    /// The session in which its close returned without an error.
    session: Option<i64>,
}

/// The queues of all elections.
#[derive(Default)]
pub(super) struct Queues {
    /// The participants' nodes on the servers, with the id in each and the session that owns it.
    queues: BTreeMap<String, BTreeMap<String, (String, i64)>>,
    closed: BTreeMap<String, Closed>,
    /// The number of the servers' changes that were looked at.
    seen: usize,
    reported: BTreeSet<String>,
}

impl Queues {
    /// An election begins.
    pub(super) fn watch(&mut self, election: &str) {
        self.queues.entry(election.to_owned()).or_default();
    }

    /// The close of a participant begins.
    pub(super) fn close(&mut self, id: &str, pid: Pid, at: Nanos) {
        self.closed.insert(id.to_owned(), Closed { pid, at, session: None });
    }

    /// The close of a participant has returned without an error.
    pub(super) fn closed_in(&mut self, id: &str, session: Option<i64>) {
        if let Some(closed) = self.closed.get_mut(id) {
            closed.session = session;
        }
    }

    /// Looks at the changes of the queues.
    pub(super) fn follow(&mut self, view: &View<'_>, found: &mut Findings) {
        let (now, core) = (view.now, view.core());
        let disturbances = &core.disturbances;
        let apart_until = disturbances.renewed_apart_until.max(disturbances.given_up_until);
        let changes = &core.servers.truth.changes;
        for applied in changes.get(self.seen..).unwrap_or_default() {
            let change = &applied.change;
            let Some((parent, _)) = change.path.rsplit_once('/') else { continue };
            let Some(queue) = self.queues.get_mut(parent) else { continue };
            let Some((data, stat)) = &change.node else {
                queue.remove(&change.path);
                continue;
            };
            let id = String::from_utf8_lossy(data).into_owned();
            queue.insert(change.path.clone(), (id.clone(), stat.ephemeral_owner));
            if stat.version == 0
                && let Some(closed) = self.closed.get(&id)
                && now > closed.at.max(core.undisturbed_since(closed.pid)) + REQUEST_ARRIVES_WITHIN
            {
                let text = format!("{parent}: {id} creates {} after its close", change.path);
                found.violation(text);
            }
            // A session that the client has given up may last longer at the servers.
            let counts = |owner: i64| now >= apart_until || owner == stat.ephemeral_owner;
            let is_same = |(other, owner): &&(String, i64)| *other == id && counts(*owner);
            let same = queue.values().filter(is_same).count();
            // The delete of a selector's former node may have been refused; it is repeated in the background.
            if same > 1 && !core.disturbances.refuses(now) {
                found.violation(format!("{parent}: {id} has {same} nodes"));
            }
        }
        self.seen = changes.len();
        for (path, queue) in &self.queues {
            for (node, (id, owner)) in queue {
                let Some(closed) = self.closed.get(id) else { continue };
                let is_left = core.is_active(closed.pid)
                    && now > closed.at.max(core.disturbed_until(closed.pid)) + ORPHAN_AFTER;
                let is_refuted = closed.session == Some(*owner);
                if (is_left || is_refuted) && self.reported.insert(node.clone()) {
                    found.violation(format!("{path}: {id} is closed, not {node}"));
                }
            }
        }
    }
}
