//! Settings and helpers that several recipes share.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use docent::{LockOptions, nodes::ProtectedOptions, retry};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::worker::Worker;
use crate::{
    faults::draw::pick,
    world::time::{MILLISECOND, Nanos, SECOND},
};

/// The time from the peace until a cache has the servers' data.
pub(super) const CACHE_SETTLES: Nanos = 30 * SECOND;

/// The interval at which a worker looks at a cache.
const LOOKS_EVERY_MS: u64 = 400;

/// A retry policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Retry {
    /// The default of `LockOptions`.
    #[default]
    Default,
    /// `RetryNTimes` with no retry.
    Never,
    /// `RetryNTimes` with three retries, 100 ms apart.
    ThreeTimes,
    /// `RetryForever`, 50 ms apart.
    Forever,
}

/// How the loss of a hold is noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldWatch {
    /// Not at all.
    Nothing,
    /// By `lost()`.
    #[default]
    Lost,
    /// By the cancellation token.
    Token,
}

/// The end of a long-lived object, such as a participation or a kept node.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloseKind {
    /// `close().await`.
    #[default]
    Close,
    /// Two closes at once.
    CloseTwice,
    /// `close()` is called, and its future dropped.
    CancelledClose,
    /// It is dropped.
    Drop,
    /// It stays until the end of the process or of the run.
    Keep,
}

impl Retry {
    /// Draws a policy.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        pick(rng, &[Self::Default, Self::Default, Self::Never, Self::ThreeTimes, Self::Forever])
    }

    /// Options with this policy.
    pub(super) fn lock_options(self) -> LockOptions {
        let options = LockOptions::default();
        match self {
            Self::Default => options,
            Self::Never => options.with_retry_policy(NEVER),
            Self::ThreeTimes => options.with_retry_policy(THREE_TIMES),
            Self::Forever => options.with_retry_policy(FOREVER),
        }
    }

    /// The options of a protected create, with this policy.
    pub(super) fn protected_options(self, options: ProtectedOptions<'_>) -> ProtectedOptions<'_> {
        match self {
            Self::Default => options,
            Self::Never => options.with_retry_policy(NEVER),
            Self::ThreeTimes => options.with_retry_policy(THREE_TIMES),
            Self::Forever => options.with_retry_policy(FOREVER),
        }
    }
}

const NEVER: retry::RetryNTimes = retry::RetryNTimes::new(0, Duration::ZERO);
const THREE_TIMES: retry::RetryNTimes = retry::RetryNTimes::new(3, Duration::from_millis(100));
const FOREVER: retry::RetryForever =
    retry::RetryForever { retry_interval: Duration::from_millis(50) };

impl CloseKind {
    /// Draws any end, or the simplest one.
    pub(super) fn draw_any(rng: &mut Rng, is_simple: bool) -> Self {
        match rng.u8(..8) {
            _ if is_simple => Self::Close,
            0 => Self::CloseTwice,
            1 => Self::CancelledClose,
            2 => Self::Drop,
            3 => Self::Keep,
            _ => Self::Close,
        }
    }

    /// Draws the end of something that does not stay.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        pick(rng, &[Self::Close, Self::Close, Self::CancelledClose, Self::Drop])
    }
}

/// Draws how long an object is open, in milliseconds: sometimes beyond the peace.
pub(super) fn lasting_ms(rng: &mut Rng) -> u64 {
    match rng.u8(..8) {
        0 => rng.u64(..100),
        1..=4 => rng.u64(..4_000),
        5..=6 => rng.u64(4_000..20_000),
        _ => rng.u64(20_000..90_000),
    }
}

/// Draws how long an object that is not kept is used, in milliseconds.
pub(super) fn used_ms(rng: &mut Rng) -> u64 {
    match rng.u8(..8) {
        0 => rng.u64(..100),
        1..=5 => rng.u64(..5_000),
        _ => rng.u64(5_000..30_000),
    }
}

/// Polls a future once, and drops it.
pub(super) async fn poll_once(future: impl Future) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let _ = future.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

/// Polls a future once. Its output, if it is ready.
pub(super) fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// A cache whose events a worker reads.
pub(super) trait Reader: Send {
    type Event: Send;

    /// Waits for the next event; `None`: the cache is closed.
    fn next(&mut self) -> impl Future<Output = Option<Self::Event>> + Send;

    /// Takes an event.
    fn take(&mut self, worker: &Worker, event: Self::Event);

    /// Compares the content of the cache with the truth.
    fn look(&mut self, worker: &Worker);

    /// Whether the cache reports that it is up to date.
    fn is_current(&self) -> bool;

    /// Reads events until a time, with a pause after each, and looks after each event and from time to time. Returns
    /// false if the cache is closed.
    fn read(
        &mut self,
        worker: &Worker,
        until: Nanos,
        pause_ms: u64,
    ) -> impl Future<Output = bool> + Send {
        async move {
            while worker.world.now() < until {
                let left_ms = (until - worker.world.now()) / MILLISECOND + 1;
                match worker.within(left_ms.min(LOOKS_EVERY_MS), self.next()).await {
                    Some(Some(event)) => {
                        self.take(worker, event);
                        if pause_ms > 0 {
                            worker.sleep(pause_ms).await;
                        }
                    }
                    Some(None) => return false,
                    None => {}
                }
                self.look(worker);
            }
            true
        }
    }

    /// Takes all waiting events. Returns false if the cache is closed.
    fn drain(&mut self, worker: &Worker) -> bool {
        while let Some(event) = now_or_never(self.next()) {
            let Some(event) = event else { return false };
            self.take(worker, event);
        }
        self.look(worker);
        true
    }

    /// Waits for a moment until the cache is up to date: an overflow of the client's events may make it stale at any
    /// time.
    fn settle(&self, worker: &Worker) -> impl Future<Output = ()> + Send
    where
        Self: Sync,
    {
        async move {
            for _ in 0..10 {
                if self.is_current() {
                    return;
                }
                worker.sleep(LOOKS_EVERY_MS).await;
            }
        }
    }
}
