//! Waits for the first of two futures. `tokio::select!` would add a parser (syn) to every build.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

/// The output of the future that completed first.
pub(crate) enum Either<A, B> {
    Left(A),
    Right(B),
}

/// Waits for the first of two futures and drops the other. If both are ready, the left one wins.
pub(crate) async fn select<A: Future, B: Future>(
    left: A,
    right: B,
) -> Either<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|cx| {
        if let Poll::Ready(output) = left.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(output));
        }
        right.as_mut().poll(cx).map(Either::Right)
    })
    .await
}
