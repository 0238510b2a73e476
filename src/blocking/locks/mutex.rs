//! The mutexes: re-entrant or not, for readers and writers; and their revocation.

use std::time::Duration;

use super::LockGuard;
use crate::{
    Error, LockOptions, Owner,
    blocking::{
        Client,
        context::Context,
        wait::{check, wait},
    },
    recipes::locks::LockInternalsDriver,
    retry::RetryPolicy,
};

/// Methods that acquire a lock. `Duration`, `Error`, `LockGuard` and, with `as`, `Owner` are in scope.
macro_rules! acquires {
    ($of:ident) => {
        /// Waits for the lock.
        ///
        #[doc = concat!(" Blocking [`", stringify!($of), "::acquire`](crate::", stringify!($of), "::acquire).")]
        pub fn acquire(&self) -> Result<LockGuard, Error> {
            $crate::blocking::wait::check()?;
            let guard = $crate::blocking::wait::wait(self.inner.acquire())?;
            Ok(LockGuard::new(guard, self.context.clone()))
        }

        /// Waits for the lock, and returns `None` when it was not acquired within `wait`.
        ///
        #[doc = concat!(" Blocking [`", stringify!($of), "::acquire_timeout`](crate::", stringify!($of), "::acquire_timeout).")]
        pub fn acquire_timeout(
            &self,
            wait: Duration,
        ) -> Result<Option<LockGuard>, Error> {
            $crate::blocking::wait::check()?;
            let guard = $crate::blocking::wait::wait(self.inner.acquire_timeout(wait))?;
            Ok(guard.map(|guard| LockGuard::new(guard, self.context.clone())))
        }
    };
    (as $of:ident) => {
        acquires!($of);

        /// As [`acquire`](Self::acquire), but enters the lock again if `owner` holds it already.
        ///
        #[doc = concat!(" Blocking [`", stringify!($of), "::acquire_as`](crate::", stringify!($of), "::acquire_as).")]
        pub fn acquire_as(&self, owner: &Owner) -> Result<LockGuard, Error> {
            $crate::blocking::wait::check()?;
            let guard = $crate::blocking::wait::wait(self.inner.acquire_as(owner))?;
            Ok(LockGuard::new(guard, self.context.clone()))
        }

        /// As [`acquire_as`](Self::acquire_as), and returns `None` when it was not acquired within `wait`.
        ///
        #[doc = concat!(" Blocking [`", stringify!($of), "::acquire_as_timeout`](crate::", stringify!($of), "::acquire_as_timeout).")]
        pub fn acquire_as_timeout(
            &self,
            owner: &Owner,
            wait: Duration,
        ) -> Result<Option<LockGuard>, Error> {
            $crate::blocking::wait::check()?;
            let guard = $crate::blocking::wait::wait(self.inner.acquire_as_timeout(owner, wait))?;
            Ok(guard.map(|guard| LockGuard::new(guard, self.context.clone())))
        }
    };
}
pub(super) use acquires;

/// A mutex that is held by one client at a time, re-entrant for an [`Owner`].
///
/// ```
/// # use docent::{Error, blocking::{Client, locks::InterProcessMutex}};
/// # fn example(client: &Client) -> Result<(), Error> {
/// let mutex = InterProcessMutex::new(client, "/locks/printer")?;
/// let guard = mutex.acquire()?;
/// println!("held, fencing token {}", guard.fencing_token()?);
/// guard.release()
/// # }
/// ```
///
/// As [`InterProcessMutex`](crate::InterProcessMutex).
#[derive(Clone)]
pub struct InterProcessMutex {
    pub(super) inner: crate::InterProcessMutex,
    pub(super) context: Context,
}

impl InterProcessMutex {
    forward! { InterProcessMutex;
        /// A mutex at this path, with the default options. Sends nothing.
        new fn new(client, path: &str);
        /// As [`new`](Self::new), with options.
        new fn with_options(client, path: &str, options: LockOptions);
        /// As [`with_options`](Self::with_options), with another rule for the names and the order of lock nodes.
        new fn with_driver(client, path: &str, options: LockOptions, driver: impl LockInternalsDriver);
        /// The paths of the lock nodes, in the order of the queue.
        async fn participants(&self) -> Result<Vec<String>, Error>;
        /// Whether the lock is held through this object, as far as this process can know.
        #[must_use]
        fn is_acquired_in_this_process(&self) -> bool;
        /// Whether this owner holds the lock.
        #[must_use]
        fn is_owned_by(&self, owner: &Owner) -> bool;
        /// Calls `listener` when another client asks for the lock. It is called on the client's thread, where blocking
        /// calls are refused: it may set a flag or send to a channel.
        fn make_revocable(&self, listener: impl Fn() + Send + Sync + 'static);
        /// The path of the lock.
        #[must_use]
        fn path(&self) -> &str;
    }

    acquires!(as InterProcessMutex);
}

/// A mutex that is not re-entrant.
///
/// As [`InterProcessSemaphoreMutex`](crate::InterProcessSemaphoreMutex).
#[derive(Clone)]
pub struct InterProcessSemaphoreMutex {
    pub(super) inner: crate::InterProcessSemaphoreMutex,
    pub(super) context: Context,
}

impl InterProcessSemaphoreMutex {
    forward! { InterProcessSemaphoreMutex;
        /// A mutex at this path, with the default options. Sends nothing.
        new fn new(client, path: &str);
        /// As [`new`](Self::new), with options.
        new fn with_options(client, path: &str, options: LockOptions);
        /// The paths of the lock nodes.
        async fn participants(&self) -> Result<Vec<String>, Error>;
        /// Whether the lock is held through this object, as far as this process can know.
        #[must_use]
        fn is_acquired_in_this_process(&self) -> bool;
        /// The path of the lock.
        #[must_use]
        fn path(&self) -> &str;
    }

    acquires!(InterProcessSemaphoreMutex);
}

/// A mutex whose holds are proven not to overlap.
///
/// As [`StrictMutex`](crate::StrictMutex).
#[derive(Clone)]
pub struct StrictMutex {
    pub(super) inner: crate::StrictMutex,
    pub(super) context: Context,
}

impl StrictMutex {
    forward! { StrictMutex;
        /// A mutex at this path, with the default options. Sends nothing.
        new fn new(client, path: &str);
        /// As [`new`](Self::new), with options.
        new fn with_options(client, path: &str, options: LockOptions);
        /// The paths of the lock nodes, in the order of the queue.
        async fn participants(&self) -> Result<Vec<String>, Error>;
        /// Whether the lock is held through this object.
        #[must_use]
        fn is_acquired_in_this_process(&self) -> bool;
        /// The path of the lock.
        #[must_use]
        fn path(&self) -> &str;
    }

    acquires!(StrictMutex);
}

/// A lock for many readers or one writer.
///
/// As [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock).
#[derive(Clone)]
pub struct InterProcessReadWriteLock {
    inner: crate::InterProcessReadWriteLock,
    read: InterProcessMutex,
    write: InterProcessMutex,
}

debug_as_inner!(InterProcessMutex InterProcessSemaphoreMutex StrictMutex InterProcessReadWriteLock);

impl InterProcessReadWriteLock {
    /// A read and a write lock at this path, with the default options. Sends nothing.
    ///
    /// As [`InterProcessReadWriteLock::new`](crate::InterProcessReadWriteLock::new).
    pub fn new(client: &Client, path: &str) -> Result<Self, Error> {
        Self::with_options(client, path, LockOptions::default())
    }

    /// As [`new`](Self::new), with options.
    ///
    /// As [`InterProcessReadWriteLock::with_options`](crate::InterProcessReadWriteLock::with_options).
    pub fn with_options(client: &Client, path: &str, options: LockOptions) -> Result<Self, Error> {
        let inner =
            crate::InterProcessReadWriteLock::with_options(client.async_client(), path, options)?;
        let context = &client.context;
        let lock = |inner| InterProcessMutex { inner, context: context.clone() };
        let (read, write) = (lock(inner.read_lock().clone()), lock(inner.write_lock().clone()));
        Ok(Self { inner, read, write })
    }

    /// The lock of the readers.
    ///
    /// As [`InterProcessReadWriteLock::read_lock`](crate::InterProcessReadWriteLock::read_lock).
    #[must_use]
    pub const fn read_lock(&self) -> &InterProcessMutex {
        &self.read
    }

    /// The lock of the writers.
    ///
    /// As [`InterProcessReadWriteLock::write_lock`](crate::InterProcessReadWriteLock::write_lock).
    #[must_use]
    pub const fn write_lock(&self) -> &InterProcessMutex {
        &self.write
    }
}

/// Asks the holder of a revocable lock to release it.
///
/// As [`Revoker`](crate::Revoker).
#[derive(Debug, Clone, Copy)]
pub struct Revoker;

impl Revoker {
    /// Asks the holder of the lock node at `path` to release it.
    ///
    /// Blocking [`Revoker::attempt_revoke`](crate::Revoker::attempt_revoke).
    pub fn attempt_revoke(
        client: &Client,
        policy: &dyn RetryPolicy,
        path: &str,
    ) -> Result<(), Error> {
        check()?;
        wait(crate::Revoker::attempt_revoke(client.async_client(), policy, path))
    }
}
