//! How long a session may be believed in.
//!
//! A [`SessionLease`] stands for one session and is shared by all who hold something in it. It answers
//! from two bounds, both kept by the state machine:
//!
//! * the **naive** one: send time of the last answered request, plus the negotiated timeout, minus a
//!   margin. Best effort. On an ensemble it is wrong where a follower answers for a leader that no longer
//!   hears it: nodes were seen to be gone up to 5.7 s before it ran out.
//! * the **proven** one (rule R0): send time of the connect request that created the session, plus the
//!   smaller of the timeout of that moment and the latest granted one, less 1 % for clocks that run at
//!   different rates. Nobody can have got an ephemeral node of this session away before it, whatever
//!   happened to servers and network; but nothing renews it yet.
//!
//! Neither comes back once it has run out: a late answer proves nothing about the time in between, so a
//! [`SessionClaim`] made before stays void.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::time::Instant;

/// One session, from its creation to its end, as far as this client knows.
#[derive(Debug)]
pub struct SessionLease {
    session_id: i64,
    /// Nanoseconds; see [`Instant`].
    deadline: AtomicU64,
    proven_until: AtomicU64,
    /// How often the deadline had run out before it was set anew.
    lapses: AtomicU64,
    lost: AtomicBool,
}

impl SessionLease {
    pub(crate) fn new(session_id: i64, deadline: Instant, proven_until: Instant) -> Arc<Self> {
        Arc::new(Self {
            session_id,
            deadline: AtomicU64::new(deadline.as_nanos()),
            proven_until: AtomicU64::new(proven_until.as_nanos()),
            lapses: AtomicU64::new(0),
            lost: AtomicBool::new(false),
        })
    }

    /// The session's id; ephemeral nodes carry it as their owner. Printed in hexadecimal by custom.
    #[must_use]
    pub const fn session_id(&self) -> i64 {
        self.session_id
    }

    /// Whether the session is known to have ended. `false` proves nothing; ask a [`SessionClaim`].
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// When the naive bound runs out, on the client's [`Clock`](crate::Clock).
    #[must_use]
    pub fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// When the proven bound runs out, on the client's [`Clock`](crate::Clock).
    #[must_use]
    pub fn proven_until(&self) -> Instant {
        Instant::from_nanos(self.proven_until.load(Ordering::Acquire))
    }

    /// Starts to rely on the session. To be made *before* the request that shows that there is something
    /// to rely on is sent.
    #[must_use]
    pub fn claim(self: &Arc<Self>) -> SessionClaim {
        SessionClaim { lease: Arc::clone(self), lapses: self.lapses.load(Ordering::Acquire) }
    }

    /// A request sent at `sent_at` was answered at `now`.
    pub(crate) fn renew(&self, now: Instant, sent_at: Instant, lasts: Duration) {
        let old = self.deadline();
        if now > old {
            // Before the new deadline is visible: whoever sees that one must see this too.
            self.lapses.fetch_add(1, Ordering::AcqRel);
        }
        let new = sent_at + lasts;
        if new > old {
            self.deadline.store(new.as_nanos(), Ordering::Release);
        }
    }

    /// The server granted a smaller timeout.
    pub(crate) fn shorten_proof(&self, proven_until: Instant) {
        self.proven_until.fetch_min(proven_until.as_nanos(), Ordering::AcqRel);
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

/// The belief that what is held in a session is still held.
///
/// Once [`is_valid`](Self::is_valid) could have said no, it says no for ever.
#[derive(Debug, Clone)]
pub struct SessionClaim {
    lease: Arc<SessionLease>,
    lapses: u64,
}

impl SessionClaim {
    /// The session.
    #[must_use]
    pub const fn lease(&self) -> &Arc<SessionLease> {
        &self.lease
    }

    /// Whether the session is not known to be lost and its naive bound has not run out since the claim
    /// was made. Best effort, see the [module](crate::SessionLease).
    #[must_use]
    pub fn is_valid(&self, now: Instant) -> bool {
        now <= self.lease.deadline()
            && self.lease.lapses.load(Ordering::Acquire) == self.lapses
            && !self.lease.is_lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    const T: Duration = Duration::from_secs(1);

    #[test]
    fn a_claim_lives_as_long_as_answers_come_in_time() {
        let lease = SessionLease::new(1, at(1000), at(990));
        let claim = lease.claim();
        lease.renew(at(900), at(800), T);
        assert!(claim.is_valid(at(1800)));
        assert!(!claim.is_valid(at(1801)));
    }

    #[test]
    fn a_late_answer_revives_the_session_but_no_claim() {
        let lease = SessionLease::new(1, at(1000), at(990));
        let before = lease.claim();
        lease.renew(at(1500), at(900), T);
        assert!(!before.is_valid(at(1501)), "nobody asked while it had run out, but it had");
        assert!(lease.claim().is_valid(at(1501)));
    }

    #[test]
    fn answers_out_of_order_never_shorten_it() {
        let lease = SessionLease::new(1, at(1000), at(990));
        lease.renew(at(500), at(400), T);
        lease.renew(at(600), at(300), T);
        assert_eq!(lease.deadline(), at(1400));
    }

    #[test]
    fn a_lost_session_ends_every_claim() {
        let lease = SessionLease::new(1, at(1000), at(990));
        let claim = lease.claim();
        lease.lose();
        assert!(!claim.is_valid(at(1)));
    }
}
