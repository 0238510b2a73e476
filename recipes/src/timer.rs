//! Timers for futures that are polled outside the client's runtime.
//!
//! A guard can be released, and a lock acquired, outside a runtime, in another runtime than the client's, and
//! after the client's runtime has ended. A timer of a runtime works in none of these cases (tokio's panics). So the timer
//! runs in a task of the client's runtime, and the caller waits for that task.

use std::{future::Future, time::Duration};

use docent_session::Client;
use tokio::sync::oneshot;

use crate::select::{Either, select};

/// Runs a future in the client's runtime; `None` if that runtime has ended. Dropping this future cancels the other.
pub(crate) async fn in_runtime<F>(client: &Client, future: F) -> Option<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (mut result, output) = oneshot::channel();
    client.runtime().spawn(Box::pin(async move {
        if let Either::Left(output) = select(future, result.closed()).await {
            // The receiver may have been dropped.
            let _ = result.send(output);
        }
    }));
    output.await.ok()
}

/// Sleeps and returns true; returns false at once if the client's runtime has ended.
pub(crate) async fn sleep(client: &Client, duration: Duration) -> bool {
    in_runtime(client, client.runtime().timer(duration)).await.is_some()
}

/// Waits for the end of the client.
pub(crate) async fn ended(client: &Client) {
    let mut state = client.state();
    while client.ended().is_none() && state.next().await.is_some() {}
}

/// Waits for a future, at most for `duration`; it is polled at least once. The end of the client's runtime is not a
/// timeout: it ends the client, which completes every future a lock waits for.
pub(crate) async fn timeout<F: Future>(
    client: &Client,
    duration: Duration,
    future: F,
) -> Option<F::Output> {
    let end = async {
        if !duration.is_zero() && !sleep(client, duration).await {
            std::future::pending::<()>().await;
        }
    };
    match select(future, end).await {
        Either::Left(output) => Some(output),
        Either::Right(()) => None,
    }
}
