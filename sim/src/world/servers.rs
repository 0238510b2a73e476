//! The servers: the embedded ensemble, driven by the world's time.

use std::{collections::BTreeSet, time::Duration};

use docent_testing::server::{Config, Ensemble, Role, Version};

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
    /// Whether some client has asked for a change of the members.
    pub(crate) has_changed_members: bool,
    /// The changes that were applied so far.
    pub(crate) truth: Truth,
    /// The members that lag.
    pub(crate) lagging: BTreeSet<usize>,
    /// When the leader lagged.
    pub(crate) leader_lags: Vec<(Nanos, Nanos)>,
    is_lag_noted: bool,
    /// When each member last served no writes, and whether it does not now.
    away: Vec<(Nanos, bool)>,
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
            has_changed_members: false,
            truth: Truth::default(),
            lagging: BTreeSet::new(),
            leader_lags: Vec::new(),
            is_lag_noted: false,
            away: vec![(0, false); count],
        }
    }

    /// The next instant at which time must be passed to the servers.
    pub(crate) fn alarm(&self) -> Option<Nanos> {
        let due = self.ensemble.poll_timeout()?;
        Some(nanos(due))
    }

    /// When a member last had no leader.
    pub(super) fn away_until(&self, member: usize) -> Nanos {
        self.away.get(member).map(|(until, _)| *until).unwrap_or_default()
    }

    /// Notes whether the leader lags now, and which members have no leader.
    pub(super) fn note_members(&mut self, now: Duration) {
        let now = nanos(now);
        for (member, (until, was_away)) in self.away.iter_mut().enumerate() {
            let role = self.ensemble.role(member);
            let is_away = !matches!(role, Role::Standalone | Role::Leader | Role::Follower);
            if std::mem::replace(was_away, is_away) || is_away {
                *until = now;
            }
        }
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
