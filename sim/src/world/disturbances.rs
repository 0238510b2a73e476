//! The disturbances that faults cause: their times, and the end of their possible effects.

use std::collections::{BTreeMap, BTreeSet};

use super::time::{MILLISECOND, Nanos, SECOND};

/// A time from its beginning to its end.
pub(crate) type Span = (Nanos, Nanos);

/// A time in which a member answers its clients without the leader, or without all changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Apart {
    /// The member; `None`: all of them.
    pub(crate) member: Option<usize>,
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
}

/// The longest delay of requests behind one that a throttled server has refused.
const THROTTLED_FOR: Nanos = 15 * SECOND;

/// The effects of faults on servers and sessions.
#[derive(Debug, Default)]
pub(crate) struct Disturbances {
    /// The end of all faults.
    pub(crate) peace_at: Nanos,
    /// The end of the last fault that concerns all processes.
    pub(crate) until: Nanos,
    /// The time after which members give each other up, in milliseconds: the sync limit and two ticks.
    pub(crate) sync_limit_ms: u64,
    /// The interval at which a leader hears of the clients of its followers.
    pub(crate) tick: Nanos,
    /// The longest session timeout.
    pub(crate) longest_timeout: Nanos,
    /// When a member might not have known that it is cut off the others.
    pub(crate) cuts: Vec<Span>,
    /// When a member may not have applied changes of the others, such as the end of a session.
    pub(crate) lags: Vec<Apart>,
    /// When a member may renew a session that its leader has ended.
    pub(crate) apart: Vec<Apart>,
    /// When servers were made to refuse requests.
    pub(crate) throttled: Vec<Nanos>,
    /// The sessions that the servers were made to end, with the time.
    pub(crate) expired: BTreeMap<i64, Nanos>,
    /// The nodes of recipes that another client has tried to delete.
    pub(crate) intruded: BTreeSet<String>,
}

impl Disturbances {
    /// Whether servers may have refused requests shortly before this time.
    pub(crate) fn refuses(&self, at: Nanos) -> bool {
        self.throttled.iter().any(|began_at| (*began_at..began_at + THROTTLED_FOR).contains(&at))
    }

    /// From now on the naive bound of a hold may not suffice: for `for_ms`, the member may renew sessions of which the
    /// leader does not hear. It has not heard of the last renewals either.
    pub(crate) fn renew_apart(&mut self, now: Nanos, member: Option<usize>, for_ms: u64) {
        let (from, until) = (now.saturating_sub(self.tick), now + for_ms * MILLISECOND);
        self.apart.push(Apart { member, from, until });
    }

    /// When a session whose last answer came at this time is over for its client. The slack is the error of the clock, and
    /// the time of a request.
    pub(crate) fn over_at(&self, answered_at: Nanos) -> Nanos {
        answered_at.saturating_add(self.longest_timeout * 51 / 50 + SECOND / 10)
    }

    /// Whether sessions end although nothing fails: they are shorter than a tick.
    pub(crate) fn has_short_sessions(&self) -> bool {
        self.apart.iter().any(|apart| apart.until == Nanos::MAX)
    }

    /// Notes that for `for_ms` a member may not know that it is cut off the others.
    pub(crate) fn note_cut(&mut self, now: Nanos, for_ms: u64) {
        self.cuts.push((now, now + (for_ms + self.sync_limit_ms) * MILLISECOND));
    }
}
