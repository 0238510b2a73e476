//! A barrier that one process sets and removes, and others wait on.
//!
//! A wait repeats requests until they have a definite reply; only its deadline and the end of the client end it.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use docent_protocol::{CreateMode, EventType, Stat};
use docent_session::{Client, Error, ErrorKind, Outcome, retry::RetryLoop};
use tokio::sync::OnceCell;

use super::persistently::{persistently, removed_on_drop};
use crate::{
    base_path::check_base_path,
    create,
    deadline::{Deadline, Ended, in_time},
    default_data::default_data,
    options::LockOptions,
    parents::{LastNode, create_parents},
    planted,
    settle::{BeforeWrite, read_after_loss, read_settled},
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
    /// After a lost reply, it sends a transaction (14) that changes nothing, and exists (3) for the node and upward to the
    /// first ancestor that is there. The create is repeated only if no node was created or deleted below that one since:
    /// it sets no barrier again that another process has removed.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries. The outcome is `Unknown` if the barrier may have been set: after a lost reply,
    /// it is not set, and may have been removed since. Call it again to set it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the barrier may be set.
    ///
    /// Source: `DistributedBarrier.setBarrier`, which repeats it in any case.
    pub async fn set_barrier(&self) -> Result<(), Error> {
        let data = default_data(&self.default_data, &self.client, &self.options).await;
        let (parents, mode) = (self.options.parents(), CreateMode::Persistent);
        let acl = parents.acls.of(&self.path);
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        let mut has_parents = false;
        loop {
            let before = BeforeWrite::now(&self.client);
            let created = create::create(&self.client, &self.path, &data, mode, acl).await;
            let Err(mut error) = created else { return Ok(()) };
            match error.kind() {
                ErrorKind::NodeExists => return Ok(()),
                ErrorKind::NoNode if !has_parents => {
                    match create_parents(&self.client, &self.path, LastNode::Skip, parents).await {
                        Ok(()) => {
                            has_parents = true;
                            continue;
                        }
                        Err(later) => error = later,
                    }
                }
                _ if error.outcome() == Outcome::Unknown => {
                    let (stat, last_change) = self.look_after_loss().await?;
                    if stat.is_some() {
                        return Ok(());
                    }
                    if !BeforeWrite::is_unchanged(before, &self.client, last_change) {
                        let detail = "the barrier is not set: not written, or removed since";
                        return Err(error.with_detail(detail));
                    }
                }
                _ => {}
            }
            retry.pause(error).await?;
        }
    }

    /// Removes the barrier: all waiters pass. Nothing changes if it is not set. Sends delete (2).
    ///
    /// After a lost reply, it looks at the node as [`set_barrier`](Self::set_barrier) does. The delete is repeated only for
    /// a barrier that was set before: not for one that another process has set since.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries. The outcome is `Unknown` if the barrier may have been removed: after a lost
    /// reply, it is set, possibly again. Call it again to remove it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the barrier may be removed.
    ///
    /// Source: `DistributedBarrier.removeBarrier`, which repeats it in any case.
    pub async fn remove_barrier(&self) -> Result<(), Error> {
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        loop {
            let before = BeforeWrite::now(&self.client);
            let error = match self.client.delete(&self.path, None).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
                Err(error) => error,
            };
            if error.outcome() == Outcome::Unknown {
                let (Some(_), created) = self.look_after_loss().await? else { return Ok(()) };
                if !BeforeWrite::is_unchanged(before, &self.client, created) {
                    let detail = "the barrier is set: not removed, or set again since";
                    return Err(error.with_detail(detail));
                }
            }
            retry.pause(error).await?;
        }
    }

    /// The node behind a write without a reply, and when it was created or deleted last.
    async fn look_after_loss(&self) -> Result<(Option<Stat>, i64), Error> {
        let (policy, look) = (&*self.options.retry_policy, || self.client.exists(&self.path));
        read_after_loss(&self.client, policy, &self.path, look, |stat| stat.czxid).await
    }

    /// Waits until the barrier is not set. An opening is not missed, also if the barrier is set again at once. Sends a
    /// transaction (14) that changes nothing and getData (4) with watch, both again after the node was written and in
    /// each session; it needs the permission READ.
    ///
    /// A barrier that was set before the call is seen, also on a server that lags behind: its reply to the transaction
    /// comes behind all that was committed before. The wait survives outages and the end of the session. A read-only server
    /// opens nothing.
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
    /// `docs/CURATOR.md`), it can miss an opening, fails in an outage (C12), and passes on a server that lags behind.
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
        in_time(self.wait_until_open(&deadline).await).map(|open| open.is_some())
    }

    async fn wait_until_open(&self, deadline: &Deadline<'_>) -> Result<(), Ended> {
        let mut waited_for = None;
        loop {
            let read = || async {
                let (node, watcher) = self.client.get_data_and_watch(&self.path).await?;
                Ok((node, removed_on_drop(&self.client, watcher)))
            };
            // Not as it was on a server that lags behind: the barrier may have been set since.
            let read = || read_settled(&self.client, &self.path, read);
            let (node, mut watcher) = match deadline.bound(persistently(&self.client, read)).await {
                // A getData that fails leaves no watch.
                Err(Ended::Failed(error)) if error.kind() == ErrorKind::NoNode => return Ok(()),
                read => read?,
            };
            if waited_for.is_some_and(|czxid| czxid != node.stat.czxid) {
                return Ok(());
            }
            waited_for = Some(node.stat.czxid);
            deadline.check()?;
            let mut is_open = false;
            let event = async {
                is_open = watcher.next().await.is_some_and(|event| {
                    event.event_type == EventType::NodeDeleted
                        || planted::is("barrier-opened-by-loss") && event.is_end()
                });
            };
            deadline.wait_for(event).await;
            #[cfg(docent_sim)]
            planted::delay("barrier-passed-late", &self.client, 9).await;
            if is_open {
                return Ok(());
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
