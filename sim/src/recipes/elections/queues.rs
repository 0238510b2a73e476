//! The queues of elections: one node for each participant, none after its close.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    checks::{ORPHAN_AFTER, REQUEST_ARRIVES_WITHIN},
    world::{
        check::{Findings, View},
        time::{Nanos, Pid},
    },
};

struct Member {
    pid: Pid,
    /// When its close began.
    closed_at: Option<Nanos>,
    /// The session in which its close returned without an error.
    session: Option<i64>,
}

/// The queues of all elections.
#[derive(Default)]
pub(super) struct Queues {
    /// The participants' nodes on the servers, with the id in each and the session that owns it.
    queues: BTreeMap<String, BTreeMap<String, (String, i64)>>,
    members: BTreeMap<String, Member>,
    /// The number of the servers' changes that were looked at.
    seen: usize,
    reported: BTreeSet<String>,
}

impl Queues {
    /// A participation begins.
    pub(super) fn join(&mut self, election: &str, id: &str, pid: Pid) {
        self.queues.entry(election.to_owned()).or_default();
        self.members.insert(id.to_owned(), Member { pid, closed_at: None, session: None });
    }

    /// The close of a participant begins.
    pub(super) fn close(&mut self, id: &str, at: Nanos) {
        if let Some(member) = self.members.get_mut(id) {
            member.closed_at = Some(at);
        }
    }

    /// The close of a participant has returned without an error.
    pub(super) fn closed_in(&mut self, id: &str, session: Option<i64>) {
        if let Some(member) = self.members.get_mut(id) {
            member.session = session;
        }
    }

    /// Looks at the changes of the queues.
    pub(super) fn follow(&mut self, view: &View<'_>, found: &mut Findings) {
        let (now, core) = (view.now, view.core());
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
            let Some(member) = self.members.get(&id) else { continue };
            if stat.version == 0
                && let Some(closed_at) = member.closed_at
                && now > closed_at.max(core.undisturbed_since(member.pid)) + REQUEST_ARRIVES_WITHIN
            {
                let text = format!("{parent}: {id} creates {} after its close", change.path);
                found.violation(text);
            }
            // A session that the client has given up may last longer at the servers.
            let jump_felt_until = core.process(member.pid).jump_felt_until;
            let is_old = now < core.disturbances.renewed_apart_until.max(jump_felt_until);
            let counts = |owner: i64| !is_old || owner == stat.ephemeral_owner;
            let is_same = |(other, owner): &&(String, i64)| *other == id && counts(*owner);
            let same = queue.values().filter(is_same).count();
            if same > 1 {
                found.violation(format!("{parent}: {id} has {same} nodes"));
            }
        }
        self.seen = changes.len();
        for (path, queue) in &self.queues {
            for (node, (id, owner)) in queue {
                let Some(Member { pid, closed_at: Some(at), session }) = self.members.get(id)
                else {
                    continue;
                };
                let is_left = core.is_active(*pid)
                    && now > (*at).max(core.disturbed_until(*pid)) + ORPHAN_AFTER;
                let is_refuted = *session == Some(*owner);
                if (is_left || is_refuted) && self.reported.insert(node.clone()) {
                    found.violation(format!("{path}: {id} is closed, not {node}"));
                }
            }
        }
    }
}
