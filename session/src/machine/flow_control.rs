//! Flow control: the limits of pending requests, or with [`WhenFull::Wait`] of requests in flight.

use super::settings::{Settings, WhenFull};

/// The limits of a configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowControl {
    max_requests: usize,
    max_bytes: usize,
    when_full: WhenFull,
}

impl FlowControl {
    pub(super) const fn new(settings: &Settings) -> Self {
        Self {
            max_requests: settings.max_requests,
            max_bytes: settings.max_pending_bytes,
            when_full: settings.when_full,
        }
    }

    /// Whether requests above the limits are refused, rather than sent later.
    #[inline]
    pub(super) fn refuses(&self) -> bool {
        self.when_full == WhenFull::Fail
    }

    /// From now on, sends requests without regard to those in flight.
    pub(super) const fn lift_limit_in_flight(&mut self) {
        self.when_full = WhenFull::Fail;
    }

    /// The number of pending requests from which on another one is checked.
    pub(super) fn check_from(&self) -> usize {
        if self.refuses() { self.max_requests } else { usize::MAX }
    }

    /// Whether this number of requests with these bytes is above a limit.
    pub(super) const fn exceeds(&self, requests: usize, bytes: usize) -> bool {
        requests > self.max_requests || self.exceeds_bytes(bytes)
    }

    #[inline]
    pub(super) const fn exceeds_bytes(&self, bytes: usize) -> bool {
        bytes > self.max_bytes
    }

    /// Whether not one more request fits.
    pub(super) const fn is_full(&self, requests: usize, bytes: usize) -> bool {
        requests >= self.max_requests || bytes >= self.max_bytes
    }

    /// Whether half of each limit is free.
    pub(super) const fn is_half_free(&self, requests: usize, bytes: usize) -> bool {
        requests <= self.max_requests / 2 && bytes <= self.max_bytes / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(when_full: WhenFull) -> FlowControl {
        FlowControl { max_requests: 10, max_bytes: 100, when_full }
    }

    #[test]
    fn the_limits_are_the_most_that_fits() {
        let limits = limits(WhenFull::Fail);
        assert!(!limits.exceeds(10, 100) && limits.exceeds(11, 1) && limits.exceeds(1, 101));
        assert!(!limits.exceeds_bytes(100) && limits.exceeds_bytes(101));
        assert!(!limits.is_full(9, 99) && limits.is_full(10, 1) && limits.is_full(1, 100));
        assert!(limits.is_half_free(5, 50));
        assert!(!limits.is_half_free(6, 50) && !limits.is_half_free(5, 51));
    }

    #[test]
    fn requests_that_wait_are_not_checked_and_leave_without_a_limit_once_it_is_lifted() {
        assert_eq!(limits(WhenFull::Fail).check_from(), 10);
        let mut waiting = limits(WhenFull::Wait);
        assert!(!waiting.refuses());
        assert_eq!(waiting.check_from(), usize::MAX);
        waiting.lift_limit_in_flight();
        assert!(waiting.refuses());
    }
}
