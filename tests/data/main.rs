//! Tests of the data recipes, each run on the embedded server and on a real one where it can be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the functions that they call"
)]

#[macro_use]
extern crate docent_tests as support;

mod atomic;
mod barriers;
mod interop;
mod stale;

use std::{future::Future, pin::pin, task::Poll};

/// Polls a future at most `polls` times, each time it is woken; `None` if it is not ready by then.
pub(crate) async fn polled<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The limit is reached.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
