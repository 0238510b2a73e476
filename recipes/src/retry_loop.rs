//! Trying again what a broken connection has spoilt.
//!
//! Source: Curator's `RetryLoop.callWithRetry`. Not mirrored: its loops share one counter *and one completion
//! flag* when they are nested, so that an inner success ends the outer loop (defect N1 of this project's
//! list).

use std::{future::Future, time::Duration};

use docent_session::{Client, Error, Instant, retry::RetryPolicy};

/// One loop: how often it has tried, and since when.
#[derive(Debug)]
pub(crate) struct RetryLoop<'a> {
    client: &'a Client,
    policy: &'a dyn RetryPolicy,
    retry_count: u32,
    start: Instant,
}

impl<'a> RetryLoop<'a> {
    pub(crate) fn new(client: &'a Client, policy: &'a dyn RetryPolicy) -> Self {
        Self { client, policy, retry_count: 0, start: client.now() }
    }

    /// After a failure: waits and returns when it is to be tried again, or gives the error back.
    pub(crate) async fn pause(&mut self, error: Error) -> Result<(), Error> {
        if !self.policy.is_retryable(&error) {
            return Err(error);
        }
        self.pause_whatever(error).await
    }

    /// As [`pause`](Self::pause), whatever the error: the policy alone decides.
    pub(crate) async fn pause_whatever<E>(&mut self, error: E) -> Result<(), E> {
        let elapsed = self.client.now().since(self.start);
        let verdict = self.policy.allow_retry(self.retry_count, elapsed);
        self.retry_count = self.retry_count.saturating_add(1);
        if verdict.wait > Duration::ZERO {
            tokio::time::sleep(verdict.wait).await;
        }
        if verdict.allowed { Ok(()) } else { Err(error) }
    }
}

/// Calls `attempt` until it succeeds, fails for good, or the policy has had enough.
pub(crate) async fn call_with_retry<R, F: Future<Output = Result<R, Error>>>(
    client: &Client,
    policy: &dyn RetryPolicy,
    mut attempt: impl FnMut() -> F,
) -> Result<R, Error> {
    let mut retry = RetryLoop::new(client, policy);
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => retry.pause(error).await?,
        }
    }
}
