//! Leader election, and its effects on the other members.
//!
//! This is not ZooKeeper's algorithm, only its effects that a client can see. Members that have no leader and reach
//! each other in both directions agree at once, if they are a majority: the one whose log is the longest leads, and
//! the others take its state. Its epoch is in the zxid. When a member loses its leader, or stops leading, it closes
//! its clients' connections.
//!
//! Source: `FastLeaderElection`, `Leader.lead`, `ZooKeeperServer.startSessionTracker`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    config::millis,
    ensemble::Ensemble,
    member::{Following, Leading, Learner, Role},
    membership::Membership,
    messages::Body,
    sessions::Sessions,
};

impl Ensemble {
    /// Lets members without a leader find one, or elect one of them.
    pub(super) fn search_for_leaders(&mut self) {
        self.searched_at = self.now;
        self.retire_leaders();
        while self.find_leader() || self.elect() {}
        let serves_reads = self.config.read_only || self.config.read_only_mode_enabled;
        let role = if serves_reads { Role::ReadOnly } else { Role::Looking };
        for at in self.searching() {
            if self.role(at) != role {
                self.take_role(at, role);
            }
        }
    }

    /// The members without a leader.
    fn searching(&self) -> Vec<usize> {
        let searches = |at: &usize| {
            matches!(self.role(*at), Role::Looking | Role::ReadOnly) && !self.is_paused(*at)
        };
        (0..self.members.len()).filter(searches).collect()
    }

    /// When the next member without a leader may vote.
    pub(super) fn next_vote(&self) -> Option<u64> {
        let votes_at = |at: usize| self.members.get(at).map(|member| member.votes_at);
        self.searching().into_iter().filter_map(votes_at).filter(|at| *at > self.searched_at).min()
    }

    /// The members without a leader that may vote for one.
    fn voting(&self) -> Vec<usize> {
        let votes = |at: &usize| self.members.get(*at).is_some_and(|m| m.votes_at <= self.now);
        self.searching().into_iter().filter(votes).collect()
    }

    /// Lets a member without a leader follow one that it reaches. It never goes back to a leader of an older epoch than
    /// it has followed. Returns whether a member has found a leader.
    fn find_leader(&mut self) -> bool {
        for at in self.searching() {
            let epoch = self.members.get(at).map_or(0, |member| member.epoch);
            let leaders = (0..self.members.len()).filter(|leader| {
                let leads = self.role(*leader) == Role::Leader;
                leads
                    && !self.is_paused(*leader)
                    && self.links.connects(at, *leader)
                    && self.epoch_of(*leader) >= epoch
            });
            if let Some(leader) = leaders.max_by_key(|leader| self.epoch_of(*leader)) {
                self.join(leader, at);
                return true;
            }
        }
        false
    }

    fn epoch_of(&self, at: usize) -> i64 {
        self.members.get(at).map_or(0, |member| member.epoch)
    }

    /// Elects a leader, if a majority of the members that vote searches for one and can agree. Returns whether it does.
    ///
    /// Source: `FastLeaderElection.validVoter`, `getVoteTracker`.
    fn elect(&mut self) -> bool {
        if self.config.read_only {
            return false;
        }
        let searching = self.voting();
        let mut candidates = searching.clone();
        candidates.sort_by_key(|at| (std::cmp::Reverse(self.last_accepted(*at)), *at));
        for leader in candidates {
            let members = self.membership_of(leader);
            let changed = self.changed_membership_of(leader).unwrap_or_else(|| members.clone());
            // A member votes only if it and the leader each know the other as a voting member.
            let votes = |at: &usize| {
                (*at == leader || self.links.connects(*at, leader))
                    && (members.votes(*at) || changed.votes(*at))
                    && self.membership_of(*at).votes(leader)
            };
            let voters: Vec<_> = searching.iter().copied().filter(votes).collect();
            let newest = voters.iter().map(|at| self.last_accepted(*at)).max();
            let is_quorum = |of: &Membership| of.is_quorum(voters.iter().copied());
            if members.votes(leader)
                && is_quorum(&members)
                && is_quorum(&changed)
                && newest == Some(self.last_accepted(leader))
            {
                self.lead(leader);
                for at in voters.into_iter().filter(|at| *at != leader) {
                    self.join(leader, at);
                }
                self.expire_deferred(leader);
                return true;
            }
        }
        false
    }

    /// The zxid of the last change in a member's log.
    pub(super) fn last_accepted(&self, at: usize) -> i64 {
        self.members.get(at).map_or(0, |member| {
            member.accepted.back().map_or(member.tree.last_zxid, |entry| entry.zxid)
        })
    }

    /// Makes a member the leader of a new epoch. All changes in its log are committed, and every session restarts with
    /// the timeout of its creation.
    fn lead(&mut self, at: usize) {
        let is_standalone = !self.config.is_ensemble();
        self.take_role(at, if is_standalone { Role::Standalone } else { Role::Leader });
        let last = self.last_accepted(at);
        if let Some(member) = self.members.get_mut(at) {
            member.committed = last;
        }
        self.apply_committed(at, true);
        self.epoch += 1;
        let (tick, wall_ms) = (self.sessions_tick(), self.wall_ms());
        let Some(member) = self.members.get_mut(at) else { return };
        member.epoch = self.epoch;
        if !is_standalone {
            let zxid = self.epoch << 32;
            member.tree.last_zxid = zxid;
            // The initial membership gets a version once there is a leader (ZOOKEEPER-1783).
            if member.tree.membership.version == 0 && self.config.reconfig_enabled {
                Arc::make_mut(&mut member.tree.membership).version = zxid;
            }
            member.tree.show_membership(member.tree.membership.version, wall_ms);
        }
        member.committed = member.tree.last_zxid;
        let mut sessions = Sessions::new(tick);
        for (id, timeout) in &member.tree.sessions {
            sessions.add(*id, *timeout, None, self.now);
        }
        member.leading = Some(Box::new(Leading {
            zxid: member.tree.last_zxid,
            sessions,
            ordered: None,
            learners: BTreeMap::new(),
            syncs: VecDeque::new(),
            next_ping: self.now + (tick / 2).max(1),
            is_half: false,
            tick: 0,
        }));
    }

    /// Makes a member follow a leader, with the leader's state.
    fn join(&mut self, leader: usize, at: usize) {
        self.take_role(at, Role::Follower);
        let Some(from) = self.members.get(leader) else { return };
        let (tree, accepted) = (from.tree.clone(), from.accepted.clone());
        let (committed, epoch) = (from.committed, from.epoch);
        let (channel, now) = (self.links.open(), self.now);
        let Some(member) = self.members.get_mut(at) else { return };
        (member.tree, member.accepted) = (tree, accepted);
        (member.committed, member.epoch) = (committed, epoch);
        let (touched, forwarded) = (BTreeMap::new(), VecDeque::new());
        member.following = Some(Following { leader, channel, last_heard: now, touched, forwarded });
        let acked = self.last_accepted(at);
        if let Some(leading) = self.members.get_mut(leader).and_then(|m| m.leading.as_mut()) {
            let learner = Learner { channel, acked, last_heard: now, last_tick: leading.tick };
            leading.learners.insert(at, learner);
        }
        self.apply_committed(at, false);
        self.count_acks(leader);
    }

    /// Changes a member's role. Its clients' connections end.
    pub(super) fn take_role(&mut self, at: usize, role: Role) {
        self.cut_connections(Some(at));
        let tick = self.sessions_tick();
        if let Some(member) = self.members.get_mut(at) {
            member.role = role;
            member.votes_at = self.now + millis(self.config.election_time);
            (member.leading, member.following) = (None, None);
            member.local_sessions = Sessions::new(tick);
        }
        self.needs_leader_search = true;
    }

    /// Ends a follower's connection to its leader.
    pub(super) fn lose_leader(&mut self, at: usize) {
        self.take_role(at, Role::Looking);
    }

    /// Ends the leadership of a member, which then looks for a leader.
    pub(super) fn step_down(&mut self, at: usize) {
        let leading = self.members.get(at).and_then(|member| member.leading.as_ref());
        let learners = leading.map(|l| l.learners.keys().copied().collect::<Vec<_>>());
        for learner in learners.unwrap_or_default() {
            self.post_to_learner(at, learner, Body::Closed);
        }
        self.take_role(at, Role::Looking);
    }

    /// Whether a leader has heard from a majority within the limit, counted in ticks.
    pub(super) fn has_quorum(&self, at: usize) -> bool {
        let changed = self.changed_membership_of(at);
        self.membership_of(at).is_quorum(self.synced(at))
            && changed.is_none_or(|changed| changed.is_quorum(self.synced(at)))
    }

    /// The members that a leader has heard from within the limit, counted in ticks, and itself.
    pub(super) fn synced(&self, at: usize) -> impl Iterator<Item = usize> {
        let leading = self.members.get(at).and_then(|member| member.leading.as_ref());
        let limit = u64::from(self.config.sync_limit.max(1));
        let learners = leading.into_iter().flat_map(move |leading| {
            let synced = leading.learners.iter();
            synced.filter(move |(_, learner)| learner.last_tick + limit >= leading.tick)
        });
        learners.map(|(member, _)| *member).chain(leading.map(|_| at))
    }

    /// The members of the ensemble as a member knows them: those of the last committed change, applied or not.
    ///
    /// Source: `Follower.processPacket`, `Leader.tryToCommit`, `QuorumPeer.processReconfig`.
    pub(super) fn membership_of(&self, at: usize) -> Arc<Membership> {
        let Some(member) = self.members.get(at) else { return Arc::default() };
        let changes = member.accepted.iter().rev().filter_map(|entry| entry.membership());
        let applied = || &member.tree.membership;
        let mut committed = changes.filter(|change| change.version <= member.committed);
        Arc::clone(committed.next().unwrap_or_else(applied))
    }

    /// The members after a change that is accepted and not yet committed.
    ///
    /// Source: `QuorumPeer.getLastSeenQuorumVerifier`.
    pub(super) fn changed_membership_of(&self, at: usize) -> Option<Arc<Membership>> {
        let member = self.members.get(at)?;
        let changes = member.accepted.iter().rev().filter_map(|entry| entry.membership());
        changes.into_iter().find(|change| change.version > member.committed).map(Arc::clone)
    }

    /// Makes leaders that have left the ensemble step down.
    fn retire_leaders(&mut self) {
        for at in 0..self.members.len() {
            if self.role(at) == Role::Leader && !self.membership_of(at).votes(at) {
                self.step_down(at);
            }
        }
    }
}
