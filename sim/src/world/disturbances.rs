//! The disturbances that faults cause: their times, and the end of their possible effects.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::time::{MILLISECOND, Nanos, Pid, SECOND};

/// The longest time until a client is connected, without a fault: a pause between attempts is up to 5 s.
pub(crate) const CONNECTED_WITHIN: Nanos = 8 * SECOND;

/// A period: its beginning and its end.
pub(crate) type Span = (Nanos, Nanos);

/// A period in which a member answers its clients without the leader, or before it has applied all changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Apart {
    /// The member; `None`: all of them.
    pub(crate) member: Option<usize>,
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
}

/// The members that a fault may keep from their clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Away {
    Nothing,
    Member(usize),
    All,
}

/// How long requests may be delayed after a throttled server has refused one.
const THROTTLED_FOR: Nanos = 15 * SECOND;

/// The effects of faults on servers and sessions.
#[derive(Debug, Default)]
pub(crate) struct Disturbances {
    /// The end of all faults.
    pub(crate) peace_at: Nanos,
    /// The processes that faults have concerned; `None`: all of them.
    pub(crate) concerned: BTreeSet<Option<Pid>>,
    /// The end of the last fault that concerns all processes.
    pub(crate) until: Nanos,
    /// The end of the last fault that may have kept a process from a member; `None`: all of them.
    away_until: BTreeMap<(Option<Pid>, Option<usize>), Nanos>,
    /// The time after which members give each other up, in milliseconds: the sync limit and two ticks.
    pub(crate) sync_limit_ms: u64,
    /// The interval at which a leader hears of the clients of its followers.
    pub(crate) tick: Nanos,
    /// The longest session timeout.
    pub(crate) longest_timeout: Nanos,
    /// When a member might not have known that it is cut off from the others.
    pub(crate) cuts: Vec<Span>,
    /// When a member may not have applied changes of the others, such as the end of a session.
    pub(crate) lags: Vec<Apart>,
    /// When a member may renew a session that its leader has ended.
    pub(crate) apart: Vec<Apart>,
    /// When servers were made to refuse requests.
    pub(crate) throttled: Vec<Nanos>,
    /// The sessions that the servers were made to end, with the time.
    pub(crate) expired: BTreeMap<i64, Nanos>,
    /// When writes to these nodes, and to those below them, were last refused: until the permissions on them, or their
    /// quota, were given back.
    denied: BTreeMap<String, Nanos>,
    /// When a member last granted each session, and its timeout in milliseconds.
    granted: BTreeMap<i64, (Nanos, u64)>,
    /// When a write of each session was last refused because a connect request of an earlier attempt, which arrived late, had
    /// moved it.
    pub(super) moved_at: BTreeMap<i64, Nanos>,
    /// What other clients have done to nodes of recipes: deleted them, or written the record of a strict mutex.
    invalidated_by_others: BTreeMap<String, Invalidations>,
}

/// Changes of a node by others than its owner.
#[derive(Debug, Default)]
struct Invalidations {
    /// How many may still happen.
    begun: usize,
    /// When the last reply to one arrived.
    last_at: Option<Nanos>,
}

/// Whether a node is this one, or below it.
pub(crate) fn is_at_or_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Disturbances {
    /// Whether servers may have refused requests shortly before this time.
    pub(crate) fn refuses(&self, at: Nanos) -> bool {
        self.throttled.iter().any(|began_at| (*began_at..began_at + THROTTLED_FOR).contains(&at))
    }

    /// Notes that a fault may keep a process from a member until this time; `None`: all of them.
    pub(crate) fn take_away(&mut self, pid: Option<Pid>, member: Option<usize>, until: Nanos) {
        let noted = self.away_until.entry((pid, member)).or_default();
        *noted = until.max(*noted);
    }

    /// Until when faults may have kept this process from a member; `None`: all of them.
    pub(crate) fn away_until(&self, pid: Option<Pid>, member: usize) -> Nanos {
        let concerns = |(of_pid, of_member): &(Option<Pid>, Option<usize>)| {
            *of_pid == pid && of_member.is_none_or(|of| of == member)
        };
        let faults = self.away_until.iter().filter(|(of, _)| concerns(of));
        faults.map(|(_, until)| *until).max().unwrap_or_default()
    }

    /// Forgets what faults have concerned: all of it ends now.
    pub(crate) fn make_peace(&mut self, now: Nanos) {
        self.until = now;
        self.away_until = BTreeMap::from([((None, None), now)]);
    }

    /// Notes that another client is about to delete a node of a recipe, or to write the record of a strict mutex.
    pub(crate) fn invalidate(&mut self, path: &str) {
        self.invalidated_by_others.entry(path.to_owned()).or_default().begun += 1;
    }

    /// Notes that such a change is known to have been made, or to have been refused.
    pub(crate) fn end_invalidation(&mut self, path: &str, made_at: Option<Nanos>) {
        if let Some(changes) = self.invalidated_by_others.get_mut(path) {
            changes.begun = changes.begun.saturating_sub(1);
            changes.last_at = changes.last_at.max(made_at);
        }
    }

    /// Whether another client has, or may have, changed a node in such a way since some time.
    pub(crate) fn is_invalidated_since(&self, path: &str, since: Nanos) -> bool {
        self.invalidated_by_others.get(path).is_some_and(|changes| {
            changes.begun > 0 || changes.last_at.is_some_and(|at| at >= since)
        })
    }

    /// Whether another client has ever changed a node in such a way, or may have.
    pub(crate) fn is_invalidated_by_others(&self, path: &str) -> bool {
        self.is_invalidated_since(path, 0)
    }

    /// Notes that the servers refuse writes to a node, and to those below it.
    pub(crate) fn deny(&mut self, path: &str, until: Nanos) {
        let noted = self.denied.entry(path.to_owned()).or_default();
        *noted = until.max(*noted);
    }

    /// Until when a request for a node may have been refused for the permissions or the quota of it, or of a node
    /// above it; 0: never.
    pub(crate) fn denied_until(&self, path: &str) -> Nanos {
        let ends = self.denied.iter().filter(|(denied, _)| is_at_or_below(path, denied));
        ends.map(|(_, until)| *until).max().unwrap_or_default()
    }

    /// Notes that a member has granted a session with this timeout in milliseconds.
    pub(crate) fn note_granted(&mut self, session: i64, now: Nanos, timeout: u64) {
        self.granted.insert(session, (now, timeout));
    }

    /// The timeout with which a member last granted a session, whether or not the client has heard of it.
    pub(crate) fn granted_timeout(&self, session: i64) -> Option<Duration> {
        self.granted.get(&session).map(|(_, timeout)| Duration::from_millis(*timeout))
    }

    /// When a member last granted a session; 0: none has.
    pub(crate) fn granted_at(&self, session: i64) -> Nanos {
        self.granted.get(&session).map(|(at, _)| *at).unwrap_or_default()
    }

    /// Whether the client of a session may notice now that it has moved: by a call that fails, or by its next connection.
    pub(crate) fn has_moved(&self, session: i64, now: Nanos) -> bool {
        self.moved_at.get(&session).is_some_and(|at| now < at + CONNECTED_WITHIN)
    }

    /// Notes that the naive bound of a hold may not suffice: for `for_ms`, the member may renew sessions without the
    /// leader. The leader has not heard of the renewals of the last tick either.
    pub(crate) fn renew_apart(&mut self, now: Nanos, member: Option<usize>, for_ms: u64) {
        let (from, until) = (now.saturating_sub(self.tick), now + for_ms * MILLISECOND);
        self.apart.push(Apart { member, from, until });
    }

    /// When a client whose last answer came at this time knows that its session is over. The slack covers the error of
    /// its clock, and the time of a request.
    pub(crate) fn session_over_for_client_at(&self, answered_at: Nanos) -> Nanos {
        answered_at.saturating_add(self.longest_timeout * 51 / 50 + SECOND / 10)
    }

    /// Whether sessions end although nothing fails, because they are shorter than a tick.
    pub(crate) fn has_short_sessions(&self) -> bool {
        self.apart.iter().any(|apart| apart.until == Nanos::MAX)
    }

    /// Notes that for `for_ms` a member may not know that it is cut off from the others.
    pub(crate) fn note_cut(&mut self, now: Nanos, for_ms: u64) {
        self.cuts.push((now, now + (for_ms + self.sync_limit_ms) * MILLISECOND));
    }
}
