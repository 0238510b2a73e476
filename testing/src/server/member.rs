//! A member of an ensemble: its role, its state, and what it keeps as a leader or as a follower.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    config::{Config, millis},
    connection::TRACE_MASK,
    messages::{ConnectionId, Context, Entry, Message},
    sessions::Sessions,
    tree::Tree,
    version::Version,
    watches::Watches,
};

/// The current role of a member of an ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The only server.
    Standalone,
    /// Orders all changes.
    Leader,
    /// Follows a leader.
    Follower,
    /// Has no quorum and serves only reads.
    ReadOnly,
    /// Has no quorum and answers nothing.
    Looking,
    /// Is stopped.
    Down,
}

impl Role {
    pub(super) const fn serves(self) -> bool {
        !matches!(self, Self::Looking | Self::Down)
    }
}

/// A member of an ensemble.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) role: Role,
    pub(crate) tree: Tree,
    pub(crate) watches: Watches,
    /// The changes that the member has accepted and not applied yet, oldest first.
    pub(super) accepted: VecDeque<Arc<Entry>>,
    /// The zxid of the last change that the member knows to be committed.
    pub(super) committed: i64,
    /// The epoch of the last leader that the member has followed or been.
    pub(super) epoch: i64,
    /// The state of a leader or a stand-alone server.
    pub(super) leading: Option<Box<Leading>>,
    /// The state of a follower.
    pub(super) following: Option<Following>,
    /// Whether the member applies changes only for its own clients' writes and, as a follower, for `sync`.
    pub(super) lags: bool,
    /// Whether it is paused: nothing arrives, and its timers stand still.
    pub(super) paused: bool,
    /// Messages received from other members while it is paused.
    pub(super) unread: VecDeque<Message>,
    /// When it may vote, in milliseconds: a vote takes `election_time`.
    pub(super) votes_at: u64,
    /// Whether nothing arrives from its clients.
    pub(super) deaf: bool,
    /// Whether nothing arrives at its clients.
    pub(super) mute: bool,
    /// The version that it imitates.
    pub(super) version: Version,
    /// The longest session timeout that it grants.
    pub(super) max_session_timeout: Duration,
    /// The local sessions, known only to this member.
    pub(crate) local_sessions: Sessions,
    /// The connection of each session attached to this member.
    pub(crate) attached: BTreeMap<i64, ConnectionId>,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The trace mask of `gtmk` and `stmk`: which traces a real server would log.
    pub(crate) trace_mask: u64,
    /// The member's port for `conf`; 0 without a socket.
    pub(crate) client_port: u16,
}

impl Member {
    /// A member that looks for a leader.
    pub(super) fn new(config: &Config, tree: Tree) -> Self {
        Self {
            role: Role::Looking,
            tree,
            watches: Watches::new(config.version),
            accepted: VecDeque::new(),
            committed: 0,
            epoch: 0,
            leading: None,
            following: None,
            lags: false,
            paused: false,
            unread: VecDeque::new(),
            votes_at: 0,
            deaf: false,
            mute: false,
            version: config.version,
            max_session_timeout: config.max_session_timeout,
            local_sessions: Sessions::new(millis(config.tick_time)),
            attached: BTreeMap::new(),
            received: 0,
            sent: 0,
            trace_mask: TRACE_MASK,
            client_port: 0,
        }
    }

    /// Whether the bytes of its clients wait unread.
    pub(super) const fn hears_nothing(&self) -> bool {
        self.deaf || self.paused
    }
}

/// The state of a leader.
#[derive(Debug)]
pub(crate) struct Leading {
    /// The zxid of the last change that it has ordered.
    pub(super) zxid: i64,
    pub(super) sessions: Sessions,
    /// Its tree with all changes that it has ordered; `None` while its own tree has them all.
    pub(super) ordered: Option<Box<Tree>>,
    pub(super) learners: BTreeMap<usize, Learner>,
    /// The syncs of learners that wait for a change to be committed.
    pub(super) syncs: VecDeque<(i64, Context)>,
    /// When it pings its learners next, in milliseconds.
    pub(super) next_ping: u64,
    /// Whether the last ping was in the middle of a tick.
    pub(super) is_half: bool,
    /// The number of ticks since its election.
    pub(super) tick: u64,
}

/// A leader's record of a learner.
#[derive(Debug)]
pub(super) struct Learner {
    pub(super) channel: u64,
    /// The zxid of the last change that it has accepted.
    pub(super) acked: i64,
    /// When it was last heard from, in milliseconds.
    pub(super) last_heard: u64,
    /// The same in ticks of the leader.
    pub(super) last_tick: u64,
}

/// A follower's record of its leader.
#[derive(Debug)]
pub(crate) struct Following {
    pub(super) leader: usize,
    pub(super) channel: u64,
    /// When the leader was last heard from, in milliseconds.
    pub(super) last_heard: u64,
    /// The sessions heard of since the leader's last ping, with their timeouts in milliseconds.
    pub(super) touched: BTreeMap<i64, u64>,
    /// The writes and syncs of its clients that have been sent to the leader, in order, including those of ended
    /// connections.
    pub(super) forwarded: VecDeque<Context>,
}
