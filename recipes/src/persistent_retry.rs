//! A retry policy that does not give up.

use std::{sync::Arc, time::Duration};

use docent_session::{
    Error, ErrorKind,
    retry::{RetryPolicy, Verdict},
    runtime::Runtime,
};
use tokio_util::sync::CancellationToken;

/// The first pause after the policy has given up; each further one is twice as long.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Retries as another policy does, and where that gives up, continues with pauses of 100 ms to 5 s. A participant that
/// gave up a request with an unknown outcome would have to give up its place too (L2, L6 in `docs/CURATOR.md`).
#[derive(Debug)]
pub(crate) struct PersistentRetry {
    policy: Arc<dyn RetryPolicy>,
    /// Ends the retries.
    closing: CancellationToken,
}

impl PersistentRetry {
    pub(crate) fn new(policy: Arc<dyn RetryPolicy>, closing: CancellationToken) -> Self {
        Self { policy, closing }
    }
}

impl RetryPolicy for PersistentRetry {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration) -> Verdict {
        if self.closing.is_cancelled() {
            return Verdict { allowed: false, wait: Duration::ZERO };
        }
        let verdict = self.policy.allow_retry(retry_count, elapsed);
        if verdict.allowed && (retry_count < 10 || verdict.wait >= MIN_PAUSE) {
            return verdict;
        }
        Verdict { allowed: true, wait: verdict.wait.max(pause(retry_count)) }
    }

    fn is_retryable(&self, error: &Error) -> bool {
        // The causes pass: a full queue of the client itself, and a member without a majority.
        let passes = matches!(error.kind(), ErrorKind::TooManyRequests | ErrorKind::NotReadOnly);
        passes || self.policy.is_retryable(error)
    }

    fn use_runtime(&self, runtime: &dyn Runtime) {
        self.policy.use_runtime(runtime);
    }
}

/// The pause after `count` attempts: 100 ms, doubled each time, up to 5 s.
pub(crate) fn pause(count: u32) -> Duration {
    MIN_PAUSE.saturating_mul(1 << count.min(6)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use docent_session::{
        Outcome,
        retry::{RetryForever, RetryNTimes},
    };

    use super::*;

    fn policy(policy: impl RetryPolicy) -> PersistentRetry {
        PersistentRetry::new(Arc::new(policy), CancellationToken::new())
    }

    // Case (Leader election and kept nodes): a retry policy that gives up.
    #[test]
    fn it_retries_as_the_policy_and_goes_on_where_that_gives_up() {
        let three = policy(RetryNTimes::new(3, Duration::from_millis(7)));
        let waits: Vec<_> = (0..6).map(|n| three.allow_retry(n, Duration::ZERO)).collect();
        assert!(waits.iter().all(|verdict| verdict.allowed));
        assert_eq!(waits[2].wait, Duration::from_millis(7));
        assert_eq!(waits[3].wait, Duration::from_millis(800));
        assert_eq!(three.allow_retry(u32::MAX, Duration::ZERO).wait, MAX_PAUSE);
    }

    #[test]
    fn a_policy_without_pauses_does_not_spin() {
        let forever = policy(RetryForever { retry_interval: Duration::ZERO });
        assert_eq!(forever.allow_retry(0, Duration::ZERO).wait, Duration::ZERO);
        assert_eq!(forever.allow_retry(10, Duration::ZERO).wait, MAX_PAUSE);
    }

    // Case (Found in docent itself): a participant left the election for good when the client's own
    // queue was full, or its server read-only.
    #[test]
    fn a_full_queue_and_a_read_only_server_are_retried() {
        let never = policy(RetryNTimes::new(0, Duration::ZERO));
        let is_retried = |kind| never.is_retryable(&Error::new(kind, Outcome::NotApplied));
        assert!(is_retried(ErrorKind::TooManyRequests) && is_retried(ErrorKind::NotReadOnly));
        assert!(!is_retried(ErrorKind::NoAuth) && !is_retried(ErrorKind::RequestTooLarge));
    }

    #[test]
    fn a_close_ends_the_retries() {
        let closing = CancellationToken::new();
        let never = Arc::new(RetryForever { retry_interval: Duration::ZERO });
        let policy = PersistentRetry::new(never, closing.clone());
        closing.cancel();
        assert!(!policy.allow_retry(0, Duration::ZERO).allowed);
    }
}
