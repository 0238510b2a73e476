//! The delays between connection attempts.

use std::time::Duration;

/// The shortest delay of a [`Backoff`]. Without one, a client would try to connect thousands of times a second.
const SHORTEST_DELAY: Duration = Duration::from_millis(1);

/// The delays between connection attempts.
///
/// The first reconnect follows after at most `first`. Then all servers are tried in turn. Then there are delays that
/// double from `first` to `max`, each reduced by a random part of up to one half. While there is a session, no delay is
/// longer than an eighth of its timeout, or longer than half of the rest of it, unless that is less than 10 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// Delays from `first` to `max`. A `first` above `max` counts as `max`, and delays below 1 ms count as 1 ms.
    #[must_use]
    pub fn new(first: Duration, max: Duration) -> Self {
        let max = max.max(SHORTEST_DELAY);
        Self { first: first.clamp(SHORTEST_DELAY, max), max }
    }

    /// The shortest delay. Default 100 ms.
    #[must_use]
    pub const fn first(self) -> Duration {
        self.first
    }

    /// The longest delay. Default 5 s.
    #[must_use]
    pub const fn max(self) -> Duration {
        self.max
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a delay of zero, a client without a server would try thousands of connections a second.
    // Case (Found in docent itself): a backoff of zero tried 7,700 connections a second.
    #[test]
    fn no_delay_is_zero() {
        for (first, max) in [(0, 0), (0, 5), (1, 0)] {
            let backoff = Backoff::new(Duration::from_nanos(first), Duration::from_nanos(max));
            assert!(backoff.first() >= Duration::from_millis(1), "{backoff:?}");
            assert!(backoff.max() >= backoff.first(), "{backoff:?}");
        }
    }

    #[test]
    fn the_first_delay_is_at_most_the_longest() {
        let backoff = Backoff::new(Duration::from_secs(3), Duration::from_secs(2));
        assert_eq!(backoff.first(), Duration::from_secs(2));
    }
}
