//! The proven bound of a hold or a leadership, compared with its past and with the servers' data.
//!
//! It is judged by itself, whatever `is_held` answers: it may have been passed on to others, such as a watchdog, and
//! the naive bound, which ends earlier in many runs, must not hide that it is wrong.

use std::time::Duration;

use docent::{Client, runtime::Instant};
use docent_session::planted;

use crate::world::{check::View, core::Core, time::Pid};

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
const PROVEN_DRIFT_PPM: i64 = 10_000;

/// How long work goes on past the bound, with the planted fault `work-beyond-bound`: most servers end a session sooner.
const OVERRUN: Duration = Duration::from_secs(3);

/// When a holder that compares the time after each step ends its work.
pub(crate) fn work_until(proven_until: Instant) -> Instant {
    if planted::is("work-beyond-bound") { proven_until + OVERRUN } else { proven_until }
}

/// Whether a proven bound lies ahead. False for clocks that are slower than the bound allows for.
pub(crate) fn is_ahead(view: &View<'_>, pid: Pid, client: &Client, proven_until: Instant) -> bool {
    let (drift_ppm, _) = view.core().process(pid).drifts_ppm;
    let is_allowed = drift_ppm >= -PROVEN_DRIFT_PPM || planted::is("clock-beyond-margin");
    is_allowed && client.now() < work_until(proven_until)
}

/// Whether a session has ended at the servers by itself: neither by force, nor by another process.
pub(crate) fn has_expired(core: &Core, session: i64) -> bool {
    let is_shared = core.processes.iter().any(|process| process.resumed == Some(session));
    let is_open = core.ensemble().session_ids().contains(&session);
    let is_shared = is_shared && !planted::is("session-taken-over");
    let by_force = core.disturbances.expired.contains_key(&session);
    !is_shared && !is_open && (!by_force || planted::is("session-ended-by-hand"))
}
