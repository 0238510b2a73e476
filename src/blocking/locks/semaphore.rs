//! The semaphore.

use std::time::Duration;

use super::{LockGuard, mutex::acquires};
use crate::{
    Error, LockOptions,
    blocking::{
        Client,
        context::Context,
        shared::SharedCount,
        wait::{check, wait},
    },
};

/// A limited number of holders at a time.
///
/// As [`InterProcessSemaphoreV2`](crate::InterProcessSemaphoreV2).
#[derive(Clone)]
pub struct InterProcessSemaphoreV2 {
    inner: crate::InterProcessSemaphoreV2,
    context: Context,
}

debug_as_inner!(InterProcessSemaphoreV2);

impl InterProcessSemaphoreV2 {
    forward! { InterProcessSemaphoreV2;
        /// A semaphore with this number of leases, with the default options. Sends nothing.
        new fn new(client, path: &str, max_leases: usize);
        /// As [`new`](Self::new), with options.
        new fn with_options(client, path: &str, max_leases: usize, options: LockOptions);
        /// The names of the lease nodes.
        async fn participants(&self) -> Result<Vec<String>, Error>;
        /// The path of the semaphore.
        #[must_use]
        fn path(&self) -> &str;
    }

    /// A semaphore whose number of leases is the shared count.
    ///
    /// As [`InterProcessSemaphoreV2::with_count`](crate::InterProcessSemaphoreV2::with_count).
    pub fn with_count(client: &Client, path: &str, count: &SharedCount) -> Result<Self, Error> {
        Self::with_count_and_options(client, path, count, LockOptions::default())
    }

    /// As [`with_count`](Self::with_count), with options.
    ///
    /// As [`InterProcessSemaphoreV2::with_count_and_options`](crate::InterProcessSemaphoreV2::with_count_and_options).
    pub fn with_count_and_options(
        client: &Client,
        path: &str,
        count: &SharedCount,
        options: LockOptions,
    ) -> Result<Self, Error> {
        let (client, context) = (client.async_client(), client.context.clone());
        let inner = crate::InterProcessSemaphoreV2::with_count_and_options(
            client,
            path,
            &count.inner,
            options,
        )?;
        Ok(Self { inner, context })
    }

    acquires!(InterProcessSemaphoreV2);

    /// Waits for several leases.
    ///
    /// Blocking [`InterProcessSemaphoreV2::acquire_many`](crate::InterProcessSemaphoreV2::acquire_many).
    pub fn acquire_many(&self, quantity: usize) -> Result<Vec<LockGuard>, Error> {
        check()?;
        wait(self.inner.acquire_many(quantity)).map(|guards| self.guards(guards))
    }

    /// Waits for several leases, and returns `None` when they were not all acquired within `wait`.
    ///
    /// Blocking [`InterProcessSemaphoreV2::acquire_many_timeout`](crate::InterProcessSemaphoreV2::acquire_many_timeout).
    pub fn acquire_many_timeout(
        &self,
        quantity: usize,
        wait: Duration,
    ) -> Result<Option<Vec<LockGuard>>, Error> {
        check()?;
        let guards = super::super::wait::wait(self.inner.acquire_many_timeout(quantity, wait))?;
        Ok(guards.map(|guards| self.guards(guards)))
    }

    fn guards(&self, guards: Vec<crate::LockGuard>) -> Vec<LockGuard> {
        guards.into_iter().map(|guard| LockGuard::new(guard, self.context.clone())).collect()
    }
}
