//! What tests do to servers: end sessions, cut connections, stop members, let followers lag.

use std::time::Duration;

use docent_protocol::OpCode;

use super::{
    connection::Connection,
    ensemble::{Ensemble, Role},
};

impl Ensemble {
    /// Ends a session as if its time were over: no reply, its connection is closed, its ephemeral nodes
    /// go. Whether there was one.
    pub fn expire_session(&mut self, session_id: i64) -> bool {
        let known = self.sessions.expire_now(session_id);
        if known && self.leader().is_some() {
            self.end_session(session_id);
        }
        known
    }

    /// The sessions there are, by id.
    #[must_use]
    pub fn session_ids(&self) -> Vec<i64> {
        self.sessions.ids().collect()
    }

    /// Cuts a session's connections; the session goes on. How many there were.
    pub fn cut_session(&mut self, session_id: i64) -> usize {
        let of_session = |c: &Connection| c.session_id() == Some(session_id);
        self.close_all(of_session)
    }

    /// Cuts all connections of a member; `None`: of all. How many there were.
    pub fn cut_connections(&mut self, member: Option<usize>) -> usize {
        self.close_all(|c| member.is_none_or(|member| c.member == member))
    }

    /// Sets the number that the next sequential child of a node gets. Whether there is such a node.
    pub fn set_sequence_counter(&mut self, path: &str, next: i32) -> bool {
        let set = self.members.iter_mut().map(|member| member.tree.set_counter(path, next));
        set.filter(|done| *done).count() > 0
    }

    /// Stops a member: its connections end, and nobody listens. A majority must be left, or the others
    /// become read-only.
    pub fn stop_member(&mut self, now: Duration, member: usize) {
        self.set_now(now);
        self.cut_connections(Some(member));
        if let Some(member) = self.members.get_mut(member) {
            member.role = Role::Down;
        }
        self.elect();
    }

    /// Starts a stopped member.
    pub fn start_member(&mut self, now: Duration, member: usize) {
        self.set_now(now);
        if let Some(member) = self.members.get_mut(member).filter(|m| m.role == Role::Down) {
            member.role = Role::Looking;
        }
        self.elect();
    }

    /// Makes a member apply changes only when it has to: for its own clients' writes, and for `sync`. Its
    /// clients read old values meanwhile. `false` lets it catch up.
    pub fn set_lag(&mut self, now: Duration, member: usize, lags: bool) {
        self.set_now(now);
        if let Some(member) = self.members.get_mut(member) {
            member.lags = lags;
        }
        if !lags {
            self.catch_up(member);
        }
    }

    /// Refuses the next `count` requests as too many (`ThrottledOp`), pings and ends of sessions aside.
    /// Servers before 3.7 cannot, and do not.
    pub const fn throttle(&mut self, count: u32) {
        self.throttled = count;
    }

    pub(super) fn throttles(&mut self, op: OpCode) -> bool {
        let concerned = !matches!(op, OpCode::Ping | OpCode::CloseSession | OpCode::CreateSession);
        let throttles =
            self.throttled > 0 && concerned && self.config.version >= super::Version::V3_8;
        if throttles {
            self.throttled -= 1;
        }
        throttles
    }
}
