//! Waiting for the first of two things, without the macro that would bring a parser into every build.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

/// Which of two futures was first.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Waits for the first of two futures; the left one, if both are ready. The other is dropped.
pub(crate) async fn race<A: Future, B: Future>(left: A, right: B) -> First<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|cx| {
        if let Poll::Ready(output) = left.as_mut().poll(cx) {
            return Poll::Ready(First::Left(output));
        }
        right.as_mut().poll(cx).map(First::Right)
    })
    .await
}
