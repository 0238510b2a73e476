//! The waiters for the end of a claim: a list of wakers in the lease, and a timer that the driver of the session provides.

use std::{
    collections::BTreeMap, fmt, future::Future, mem, pin::Pin, sync::PoisonError, task::Waker,
    time::Duration,
};

use crate::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

/// The time and a timer for [`SessionClaim::lost`](crate::session::SessionClaim::lost). The driver of a session gives one to each
/// lease with [`SessionLease::set_timer`](crate::session::SessionLease::set_timer).
pub trait LeaseTimer: fmt::Debug + Send + Sync {
    /// The time on the clock of the session.
    fn now(&self) -> Instant;

    /// Completes when `duration` has passed, with true. Completes with false when there are no timers any more: the
    /// runtime has ended, and the session with it.
    fn sleep(&self, duration: Duration) -> Sleep;
}

/// See [`LeaseTimer::sleep`].
pub(super) type Sleep = Pin<Box<dyn Future<Output = bool> + Send + Sync>>;

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

    pub(super) fn enter(&self) -> Waiter<'_> {
        let mut wakers = self.lock();
        wakers.last_key += 1;
        Waiter { waiters: self, key: wakers.last_key }
    }

    /// Wakes all of them.
    pub(super) fn wake(&self) {
        let wakers = mem::take(&mut self.lock().by_key);
        for waker in wakers.into_values() {
            waker.wake();
        }
    }
}

/// The place of one future among the waiters.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    key: u64,
}

impl Waiter<'_> {
    pub(super) fn register(&self, waker: &Waker) {
        let replaced = self.waiters.lock().by_key.insert(self.key, waker.clone());
        // Without the lock: the drop of a waker may run code of the caller.
        drop(replaced);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let waker = self.waiters.lock().by_key.remove(&self.key);
        drop(waker);
    }
}
