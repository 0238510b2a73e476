//! Why something may be believed to be held although its node is gone. Nothing excuses a hold whose node exists: a contender
//! that is granted its lock is wrong.

use std::collections::BTreeSet;

use docent::session::planted;

use crate::world::{
    check::Findings,
    disturbances::Disturbances,
    history::What,
    time::{Nanos, SECOND},
};

/// A member answered for the others, which had ended the session.
const APART: &str = "members without each other";

/// A member answered which had not yet applied the end of the session.
const LAGS: &str = "a member that lags";

/// The end of something that is believed to be held.
pub(crate) struct Lapse {
    /// When a node of it was deleted.
    pub(crate) gone_at: Nanos,
    /// When the servers deleted the node with its session; `None` if the session is open.
    pub(crate) ended_at: Option<Nanos>,
    /// Whether it is within its proven bound.
    pub(crate) is_proven: bool,
}

/// Why something may be believed to be held by these nodes of a session, one of which is gone.
pub(crate) fn excuse<'a>(
    of: &Disturbances,
    mut paths: impl Iterator<Item = &'a str>,
    session: i64,
    lapse: &Lapse,
    now: Nanos,
) -> Option<&'static str> {
    if paths.any(|path| of.intruded.contains(path)) && !planted::is("node-deleted-by-hand") {
        return Some("a node deleted by another client");
    }
    let timeout = of.longest_timeout;
    // No server renews an ended session, but one that has not heard of the end. Without a leader, the next one ends
    // it. The slack is the error of the clock, and the time of a request.
    let heard = |at: Nanos| at + timeout + timeout / 50 + SECOND / 10;
    let lags_until = of.lags.iter().map(|(_, until)| *until).max().unwrap_or(0);
    let heard_of = |at: &Nanos| heard(lapse.gone_at.max(lags_until).max(*at));
    let by_force = of.expired.get(&session).is_some_and(|at| now < heard_of(at));
    if by_force && !planted::is("session-ended-by-hand") {
        return Some("a session ended by force");
    }
    if lapse.is_proven {
        return None;
    }
    // A member that lagged when the session ended answers its client until it has applied the end.
    let lagged = |at: Nanos| of.lags.iter().filter(move |(from, to)| (*from..=*to).contains(&at));
    let lagged = lapse.ended_at.and_then(|at| lagged(at).map(|(_, until)| *until).max());
    if lagged.is_some_and(|until| now < heard(until)) {
        return Some(LAGS);
    }
    (now < of.renewed_apart_until).then_some(APART)
}

/// Holds or leaderships that should not be believed in at once.
pub(crate) struct Conflict {
    /// The numbers of a pair, or twice that of a single one.
    pub(crate) key: (u64, u64),
    /// How many are believed in.
    pub(crate) holds: usize,
    /// How many may be.
    pub(crate) limit: usize,
    pub(crate) text: String,
}

/// The conflicts of a run.
#[derive(Default)]
pub(crate) struct Conflicts {
    reported: BTreeSet<(u64, u64)>,
    counted: BTreeSet<(u64, u64)>,
}

impl Conflicts {
    pub(crate) fn is_reported(&self, key: (u64, u64)) -> bool {
        self.reported.contains(&key)
    }

    /// Whether a conflict is reported for the first time.
    pub(crate) fn report(&mut self, key: (u64, u64)) -> bool {
        self.reported.insert(key)
    }

    /// Reports a conflict, or counts it if the excuses leave no more than may be believed in.
    pub(crate) fn judge(
        &mut self,
        conflict: Conflict,
        excuses: &[&str],
        is_within_proof: impl FnOnce() -> bool,
        found: &mut Findings,
    ) {
        let Conflict { key, holds, limit, text } = conflict;
        match excuses.first().filter(|_| holds - excuses.len() <= limit) {
            Some(excuse) => {
                if self.counted.insert(key) {
                    found.push(What::Naive { holds, text: format!("{text} ({excuse})") });
                }
            }
            None if !self.report(key) => {}
            None if is_within_proof() => {
                found.violation(format!("{text}, within the proven bound"));
            }
            None => found.violation(text),
        }
    }
}
