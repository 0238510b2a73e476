//! Which sessions there are, and when they end.
//!
//! A session expires not at its deadline but with its bucket: deadlines are rounded up to the next tick,
//! as a real server does. Instants are milliseconds since the machine was made.
//!
//! Source: `SessionTrackerImpl`, `ExpiryQueue`.

use std::collections::{BTreeMap, BTreeSet};

/// One session.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// In milliseconds.
    pub(crate) timeout: u64,
    /// The member of the ensemble it is attached to, or was last.
    pub(crate) member: usize,
    expires: u64,
}

/// All of them.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    sessions: BTreeMap<i64, Session>,
    buckets: BTreeMap<u64, BTreeSet<i64>>,
    tick: u64,
}

impl Sessions {
    /// `tick` in milliseconds.
    pub(crate) const fn new(tick: u64) -> Self {
        let tick = if tick == 0 { 1 } else { tick };
        Self { sessions: BTreeMap::new(), buckets: BTreeMap::new(), tick }
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Session> {
        self.sessions.get(&id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = i64> {
        self.sessions.keys().copied()
    }

    pub(crate) fn add(&mut self, id: i64, timeout: u64, member: usize, now: u64) {
        self.sessions.insert(id, Session { timeout, member, expires: 0 });
        self.touch(id, now);
    }

    /// Attaches it to a member, with a newly negotiated timeout.
    pub(crate) fn attach(&mut self, id: i64, timeout: u64, member: usize, now: u64) {
        if let Some(session) = self.sessions.get_mut(&id) {
            (session.timeout, session.member) = (timeout, member);
        }
        self.touch(id, now);
    }

    /// Something was heard of it.
    pub(crate) fn touch(&mut self, id: i64, now: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let expires = (now.saturating_add(session.timeout) / self.tick + 1) * self.tick;
        if session.expires >= expires {
            return;
        }
        leave(&mut self.buckets, session.expires, id);
        session.expires = expires;
        self.buckets.entry(expires).or_default().insert(id);
    }

    pub(crate) fn remove(&mut self, id: i64) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        leave(&mut self.buckets, session.expires, id);
        Some(session)
    }

    /// Makes it expire at the next look.
    pub(crate) fn expire_now(&mut self, id: i64) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        leave(&mut self.buckets, session.expires, id);
        session.expires = 0;
        self.buckets.entry(0).or_default().insert(id);
        true
    }

    /// The sessions whose time is over, in order.
    pub(crate) fn expired(&self, now: u64) -> Vec<i64> {
        self.buckets.range(..=now).flat_map(|(_, ids)| ids).copied().collect()
    }

    /// When the next one may expire.
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
        sessions.add(1, 1000, 0, 0);
        sessions.add(2, 1000, 0, 600);
        assert_eq!((sessions.next_expiry(), sessions.expired(1499)), (Some(1500), vec![]));
        assert_eq!(sessions.expired(1500), [1]);
        sessions.touch(1, 1499);
        assert_eq!(sessions.expired(2000), [2]);
        assert_eq!(sessions.expired(2500), [2, 1]);
        sessions.remove(2);
        assert_eq!((sessions.next_expiry(), sessions.len()), (Some(2500), 1));
    }
}
