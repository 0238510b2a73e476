//! The log: the changes in their order, and who has applied how much of it.
//!
//! A member applies the log in order, on its own tree, and tells its own watchers. What all running
//! members have applied is forgotten.

use docent_protocol::{Perms, Text};

use super::{
    acl,
    config::millis,
    connection::State,
    ensemble::{Ensemble, OUTPUT_LIMIT, Role},
    prep,
    tree::{Applied, Txn},
};

/// A change in the log.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) zxid: i64,
    wall_ms: i64,
    txn: Txn,
}

impl Ensemble {
    /// The wall clock, in milliseconds since 1970.
    pub(super) fn wall_ms(&self) -> i64 {
        self.config.epoch().saturating_add(i64::try_from(self.now).unwrap_or(i64::MAX))
    }

    /// Appends a change to the log and applies it wherever it is due, in any case at `origin`. The zxid,
    /// and what it has done.
    pub(crate) fn commit(&mut self, origin: usize, txn: Txn) -> (i64, Applied) {
        self.zxid += 1;
        let zxid = self.zxid;
        self.log.push_back(Entry { zxid, wall_ms: self.wall_ms(), txn });
        let mut applied = Applied::Nothing;
        for at in 0..self.members.len() {
            let due = self.members.get(at).is_some_and(|member| {
                matches!(member.role, Role::Leader | Role::Standalone | Role::Follower)
                    && (!member.lags || at == origin)
            });
            if due {
                let last = self.catch_up(at);
                if at == origin {
                    applied = last;
                }
            }
        }
        self.trim_log();
        (zxid, applied)
    }

    /// Uses up a number without a change.
    pub(crate) const fn skip_zxid(&mut self) {
        self.zxid += 1;
    }

    /// Applies all of the log that a member has not applied. What the last change has done.
    pub(crate) fn catch_up(&mut self, at: usize) -> Applied {
        let Some(member) = self.members.get_mut(at) else { return Applied::Nothing };
        let has = member.tree.last_zxid;
        let from = self.log.partition_point(|entry| entry.zxid <= has);
        let mut last = Applied::Nothing;
        let mut notices = Vec::new();
        for entry in self.log.range(from..) {
            let mut changes = Vec::new();
            last = member.tree.apply(&entry.txn, entry.zxid, entry.wall_ms, &mut changes);
            let events = changes.iter().flat_map(|change| member.watches.trigger(change));
            notices.extend(events.map(|notice| (entry.zxid, notice)));
        }
        let version = self.config.version;
        for (zxid, notice) in notices {
            let zxid = if version.events_have_zxid() { zxid } else { -1 };
            for id in notice.to {
                let Some(connection) = self.connections.get_mut(&id) else { continue };
                let hears = !version.filters_events()
                    || acl::allows(&notice.acl, Perms::READ, &connection.ids);
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
        last
    }

    /// Forgets what every running member has applied.
    pub(super) fn trim_log(&mut self) {
        let needed = self.members.iter().filter(|m| m.role.serves() || m.role == Role::Looking);
        let Some(oldest) = needed.map(|member| member.tree.last_zxid).min() else { return };
        while self.log.front().is_some_and(|entry| entry.zxid <= oldest) {
            self.log.pop_front();
        }
    }

    pub(super) fn reap(&mut self) {
        self.next_reaping = self.now + millis(self.config.container_check_interval).max(1);
        let Some(leader) = self.leader() else { return };
        let wall_ms = self.wall_ms();
        let Some(member) = self.members.get(leader) else { return };
        for path in member.tree.reapable(wall_ms) {
            let tree = self.members.get(leader).map(|member| &member.tree);
            let txn = tree.map(|tree| prep::delete_container(Text::new(&path), tree));
            let txn = txn.and_then(Result::ok).unwrap_or(Txn::Error);
            self.commit(leader, txn);
        }
    }
}
