//! The state of the renewal of the proven bound; its rules are in [`proof`](super::proof).

use super::connection::Role;
use crate::time::Instant;

/// The state of the renewal.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// When a renewal of the bound was last requested.
    used_at: Option<Instant>,
    /// Whether a planned reconnect is in progress, from the end of the old connection on.
    moving: bool,
    /// The send time of the earliest connect request for this session that has no reply.
    unanswered_since: Option<Instant>,
    /// Whether the server of a planned reconnect is known not to lead.
    is_follower: bool,
    /// The number of the connection whose server was last asked for its role.
    probed: u64,
}

impl Renewal {
    /// Records that the bound is to be renewed.
    pub(super) const fn note_use(&mut self, now: Instant) {
        self.used_at = Some(now);
    }

    /// Whether a renewal was requested at `since` or later: something is held until the bound.
    pub(super) fn is_used_since(&self, since: Instant) -> bool {
        self.used_at.is_some_and(|at| at >= since)
    }

    /// Records a connect request for the current session.
    pub(super) fn note_attempt(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
    }

    /// Records that the connect request that was sent at `sent_at` is answered; returns the base of what a write proves.
    pub(super) fn note_reply(&mut self, sent_at: Instant) -> Instant {
        let base = self.unanswered_since.unwrap_or(sent_at).min(sent_at);
        if base == sent_at {
            self.unanswered_since = None;
        }
        base
    }

    /// Records that a write has proved the session: the connect requests before it are handled.
    pub(super) const fn note_write(&mut self) {
        self.unanswered_since = None;
    }

    /// Whether the role of the server of this connection is of use, and was not asked for.
    pub(super) const fn needs_role(&self, connection: u64) -> bool {
        self.used_at.is_some() && self.probed != connection
    }

    /// Records that the server of this connection is asked for its role.
    pub(super) const fn note_probe(&mut self, connection: u64) {
        self.probed = connection;
    }

    /// Records the end of a connection. `role` is that of the next server, as far as known.
    pub(super) fn note_disconnect(&mut self, is_planned: bool, role: Role) {
        self.moving = is_planned;
        self.is_follower = is_planned && role == Role::Other;
    }

    /// Whether a planned reconnect is in progress.
    pub(super) const fn is_moving(&self) -> bool {
        self.moving
    }

    /// Whether the server of a planned reconnect is known not to lead.
    pub(super) const fn is_follower(&self) -> bool {
        self.is_follower
    }

    /// Ends the planned reconnect, and returns whether there was one.
    pub(super) const fn end_move(&mut self) -> bool {
        std::mem::replace(&mut self.moving, false)
    }

    /// The session has ended.
    pub(super) const fn forget(&mut self) {
        self.moving = false;
        self.is_follower = false;
        self.unanswered_since = None;
    }
}
