//! A number of leases, across processes. How one is got is told in [`lease`](super::lease).
//!
//! Source: `InterProcessSemaphoreV2`.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use docent_session::{Client, ErrorKind};
use tokio::sync::OnceCell;
use tracing::debug;

use super::{
    InterProcessMutex, LockGuard, LockOptions,
    lease::{Inner, LEASE_BASE_NAME, MaxLeases},
    standard_lock_internals_driver::sorted_contenders,
};
use crate::{
    Error, deadline::Deadline, protection::join, retry_loop::call_with_retry, shared::SharedCount,
};

/// Source: `InterProcessSemaphoreV2.LOCK_PARENT`.
const LOCK_PARENT: &str = "locks";
/// Source: `InterProcessSemaphoreV2.LEASE_PARENT`.
const LEASE_PARENT: &str = "leases";

/// A semaphore that any number of processes, docent or Curator, share by its path. First come, first served.
///
/// How many leases there are is said by everybody who makes one ([`new`](Self::new)), and all must say the same;
/// or by a [`SharedCount`] ([`with_count`](Self::with_count)), which can change. When it is lowered, leases that are
/// out stay out.
///
/// A lease is a [`LockGuard`]: given back by [`release`](LockGuard::release) or by dropping it. Clones are the same
/// object.
///
/// # Example
///
/// ```
/// # async fn example(client: docent_session::Client) -> Result<(), docent_recipes::Error> {
/// use docent_recipes::locks::InterProcessSemaphoreV2;
///
/// let semaphore = InterProcessSemaphoreV2::new(&client, "/licences", 6)?;
/// let one = semaphore.acquire().await?;
/// let two_more = semaphore.acquire_many(2).await?;
/// one.release().await?;
/// drop(two_more);
/// # Ok(())
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent_session::Client::connect(&server.connect_string()).await?;
/// # Ok(example(client).await?)
/// # }
/// ```
///
/// Source: Curator's `InterProcessSemaphoreV2`.
#[derive(Clone)]
pub struct InterProcessSemaphoreV2(Arc<Inner>);

impl InterProcessSemaphoreV2 {
    /// A semaphore at this path with so many leases, and the default [`LockOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    pub fn new(client: &Client, path: &str, max_leases: usize) -> Result<Self, Error> {
        Self::with_options(client, path, max_leases, LockOptions::default())
    }

    /// A semaphore at this path with so many leases. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    pub fn with_options(
        client: &Client,
        path: &str,
        max_leases: usize,
        options: LockOptions,
    ) -> Result<Self, Error> {
        Self::of(client, path, MaxLeases::Fixed(max_leases), options)
    }

    /// A semaphore at this path with as many leases as the count says, now and later. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    ///
    /// Source: `InterProcessSemaphoreV2(CuratorFramework, String, SharedCountReader)`; a waiter is woken by a change
    /// (CURATOR-75).
    pub fn with_count(client: &Client, path: &str, count: &SharedCount) -> Result<Self, Error> {
        Self::with_count_and_options(client, path, count, LockOptions::default())
    }

    /// As [`with_count`](Self::with_count), with options.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] when it is no path, or `/`.
    pub fn with_count_and_options(
        client: &Client,
        path: &str,
        count: &SharedCount,
        options: LockOptions,
    ) -> Result<Self, Error> {
        let max_leases = MaxLeases::Counted(count.subscribe(), count.clone());
        Self::of(client, path, max_leases, options)
    }

    fn of(
        client: &Client,
        path: &str,
        max_leases: MaxLeases,
        options: LockOptions,
    ) -> Result<Self, Error> {
        super::lock_internals::check_base_path(path)?;
        // What the user says about data is about the leases.
        let of_lock = LockOptions { data: None, ..options.clone() };
        let lock = InterProcessMutex::with_options(client, &join(path, LOCK_PARENT), of_lock)?;
        // With the namespace.
        let path = lock.path().strip_suffix(LOCK_PARENT).unwrap_or_default();
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self(Arc::new(Inner {
            client: client.clone(),
            leases_path: join(&path, LEASE_PARENT),
            path,
            lock,
            max_leases,
            options,
            default_data: OnceCell::new(),
            holds: Mutex::default(),
        })))
    }

    /// Waits for a lease.
    ///
    /// # Errors
    ///
    /// * What broke the session for longer than the retry policy allows: `ConnectionLoss`, `SessionExpired`.
    /// * `NoNode` when the lease vanished more often than the retry policy allows.
    /// * `NoAuth`, `Closed`, and those of [`InterProcessMutex::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; no node stays behind while the client lives.
    ///
    /// Source: `InterProcessSemaphoreV2.acquire()`. Not mirrored: on a closed client that fails with a
    /// `NullPointerException` (N6).
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        loop {
            if let Some(lease) = self.0.acquire_1_lease(None).await? {
                return Ok(lease);
            }
        }
    }

    /// Waits for a lease, and returns `None` when it was not got within `wait`. The time is bounded as that of
    /// [`InterProcessMutex::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessSemaphoreV2.acquire(long, TimeUnit)`.
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        self.0.acquire_1_lease(Some(wait)).await
    }

    /// Waits for so many leases, one after the other. What it has got it keeps while it waits for the rest, as
    /// Curator does: two that want many can wait for each other for ever, unless they have a
    /// [time](Self::acquire_many_timeout).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); what was got before is given back then.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), and what was got is given back.
    ///
    /// Source: `InterProcessSemaphoreV2.acquire(int)`.
    pub async fn acquire_many(&self, quantity: usize) -> Result<Vec<LockGuard>, Error> {
        loop {
            if let Some(leases) = self.many(quantity, None).await? {
                return Ok(leases);
            }
        }
    }

    /// Waits for so many leases, and returns `None` when they were not got within `wait`, all together: then what
    /// was got is given back.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_many`](Self::acquire_many).
    ///
    /// Source: `InterProcessSemaphoreV2.acquire(int, long, TimeUnit)`.
    pub async fn acquire_many_timeout(
        &self,
        quantity: usize,
        wait: Duration,
    ) -> Result<Option<Vec<LockGuard>>, Error> {
        self.many(quantity, Some(wait)).await
    }

    /// The leases that are out, and the one that the first in the queue waits with, oldest first, as paths of
    /// their nodes. Sends getChildren2 (12).
    ///
    /// # Errors
    ///
    /// Those of the session; a semaphore that was never used has none.
    ///
    /// Source: `InterProcessSemaphoreV2.getParticipantNodes`, which tells names, in no order, and fails when nobody
    /// has used the semaphore.
    pub async fn participants(&self) -> Result<Vec<String>, Error> {
        let inner = &*self.0;
        let list = || inner.client.get_children2(&inner.leases_path);
        let children = match call_with_retry(&inner.client, inner.policy(), list).await {
            Ok((children, _)) => children.to_vec(),
            Err(error) if error.kind() == ErrorKind::NoNode => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let leases = sorted_contenders(children.iter().map(String::as_str), LEASE_BASE_NAME);
        Ok(leases.iter().map(|lease| join(&inner.leases_path, lease.name)).collect())
    }

    /// The path it was made with; with its namespace in front, if it has one.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    pub(super) fn any_held(&self) -> bool {
        self.0.any_held()
    }

    async fn many(
        &self,
        quantity: usize,
        wait: Option<Duration>,
    ) -> Result<Option<Vec<LockGuard>>, Error> {
        let time = Deadline::after(&self.0.client, wait);
        let mut leases = Vec::with_capacity(quantity);
        while leases.len() < quantity {
            match self.0.acquire_1_lease(time.left()).await {
                Ok(Some(lease)) => leases.push(lease),
                Ok(None) => {
                    return_all(leases).await;
                    return Ok(None);
                }
                Err(error) => {
                    return_all(leases).await;
                    return Err(error);
                }
            }
        }
        Ok(Some(leases))
    }
}

/// Gives leases back; errors are not told, and the nodes go in the background then.
///
/// Source: `InterProcessSemaphoreV2.returnAll`.
pub(super) async fn return_all(leases: Vec<LockGuard>) {
    for lease in leases {
        if let Err(error) = lease.release().await {
            debug!(%error, "while a lease is given back");
        }
    }
}

impl fmt::Debug for InterProcessSemaphoreV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreV2")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
