//! The trait of all locks, and several locks that are acquired as one.

use std::{sync::Arc, time::Duration};

use super::{
    InterProcessMutex, InterProcessSemaphoreMutex, LockGuard, StrictMutex, mutex::acquires,
};
use crate::{
    Clock, Error, LockFuture, LockOptions, Owner,
    blocking::{
        Client,
        context::Context,
        wait::{check, wait},
    },
};

/// A lock of any kind, for code that works with all of them, such as an [`InterProcessMultiLock`].
///
/// It is implemented for the locks of this module only: each of them is made of an async lock. Each method is the lock's
/// own method of that name.
///
/// As [`InterProcessLock`](crate::InterProcessLock).
pub trait InterProcessLock: Sealed + Send + Sync {
    /// The clock of timed acquires.
    fn clock(&self) -> Clock {
        self.async_lock().clock()
    }

    /// Waits for the lock.
    fn acquire(&self) -> Result<LockGuard, Error> {
        check()?;
        wait(self.async_lock().acquire()).map(|guard| self.guard(guard))
    }

    /// Waits for the lock, and returns `None` when it was not acquired within `wait`.
    fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        check()?;
        let guard = self::wait(self.async_lock().acquire_timeout(wait))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// As [`acquire`](Self::acquire), but enters the lock again if `owner` holds it already. A lock that is not
    /// re-entrant ignores `owner`.
    fn acquire_as(&self, owner: &Owner) -> Result<LockGuard, Error> {
        check()?;
        wait(self.async_lock().acquire_as(owner)).map(|guard| self.guard(guard))
    }

    /// As [`acquire_as`](Self::acquire_as), and returns `None` when it was not acquired within `wait`.
    fn acquire_as_timeout(
        &self,
        owner: &Owner,
        wait: Duration,
    ) -> Result<Option<LockGuard>, Error> {
        check()?;
        let guard = self::wait(self.async_lock().acquire_as_timeout(owner, wait))?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Whether the lock is held through this object, as far as this process can know.
    fn is_acquired_in_this_process(&self) -> bool {
        self.async_lock().is_acquired_in_this_process()
    }
}

mod sealed {
    use crate::{
        InterProcessLock,
        blocking::{context::Context, locks::LockGuard},
    };

    /// The async lock of a lock.
    pub trait Sealed {
        fn async_lock(&self) -> &dyn InterProcessLock;
        fn context(&self) -> &Context;
        fn guard(&self, inner: crate::LockGuard) -> LockGuard {
            LockGuard::new(inner, self.context().clone())
        }
    }
}
use sealed::Sealed;

macro_rules! inter_process_lock {
    ($($type:ident)*) => {
        $(impl Sealed for $type {
            fn async_lock(&self) -> &dyn crate::InterProcessLock {
                &self.inner
            }

            fn context(&self) -> &Context {
                &self.context
            }
        }

        impl InterProcessLock for $type {})*
    };
}

inter_process_lock!(InterProcessMutex InterProcessMultiLock InterProcessSemaphoreMutex StrictMutex);

/// Several locks, of any kinds, that are held together or not at all.
///
/// As [`InterProcessMultiLock`](crate::InterProcessMultiLock).
#[derive(Clone)]
pub struct InterProcessMultiLock {
    inner: crate::InterProcessMultiLock,
    context: Context,
}

debug_as_inner!(InterProcessMultiLock);

impl InterProcessMultiLock {
    /// A multi lock of these locks. They may have different clients.
    ///
    /// As [`InterProcessMultiLock::from_locks`](crate::InterProcessMultiLock::from_locks).
    #[must_use]
    pub fn from_locks(locks: Vec<Arc<dyn InterProcessLock>>) -> Self {
        let context = Context::all(locks.iter().map(|lock| lock.context().clone()));
        let locks = locks.into_iter().map(|lock| Arc::new(AsyncLock(lock)) as _).collect();
        Self { inner: crate::InterProcessMultiLock::from_locks(locks), context }
    }

    /// A mutex at each of these paths, with the default options. Sends nothing.
    ///
    /// As [`InterProcessMultiLock::new`](crate::InterProcessMultiLock::new).
    pub fn new(client: &Client, paths: &[&str]) -> Result<Self, Error> {
        Self::with_options(client, paths, &LockOptions::default())
    }

    forward! { InterProcessMultiLock;
        /// As [`new`](Self::new), with options.
        new fn with_options(client, paths: &[&str], options: &LockOptions);
        /// Whether all locks are held through these objects, as far as this process can know.
        #[must_use]
        fn is_acquired_in_this_process(&self) -> bool;
    }

    acquires!(as InterProcessMultiLock);
}

/// The async lock of a lock.
struct AsyncLock(Arc<dyn InterProcessLock>);

impl crate::InterProcessLock for AsyncLock {
    fn clock(&self) -> Clock {
        self.0.async_lock().clock()
    }

    fn acquire(&self) -> LockFuture<'_, crate::LockGuard> {
        self.0.async_lock().acquire()
    }

    fn acquire_timeout(&self, wait: Duration) -> LockFuture<'_, Option<crate::LockGuard>> {
        self.0.async_lock().acquire_timeout(wait)
    }

    fn acquire_as<'a>(&'a self, owner: &'a Owner) -> LockFuture<'a, crate::LockGuard> {
        self.0.async_lock().acquire_as(owner)
    }

    fn acquire_as_timeout<'a>(
        &'a self,
        owner: &'a Owner,
        wait: Duration,
    ) -> LockFuture<'a, Option<crate::LockGuard>> {
        self.0.async_lock().acquire_as_timeout(owner, wait)
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.0.async_lock().is_acquired_in_this_process()
    }
}
