//! The proven bound of a hold or a leadership, compared with its past and with the servers' data.
//!
//! It is judged by itself, whatever `is_held` answers: it may have been passed on to others, such as a watchdog, and the
//! naive bound, which ends earlier in many runs, must not hide that it is wrong.

use std::time::Duration;

use docent::{Client, Instant, session::planted};

use super::{Belief, Beliefs};
use crate::{history::What, world::World};

/// The proven bound of a hold or a leadership, as it was seen last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Proof {
    /// It has not begun.
    #[default]
    None,
    /// It lies ahead.
    Ahead,
    /// It has passed, for ever.
    Passed,
}

impl Proof {
    /// Records where it lies now. Returns whether it had passed and lies ahead again.
    pub(crate) fn is_revived(&mut self, is_ahead: bool) -> bool {
        let is_revived = *self == Self::Passed && is_ahead;
        *self = match *self {
            Self::None if !is_ahead => Self::None,
            _ if is_ahead => Self::Ahead,
            _ => Self::Passed,
        };
        is_revived
    }
}

/// The error of a clock's rate that the proven bound allows for, in millionths.
pub(super) const PROVEN_DRIFT_PPM: i64 = 10_000;

/// The second number of a pair that stands for the proven bound of the first.
pub(crate) const BOUND: u64 = u64::MAX - 1;

/// How long work lasts beyond the bound, with the planted fault that lets it: longer than most servers are late to end a
/// session.
const OVERRUN: Duration = Duration::from_secs(3);

/// When the work of a holder ends, which compares the time after each step.
pub(super) fn work_until(proven_until: Instant) -> Instant {
    if planted::is("work-beyond-bound") { proven_until + OVERRUN } else { proven_until }
}

impl World {
    /// Whether the proven bound of a hold excludes that its node is gone. It allows for clocks of 1 %.
    pub(super) fn is_proven(&self, belief: &Belief) -> bool {
        self.is_before(belief.pid, &belief.client, belief.guard.proven_until())
    }

    /// Whether a proven bound lies ahead.
    pub(crate) fn is_before(&self, pid: usize, client: &Client, proven_until: Instant) -> bool {
        let drift_ppm = self.core().process(pid).drift_ppm;
        let is_allowed = drift_ppm >= -PROVEN_DRIFT_PPM || planted::is("clock-beyond-margin");
        is_allowed && client.now() < work_until(proven_until)
    }

    /// Whether a session has ended at the servers by itself: neither by force, nor at the hand of another process.
    pub(crate) fn has_expired(&self, beliefs: &Beliefs, session: i64) -> bool {
        let core = self.core();
        let is_shared = core.processes.iter().any(|process| process.resumed == Some(session));
        let is_open = core.servers.ensemble.session_ids().contains(&session);
        let is_shared = is_shared && !planted::is("session-taken-over");
        let by_force = beliefs.expired.contains_key(&session);
        !is_shared && !is_open && (!by_force || planted::is("session-ended-by-hand"))
    }

    /// Returns a violation if the servers have ended the session of a hold whose proven bound lies ahead.
    pub(super) fn check_proof(
        &self,
        beliefs: &mut Beliefs,
        id: u64,
        belief: &Belief,
    ) -> Option<What> {
        // Others wait for the bound of a strict hold, whatever becomes of its session.
        if belief.ended_at.is_none() || belief.is_strict() || belief.is_unasked {
            return None;
        }
        let is_wrong = self.is_running(belief.pid)
            && self.is_proven(belief)
            && self.has_expired(beliefs, belief.session)
            && beliefs.reported.insert((id, BOUND));
        let text = || format!("{}: its session has ended within the proven bound", belief.name());
        is_wrong.then(|| What::Violation(text()))
    }
}
