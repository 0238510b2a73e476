//! A barrier that one process sets and removes, and others wait on.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use docent_protocol::{CreateMode, EventType};
use docent_session::{Client, Error, ErrorKind, retry::RetryLoop};
use tokio::sync::OnceCell;

use super::persistently::{persistently, removed_on_drop};
use crate::{
    acl_provider::acl_of,
    base_path::check_base_path,
    create,
    deadline::Deadline,
    default_data::default_data,
    options::LockOptions,
    parents::{LastNode, create_parents},
    planted,
};

/// A barrier: while its node exists, waiters wait.
///
/// The node is persistent. It outlives the process that set it, until a process removes it. Clones are the same object.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use std::time::Duration;
/// use docent::DistributedBarrier;
///
/// let barrier = DistributedBarrier::new(&client, "/migration")?;
/// barrier.set_barrier().await?;
/// assert!(!barrier.wait_on_barrier_timeout(Duration::ZERO).await?);
/// barrier.remove_barrier().await?;
/// barrier.wait_on_barrier().await?;
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
/// Source: Curator's `DistributedBarrier`.
#[derive(Clone)]
pub struct DistributedBarrier {
    client: Client,
    path: Arc<str>,
    options: LockOptions,
    default_data: Arc<OnceCell<Bytes>>,
}

impl DistributedBarrier {
    /// A barrier at this path, with the default [`LockOptions`](crate::locks::LockOptions). Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    pub fn new(client: &Client, path: &str) -> Result<Self, Error> {
        Self::with_options(client, path, LockOptions::default())
    }

    /// A barrier at this path. Sends nothing. It uses these options: the retry policy, for setting and removing; the
    /// default data; the ACL provider; and the mode of the parents.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    pub fn with_options(client: &Client, path: &str, options: LockOptions) -> Result<Self, Error> {
        check_base_path(path)?;
        let (client, path) = (client.clone(), path.into());
        Ok(Self { client, path, options, default_data: Arc::default() })
    }

    /// Sets the barrier; nothing changes if it is set. Sends create2 (15), with parents like a lock node.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries: the barrier may be set.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the barrier may be set.
    ///
    /// Source: `DistributedBarrier.setBarrier`.
    pub async fn set_barrier(&self) -> Result<(), Error> {
        let data = default_data(&self.default_data, &self.client, &self.options).await;
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        loop {
            match self.create(&data).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NodeExists => return Ok(()),
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    async fn create(&self, data: &[u8]) -> Result<(), Error> {
        let (parents, mode) = (self.options.parents(), CreateMode::Persistent);
        let acl = acl_of(parents.acl_provider, &self.path);
        let create = || create::create(&self.client, &self.path, data, mode, acl);
        match create().await {
            Err(error) if error.kind() == ErrorKind::NoNode => {
                create_parents(&self.client, &self.path, LastNode::Skip, parents).await?;
                create().await.map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Removes the barrier: all waiters pass. Nothing changes if it is not set. Sends delete (2).
    ///
    /// After a lost reply the delete is repeated. It then removes the barrier that another process has set in between,
    /// too.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries: the barrier may be removed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the barrier may be removed.
    ///
    /// Source: `DistributedBarrier.removeBarrier`.
    pub async fn remove_barrier(&self) -> Result<(), Error> {
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        loop {
            match self.client.delete(&self.path, None).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    /// Waits until the barrier is not set. An opening is not missed, also if the barrier is set again at once. Sends
    /// getData (4) with watch, after each event and reconnect again; it needs the permission READ.
    ///
    /// The wait survives outages and the end of the session.
    ///
    /// # Errors
    ///
    /// `Closed` when the client has ended, `NoAuth`, and other errors of requests that a repetition does not mend.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the watch, with removeWatches (18); servers that are known to be older than 3.5 keep
    /// it until it fires.
    ///
    /// Source: `DistributedBarrier.waitOnBarrier`. Not mirrored: its exists leaves a watch behind (C11 in
    /// `docs/CURATOR.md`), it can miss an opening, and fails in an outage (C12).
    pub async fn wait_on_barrier(&self) -> Result<(), Error> {
        self.wait(None).await.map(drop)
    }

    /// As [`wait_on_barrier`](Self::wait_on_barrier), but returns false when the barrier is still set after `wait`. A
    /// zero timeout looks once. The timeout bounds the whole call, also without a connection; only a request in
    /// progress at the deadline may take one second more.
    ///
    /// # Errors
    ///
    /// As [`wait_on_barrier`](Self::wait_on_barrier).
    ///
    /// # Cancel safety
    ///
    /// As [`wait_on_barrier`](Self::wait_on_barrier).
    ///
    /// Source: `DistributedBarrier.waitOnBarrier(long, TimeUnit)`.
    pub async fn wait_on_barrier_timeout(&self, wait: Duration) -> Result<bool, Error> {
        self.wait(Some(wait)).await
    }

    async fn wait(&self, wait: Option<Duration>) -> Result<bool, Error> {
        let deadline = Deadline::after(&self.client, wait);
        let mut waited_for = None;
        loop {
            let read = || self.client.get_data_and_watch(&self.path);
            let Some(read) = deadline.bound(persistently(&self.client, read)).await else {
                return Ok(false);
            };
            let (node, watcher) = match read {
                Ok(read) => read,
                // A getData that fails leaves no watch.
                Err(error) if error.kind() == ErrorKind::NoNode => return Ok(true),
                Err(error) => return Err(error),
            };
            let mut watcher = removed_on_drop(&self.client, watcher);
            if waited_for.is_some_and(|czxid| czxid != node.stat.czxid) {
                return Ok(true);
            }
            waited_for = Some(node.stat.czxid);
            if deadline.has_passed() {
                return Ok(false);
            }
            let mut is_open = false;
            let event = async {
                let event = watcher.changed().await;
                is_open = event.event_type == EventType::NodeDeleted
                    || planted::is("barrier-opened-by-loss") && event.is_end();
            };
            deadline.wait_for(event).await;
            if is_open {
                return Ok(true);
            }
        }
    }

    /// The path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Debug for DistributedBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedBarrier").field("path", &self.path).finish_non_exhaustive()
    }
}
