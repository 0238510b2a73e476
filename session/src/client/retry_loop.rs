//! Repeats calls by a retry policy.

use std::{fmt, future::Future, time::Duration};

use super::{client::Client, retry_policy::RetryPolicy};
use crate::{Error, Outcome, driver::timer, runtime::Instant};

/// One operation with its retries: their number, and the time since the first attempt. [`Client::retry`] and
/// [`Client::retry_idempotent`] are loops with it. Use it for a loop that they do not fit.
///
/// Source: Curator's `RetryLoop`. Nested loops are independent here; Curator's share their state.
pub struct RetryLoop<'a> {
    client: &'a Client,
    policy: &'a dyn RetryPolicy,
    retry_count: u32,
    start: Instant,
}

impl<'a> RetryLoop<'a> {
    /// Begins a loop; call it before the first attempt.
    #[must_use]
    pub fn new(client: &'a Client, policy: &'a dyn RetryPolicy) -> Self {
        Self { client, policy, retry_count: 0, start: client.now() }
    }

    /// Waits before the next attempt, as the policy says for this error of the last one.
    ///
    /// It can be awaited outside a runtime: the wait is a task of the client's runtime. It does not look at the
    /// [outcome](Error::outcome): only the caller knows whether the operation may be repeated.
    ///
    /// # Errors
    ///
    /// `error`, if there is no further attempt: the policy does not retry such errors, or no more of them.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the retry may have been counted.
    pub async fn pause(&mut self, error: Error) -> Result<(), Error> {
        if !self.policy.is_retryable(&error) {
            return Err(error);
        }
        self.pause_after_any_error(error).await
    }

    /// As [`pause`](Self::pause), for errors that are not retryable too: only the policy's count and time decide.
    ///
    /// # Errors
    ///
    /// `error`, if there is no further attempt.
    // Public for docent-recipes, whose next attempt searches for what the last one left.
    #[doc(hidden)]
    pub async fn pause_after_any_error<E>(&mut self, error: E) -> Result<(), E> {
        let elapsed = self.client.now().duration_since(self.start);
        self.policy.use_runtime(&*self.client.handle.runtime);
        let verdict = self.policy.allow_retry(self.retry_count, elapsed);
        self.retry_count = self.retry_count.saturating_add(1);
        if verdict.wait > Duration::ZERO {
            // False means that the runtime has ended; the next attempt then returns an error.
            timer(&*self.client.handle.runtime, verdict.wait).await;
        }
        if verdict.allowed { Ok(()) } else { Err(error) }
    }
}

impl fmt::Debug for RetryLoop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLoop")
            .field("policy", &self.policy)
            .field("retry_count", &self.retry_count)
            .finish_non_exhaustive()
    }
}

/// Whether the operation was refused or not sent, or only reads.
fn was_not_applied(error: &Error) -> bool {
    error.outcome() == Outcome::NotApplied || error.operation().is_some_and(|op| !op.is_write())
}

/// # Retries
impl Client {
    /// Calls `attempt` until it succeeds, and repeats it only where that is safe: after an error for which the policy's
    /// [`is_retryable`](RetryPolicy::is_retryable) holds, while its [`allow_retry`](RetryPolicy::allow_retry) allows it,
    /// and if the failed request was not applied.
    ///
    /// A request was not applied if the error's outcome is [`Outcome::NotApplied`], or if it only reads
    /// ([`OpCode::is_write`](docent_protocol::OpCode::is_write) of [`Error::operation`]). After a write with the outcome
    /// `Unknown`, the error is returned: the write may have been applied, and would be repeated.
    ///
    /// `attempt` is repeated as a whole. It should make one request, or be such that the requests before the failed one
    /// may be repeated.
    ///
    /// The delays are a task of the client's runtime; the future can be polled anywhere. The client itself retries
    /// nothing: without this, each call fails on its own.
    ///
    /// # Errors
    ///
    /// The last error of `attempt`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the retries. A request already sent takes effect.
    ///
    /// # Example
    ///
    /// ```
    /// # mod docent { pub use docent_protocol::*; pub use docent_session::*; }
    /// use std::time::Duration;
    /// use docent::{Client, retry::ExponentialBackoffRetry};
    /// # use docent::CreateMode;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = Client::connect(&server.connect_string()).await?;
    /// # client.create("/counter", b"41", CreateMode::Persistent).await?;
    /// let policy = ExponentialBackoffRetry::new(Duration::from_secs(1), 3);
    /// let node = client.retry(&policy, || client.get_data("/counter")).await?;
    /// let version = node.stat.version;
    /// client.retry(&policy, || client.set_data("/counter", b"42", Some(version))).await?;
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: Curator's `RetryLoop.callWithRetry`, which repeats writes with an unknown outcome too.
    pub async fn retry<R, F>(
        &self,
        policy: &dyn RetryPolicy,
        attempt: impl FnMut() -> F,
    ) -> Result<R, Error>
    where
        F: Future<Output = Result<R, Error>>,
    {
        self.retry_if(policy, attempt, was_not_applied).await
    }

    /// As [`retry`](Self::retry), for an operation that may be repeated although it was applied, such as
    /// [`create_or_set`](Self::create_or_set) or [`delete_recursive`](Self::delete_recursive).
    ///
    /// A repeated `create` can fail with `NodeExists`, and a repeated `delete` with `NoNode`, because the first one was
    /// applied; of a sequential `create`, both nodes can exist.
    ///
    /// # Errors
    ///
    /// The last error of `attempt`. Its outcome is `Unknown` if that of any attempt was.
    ///
    /// # Cancel safety
    ///
    /// As [`retry`](Self::retry).
    ///
    /// Source: Curator's `RetryLoop.callWithRetry`.
    pub async fn retry_idempotent<R, F>(
        &self,
        policy: &dyn RetryPolicy,
        attempt: impl FnMut() -> F,
    ) -> Result<R, Error>
    where
        F: Future<Output = Result<R, Error>>,
    {
        self.retry_if(policy, attempt, |_| true).await
    }

    async fn retry_if<R, F>(
        &self,
        policy: &dyn RetryPolicy,
        mut attempt: impl FnMut() -> F,
        is_safe: impl Fn(&Error) -> bool,
    ) -> Result<R, Error>
    where
        F: Future<Output = Result<R, Error>>,
    {
        let mut retry = RetryLoop::new(self, policy);
        let mut may_be_applied = false;
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            may_be_applied |= !was_not_applied(&error);
            let ended = if is_safe(&error) { retry.pause(error).await } else { Err(error) };
            ended
                .map_err(|last| if may_be_applied { last.with_unknown_outcome() } else { last })?;
        }
    }
}
