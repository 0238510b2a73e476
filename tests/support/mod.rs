//! The shared parts of the integration tests: real servers, lock peers, and the checker of their history.
//!
//! Tests wait for conditions, up to [`DEADLINE`]; nothing sleeps to wait.

#![allow(missing_docs, reason = "no library of users")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the helpers that only they call"
)]

pub mod certificates;
pub mod contention;
pub mod fixture;
pub mod given_up_session;
pub mod history;
pub mod peer;
pub mod real;

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// How long a test waits for anything before it fails: far more than a busy machine needs.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The result of a future that must end before the deadline.
#[track_caller]
pub fn within_deadline<F: Future>(
    what: &str,
    future: F,
) -> impl Future<Output = F::Output> + use<'_, F> {
    let caller = std::panic::Location::caller();
    async move {
        match timeout(DEADLINE, future).await {
            Ok(result) => result,
            Err(_) => panic!("{caller}: not within {DEADLINE:?}: {what}"),
        }
    }
}

/// Asks again and again until the answer is `Some`, and returns its value.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        // The pause between two questions, for what cannot call us back.
        sleep(Duration::from_millis(10)).await;
    }
}

/// The number of pending requests, and the number of watches.
pub fn pending_and_watches(client: &docent::Client) -> (usize, usize) {
    let metrics = client.metrics();
    (metrics.pending, metrics.watches)
}

/// As [`eventually`], outside a runtime.
pub fn eventually_blocking<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(std::time::Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
