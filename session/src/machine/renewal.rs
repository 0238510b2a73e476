//! The state of the renewal of the proven bound; its rules are in [`proof`](super::proof).

use super::connection::Role;
use crate::time::Instant;

/// The state of the renewal.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// Whether the bound was renewed before, or is to be.
    in_use: bool,
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
    pub(super) const fn begin_use(&mut self) {
        self.in_use = true;
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
        self.in_use && self.probed != connection
    }

    /// Records that the server of this connection is asked for its role.
    pub(super) const fn note_probe(&mut self, connection: u64) {
        self.probed = connection;
    }

    /// Records the end of a connection to a server of this role.
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
