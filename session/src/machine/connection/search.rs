//! The search for a read-write server, while connected to a read-only one.

use std::time::Duration;

use crate::time::Instant;

/// The search for a read-write server.
///
/// Source: `ClientCnxn.SendThread.pingRwServer`.
#[derive(Debug)]
pub(crate) struct Search {
    next_at: Instant,
    interval: Duration,
    round: usize,
}

/// The first pause of the search, and the longest.
const SEARCH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

impl Search {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { next_at: now + SEARCH.0, interval: SEARCH.0, round: 0 }
    }

    pub(crate) const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Begins the next round if it is due, and returns the number of those before it.
    pub(crate) fn next_round(&mut self, now: Instant) -> Option<usize> {
        if self.next_at > now {
            return None;
        }
        let round = self.round;
        self.round += 1;
        self.interval = (self.interval * 2).min(SEARCH.1);
        self.next_at = now + self.interval;
        Some(round)
    }
}
