//! A value that is changed by compare-and-set.

use std::fmt;

use bytes::Bytes;
use docent_session::{
    Client, Error, Node,
    retry::{RetryLoop, RetryPolicy},
    runtime::Instant,
};
use tracing::debug;

use super::{
    AtomicOptions, AtomicStats, AtomicValue, PromotedToLock,
    cell::{Cell, Write},
};
use crate::{base_path::check_base_path, locks::InterProcessMutex, planted};

/// A value in a node that many processes change, each change based on the last.
///
/// The node is persistent; its data are the value. The first write creates it, and its parents as containers. `None`
/// stands for a missing node. Clones are the same object.
///
/// # Lost replies
///
/// A write whose reply is lost is never applied twice. If it cannot be found out whether it was applied, the operation
/// returns an error with [`Outcome::Unknown`](crate::Outcome::Unknown); [the module](super) has the rules.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use docent::DistributedAtomicValue;
///
/// let owner = DistributedAtomicValue::new(&client, "/jobs/7/owner")?;
/// owner.initialize("none").await?;
/// if owner.compare_and_set("none", "host-3").await?.succeeded() {
///     println!("the job is ours");
/// }
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
/// Source: Curator's `DistributedAtomicValue`.
#[derive(Clone)]
pub struct DistributedAtomicValue {
    pub(super) cell: Cell,
    options: AtomicOptions,
    lock: Option<InterProcessMutex>,
}

impl DistributedAtomicValue {
    /// A value at this path, with the default [`AtomicOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    pub fn new(client: &Client, path: &str) -> Result<Self, Error> {
        Self::with_options(client, path, AtomicOptions::default())
    }

    /// A value at this path. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path of the value or of the lock, and for `/`.
    pub fn with_options(
        client: &Client,
        path: &str,
        options: AtomicOptions,
    ) -> Result<Self, Error> {
        check_base_path(path)?;
        let lock_options = options.lock_options.clone();
        let lock = options
            .promotion
            .as_ref()
            .map(|lock| InterProcessMutex::with_options(client, &lock.path, lock_options))
            .transpose()?;
        let (client, path) = (client.clone(), path.to_owned());
        let cell = Cell { client, path, options: options.lock_options.clone() };
        Ok(Self { cell, options, lock })
    }

    /// Reads the value; both values of the result are the same. Sends getData (4).
    ///
    /// A server that lags can return an older value than another client has written before. Where that matters, call
    /// [`Client::sync`] before.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries.
    ///
    /// Source: `DistributedAtomicValue.get`.
    pub async fn get(&self) -> Result<AtomicValue<Option<Bytes>>, Error> {
        let value = Cell::data(self.cell.read().await?.as_ref());
        let stats = AtomicStats::default();
        Ok(AtomicValue { pre_value: value.clone(), post_value: Some(value), stats })
    }

    /// Writes the value. It does not succeed if another writer was faster, more often than the options allow. Sends
    /// getData (4), and setData (5) or create2 (15).
    ///
    /// # Errors
    ///
    /// Those of the session, after retries. The value may have been written if the
    /// [outcome](crate::Error::outcome) of the error is `Unknown`, and was not written otherwise.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may have been written. The lock of a promotion is released.
    ///
    /// Source: `DistributedAtomicValue.trySet`.
    pub async fn try_set(
        &self,
        value: impl Into<Bytes>,
    ) -> Result<AtomicValue<Option<Bytes>>, Error> {
        let value = value.into();
        self.update(|_| Ok(value.clone())).await
    }

    /// Writes the value if the current one is `expected`. Sends getData (4), and setData (5) if it is. One attempt: it does
    /// not succeed if another writer was faster, nor if the node is missing, which is no value
    /// ([`initialize`](Self::initialize) creates it).
    ///
    /// # Errors
    ///
    /// As [`try_set`](Self::try_set).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may have been written.
    ///
    /// Source: `DistributedAtomicValue.compareAndSet`. Not mirrored: there, a write whose reply was lost is reported as
    /// not succeeded (C23 in `docs/CURATOR.md`).
    pub async fn compare_and_set(
        &self,
        expected: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> Result<AtomicValue<Option<Bytes>>, Error> {
        let seen = self.cell.read().await?;
        let pre_value = Cell::data(seen.as_ref());
        let stats = AtomicStats::default();
        let is_expected = pre_value.as_ref().is_some_and(|data| **data == *expected.as_ref());
        let value = value.into();
        let written = match &seen {
            Some(_) if is_expected => self.cell.write(seen.as_ref(), &value).await?,
            _ => Write::LostRace,
        };
        let post_value = (written == Write::Applied).then_some(Some(value));
        Ok(AtomicValue { pre_value, post_value, stats })
    }

    /// Writes the value unconditionally. Sends setData (5), and create2 (15) if the node is missing.
    ///
    /// # Errors
    ///
    /// As [`try_set`](Self::try_set). After a lost reply, the value is read, behind a transaction (14) that changes
    /// nothing: with the wanted value it is a success, and without a write since it is repeated. Otherwise the outcome is
    /// unknown, because another client may have overwritten it. Call it again to overwrite that, too.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may have been written.
    ///
    /// Source: `DistributedAtomicValue.forceSet`, which writes again after a lost reply.
    pub async fn force_set(&self, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.cell.force(value.as_ref()).await
    }

    /// Creates the node with this value, and its parents; false if it exists. Sends create2 (15).
    ///
    /// # Errors
    ///
    /// As [`try_set`](Self::try_set).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node may have been created.
    ///
    /// Source: `DistributedAtomicValue.initialize`. Not mirrored: there, a create whose reply was lost is reported as
    /// false (C24 in `docs/CURATOR.md`).
    pub async fn initialize(&self, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.cell.create(value.as_ref()).await? == Write::Applied)
    }

    /// The path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.cell.path
    }

    /// Replaces the value by one that is made from it: without a lock, and then, if the options say so, with one.
    ///
    /// Source: `DistributedAtomicValue.trySet(MakeValue)`.
    pub(super) async fn update(
        &self,
        make: impl Fn(Option<&Bytes>) -> Result<Bytes, Error>,
    ) -> Result<AtomicValue<Option<Bytes>>, Error> {
        let mut stats = AtomicStats::default();
        let start = self.cell.client.now();
        let optimistic =
            self.attempts(&*self.options.retry_policy, &make, &mut stats.optimistic_tries).await;
        stats.optimistic_time = self.since(start);
        let (mut pre_value, mut post_value) = optimistic?;
        if let (None, Some(lock), Some(promotion)) =
            (&post_value, &self.lock, &self.options.promotion)
        {
            debug!(path = self.path(), lock = promotion.path, "promoted to the lock");
            let acquired = acquire(lock, promotion).await;
            if let Some(guard) = acquired.map_err(|error| self.cell.not_applied(error))? {
                let start = self.cell.client.now();
                let policy = &*promotion.retry_policy;
                let promoted = self.attempts(policy, &make, &mut stats.promoted_lock_tries).await;
                stats.promoted_time = self.since(start);
                if planted::is("promotion-keeps-lock") {
                    std::mem::forget(guard);
                } else if let Err(error) = guard.release().await {
                    debug!(path = promotion.path, %error, "the release continues in the background");
                }
                (pre_value, post_value) = promoted?;
            }
        }
        Ok(AtomicValue { pre_value, post_value: post_value.map(Some), stats })
    }

    /// Reads and writes until a write is applied, or the policy gives up. Returns the value before, and the one after a
    /// success.
    ///
    /// Source: `DistributedAtomicValue.tryOptimistic`, `tryWithMutex`, `tryOnce`.
    async fn attempts(
        &self,
        policy: &dyn RetryPolicy,
        make: &impl Fn(Option<&Bytes>) -> Result<Bytes, Error>,
        tries: &mut u32,
    ) -> Result<(Option<Bytes>, Option<Bytes>), Error> {
        let mut retry = RetryLoop::new(&self.cell.client, policy);
        loop {
            *tries = tries.saturating_add(1);
            let seen: Option<Node> = self.cell.read().await?;
            let pre_value = Cell::data(seen.as_ref());
            let value = make(pre_value.as_ref())?;
            if self.cell.write(seen.as_ref(), &value).await? == Write::Applied {
                return Ok((pre_value, Some(value)));
            }
            if retry.pause_after_any_error(()).await.is_err() {
                return Ok((pre_value, None));
            }
        }
    }

    fn since(&self, start: Instant) -> std::time::Duration {
        self.cell.client.now().duration_since(start)
    }
}

async fn acquire(
    lock: &InterProcessMutex,
    promotion: &PromotedToLock,
) -> Result<Option<crate::locks::LockGuard>, Error> {
    match promotion.timeout {
        Some(timeout) => lock.acquire_timeout(timeout).await,
        None => lock.acquire().await.map(Some),
    }
}

impl fmt::Debug for DistributedAtomicValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedAtomicValue").field("path", &self.path()).finish_non_exhaustive()
    }
}
