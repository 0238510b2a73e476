//! Why something may be believed to be held although its node is gone.

use docent::session::planted;

use super::{Belief, Beliefs};
use crate::world::{MILLISECOND, Nanos, SECOND};

/// A member answered for the others, which had ended the session.
const APART: &str = "members without each other";

/// A member answered which had not yet applied the end of the session.
const LAGS: &str = "a member that lags";

/// What is known of the end of something that is believed to be held.
pub(crate) struct Lapse {
    /// When a node of it was deleted.
    pub(crate) gone_at: Nanos,
    /// When the servers deleted the node with its session; `None` if the session is open.
    pub(crate) ended_at: Option<Nanos>,
    /// Whether it is within its proven bound.
    pub(crate) is_proven: bool,
}

impl Beliefs {
    /// Why a hold may be believed in although its node is gone. Nothing excuses a hold whose node exists: a contender
    /// that is granted its lock is wrong.
    pub(super) fn excuse(
        &self,
        belief: &Belief,
        now: Nanos,
        timeout: Nanos,
        is_proven: bool,
    ) -> Option<&'static str> {
        belief.missing_since?;
        let paths = belief.paths.iter().map(String::as_str);
        let lapse = Lapse { gone_at: belief.gone_at, ended_at: belief.ended_at, is_proven };
        self.excuse_of(paths, belief.session, &lapse, now, timeout)
    }

    /// Why something may be believed to be held by these nodes of a session, one of which is gone.
    pub(crate) fn excuse_of<'a>(
        &self,
        mut paths: impl Iterator<Item = &'a str>,
        session: i64,
        lapse: &Lapse,
        now: Nanos,
        timeout: Nanos,
    ) -> Option<&'static str> {
        if paths.any(|path| self.intruded.contains(path)) && !planted::is("node-deleted-by-hand") {
            return Some("a node deleted by another client");
        }
        // No server renews an ended session, but one that has not heard of the end. Without a leader, the next one ends
        // it. The slack is the error of the clock, and the time of a request.
        let heard = |at: Nanos| at + timeout + timeout / 50 + SECOND / 10;
        let lags_until = self.lags.iter().map(|(_, until)| *until).max().unwrap_or(0);
        let heard_of = |at: &Nanos| heard(lapse.gone_at.max(lags_until).max(*at));
        let by_force = self.expired.get(&session).is_some_and(|at| now < heard_of(at));
        if by_force && !planted::is("session-ended-by-hand") {
            return Some("a session ended by force");
        }
        if lapse.is_proven {
            return None;
        }
        // A member that lagged when the session ended answers its client until it has applied the end.
        let lagged =
            |at: Nanos| self.lags.iter().filter(move |(from, to)| (*from..=*to).contains(&at));
        let lagged = lapse.ended_at.and_then(|at| lagged(at).map(|(_, until)| *until).max());
        if lagged.is_some_and(|until| now < heard(until)) {
            return Some(LAGS);
        }
        (now < self.excused_until).then_some(APART)
    }
}

/// The longest time after a fault for which the naive bound of a hold may not suffice: for some time a member renews a
/// session of which the leader does not hear, and then the timeout of the session has to pass.
pub(crate) const fn naive_limit(timeout: Nanos, renewed_for_ms: u64) -> Nanos {
    renewed_for_ms * MILLISECOND + timeout + timeout / 50 + SECOND / 10
}
