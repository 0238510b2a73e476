//! The recipes that threads use daily: locks, leaderships, numbers.

use std::time::Duration;

use super::{Blocking, Client, wait, wait_timeout};
use crate::{
    AtomicOptions, Error, LeaderOptions, LockOptions, Owner,
    atomic::{AtomicNumber, AtomicValue},
    leader::Term,
    locks::Held,
};

/// Types that are made of a client: each with its two constructors, whose last argument are its options.
macro_rules! made_of_a_client {
    ($($(#[$meta:meta])* $of:ident: $new:ident, $with:ident($($arg:ident: $ty:ty),*; $options:ty);)*) => {$(
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!(" Of [`", stringify!($of), "`](crate::", stringify!($of), ").")]
        pub type $of = Blocking<crate::$of>;

        impl $of {
            /// With the default options. Does not wait.
            ///
            #[doc = concat!(" As [`", stringify!($of), "::", stringify!($new), "`](crate::", stringify!($of), "::", stringify!($new), ").")]
            pub fn $new(client: &Client, $($arg: $ty),*) -> Result<Self, Error> {
                crate::$of::$new(client, $($arg),*).map(|made| client.wrap(made))
            }

            /// With options. Does not wait.
            ///
            #[doc = concat!(" As [`", stringify!($of), "::", stringify!($with), "`](crate::", stringify!($of), "::", stringify!($with), ").")]
            pub fn $with(client: &Client, $($arg: $ty,)* options: $options) -> Result<Self, Error> {
                crate::$of::$with(client, $($arg,)* options).map(|made| client.wrap(made))
            }
        }
    )*};
}

made_of_a_client! {
    /// A mutex that is held by one client at a time, re-entrant for an [`Owner`].
    InterProcessMutex: new, with_options(path: &str; LockOptions);
    /// A mutex that is not re-entrant.
    InterProcessSemaphoreMutex: new, with_options(path: &str; LockOptions);
    /// A mutex whose holds are proven not to overlap.
    StrictMutex: new, with_options(path: &str; LockOptions);
    /// A lock that many readers hold, or one writer.
    InterProcessReadWriteLock: new, with_options(path: &str; LockOptions);
    /// A limited number of holders at a time.
    InterProcessSemaphoreV2: new, with_options(path: &str, max_leases: usize; LockOptions);
    /// Several mutexes that are held together or not at all. Locks of other kinds and clients:
    /// `client.wrap(docent::InterProcessMultiLock::from_locks(…))`.
    InterProcessMultiLock: new, with_options(paths: &[&str]; &LockOptions);
    /// A participant of an election, which leads from its turn on until it is closed.
    LeaderLatch: start, start_with(path: &str, id: &str; impl Into<LeaderOptions>);
    /// A participant of an election that leads for one term at a time: while a closure runs.
    LeaderSelector: new, with_options(path: &str, id: &str; impl Into<LeaderOptions>);
    /// A number of 64 bits that processes count with.
    DistributedAtomicLong: new, with_options(path: &str; AtomicOptions);
    /// A number of 32 bits that processes count with.
    DistributedAtomicInteger: new, with_options(path: &str; AtomicOptions);
}

/// A held lock of any kind. Dropping it releases the lock in the background.
///
/// Of [`LockGuard`](crate::LockGuard#what-a-guard-guarantees), which explains what a guard guarantees.
pub type LockGuard = Blocking<crate::LockGuard>;

/// A time in which a participant of an election leads. Dropping it ends nothing.
///
/// Of [`Leadership`](crate::Leadership).
pub type Leadership = Blocking<crate::Leadership>;

macro_rules! locks {
    ($($of:ident)*) => {$(
        impl $of {
            /// Waits for the lock.
            ///
            #[doc = concat!(" As [`", stringify!($of), "::acquire`](crate::", stringify!($of), "::acquire).")]
            pub fn acquire(&self) -> Result<LockGuard, Error> {
                wait(|| self.inner.acquire()).map(|guard| self.wrap(guard))
            }

            /// Waits for the lock, and returns `None` when it was not acquired within `limit`.
            ///
            #[doc = concat!(" As [`", stringify!($of), "::acquire_timeout`](crate::", stringify!($of), "::acquire_timeout).")]
            pub fn acquire_timeout(&self, limit: Duration) -> Result<Option<LockGuard>, Error> {
                let guard = wait(|| self.inner.acquire_timeout(limit))?;
                Ok(guard.map(|guard| self.wrap(guard)))
            }
        }
    )*};
}

locks! { InterProcessMutex InterProcessSemaphoreMutex StrictMutex InterProcessSemaphoreV2 InterProcessMultiLock }

impl InterProcessMutex {
    /// As [`acquire`](Self::acquire), but enters the lock again if `owner` holds it already.
    ///
    /// As [`InterProcessMutex::acquire_as`](crate::InterProcessMutex::acquire_as).
    pub fn acquire_as(&self, owner: &Owner) -> Result<LockGuard, Error> {
        wait(|| self.inner.acquire_as(owner)).map(|guard| self.wrap(guard))
    }
}

impl InterProcessReadWriteLock {
    /// The read lock.
    ///
    /// As [`InterProcessReadWriteLock::read_lock`](crate::InterProcessReadWriteLock::read_lock).
    #[must_use]
    pub fn read_lock(&self) -> InterProcessMutex {
        self.wrap(self.inner.read_lock().clone())
    }

    /// The write lock.
    ///
    /// As [`InterProcessReadWriteLock::write_lock`](crate::InterProcessReadWriteLock::write_lock).
    #[must_use]
    pub fn write_lock(&self) -> InterProcessMutex {
        self.wrap(self.inner.write_lock().clone())
    }
}

impl LockGuard {
    /// Releases the lock, if this is the last guard of its owner, and waits for the reply. A call that is refused
    /// inside an async runtime releases it in the background.
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release).
    pub fn release(self) -> Result<(), Error> {
        let Self { inner, end: _end } = self;
        wait(|| inner.release())
    }
}

/// What is held through a session, and can be lost: a [`LockGuard`] or a [`Leadership`].
impl<H: Held> Blocking<H> {
    /// Waits until it is lost. Another thread waits here, or with [`lost_timeout`](Self::lost_timeout), while one works:
    /// a guard is `Sync`.
    ///
    /// As [`Held::lost`](crate::locks::Held::lost).
    pub fn lost(&self) -> Result<(), Error> {
        self.lost_timeout(Duration::MAX).map(drop)
    }

    /// As [`lost`](Self::lost), for at most `limit`; false if it is still held then.
    pub fn lost_timeout(&self, limit: Duration) -> Result<bool, Error> {
        let lost = wait_timeout(limit, async || {
            self.inner.lost().await;
            Ok(())
        });
        Ok(lost?.is_some())
    }

    /// A number that is greater for every later holder.
    ///
    /// As [`Held::fencing_token`](crate::locks::Held::fencing_token).
    pub fn fencing_token(&self) -> Result<i64, Error> {
        wait(|| self.inner.fencing_token())
    }
}

impl LeaderLatch {
    /// Waits until this participant leads.
    ///
    /// As [`LeaderLatch::leadership`](crate::LeaderLatch::leadership).
    pub fn leadership(&self) -> Result<Leadership, Error> {
        wait(|| self.inner.leadership()).map(|leadership| self.wrap(leadership))
    }

    /// As [`leadership`](Self::leadership), for at most `limit`; `None` if this participant does not lead by then. Its
    /// place in the queue stays.
    pub fn leadership_timeout(&self, limit: Duration) -> Result<Option<Leadership>, Error> {
        let leadership = wait_timeout(limit, || self.inner.leadership())?;
        Ok(leadership.map(|leadership| self.wrap(leadership)))
    }

    /// Leaves the election, in the close mode of the options, and waits until the node is deleted.
    ///
    /// As [`LeaderLatch::close`](crate::LeaderLatch::close).
    pub fn close(&self) -> Result<(), Error> {
        wait(|| self.inner.close())
    }
}

impl LeaderSelector {
    /// Joins the queue, waits, and leads for one term: until `term` returns, on this thread. Then the node is deleted.
    ///
    /// A closure cannot be interrupted: it has to watch its leadership, by [`is_held`](crate::Leadership::is_held) or
    /// by its [token](crate::Leadership::cancellation_token), and return when that has ended. The result is
    /// [`Term::Completed`] with its value also then.
    ///
    /// As [`LeaderSelector::run`](crate::LeaderSelector::run), which drops a term whose leadership has ended.
    pub fn run<R>(&self, term: impl FnOnce(Leadership) -> R) -> Result<Term<R>, Error> {
        wait(|| self.inner.run(|leadership| async { term(self.wrap(leadership)) }))
    }
}

impl<N: AtomicNumber> Blocking<crate::atomic::DistributedAtomicNumber<N>> {
    /// Reads the number.
    ///
    /// As [`DistributedAtomicNumber::get`](crate::atomic::DistributedAtomicNumber::get).
    pub fn get(&self) -> Result<AtomicValue<N>, Error> {
        wait(|| self.inner.get())
    }

    /// Adds one.
    ///
    /// As [`DistributedAtomicNumber::increment`](crate::atomic::DistributedAtomicNumber::increment).
    pub fn increment(&self) -> Result<AtomicValue<N>, Error> {
        wait(|| self.inner.increment())
    }

    /// Adds a number, which may be negative.
    ///
    /// As [`DistributedAtomicNumber::add`](crate::atomic::DistributedAtomicNumber::add).
    pub fn add(&self, delta: N) -> Result<AtomicValue<N>, Error> {
        wait(|| self.inner.add(delta))
    }
}
