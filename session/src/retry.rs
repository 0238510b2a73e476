//! Curator's retry policies: whether to try again, and how long to wait before.
//!
//! Source: `org.apache.curator.retry` of Curator 5.9.0.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{Error, ErrorKind, hosts::Rng};

/// Decides whether something is tried again.
pub trait RetryPolicy: fmt::Debug + Send + Sync + 'static {
    /// Asked after a failure. `retry_count` is how often it was allowed before, `elapsed` the time since the
    /// first attempt.
    fn allow_retry(&self, retry_count: u32, elapsed: Duration) -> Verdict;

    /// Whether an error is worth a retry at all.
    ///
    /// Source: `RetryPolicy.allowRetry(Throwable)`.
    fn is_retryable(&self, error: &Error) -> bool {
        error.is_retryable()
    }
}

/// A policy's answer. The wait comes in either case: some policies look at the clock only after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether to try again.
    pub allowed: bool,
    /// How long to wait before going on.
    pub wait: Duration,
}

impl Verdict {
    const NO: Self = Self { allowed: false, wait: Duration::ZERO };

    const fn after(wait: Duration) -> Self {
        Self { allowed: true, wait }
    }
}

/// Tries again `n` times, with the same pause each time.
#[derive(Debug, Clone, Copy)]
pub struct RetryNTimes {
    /// How many retries; one attempt more.
    pub n: u32,
    /// The pause before each.
    pub sleep_between_retries: Duration,
}

impl RetryNTimes {
    /// `n` retries, `sleep_between_retries` apart.
    #[must_use]
    pub const fn new(n: u32, sleep_between_retries: Duration) -> Self {
        Self { n, sleep_between_retries }
    }
}

impl RetryPolicy for RetryNTimes {
    fn allow_retry(&self, retry_count: u32, _elapsed: Duration) -> Verdict {
        if retry_count < self.n { Verdict::after(self.sleep_between_retries) } else { Verdict::NO }
    }
}

/// Tries again once.
#[derive(Debug, Clone, Copy)]
pub struct RetryOneTime {
    /// The pause before it.
    pub sleep_between_retry: Duration,
}

impl RetryPolicy for RetryOneTime {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration) -> Verdict {
        RetryNTimes::new(1, self.sleep_between_retry).allow_retry(retry_count, elapsed)
    }
}

/// Tries again for ever.
#[derive(Debug, Clone, Copy)]
pub struct RetryForever {
    /// The pause before each.
    pub retry_interval: Duration,
}

impl RetryPolicy for RetryForever {
    fn allow_retry(&self, _retry_count: u32, _elapsed: Duration) -> Verdict {
        Verdict::after(self.retry_interval)
    }
}

/// Tries again until a time has passed since the first attempt.
#[derive(Debug, Clone, Copy)]
pub struct RetryUntilElapsed {
    /// How long. Looked at after the pause, with the time of before it.
    pub max_elapsed_time: Duration,
    /// The pause before each.
    pub sleep_between_retries: Duration,
}

impl RetryPolicy for RetryUntilElapsed {
    fn allow_retry(&self, _retry_count: u32, elapsed: Duration) -> Verdict {
        Verdict { allowed: elapsed < self.max_elapsed_time, wait: self.sleep_between_retries }
    }
}

/// Tries again with pauses that grow by chance, each up to twice the one before.
#[derive(Debug)]
pub struct ExponentialBackoffRetry {
    base_sleep_time: Duration,
    max_retries: u32,
    max_sleep: Duration,
    rng: Mutex<Rng>,
}

/// More would not fit the doubling.
///
/// Source: `ExponentialBackoffRetry.MAX_RETRIES_LIMIT`.
const MAX_RETRIES_LIMIT: u32 = 29;

impl ExponentialBackoffRetry {
    /// `max_retries` above 29 count as 29.
    #[must_use]
    pub fn new(base_sleep_time: Duration, max_retries: u32) -> Self {
        Self::bounded(base_sleep_time, Duration::from_millis(i32::MAX as u64), max_retries)
    }

    /// As [`new`](Self::new), with no pause above `max_sleep`.
    ///
    /// Source: `BoundedExponentialBackoffRetry`.
    #[must_use]
    pub fn bounded(base_sleep_time: Duration, max_sleep: Duration, max_retries: u32) -> Self {
        let seed = getrandom::u64().unwrap_or_default();
        Self {
            base_sleep_time,
            max_retries: max_retries.min(MAX_RETRIES_LIMIT),
            max_sleep,
            rng: Mutex::new(Rng::new(seed)),
        }
    }

    /// The same pauses in every run.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { rng: Mutex::new(Rng::new(seed)), ..self }
    }
}

impl RetryPolicy for ExponentialBackoffRetry {
    fn allow_retry(&self, retry_count: u32, _elapsed: Duration) -> Verdict {
        if retry_count >= self.max_retries {
            return Verdict::NO;
        }
        let bound = 1u64 << (retry_count + 1);
        let factor = self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(bound).max(1);
        // Below 2^30, so it fits; the product may not (CURATOR-262).
        let factor = u32::try_from(factor).unwrap_or(u32::MAX);
        Verdict::after(self.base_sleep_time.saturating_mul(factor).min(self.max_sleep))
    }
}

/// As another policy, but an ended session is not worth a retry.
#[derive(Debug, Clone, Copy)]
pub struct SessionFailedRetryPolicy<P>(pub P);

impl<P: RetryPolicy> RetryPolicy for SessionFailedRetryPolicy<P> {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration) -> Verdict {
        self.0.allow_retry(retry_count, elapsed)
    }

    fn is_retryable(&self, error: &Error) -> bool {
        error.kind() != ErrorKind::SessionExpired && self.0.is_retryable(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn n_retries_are_n_plus_one_attempts() {
        let policy = RetryNTimes::new(2, ms(5));
        assert_eq!(policy.allow_retry(1, ms(999)), Verdict::after(ms(5)));
        assert_eq!(policy.allow_retry(2, ms(0)), Verdict::NO);
        let policy = RetryOneTime { sleep_between_retry: ms(1) };
        assert!(policy.allow_retry(0, ms(0)).allowed && !policy.allow_retry(1, ms(0)).allowed);
    }

    #[test]
    fn until_elapsed_waits_even_when_it_refuses() {
        let policy = RetryUntilElapsed { max_elapsed_time: ms(10), sleep_between_retries: ms(3) };
        assert_eq!(policy.allow_retry(0, ms(9)), Verdict::after(ms(3)));
        assert_eq!(policy.allow_retry(0, ms(10)), Verdict { allowed: false, wait: ms(3) });
    }

    /// curator-locks 3.2; `testExponentialBackoffRetryLimit`.
    #[test]
    fn exponential_pauses_stay_in_their_range_and_below_the_limit() {
        let policy = ExponentialBackoffRetry::bounded(ms(10), ms(500), u32::MAX).with_seed(1);
        for _ in 0..100 {
            assert_eq!(policy.allow_retry(0, ms(0)).wait, ms(10));
            for count in 1..MAX_RETRIES_LIMIT {
                let Verdict { allowed, wait } = policy.allow_retry(count, ms(0));
                assert!(allowed && wait >= ms(10) && wait <= ms(500));
                assert!(wait < ms(10) * 2u32.pow(count + 1));
            }
        }
        assert!(!policy.allow_retry(MAX_RETRIES_LIMIT, ms(0)).allowed);
        assert!(!policy.allow_retry(u32::MAX, ms(0)).allowed);
    }

    #[test]
    fn an_ended_session_is_no_reason_to_retry_if_the_policy_says_so() {
        let expired = Error::new(ErrorKind::SessionExpired, crate::Outcome::Unknown);
        let policy = RetryNTimes::new(1, ms(1));
        assert!(policy.is_retryable(&expired));
        assert!(!SessionFailedRetryPolicy(policy).is_retryable(&expired));
    }
}
