//! The sessions that a leader tracks, and their expiry.
//!
//! A session does not expire at its deadline but with its bucket: deadlines are rounded up to the next tick, as in a
//! real server. Instants are milliseconds since the creation of the machine.
//!
//! Source: `SessionTrackerImpl`, `ExpiryQueue`.

use std::collections::{BTreeMap, BTreeSet};

/// A session.
#[derive(Debug, Clone)]
struct Session {
    /// The member that the session was last attached to; `None` until this leader hears of one.
    owner: Option<usize>,
    expires: u64,
}

/// The open sessions of a leader.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    sessions: BTreeMap<i64, Session>,
    buckets: BTreeMap<u64, BTreeSet<i64>>,
    tick: u64,
}

/// The answer to the question whether a member may write for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Owned,
    /// The session is attached to another member.
    Moved,
    /// The session has ended, or never existed.
    Unknown,
}

impl Sessions {
    /// Creates an empty table; `tick` is in milliseconds.
    pub(crate) const fn new(tick: u64) -> Self {
        let tick = if tick == 0 { 1 } else { tick };
        Self { sessions: BTreeMap::new(), buckets: BTreeMap::new(), tick }
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        self.sessions.contains_key(&id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = i64> {
        self.sessions.keys().copied()
    }

    pub(crate) fn add(&mut self, id: i64, timeout: u64, owner: Option<usize>, now: u64) {
        self.sessions.entry(id).or_insert(Session { owner, expires: 0 });
        self.touch(id, timeout, now);
    }

    /// Attaches a session to a member, with a newly negotiated timeout. Returns whether the session is open.
    pub(crate) fn attach(&mut self, id: i64, timeout: u64, owner: usize, now: u64) -> bool {
        let session = self.sessions.get_mut(&id);
        let is_open = session.map(|session| session.owner = Some(owner)).is_some();
        self.touch(id, timeout, now);
        is_open
    }

    /// Whether a member may write for a session. Under a new leader, the first member that does becomes the owner.
    ///
    /// Source: `SessionTrackerImpl.checkSession`.
    pub(crate) fn check(&mut self, id: i64, member: usize) -> Standing {
        let Some(session) = self.sessions.get_mut(&id) else { return Standing::Unknown };
        let owner = *session.owner.get_or_insert(member);
        if owner == member { Standing::Owned } else { Standing::Moved }
    }

    /// Restarts a session's timeout. The latest touch counts, even if it brings the expiry forward because it carries a
    /// shorter timeout.
    pub(crate) fn touch(&mut self, id: i64, timeout: u64, now: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let expires = (now.saturating_add(timeout) / self.tick + 1).saturating_mul(self.tick);
        if session.expires == expires {
            return;
        }
        leave(&mut self.buckets, session.expires, id);
        session.expires = expires;
        self.buckets.entry(expires).or_default().insert(id);
    }

    /// Returns whether the session was open.
    pub(crate) fn remove(&mut self, id: i64) -> bool {
        let Some(session) = self.sessions.remove(&id) else { return false };
        leave(&mut self.buckets, session.expires, id);
        true
    }

    /// The expired sessions, in order of expiry.
    pub(crate) fn expired(&self, now: u64) -> Vec<i64> {
        self.buckets.range(..=now).flat_map(|(_, ids)| ids).copied().collect()
    }

    /// The expiry buckets: each instant with the sessions that expire at it.
    pub(crate) fn expiries(&self) -> impl ExactSizeIterator<Item = (u64, &BTreeSet<i64>)> {
        self.buckets.iter().map(|(at, ids)| (*at, ids))
    }

    /// The instant of the next possible expiry.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        self.buckets.keys().next().copied()
    }
}

fn leave(buckets: &mut BTreeMap<u64, BTreeSet<i64>>, bucket: u64, id: i64) {
    if let Some(ids) = buckets.get_mut(&bucket) {
        ids.remove(&id);
        if ids.is_empty() {
            buckets.remove(&bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_expire_with_their_bucket() {
        let mut sessions = Sessions::new(500);
        sessions.add(1, 1000, None, 0);
        sessions.add(2, 1000, None, 600);
        assert_eq!((sessions.next_expiry(), sessions.expired(1499)), (Some(1500), vec![]));
        assert_eq!(sessions.expired(1500), [1]);
        sessions.touch(1, 1000, 1499);
        assert_eq!(sessions.expired(2000), [2]);
        assert_eq!(sessions.expired(2500), [2, 1]);
        sessions.remove(2);
        assert_eq!((sessions.next_expiry(), sessions.len()), (Some(2500), 1));
    }

    /// Source: `ExpiryQueue.update`.
    #[test]
    fn a_touch_with_a_shorter_timeout_brings_the_expiry_forward() {
        let mut sessions = Sessions::new(500);
        sessions.add(1, 10_000, None, 0);
        sessions.touch(1, 1000, 100);
        assert_eq!(sessions.next_expiry(), Some(1500));
    }

    #[test]
    fn the_first_writer_owns_a_session_under_a_new_leader() {
        let mut sessions = Sessions::new(500);
        sessions.add(1, 1000, None, 0);
        assert_eq!([2, 2, 1].map(|member| sessions.check(1, member)), {
            [Standing::Owned, Standing::Owned, Standing::Moved]
        });
        assert!(sessions.attach(1, 1000, 1, 0));
        assert_eq!(sessions.check(1, 1), Standing::Owned);
        assert_eq!(sessions.check(9, 1), Standing::Unknown);
    }
}
