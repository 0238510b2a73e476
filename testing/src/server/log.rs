//! The log: the ordered changes, which members have accepted them, and how far each member has applied them.
//!
//! A leader proposes a change to its learners; a change that a majority has accepted is committed. A member applies
//! the committed changes in order on its own tree, and notifies its own watchers. A change that no majority has
//! accepted stays in the log of the members that have it; the next leader decides whether it takes effect.

use std::sync::Arc;

use docent_protocol::{Perms, Text};

use super::{
    acl,
    config::millis,
    connection::{OUTPUT_LIMIT, State},
    ensemble::Ensemble,
    member::{Member, Role},
    membership::Membership,
    messages::{Answer, Body, Context, Entry},
    prep,
    tree::{Change, Tree, Txn},
};

impl Ensemble {
    /// The wall clock, in milliseconds since 1970.
    pub(super) fn wall_ms(&self) -> i64 {
        self.config.epoch().saturating_add(i64::try_from(self.now).unwrap_or(i64::MAX))
    }

    /// Sets the wall clock at instant zero, in milliseconds since 1970. A difference of up to 1 ms comes from reading
    /// two clocks; to follow it would make times go back.
    pub(super) fn follow_wall_clock(&mut self, epoch_ms: i64) {
        if self.config.epoch().abs_diff(epoch_ms) > 1 {
            self.config.epoch_ms = Some(epoch_ms);
        }
    }

    /// Orders a change, as the leader `at`.
    pub(super) fn propose(&mut self, at: usize, txn: Txn, origin: Option<(Context, Answer)>) {
        let wall_ms = self.wall_ms();
        let Some(member) = self.members.get_mut(at) else { return };
        let Some(leading) = &mut member.leading else { return };
        leading.zxid += 1;
        let entry = Arc::new(Entry { zxid: leading.zxid, wall_ms, txn, origin });
        if let Some(ordered) = &mut leading.ordered {
            ordered.apply(&entry.txn, entry.zxid, wall_ms, &mut Vec::new());
        }
        let learners: Vec<_> = leading.learners.keys().copied().collect();
        member.accepted.push_back(Arc::clone(&entry));
        for learner in learners {
            self.post_to_learner(at, learner, Body::Propose(Arc::clone(&entry)));
        }
        self.count_acks(at);
    }

    /// Uses up a zxid without a change.
    pub(super) fn skip_zxid(&mut self, at: usize) {
        if let Some(leading) = self.members.get_mut(at).and_then(|m| m.leading.as_mut()) {
            leading.zxid += 1;
        }
    }

    /// Commits the changes that a majority has accepted. From a pending change of the members on, it takes a majority
    /// of the old members and one of the new members.
    pub(super) fn count_acks(&mut self, at: usize) {
        let (membership, changed) = (self.membership_of(at), self.changed_membership_of(at));
        if self.controls.disks_stall {
            return;
        }
        let Some(member) = self.members.get_mut(at) else { return };
        let Some(leading) = &member.leading else { return };
        let own = member.accepted.back().map_or(member.committed, |entry| entry.zxid);
        if member.role == Role::Standalone {
            member.committed = own;
            return self.apply_committed(at, false);
        }
        let accepted_by_majority = |members: &Membership| {
            let learners = leading.learners.iter().map(|(learner, state)| (*learner, state.acked));
            let voters = learners.chain([(at, own)]).filter(|(member, _)| members.votes(*member));
            let mut acked: Vec<_> = voters.map(|(_, zxid)| zxid).collect();
            acked.sort_unstable_by(|a, b| b.cmp(a));
            let others = members.voters() / 2;
            #[cfg(docent_sim)]
            let others = if self.controls.commits_alone { 0 } else { others };
            acked.get(others).copied().unwrap_or(0)
        };
        let mut zxid = accepted_by_majority(&membership);
        if let Some(changed) = &changed {
            zxid = zxid.min(accepted_by_majority(changed).max(changed.version - 1));
            // The leader may have to step down, even if it applies the change later.
            self.needs_leader_search |= zxid >= changed.version;
        }
        if zxid <= member.committed {
            return;
        }
        let learners: Vec<_> = leading.learners.keys().copied().collect();
        // A sync is answered before the changes that were ordered after it are committed.
        let syncs = leading.syncs.iter().map(|(sync, _)| *sync);
        let mut steps: Vec<_> =
            syncs.filter(|sync| (member.committed + 1..zxid).contains(sync)).collect();
        steps.dedup();
        steps.push(zxid);
        for step in steps {
            if let Some(member) = self.members.get_mut(at) {
                member.committed = step;
            }
            for learner in &learners {
                self.post_to_learner(at, *learner, Body::Commit(step));
            }
            self.answer_syncs(at);
        }
        self.apply_committed(at, false);
    }

    /// The tree that a leader checks writes on: its own, with all changes that it has ordered and not yet applied.
    pub(super) fn ordered_tree(&mut self, at: usize) -> Option<&mut Tree> {
        let member = self.members.get_mut(at)?;
        let leading = member.leading.as_mut()?;
        if leading.ordered.is_none() && !member.accepted.is_empty() {
            let mut tree = member.tree.clone();
            for entry in &member.accepted {
                tree.apply(&entry.txn, entry.zxid, entry.wall_ms, &mut Vec::new());
            }
            leading.ordered = Some(Box::new(tree));
        }
        Some(leading.ordered.as_deref_mut().unwrap_or(&mut member.tree))
    }

    /// Applies the committed changes that a member has not applied yet. A member that lags applies them up to the last
    /// write of its own clients, or all if it is `forced`.
    pub(super) fn apply_committed(&mut self, at: usize, forced: bool) {
        let Some(member) = self.members.get(at) else { return };
        let committed = member.committed;
        let mut until = if member.lags && !forced {
            let known = member.accepted.iter().rev().skip_while(|entry| entry.zxid > committed);
            known.into_iter().find(|entry| entry.is_of(at)).map_or(0, |entry| entry.zxid)
        } else {
            committed
        };
        self.is_applying = true;
        let mut changes = Vec::new();
        while let Some(member) = self.members.get_mut(at)
            && let Some(entry) = member.accepted.front().filter(|entry| entry.zxid <= until)
        {
            let entry = Arc::clone(entry);
            member.accepted.pop_front();
            let applied = member.tree.apply(&entry.txn, entry.zxid, entry.wall_ms, &mut changes);
            if let Txn::CreateSession { session_id, timeout } = entry.txn
                && let Some(following) = &mut member.following
            {
                // The session has the timeout of its creation, even if it was resumed with another one since.
                following.touched.insert(session_id, timeout);
            }
            let session_id = entry.origin().map_or(0, |context| context.session_id);
            self.record_changes(at, (entry.zxid, session_id), &changes);
            self.notify(at, entry.zxid, &mut changes);
            if let Some((context, answer)) = &entry.origin
                && context.member == at
            {
                self.written(*context, entry.zxid, answer, applied);
            }
            if let Some(context) = entry.origin()
                && (context.member == at
                    || self.members.get(at).is_some_and(|member| member.leading.is_some()))
            {
                self.release_waiting(at, *context);
            }
            if let Txn::CloseSession { session_id } = entry.txn {
                self.close_all(|c| c.member == at && c.session_id() == Some(session_id));
            }
            if std::mem::take(&mut self.must_catch_up) {
                until = committed;
            }
        }
        self.is_applying = false;
        if let Some(member) = self.members.get_mut(at)
            && member.accepted.is_empty()
            && let Some(leading) = &mut member.leading
        {
            leading.ordered = None;
        }
    }

    /// Applies all committed changes, because of a sync. If a write is being applied, the rest follows after it, and
    /// the sync sees only the changes up to that write.
    pub(super) fn catch_up(&mut self, at: usize) {
        if self.is_applying {
            self.must_catch_up = true;
        } else {
            self.apply_committed(at, true);
        }
    }

    /// Notifies a member's watchers of changes.
    fn notify(&mut self, at: usize, zxid: i64, changes: &mut Vec<Change>) {
        let version = self.version_of(at);
        let Some(member) = self.members.get_mut(at) else { return };
        let zxid = if version.events_have_zxid() { zxid } else { -1 };
        let events = changes.iter().flat_map(|change| member.watches.trigger(change));
        for notice in events {
            for id in notice.to {
                let Some(connection) = self.connections.get_mut(&id) else { continue };
                let hears = !version.filters_events()
                    || acl::allows(&notice.acl, Perms::READ, &connection.ids);
                #[cfg(docent_sim)]
                self.controls.unnotified.extend(connection.session_id().filter(|_| !hears));
                if hears && connection.state != State::Closing {
                    connection.notify(zxid, notice.event, &notice.path);
                    if connection.output.len() > OUTPUT_LIMIT {
                        connection.output.clear();
                        connection.close();
                    }
                    self.ready.insert(id);
                }
            }
        }
        changes.clear();
    }

    pub(super) fn reap(&mut self) {
        self.next_reaping = self.now + millis(self.config.container_check_interval).max(1);
        let wall_ms = self.wall_ms();
        for at in 0..self.members.len() {
            let leads = |m: &&Member| m.leading.is_some() && !m.paused;
            let Some(member) = self.members.get(at).filter(leads) else {
                continue;
            };
            for path in member.tree.reapable(wall_ms) {
                let tree = self.ordered_tree(at);
                let txn = tree.and_then(|tree| prep::delete_container(Text::new(&path), tree).ok());
                self.propose(at, txn.unwrap_or(Txn::Error), None);
            }
        }
        self.pump();
    }
}
