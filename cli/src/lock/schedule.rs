//! When a command must go, if nobody says that the lock is still held.
//!
//! | when | what |
//! |---|---|
//! | deadline | the end of the belief: the session timeout after the last request that was answered was *sent*, less a margin |
//! | KILL | a tenth of the session timeout before it, at most 2 s: so long may the killing take |
//! | TERM | before KILL, by `--kill-after` (5 s) or 3/20 of the session timeout, whichever is shorter |
//!
//! A third of the timeout passes between two pings at most, so while there is a connection at least half of it is
//! left.

use std::time::Duration;

/// When to end the command, on the [clock](super::clock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) term_at: Duration,
    pub(super) kill_at: Duration,
}

/// So long may killing take at most.
const MAX_MARGIN: Duration = Duration::from_secs(2);

impl Schedule {
    /// For a belief that ends at `deadline`.
    pub(super) fn before(
        deadline: Duration,
        session_timeout: Duration,
        kill_after: Duration,
    ) -> Self {
        let kill_at = deadline.saturating_sub((session_timeout / 10).min(MAX_MARGIN));
        let grace = kill_after.min(session_timeout * 3 / 20);
        Self { term_at: kill_at.saturating_sub(grace), kill_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_left_to_kill_and_a_little_more_to_end() {
        let seconds = Duration::from_secs;
        assert_eq!(
            Schedule::before(seconds(100), seconds(10), seconds(5)),
            Schedule { term_at: Duration::from_millis(97_500), kill_at: seconds(99) }
        );
        assert_eq!(
            Schedule::before(seconds(100), seconds(60), seconds(5)),
            Schedule { term_at: seconds(93), kill_at: seconds(98) }
        );
        assert_eq!(
            Schedule::before(seconds(100), seconds(60), Duration::ZERO).term_at,
            seconds(98)
        );
    }

    /// A connection that is given up at two thirds of the timeout may come back before anything is ended.
    #[test]
    fn an_idle_session_with_a_connection_is_far_from_it() {
        let timeout = Duration::from_secs(6);
        let deadline = Duration::from_secs(100) + timeout - timeout / 20;
        let last_ping_is_due = Duration::from_secs(100) + timeout / 3;
        let schedule = Schedule::before(deadline, timeout, Duration::from_secs(5));
        assert!(schedule.term_at > last_ping_is_due + timeout / 3);
    }
}
