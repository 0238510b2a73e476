//! Waiting for the end of a claim: a list of wakers in the lease, and a timer that the driver of the session provides.
//!
//! A claim that ends by the clock wakes its waiters in the call that finds it void: timers stand still in a suspension.

use std::{
    collections::BTreeMap,
    fmt,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};

use super::lease::{SessionClaim, SessionLease};
use crate::time::Instant;

/// The time and a timer for [`SessionClaim::lost`]. The driver of a session gives one to each lease with
/// [`SessionLease::set_timer`].
pub trait LeaseTimer: fmt::Debug + Send + Sync {
    /// The time on the clock of the session.
    fn now(&self) -> Instant;

    /// Completes when `duration` has passed, with true. Completes with false when there are no timers any more: the
    /// runtime has ended, and the session with it.
    fn sleep(&self, duration: Duration) -> Sleep;
}

/// See [`LeaseTimer::sleep`].
type Sleep = Pin<Box<dyn Future<Output = bool> + Send + Sync>>;

/// The longest sleep.
const MAX_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// The tasks that wait for the end of a claim.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Wakers>);

#[derive(Debug, Default)]
struct Wakers {
    last_key: u64,
    by_key: BTreeMap<u64, Waker>,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Wakers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Waiter<'_> {
        let mut wakers = self.lock();
        wakers.last_key += 1;
        Waiter { waiters: self, key: wakers.last_key }
    }
}

/// The place of one future among the waiters.
struct Waiter<'a> {
    waiters: &'a Waiters,
    key: u64,
}

impl Waiter<'_> {
    fn register(&self, waker: &Waker) {
        let mut wakers = self.waiters.lock();
        match wakers.by_key.get_mut(&self.key) {
            Some(old) => old.clone_from(waker),
            None => drop(wakers.by_key.insert(self.key, waker.clone())),
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let waker = self.waiters.lock().by_key.remove(&self.key);
        drop(waker);
    }
}

impl SessionLease {
    /// Sets the timer of [`SessionClaim::lost`], once: later calls change nothing.
    pub fn set_timer(&self, timer: impl FnOnce() -> Box<dyn LeaseTimer>) {
        self.timer.get_or_init(timer);
    }

    /// Wakes the tasks in [`SessionClaim::lost`]. To be called for each
    /// [`Event::Lease`](super::session::Event::Lease).
    pub fn wake_waiters(&self) {
        let wakers = mem::take(&mut self.waiters.lock().by_key);
        for waker in wakers.into_values() {
            waker.wake();
        }
    }
}

impl SessionClaim {
    /// Waits until [`is_valid`](Self::is_valid) is false for the client's clock: the session is lost or closed, or the
    /// naive bound has run out. Completes at once if it is false already.
    ///
    /// Completes within a millisecond of the deadline, the precision of the client's timers. These timers stand still
    /// while the machine is suspended, and the clock does not: after a suspension, this completes when `is_valid` is
    /// called, when a server replies, or when a timer of the client is due, which is the earliest of them.
    ///
    /// Can be polled anywhere, also outside a runtime.
    ///
    /// The lease of a [`Session`](super::session::Session) without a client has a timer if
    /// [`SessionLease::set_timer`] was called. Without one, this completes only when the session is known to be lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # extern crate docent_session as docent;
    /// use docent::SessionClaim;
    ///
    /// async fn stop_when_lost(claim: SessionClaim, stop: impl FnOnce()) {
    ///     claim.lost().await;
    ///     stop();
    /// }
    /// ```
    pub async fn lost(&self) {
        let lease = self.lease();
        let waiter = lease.waiters.enter();
        // With the instant that it ends at.
        let mut sleep: Option<(Instant, Sleep)> = None;
        let mut has_timers = true;
        poll_fn(|cx| {
            loop {
                // Before the check, so that no wake-up is lost.
                waiter.register(cx.waker());
                let Some(timer) = lease.timer.get() else {
                    return if lease.is_lost() { Poll::Ready(()) } else { Poll::Pending };
                };
                let now = timer.now();
                if !self.is_valid(now) {
                    return Poll::Ready(());
                }
                if !has_timers {
                    return Poll::Pending;
                }
                // Each reply moves the deadline on, and wakes no waiter.
                let deadline = lease.deadline();
                if sleep.as_ref().is_none_or(|(at, _)| *at > deadline) {
                    let left = deadline.duration_since(now).min(MAX_SLEEP);
                    // The claim is still valid at the deadline itself.
                    sleep = Some((now + left, timer.sleep(left + Duration::from_nanos(1))));
                }
                let Some((_, timeout)) = &mut sleep else { return Poll::Pending };
                let Poll::Ready(fired) = timeout.as_mut().poll(cx) else { return Poll::Pending };
                (sleep, has_timers) = (None, fired);
            }
        })
        .await;
    }
}
