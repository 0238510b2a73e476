//! The retry policies, and Curator's implementations of them.
//!
//! Source: `org.apache.curator.retry` of Curator 5.9.0.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{Error, ErrorKind, driver::Runtime, machine::rng::Rng};

/// Decides whether an operation is retried.
pub trait RetryPolicy: fmt::Debug + Send + Sync + 'static {
    /// Called after each failure. `retry_count` is the number of retries so far; `elapsed` is the time since the first
    /// attempt.
    fn allow_retry(&self, retry_count: u32, elapsed: Duration) -> Verdict;

    /// Whether the error may be retried at all.
    ///
    /// Source: `RetryPolicy.allowRetry(Throwable)`.
    fn is_retryable(&self, error: &Error) -> bool {
        error.is_retryable()
    }

    /// Called before each [`allow_retry`](Self::allow_retry) with the runtime of the client that retries: the source of
    /// randomness for a policy that has not been given another. Default: does nothing.
    fn use_runtime(&self, runtime: &dyn Runtime) {
        let _ = runtime;
    }
}

/// The decision of a policy. The wait applies whether or not a retry is allowed: some policies check the time only
/// after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether to retry.
    pub allowed: bool,
    /// How long to wait before the retry or the failure.
    pub wait: Duration,
}

impl Verdict {
    const NO: Self = Self { allowed: false, wait: Duration::ZERO };

    const fn after(wait: Duration) -> Self {
        Self { allowed: true, wait }
    }
}

/// Retries `n` times, with a fixed delay.
#[derive(Debug, Clone, Copy)]
pub struct RetryNTimes {
    /// The number of retries; the number of attempts is one more.
    pub n: u32,
    /// The delay before each retry.
    pub sleep_between_retries: Duration,
}

impl RetryNTimes {
    /// A policy of `n` retries with a delay of `sleep_between_retries`.
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

/// Retries once.
#[derive(Debug, Clone, Copy)]
pub struct RetryOneTime {
    /// The delay before the retry.
    pub sleep_between_retry: Duration,
}

impl RetryPolicy for RetryOneTime {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration) -> Verdict {
        RetryNTimes::new(1, self.sleep_between_retry).allow_retry(retry_count, elapsed)
    }
}

/// Retries for ever.
#[derive(Debug, Clone, Copy)]
pub struct RetryForever {
    /// The delay before each retry.
    pub retry_interval: Duration,
}

impl RetryPolicy for RetryForever {
    fn allow_retry(&self, _retry_count: u32, _elapsed: Duration) -> Verdict {
        Verdict::after(self.retry_interval)
    }
}

/// Retries until a time has elapsed since the first attempt.
#[derive(Debug, Clone, Copy)]
pub struct RetryUntilElapsed {
    /// The limit of the elapsed time. It is checked after the delay, against the time elapsed before the delay.
    pub max_elapsed_time: Duration,
    /// The delay before each retry.
    pub sleep_between_retries: Duration,
}

impl RetryPolicy for RetryUntilElapsed {
    fn allow_retry(&self, _retry_count: u32, elapsed: Duration) -> Verdict {
        Verdict { allowed: elapsed < self.max_elapsed_time, wait: self.sleep_between_retries }
    }
}

/// Retries with exponential backoff: random delays whose upper bound doubles with each retry.
#[derive(Debug)]
pub struct ExponentialBackoffRetry {
    base_sleep_time: Duration,
    max_retries: u32,
    max_sleep: Duration,
    /// `None` until the first retry.
    rng: Mutex<Option<Rng>>,
}

/// The largest number of retries; a larger number would overflow the doubling.
///
/// Source: `ExponentialBackoffRetry.MAX_RETRIES_LIMIT`.
const MAX_RETRIES_LIMIT: u32 = 29;

impl ExponentialBackoffRetry {
    /// The policy of `max_retries` retries; a number above 29 counts as 29.
    #[must_use]
    pub fn new(base_sleep_time: Duration, max_retries: u32) -> Self {
        Self::bounded(base_sleep_time, Duration::from_millis(i32::MAX as u64), max_retries)
    }

    /// As [`new`](Self::new), with delays of at most `max_sleep`.
    ///
    /// Source: `BoundedExponentialBackoffRetry`.
    #[must_use]
    pub fn bounded(base_sleep_time: Duration, max_sleep: Duration, max_retries: u32) -> Self {
        let max_retries = max_retries.min(MAX_RETRIES_LIMIT);
        Self { base_sleep_time, max_retries, max_sleep, rng: Mutex::default() }
    }

    /// Seeds the jitter, so that the delays are the same in every run. Default: a seed from the runtime of the first
    /// client that retries.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { rng: Mutex::new(Some(Rng::new(seed))), ..self }
    }

    fn rng(&self) -> MutexGuard<'_, Option<Rng>> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RetryPolicy for ExponentialBackoffRetry {
    fn allow_retry(&self, retry_count: u32, _elapsed: Duration) -> Verdict {
        if retry_count >= self.max_retries {
            return Verdict::NO;
        }
        let bound = 1u64 << (retry_count + 1);
        let random = || getrandom::u64().unwrap_or_default();
        let factor = self.rng().get_or_insert_with(|| Rng::new(random())).below(bound).max(1);
        // The factor is below 2^30, so it fits; the product may not (CURATOR-262).
        let factor = u32::try_from(factor).unwrap_or(u32::MAX);
        Verdict::after(self.base_sleep_time.saturating_mul(factor).min(self.max_sleep))
    }

    fn use_runtime(&self, runtime: &dyn Runtime) {
        self.rng().get_or_insert_with(|| {
            let mut seed = [0; 8];
            // Without randomness the delays of all clients are alike, which only makes them meet more often.
            let _ = runtime.fill_random(&mut seed);
            Rng::new(u64::from_ne_bytes(seed))
        });
    }
}

/// As the inner policy, but the end of a session is not retried.
#[derive(Debug, Clone, Copy)]
pub struct SessionFailedRetryPolicy<P>(pub P);

impl<P: RetryPolicy> RetryPolicy for SessionFailedRetryPolicy<P> {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration) -> Verdict {
        self.0.allow_retry(retry_count, elapsed)
    }

    fn is_retryable(&self, error: &Error) -> bool {
        error.kind() != ErrorKind::SessionExpired && self.0.is_retryable(error)
    }

    fn use_runtime(&self, runtime: &dyn Runtime) {
        self.0.use_runtime(runtime);
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::Pin, sync::Arc};

    use super::*;
    use crate::driver::{Task, Timer, Transport};

    /// A runtime that is only a source of randomness.
    #[derive(Debug)]
    struct Random(u8);

    impl Runtime for Random {
        fn transport(&self) -> Arc<dyn Transport> {
            unreachable!("not used")
        }

        fn timer(&self, _: Duration) -> Pin<Box<dyn Timer>> {
            unreachable!("not used")
        }

        fn spawn(&self, _: Task) {}

        fn fill_random(&self, bytes: &mut [u8]) -> bool {
            bytes.fill(self.0);
            true
        }
    }

    #[test]
    fn the_jitter_is_drawn_from_the_runtime_of_the_first_client() {
        let delays = |random: u8| {
            let policy = SessionFailedRetryPolicy(ExponentialBackoffRetry::new(ms(1), 29));
            let draw = |count| {
                policy.use_runtime(&Random(random));
                policy.allow_retry(count, ms(0)).wait
            };
            (0..29).map(draw).collect::<Vec<_>>()
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
    }

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

    /// `testExponentialBackoffRetryLimit` of Curator.
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
