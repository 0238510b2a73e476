//! Controls for tests: expire sessions, cut connections, stop members, make members lag. `links.rs` has the controls of
//! the links.

use std::{sync::Arc, time::Duration};

use docent_protocol::OpCode;

use super::{
    connection::Connection,
    ensemble::Ensemble,
    member::{Member, Role},
    messages::Body,
    sessions::Sessions,
    tree::Tree,
    version::Version,
    watches::Watches,
};

impl Ensemble {
    /// Expires a session: its connection is closed without a reply, and its ephemeral nodes are deleted. Returns
    /// whether the session existed. Without a leader, the next one expires it.
    pub fn expire_session(&mut self, session_id: i64) -> bool {
        if (0..self.members.len()).any(|at| self.end_local_session(at, session_id)) {
            return true;
        }
        let Some(leader) = self.leader().filter(|leader| !self.is_paused(*leader)) else {
            let knows = |member: &Member| member.tree.sessions.contains_key(&session_id);
            let known = self.members.iter().any(knows);
            if known {
                self.to_expire.insert(session_id);
            }
            return known;
        };
        let leading = self.members.get(leader).and_then(|member| member.leading.as_ref());
        let known = leading.is_some_and(|leading| leading.sessions.contains(session_id));
        if known {
            self.end_session(leader, session_id);
            self.pump();
        }
        known
    }

    /// Expires the sessions that were to expire while there was no leader.
    pub(super) fn expire_deferred(&mut self, leader: usize) {
        for session_id in std::mem::take(&mut self.to_expire) {
            self.end_session(leader, session_id);
        }
    }

    /// Sets the client address of a member, which `/zookeeper/config` and the word `conf` show. It is the TLS address
    /// if the server has TLS and its version shows such addresses. Call this before a client connects: no watch fires.
    pub fn set_client_address(&mut self, member: usize, host: &str, port: u16) {
        if let Some(member) = self.members.get_mut(member) {
            member.client_port = port;
        }
        let wall_ms = self.wall_ms();
        let secure = self.config.has_tls() && self.config.version.shows_secure_addresses();
        for Member { tree, .. } in &mut self.members {
            if Arc::make_mut(&mut tree.membership).set_client(member, host, port, secure) {
                tree.show_membership(tree.membership.version, wall_ms);
            }
        }
    }

    /// Sets `maxSessionTimeout` of a member, as a restart with another configuration does. A session has its new timeout
    /// from its next connection to that member on.
    pub fn set_max_session_timeout(&mut self, member: usize, timeout: Duration) {
        if let Some(member) = self.members.get_mut(member) {
            member.max_session_timeout = timeout;
        }
    }

    /// Sets the version of a stopped member, as a rolling upgrade does. The data keep the format of
    /// [`Config::version`](super::Config::version); a leader checks writes as its own version does.
    pub fn set_version(&mut self, member: usize, version: Version) {
        if let Some(member) =
            self.members.get_mut(member).filter(|member| member.role == Role::Down)
        {
            (member.version, member.watches) = (version, Watches::new(version));
        }
    }

    /// The version of a member.
    pub(super) fn version_of(&self, member: usize) -> Version {
        self.members.get(member).map_or(self.config.version, |member| member.version)
    }

    /// Lets the disks of all servers stall, or go on. Meanwhile no change is committed; pings and reads are answered. A real
    /// leader gives its followers up if that lasts longer than [`sync_limit`](super::Config::sync_limit) ticks.
    ///
    /// Source: `SyncRequestProcessor.flush`, `LearnerHandler.SyncLimitCheck`.
    pub fn stall_disks(&mut self, now: Duration, stall: bool) {
        self.set_now(now);
        self.controls.disks_stall = stall;
        (0..self.members.len()).for_each(|at| self.count_acks(at));
        self.pump();
    }

    /// The ids of all sessions, in ascending order: those that the leader tracks or, without one, those that the newest
    /// member has applied.
    #[must_use]
    pub fn session_ids(&self) -> Vec<i64> {
        if let Some(sessions) = self.tracked_sessions() {
            return sessions.ids().collect();
        }
        let newest = self.newest_tree();
        newest.into_iter().flat_map(|tree| tree.sessions.keys().copied()).collect()
    }

    /// The sessions that the current leader tracks. A paused leader of an older epoch does not know yet that it is none.
    pub(super) fn tracked_sessions(&self) -> Option<&Sessions> {
        let leader = self.members.get(self.leader()?)?;
        let leading = leader.leading.as_ref().filter(|_| leader.epoch == self.epoch);
        leading.map(|leading| &leading.sessions)
    }

    /// Cuts a session's connections; the session survives. Returns the number of connections cut.
    pub fn cut_session(&mut self, session_id: i64) -> usize {
        let of_session = |c: &Connection| c.session_id() == Some(session_id);
        self.close_all(of_session)
    }

    /// Cuts all connections of a member, or of all members for `None`. Returns the number of connections cut.
    pub fn cut_connections(&mut self, member: Option<usize>) -> usize {
        self.close_all(|c| member.is_none_or(|member| c.member == member))
    }

    /// Sets the sequence number of the node's next sequential child. Returns whether the node exists.
    pub fn set_sequence_counter(&mut self, path: &str, next: i32) -> bool {
        self.trees().map(|tree| tree.set_counter(path, next)).filter(|done| *done).count() > 0
    }

    /// Sets the permissions that everyone has on a node, at once and on all members. Only for the simulator, whose
    /// faults need no leader.
    #[cfg(docent_sim)]
    pub fn set_perms(&mut self, path: &str, perms: docent_protocol::Perms) {
        self.trees().for_each(|tree| tree.set_perms(path, perms));
    }

    /// Takes the sessions that were not notified of a change since the last call, because they had no permission to read
    /// the node. Only for the simulator: docs/SIMULATION.md.
    #[cfg(docent_sim)]
    pub fn take_unnotified(&mut self) -> std::collections::BTreeSet<i64> {
        std::mem::take(&mut self.controls.unnotified)
    }

    /// Takes the sessions whose write was refused since the last call, because they had moved to another member: that costs the
    /// connection. Only for the simulator.
    #[cfg(docent_sim)]
    pub fn take_moved(&mut self) -> std::collections::BTreeSet<i64> {
        std::mem::take(&mut self.controls.moved)
    }

    /// Lets nothing grow at or below a path, as a quota that is used up does. Without a write, since the faults need no
    /// leader.
    #[cfg(docent_sim)]
    pub fn set_full(&mut self, path: Option<&str>) {
        self.trees().for_each(|tree| tree.set_full(path));
    }

    /// The trees of all members, and those to which leaders have ordered changes that no member has applied yet.
    fn trees(&mut self) -> impl Iterator<Item = &mut Tree> {
        self.members.iter_mut().flat_map(|member| {
            let ordered =
                member.leading.as_mut().and_then(|leading| leading.ordered.as_deref_mut());
            ordered.into_iter().chain([&mut member.tree])
        })
    }

    /// Stops a member: its connections end, and it no longer accepts any. Its log is kept. The members that it was
    /// connected to notice at once, unless the [link](Self::cut) to them is cut. Without a majority of running members,
    /// the others become read-only.
    pub fn stop_member(&mut self, now: Duration, member: usize) {
        self.set_now(now);
        let following = self.members.get(member).and_then(|m| m.following.as_ref());
        let leader = following.map(|following| following.leader);
        self.post_to_leader(member, Body::Closed);
        self.step_down(member);
        self.take_role(member, Role::Down);
        if let Some(member) = self.members.get_mut(member) {
            member.paused = false;
            member.unread.clear();
        }
        self.pump();
        // A real leader that hears of it steps down at its next tick.
        if let Some(leader) = leader
            && self.lacks_quorum_without(leader, member)
        {
            self.step_down(leader);
            self.pump();
        }
    }

    /// Whether a leader has no quorum, and knows that it has lost this member.
    fn lacks_quorum_without(&self, leader: usize, member: usize) -> bool {
        let leading = self.members.get(leader).and_then(|leader| leader.leading.as_ref());
        leading.is_some_and(|leading| !leading.learners.contains_key(&member))
            && !self.has_quorum(leader)
    }

    /// Starts a stopped member.
    pub fn start_member(&mut self, now: Duration, member: usize) {
        self.set_now(now);
        if self.role(member) == Role::Down {
            self.take_role(member, Role::Looking);
        }
        self.pump();
    }

    /// Makes a backup of the newest member. Only for the simulator: docs/SIMULATION.md.
    #[cfg(docent_sim)]
    pub fn make_backup(&mut self) {
        let newest = self.members.iter().max_by_key(|member| member.tree.last_zxid);
        self.controls.backup = newest.map(|newest| (newest.tree.clone(), newest.epoch));
    }

    /// Replaces the log and all data of a stopped member by the last backup, so that it forgets what it has accepted
    /// since. If all members do, zxids go back. Only for the simulator: docs/SIMULATION.md.
    #[cfg(docent_sim)]
    pub fn restore_backup(&mut self, at: usize) {
        let Some((tree, epoch)) = self.controls.backup.clone() else { return };
        let Some(member) = self.members.get_mut(at).filter(|member| member.role == Role::Down)
        else {
            return;
        };
        (member.committed, member.epoch) = (tree.last_zxid, epoch);
        member.tree = tree;
        member.accepted.clear();
        self.epoch = self.members.iter().map(|member| member.epoch).max().unwrap_or(0);
        let newest = self.members.iter().map(|member| member.tree.last_zxid).max();
        if let Some(record) = &mut self.record {
            record.until = record.until.min(newest.unwrap_or(0));
        }
    }

    /// Lets leaders commit changes that no majority has accepted. Only for a planted fault of the simulator:
    /// docs/SIMULATION.md.
    #[cfg(docent_sim)]
    pub const fn commit_alone(&mut self) {
        self.controls.commits_alone = true;
    }

    /// Pauses a member, as SIGSTOP does: its timers stand still and it handles nothing, but its connections hold, and
    /// new ones are made. Messages and bytes for it wait.
    pub fn pause_member(&mut self, now: Duration, member: usize) {
        self.set_now(now);
        if self.role(member) != Role::Down
            && let Some(member) = self.members.get_mut(member)
        {
            member.paused = true;
        }
    }

    /// Resumes a paused member. It handles the messages sent to it meanwhile, and its timers run from now on. With
    /// `clients_first`, a leader answers its waiting clients before it hears that it is deposed.
    pub fn resume_member(&mut self, now: Duration, at: usize, clients_first: bool) {
        self.set_now(now);
        let Some(member) = self.members.get_mut(at) else { return };
        if !std::mem::take(&mut member.paused) {
            return;
        }
        if let Some(leading) = &mut member.leading {
            leading.next_ping = leading.next_ping.max(self.now + 1);
            for learner in leading.learners.values_mut() {
                learner.last_heard = self.now;
            }
        }
        if let Some(following) = &mut member.following {
            following.last_heard = self.now;
        }
        if clients_first {
            self.read_waiting(at);
        }
        // Messages caused by the clients' requests are at the end of `unread`, behind those that have waited.
        let unread = self.members.get_mut(at).map(|member| std::mem::take(&mut member.unread));
        self.links.repost(unread.unwrap_or_default());
        self.needs_leader_search = true;
        self.pump();
        self.read_waiting(at);
        self.pump();
        if self.leader() == Some(at) {
            self.expire_deferred(at);
            self.pump();
        }
    }

    pub(super) fn is_paused(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| member.paused)
    }

    /// Makes a member apply changes only for its own clients' writes and, on a follower, for `sync`. Its clients read
    /// stale values meanwhile; on a leader they do so even after a `sync`, as on a real one. The member accepts changes
    /// as before; a leader orders and checks writes as before. `false` lets the member catch up with the changes that
    /// it knows to be committed.
    ///
    /// Source: `CommitProcessor.needCommit`, `LeaderZooKeeperServer.setupRequestProcessors`.
    pub fn set_lag(&mut self, now: Duration, member: usize, lags: bool) {
        self.set_now(now);
        if let Some(member) = self.members.get_mut(member) {
            member.lags = lags;
        }
        if !self.is_paused(member) {
            self.apply_committed(member, false);
        }
        self.pump();
    }

    /// Rejects the next `count` requests with `ThrottledOp`, except pings, closeSession and createSession. Has no
    /// effect before 3.7, where servers do not throttle.
    pub const fn throttle(&mut self, count: u32) {
        self.controls.throttled = count;
    }

    pub(super) fn throttles(&mut self, version: Version, op: OpCode) -> bool {
        let concerned = !matches!(op, OpCode::Ping | OpCode::CloseSession | OpCode::CreateSession);
        let throttles = self.controls.throttled > 0 && concerned && version >= Version::V3_8;
        if throttles {
            self.controls.throttled -= 1;
        }
        throttles
    }
}
