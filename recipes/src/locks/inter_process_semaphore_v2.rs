//! A semaphore across processes. The module [`lease`](super::lease) describes how a lease is acquired.
//!
//! Source: `InterProcessSemaphoreV2`.

use std::{fmt, sync::Arc, time::Duration};

use docent_session::{Client, retry::RetryLoop};
use tokio::sync::OnceCell;

use super::{
    InterProcessMutex, LockGuard, LockOptions,
    lease::{LEASE_BASE_NAME, MaxLeases, Semaphore},
    owners::Owners,
    standard_lock_internals_driver::sorted_contenders,
};
use crate::{
    Error,
    base_path::check_base_path,
    deadline::{Deadline, Ended},
    error,
    path::join,
    recreate_pause::SharedRecreatePause,
    shared::SharedCount,
};

/// Source: `InterProcessSemaphoreV2.LOCK_PARENT`.
const LOCK_PARENT: &str = "locks";
/// Source: `InterProcessSemaphoreV2.LEASE_PARENT`.
const LEASE_PARENT: &str = "leases";

/// A semaphore that any number of processes, docent or Curator, share by its path. First come, first served.
///
/// The number of leases is either a constant ([`new`](Self::new)), which must be the same in all processes, or a
/// [`SharedCount`] ([`with_count`](Self::with_count)), which can change. Lowering it does not revoke acquired leases.
///
/// A lease is a [`LockGuard`], returned by [`release`](LockGuard::release) or by dropping it. Clones are the same
/// object.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use docent::InterProcessSemaphoreV2;
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
/// # let client = docent::Client::connect(&server.connect_string()).await?;
/// # Ok(example(client).await?)
/// # }
/// ```
///
/// Source: Curator's `InterProcessSemaphoreV2`.
#[derive(Clone)]
pub struct InterProcessSemaphoreV2(Arc<Semaphore>);

impl InterProcessSemaphoreV2 {
    /// A semaphore at this path with `max_leases` leases and the default [`LockOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`;
    /// [`BadArguments`](crate::ErrorKind::BadArguments) for 0 leases, for which every acquire would wait for ever.
    pub fn new(client: &Client, path: &str, max_leases: usize) -> Result<Self, Error> {
        Self::with_options(client, path, max_leases, LockOptions::default())
    }

    /// A semaphore at this path with `max_leases` leases. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_options(
        client: &Client,
        path: &str,
        max_leases: usize,
        options: LockOptions,
    ) -> Result<Self, Error> {
        if max_leases == 0 {
            return Err(error::bad_arguments(
                "a semaphore needs at least 1 lease; for a number that may be 0 for some time, use with_count",
            ));
        }
        Self::with_max_leases(client, path, MaxLeases::Fixed(max_leases), options)
    }

    /// A semaphore at this path whose number of leases is the value of `count`, also after it changes. While it is 0 or
    /// less, acquires wait. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    ///
    /// Source: `InterProcessSemaphoreV2(CuratorFramework, String, SharedCountReader)`; a change wakes a waiter
    /// (CURATOR-75).
    pub fn with_count(client: &Client, path: &str, count: &SharedCount) -> Result<Self, Error> {
        Self::with_count_and_options(client, path, count, LockOptions::default())
    }

    /// As [`with_count`](Self::with_count), with options.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    pub fn with_count_and_options(
        client: &Client,
        path: &str,
        count: &SharedCount,
        options: LockOptions,
    ) -> Result<Self, Error> {
        let max_leases = MaxLeases::Counted(count.subscribe(), count.clone());
        Self::with_max_leases(client, path, max_leases, options)
    }

    fn with_max_leases(
        client: &Client,
        path: &str,
        max_leases: MaxLeases,
        options: LockOptions,
    ) -> Result<Self, Error> {
        check_base_path(path)?;
        // `LockOptions::with_data` and `with_proven_renewal` are for the leases, not for the mutex.
        let lock_options = LockOptions { data: None, proven_renewal: None, ..options.clone() };
        let lock = InterProcessMutex::with_options(client, &join(path, LOCK_PARENT), lock_options)?;
        // The path of the mutex includes the namespace.
        let path = lock.path().strip_suffix(LOCK_PARENT).unwrap_or_default();
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self(Arc::new(Semaphore {
            client: client.clone(),
            leases_path: join(&path, LEASE_PARENT),
            path,
            lock,
            max_leases,
            options,
            default_data: OnceCell::new(),
            owners: Owners::default(),
            recreate: SharedRecreatePause::new(client.clock()),
        })))
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Waits for a lease.
    ///
    /// # Errors
    ///
    /// * `ConnectionLoss` or `SessionExpired`, when the connection or session is lost for longer than the retry policy
    ///   allows.
    /// * `NoNode` when the lease node is deleted more often than the retry policy allows.
    /// * `NoAuth`, `Closed`, and those of [`InterProcessMutex::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; no node is left behind while the client lives.
    ///
    /// Source: `InterProcessSemaphoreV2.acquire()`. Not mirrored: on a closed client that fails with a
    /// `NullPointerException` (N6 in `docs/CURATOR.md`).
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        let deadline = Deadline::after(&self.0.client, None);
        self.0.acquire_1_lease(&deadline).await.map_err(Ended::into_error)
    }

    /// Waits for a lease, and returns `None` when it was not acquired within `wait`. The timeout and the meaning of `None`
    /// are those of [`InterProcessMutex::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Unanswered`](crate::ErrorKind::Unanswered) when no reply has shown within
    /// `wait` whether there is a free lease.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// Source: `InterProcessSemaphoreV2.acquire(long, TimeUnit)`.
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        let deadline = Deadline::after(&self.0.client, Some(wait));
        deadline.answered(self.path(), self.0.acquire_1_lease(&deadline).await).await
    }

    /// Waits for `quantity` leases, one after the other. As in Curator, it keeps acquired leases while it waits for the
    /// rest: two such calls can wait for each other for ever, unless they have a
    /// [timeout](Self::acquire_many_timeout).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); acquired leases are then returned. `BadArguments` for a quantity of 0.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire); acquired leases are returned.
    ///
    /// Source: `InterProcessSemaphoreV2.acquire(int)`.
    pub async fn acquire_many(&self, quantity: usize) -> Result<Vec<LockGuard>, Error> {
        let deadline = Deadline::after(&self.0.client, None);
        self.acquire_quantity(quantity, &deadline).await.map_err(Ended::into_error)
    }

    /// Waits for `quantity` leases, and returns `None` when they were not all acquired within `wait`; acquired leases
    /// are then returned.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many) and [`acquire_timeout`](Self::acquire_timeout); a lease that was acquired
    /// is a reply.
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
        let deadline = Deadline::after(&self.0.client, Some(wait));
        deadline.answered(self.path(), self.acquire_quantity(quantity, &deadline).await).await
    }

    /// The paths of the nodes of all acquired leases, and of the lease for which the first waiter waits, oldest first.
    /// Sends getChildren2 (12).
    ///
    /// # Errors
    ///
    /// Those of the session; a semaphore that was never used has no participants.
    ///
    /// Source: `InterProcessSemaphoreV2.getParticipantNodes`, which returns names in no order, and fails for a
    /// semaphore that was never used.
    pub async fn participants(&self) -> Result<Vec<String>, Error> {
        let inner = &*self.0;
        let list = || inner.client.get_children_with_stat(&inner.leases_path);
        let listed = inner.client.retry_idempotent(inner.policy(), list).await;
        let (children, _) = error::default_if_missing(listed)?;
        let leases = sorted_contenders(&children, LEASE_BASE_NAME);
        Ok(leases.iter().map(|lease| join(&inner.leases_path, lease.name)).collect())
    }

    /// The path of the semaphore, including its namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    pub(super) fn any_held(&self) -> bool {
        self.0.owners.any_held()
    }

    async fn acquire_quantity(
        &self,
        quantity: usize,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<LockGuard>, Ended> {
        if quantity == 0 {
            return Err(error::bad_arguments("the quantity of leases must be at least 1").into());
        }
        let mut retry = RetryLoop::new(&self.0.client, self.0.policy());
        // On every other return, dropping the leases releases them in the background:
        // `InterProcessSemaphoreV2.returnAll`, without waiting for it in an outage.
        let mut leases: Vec<LockGuard> = Vec::new();
        loop {
            while leases.len() < quantity {
                leases.push(self.0.acquire_1_lease(deadline).await?);
                #[cfg(docent_sim)]
                if quantity > 1 {
                    crate::planted::delay("leases-granted-late", &self.0.client, 19).await;
                }
                deadline.note_answer();
            }
            // All must be held at one moment: an early lease may be lost during the wait for a later one.
            let lost: Vec<_> = leases.extract_if(.., |lease| !lease.is_held()).collect();
            let Some(first) = lost.first() else { return Ok(leases) };
            let lost = error::lock_lost(first.path());
            deadline.bound_by_end(retry.pause_after_any_error(lost)).await?;
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
