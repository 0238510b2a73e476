//! The servers: the embedded ensemble, driven by the world's time.

use std::{collections::BTreeSet, time::Duration};

use docent_testing::server::{Config, Ensemble, Version};

use super::{
    time::{Nanos, nanos},
    truth::Truth,
};

/// The ensemble, the changes that it has applied, and the members that lag.
pub struct Servers {
    pub(crate) ensemble: Ensemble,
    /// The number of members.
    pub(crate) count: usize,
    /// The version of all members.
    pub(crate) version: Version,
    /// Whether a session is known to one member only, until it creates an ephemeral node.
    pub(crate) has_local_sessions: bool,
    /// The changes that were applied so far.
    pub(crate) truth: Truth,
    /// The members that lag.
    pub(crate) lagging: BTreeSet<usize>,
    /// When the leader lagged.
    pub(crate) leader_lags: Vec<(Nanos, Nanos)>,
    is_lag_noted: bool,
}

impl Servers {
    /// Running servers without data.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let (count, version) = (config.servers.max(1), config.version);
        let has_local_sessions = config.local_sessions_enabled;
        let mut ensemble = Ensemble::new(config);
        ensemble.start_recording();
        ensemble.make_backup();
        Self {
            ensemble,
            count,
            version,
            has_local_sessions,
            truth: Truth::default(),
            lagging: BTreeSet::new(),
            leader_lags: Vec::new(),
            is_lag_noted: false,
        }
    }

    /// The next instant at which time must be passed to the servers.
    pub(crate) fn alarm(&self) -> Option<Nanos> {
        let due = self.ensemble.poll_timeout()?;
        Some(nanos(due))
    }

    /// Notes whether the leader lags now.
    pub(super) fn note_lag(&mut self, now: Duration) {
        let now = nanos(now);
        let leader = if self.lagging.is_empty() { None } else { self.ensemble.leader() };
        let lags = leader.is_some_and(|leader| self.lagging.contains(&leader));
        match self.leader_lags.last_mut().filter(|_| self.is_lag_noted) {
            Some((_, until)) => *until = now,
            None if lags => self.leader_lags.push((now, now)),
            None => {}
        }
        self.is_lag_noted = lags;
    }
}
