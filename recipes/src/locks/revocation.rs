//! Asks the holder of a lock to release it.
//!
//! A client writes [`REVOKE_MESSAGE`] into the lock node of the holder. A revocable holder watches its node, and its
//! listener is called. This is only a request: the lock stays held until the holder releases it.
//!
//! Source: `Revoker`, `RevocationSpec`, `Revocable`, `LockInternals.checkRevocableWatcher`.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use docent_protocol::EventType;
use docent_session::{Client, Error, ErrorKind, retry::RetryPolicy};
use tracing::debug;

use super::{
    node_watch::NodeState,
    watcher_removal::{LockWatch, Purpose, WatcherRemovalManager},
};
use crate::sync::lock;

/// The data that requests the revocation of a lock node.
///
/// Source: `LockInternals.REVOKE_MESSAGE`.
pub const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Requests the revocation of locks.
#[derive(Debug, Clone, Copy)]
pub struct Revoker;

impl Revoker {
    /// Asks the owner of the lock node at this path (one of
    /// [`participants`](super::InterProcessMutex::participants)) to release its lock. Without effect if it is not
    /// revocable. Sends setData (5).
    ///
    /// # Errors
    ///
    /// Those of the session, after the retries of `policy`. A missing node is no error: the lock has been released.
    ///
    /// # Cancel safety
    ///
    /// The request may have been sent.
    ///
    /// # Example
    ///
    /// ```
    /// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
    /// use docent::{InterProcessMutex, LockOptions, Revoker};
    ///
    /// let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
    /// let policy = docent::retry::RetryNTimes::new(3, std::time::Duration::from_millis(100));
    /// if let Some(holder) = mutex.participants().await?.first() {
    ///     Revoker::attempt_revoke(&client, &policy, holder).await?;
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
    /// Source: `Revoker.attemptRevoke`.
    pub async fn attempt_revoke(
        client: &Client,
        policy: &dyn RetryPolicy,
        path: &str,
    ) -> Result<(), Error> {
        let write = || client.set_data(path, REVOKE_MESSAGE, None);
        match client.retry_idempotent(policy, write).await {
            Err(error) if error.kind() != ErrorKind::NoNode => Err(error),
            _ => Ok(()),
        }
    }
}

/// Called for each revocation request.
pub(crate) type Listener = Arc<dyn Fn() + Send + Sync>;

/// The revocation listener of a lock object, for one acquire and its release.
///
/// Source: `LockInternals.revocable`.
#[derive(Default)]
pub(crate) struct Revocation(Mutex<Option<Listener>>);

impl Revocation {
    pub(crate) fn set(&self, listener: Listener) {
        *lock(&self.0) = Some(listener);
    }

    pub(crate) fn clear(&self) {
        *lock(&self.0) = None;
    }

    pub(crate) fn listener(&self) -> Option<Listener> {
        lock(&self.0).clone()
    }
}

impl fmt::Debug for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Revocation").field(&self.listener().is_some()).finish()
    }
}

/// Calls the listener for each revocation request, until our own node is deleted or its watch removed. Other writes
/// only renew the watch. A failed read is repeated beyond the retry policy: without a watch, later requests would be
/// lost.
///
/// Source: `LockInternals.revocableWatcher`, which reads in ZooKeeper's event thread; here a task does.
pub(crate) fn watch_for_revocation(
    client: &Client,
    policy: Arc<dyn RetryPolicy>,
    watches: Arc<WatcherRemovalManager>,
    path: String,
    state: Arc<NodeState>,
    mut watch: LockWatch,
    listener: Listener,
) {
    let task = {
        // The guard keeps the client, not this.
        let client = client.downgrade();
        async move {
            while let Some(event) = watch.next().await {
                match event.event_type {
                    EventType::NodeDataChanged => {}
                    EventType::NodeDeleted => return state.note_deletion(&path),
                    _ => return,
                }
                let (node, watcher) = loop {
                    let Some(client) = client.upgrade() else { return };
                    let read = || client.get_data_and_watch(&path);
                    match client.retry_idempotent(&*policy, read).await {
                        Ok(read) => break read,
                        Err(error) if error.kind() == ErrorKind::NoNode => {
                            return state.note_deletion(&path);
                        }
                        Err(_) if client.ended().is_some() => return,
                        Err(error) => {
                            debug!(path, %error, "own node not read; retrying")
                        }
                    }
                    let timer = client.runtime().timer(READ_RETRY_PAUSE);
                    drop(client);
                    timer.await;
                };
                watch = watches.add(watcher, Purpose::OwnNode);
                if node.data == REVOKE_MESSAGE {
                    debug!(path, "revocation requested");
                    listener();
                }
            }
        }
    };
    client.runtime().spawn(Box::pin(task));
}

/// The pause between two reads beyond the retry policy.
const READ_RETRY_PAUSE: Duration = Duration::from_secs(1);
