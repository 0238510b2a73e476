//! Limits the time of one call.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use docent_protocol::OpCode;

use super::{
    response::{Call, Response},
    transaction::{MultiReadResponse, TransactionResponse},
    watcher::{AddWatchResponse, WatchResponse},
};
use crate::{
    Error, ErrorKind, Outcome,
    driver::{Runtime, timer, withdraw},
};

impl<R: Send + 'static> Response<R> {
    /// Limits the time of this call: without a reply within `limit`, it fails with
    /// [`OperationTimeout`](ErrorKind::OperationTimeout). The time counts from this call, so add it where the request is
    /// made. The [request timeout](crate::Config::with_request_timeout) of all requests still applies, and the earlier
    /// limit ends the call. Sends nothing, also when the time is over. The future of every call about nodes has this method.
    ///
    /// As with the request timeout, the outcome is `NotApplied` if the request was unsent at that time, and it is not
    /// sent any more; it is `Unknown` if it was sent, and the late reply is dropped. Other requests and the connection
    /// are not affected. Credentials ([`add_auth`](crate::Client::add_auth)) are sent on the next connection all the same. For
    /// a call of several requests the outcome is `Unknown`: those that were sent take effect, and no other is sent.
    ///
    /// # Cancel safety
    ///
    /// As the response itself. The time goes on while the future is not polled.
    ///
    /// # Example
    ///
    /// ```
    /// # mod docent { pub use docent_protocol::*; pub use docent_session::*; }
    /// use std::time::Duration;
    /// use docent::{Client, ErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = Client::connect(&server.connect_string()).await?;
    /// let stat = client.exists("/ready").timeout(Duration::from_secs(2)).await?;
    /// assert!(stat.is_none());
    ///
    /// // `None` without the node by then.
    /// let ready = client.wait_until_exists("/ready").timeout(Duration::from_millis(20));
    /// assert!(ready.allow(ErrorKind::OperationTimeout).await?.is_none());
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeout(mut self, limit: Duration) -> Self {
        if let Some(pending) = self.pending() {
            pending.limit(limit);
        } else if let Some(steps) = self.steps_mut() {
            let ended = Box::pin(std::future::pending());
            let future = mem::replace(&mut steps.future, ended);
            let call = (steps.op, steps.path.clone());
            steps.future = Box::pin(limited(&*steps.runtime, limit, call, future));
        }
        self
    }
}

impl<R: Send + 'static> WatchResponse<R> {
    /// As [`Response::timeout`]. No watch is set after an error.
    #[must_use = "the request is sent anyway; without awaiting this, its failure goes unnoticed"]
    pub fn timeout(self, limit: Duration) -> Self {
        self.map(|response| response.timeout(limit))
    }
}

impl AddWatchResponse {
    /// As [`Response::timeout`]. No watch is set after an error.
    pub fn timeout(self, limit: Duration) -> Self {
        Self(self.0.timeout(limit))
    }
}

impl<R: Send + 'static> Call<'_, R> {
    /// As [`Response::timeout`], for all requests of this call together. The outcome is `Unknown`: those that were sent take
    /// effect, and no other is sent.
    pub fn timeout(self, limit: Duration) -> Self {
        let Self { runtime, op, path, future } = self;
        Self::new(runtime, op, path, limited(&**runtime, limit, (op, path.to_owned()), future))
    }
}

impl TransactionResponse {
    /// As [`Response::timeout`].
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.response = self.response.timeout(limit);
        self
    }
}

impl MultiReadResponse {
    /// As [`Response::timeout`].
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.response = self.response.timeout(limit);
        self
    }
}

/// `steps`, or the error of a call that takes longer than `limit` from now: its operation and path are those of `call`.
fn limited<R, F>(
    runtime: &dyn Runtime,
    limit: Duration,
    call: (OpCode, String),
    mut steps: Pin<Box<F>>,
) -> impl Future<Output = Result<R, Error>> + use<R, F>
where
    F: Future<Output = Result<R, Error>> + ?Sized,
{
    let time = timer(runtime, limit);
    async move {
        let mut time = pin!(time);
        let mut has_timer = true;
        let finished = poll_fn(|cx| {
            // Before the steps, which would make a further request.
            match has_timer.then(|| time.as_mut().poll(cx)) {
                Some(Poll::Ready(true)) => return Poll::Ready(None),
                // The runtime has ended, and with it the client, which ends the steps.
                Some(Poll::Ready(false)) => has_timer = false,
                Some(Poll::Pending) | None => {}
            }
            steps.as_mut().poll(cx).map(Some)
        });
        if let Some(result) = finished.await {
            return result;
        }
        withdraw(steps);
        let (op, path) = call;
        let error = Error::new(ErrorKind::OperationTimeout, Outcome::Unknown);
        let detail = format_args!("not finished within {limit:?}, the time limit of the call");
        Err(error.with_detail(detail).with_operation(op, &path))
    }
}
