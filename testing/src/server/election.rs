//! Who leads, and what becomes of the others.
//!
//! Not ZooKeeper's algorithm, only what a client can see of it: without a majority nobody leads; when the
//! leader changes, all connections end, the epoch in the zxid grows, and every session gets its full time
//! again.

use super::ensemble::{Ensemble, Role};

impl Ensemble {
    /// Decides who leads. Everybody whose role changes loses its connections.
    pub(super) fn elect(&mut self) {
        let up = self.members.iter().filter(|m| m.role != Role::Down).count();
        let total = self.members.len();
        let standalone = total == 1;
        let leader = if up * 2 <= total || self.config.read_only {
            None
        } else {
            self.leader().or_else(|| self.most_recent())
        };
        let is_new = leader.is_some() && self.leader() != leader;
        if is_new {
            // A new leader's time begins when everybody has what the old one's time has left.
            for at in 0..total {
                if self.role(at) != Role::Down {
                    self.catch_up(at);
                }
            }
        }
        if is_new && !standalone {
            self.zxid = ((self.zxid >> 32) + 1) << 32;
            self.log.clear();
            for member in self.members.iter_mut().filter(|m| m.role != Role::Down) {
                member.tree.last_zxid = self.zxid;
            }
        }
        for at in 0..total {
            let Some(member) = self.members.get(at) else { continue };
            let role = match (member.role, leader) {
                (Role::Down, _) => Role::Down,
                (_, Some(_)) if standalone => Role::Standalone,
                (_, Some(leader)) if leader == at => Role::Leader,
                (_, Some(_)) => Role::Follower,
                _ if self.config.read_only || self.config.read_only_mode_enabled => Role::ReadOnly,
                _ => Role::Looking,
            };
            let joins = role == Role::Follower && member.role != Role::Follower;
            if role != member.role || is_new {
                self.cut_connections(Some(at));
            }
            if joins {
                self.copy_tree(leader, at);
            }
            if let Some(member) = self.members.get_mut(at) {
                member.role = role;
            }
        }
        if is_new {
            // A new leader gives every session its full time again.
            for id in self.session_ids() {
                self.sessions.touch(id, self.now);
            }
        }
    }

    /// Who of those that are up has applied most; the log belongs to all, so it only has to be up.
    pub(super) fn most_recent(&self) -> Option<usize> {
        (0..self.members.len()).filter(|at| self.role(*at) != Role::Down).max_by_key(|at| {
            (self.members.get(*at).map(|m| m.tree.last_zxid), std::cmp::Reverse(*at))
        })
    }

    pub(super) fn copy_tree(&mut self, from: Option<usize>, to: usize) {
        let tree = from.and_then(|from| self.members.get(from)).map(|member| member.tree.clone());
        if let (Some(tree), Some(member)) = (tree, self.members.get_mut(to)) {
            member.tree = tree;
            member.local_sessions.clear();
        }
    }
}
