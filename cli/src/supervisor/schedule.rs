//! When to end the command if the session's lease is not renewed.
//!
//! | time | definition |
//! |---|---|
//! | deadline | the end of the session's lease, or with `--strict` the proven bound |
//! | KILL | before the deadline by a tenth of the session timeout, at most 2 s: the time that killing may take |
//! | TERM | before KILL by `--kill-after` (5 s) or 3/20 of the session timeout, whichever is shorter |
//!
//! A lease ends one session timeout, less a margin, after the last request with a reply was *sent*. The proven bound is
//! one session timeout, less 1 %, after the last committed write was *sent*.
//!
//! Pings are at most a third of the session timeout apart, so at least half of the timeout is left while there is a
//! connection.

use std::time::Duration;

/// The times at which the command is ended, on the [clock](super::clock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) term_at: Duration,
    pub(super) kill_at: Duration,
}

/// The longest time allowed for killing.
const MAX_KILL_MARGIN: Duration = Duration::from_secs(2);

impl Schedule {
    /// Returns the schedule for a lease that ends at `deadline`.
    pub(super) fn for_deadline(
        deadline: Duration,
        session_timeout: Duration,
        kill_after: Duration,
    ) -> Self {
        let kill_at = deadline.saturating_sub((session_timeout / 10).min(MAX_KILL_MARGIN));
        let grace = kill_after.min(session_timeout * 3 / 20);
        Self { term_at: kill_at.saturating_sub(grace), kill_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kill_is_a_tenth_before_the_deadline_and_term_before_kill() {
        let seconds = Duration::from_secs;
        assert_eq!(
            Schedule::for_deadline(seconds(100), seconds(10), seconds(5)),
            Schedule { term_at: Duration::from_millis(97_500), kill_at: seconds(99) }
        );
        assert_eq!(
            Schedule::for_deadline(seconds(100), seconds(60), seconds(5)),
            Schedule { term_at: seconds(93), kill_at: seconds(98) }
        );
        assert_eq!(
            Schedule::for_deadline(seconds(100), seconds(60), Duration::ZERO).term_at,
            seconds(98)
        );
    }

    /// A connection that is closed after two thirds of the timeout may be re-established before TERM is sent.
    #[test]
    fn term_is_later_than_a_read_timeout_of_an_idle_session() {
        let timeout = Duration::from_secs(6);
        let deadline = Duration::from_secs(100) + timeout - timeout / 20;
        let last_ping_is_due = Duration::from_secs(100) + timeout / 3;
        let schedule = Schedule::for_deadline(deadline, timeout, Duration::from_secs(5));
        assert!(schedule.term_at > last_ping_is_due + timeout / 3);
    }
}
