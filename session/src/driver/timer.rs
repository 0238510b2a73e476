//! Timers for futures that may be polled anywhere.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::sync::oneshot;

use super::{clock::Clock, runtime::Runtime};
use crate::{machine::lease::LeaseTimer, runtime::Instant};

/// Completes with true when the time has elapsed, or with false at once when the runtime has ended. The timer is polled
/// by a task of that runtime, so the future can be polled anywhere; dropping it ends the task.
pub(crate) fn timer(
    runtime: &dyn Runtime,
    duration: Duration,
) -> impl Future<Output = bool> + use<> {
    let (mut set, passed) = oneshot::channel();
    let mut timer = runtime.timer(duration);
    runtime.spawn(Box::pin(async move {
        let elapsed = {
            let mut dropped = pin!(set.closed());
            poll_fn(|cx| match dropped.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| true),
            })
            .await
        };
        if elapsed {
            // An error means that the waiter was dropped meanwhile.
            let _ = set.send(());
        }
    }));
    async move { passed.await.is_ok() }
}

/// The clock and the runtime of a client, for the waiters of its leases.
#[derive(Debug)]
pub(crate) struct ClientTimer {
    pub(crate) clock: Clock,
    pub(crate) runtime: Arc<dyn Runtime>,
}

impl LeaseTimer for ClientTimer {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = bool> + Send + Sync>> {
        Box::pin(timer(&*self.runtime, duration))
    }
}
