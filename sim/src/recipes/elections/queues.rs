//! The queues of elections: one node for each participant, none after its close.

use std::collections::BTreeMap;

use crate::{
    checks::{
        REQUEST_ARRIVES_WITHIN,
        owners::{Closed, ServerNode},
    },
    world::{
        check::{Findings, View},
        time::Pid,
    },
};

/// The queues of all elections.
#[derive(Default)]
pub(super) struct Queues {
    /// The participants' nodes on the servers, with the id in each and the session that owns it.
    queues: BTreeMap<String, BTreeMap<String, (String, i64)>>,
    /// The processes of the participants.
    members: BTreeMap<String, Pid>,
    /// The number of the servers' changes that were looked at.
    seen: usize,
}

impl Queues {
    /// A participation begins.
    pub(super) fn join(&mut self, election: &str, id: &str, pid: Pid) {
        self.queues.entry(election.to_owned()).or_default();
        self.members.insert(id.to_owned(), pid);
    }

    /// Looks at the changes of the queues.
    pub(super) fn follow(&mut self, view: &View<'_>, closed: &mut Closed, found: &mut Findings) {
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
            let Some(pid) = self.members.get(&id) else { continue };
            if stat.version == 0 {
                closed.judge_create(&core, now, &id, change, found);
            }
            // A session that the client has given up may last longer at the servers.
            let jump_felt_until = core.process(*pid).jump_felt_until;
            let apart = &core.disturbances.apart;
            let apart = core
                .answered_at(*pid, apart)
                .map(|at| core.disturbances.session_over_for_client_at(at));
            let is_old = now < apart.unwrap_or(0).max(jump_felt_until);
            let counts = |owner: i64| !is_old || owner == stat.ephemeral_owner;
            let is_same = |(other, owner): &&(String, i64)| *other == id && counts(*owner);
            let same = queue.values().filter(is_same).count();
            if same > 1 {
                let text = format!("{parent}: {id} has {same} nodes");
                // A participant whose policy gives up a create of unknown outcome joins again while the background
                // looks for the node.
                if now < core.undisturbed_since(*pid) + REQUEST_ARRIVES_WITHIN {
                    found.counted("the node of a create given up", text);
                } else {
                    found.violation(text);
                }
            }
        }
        self.seen = changes.len();
        for (path, (id, owner)) in self.queues.values().flatten() {
            let node = ServerNode { path, owner: *owner, is_creator: true };
            closed.judge_node(&core, now, id, &node, found);
        }
    }
}
