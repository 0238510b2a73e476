//! Asking a holder to give its lock up.
//!
//! Who wants a lock writes [`REVOKE_MESSAGE`] into the lock node; a holder that said it is revocable watches its
//! node and is told. That is a request and no more: the lock stays held until the holder releases it.
//!
//! Source: `Revoker`, `RevocationSpec`, `Revocable`, `LockInternals.checkRevocableWatcher`.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use docent_protocol::EventType;
use docent_session::{Client, Error as SessionError, ErrorKind, retry::RetryPolicy};
use tracing::debug;

use super::watcher_removal::{Entered, WatcherRemovalManager};
use crate::{Error, retry_loop::call_with_retry};

/// What is written into the node of a lock that somebody else wants.
///
/// Source: `LockInternals.REVOKE_MESSAGE`.
pub const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Asks holders to give their locks up.
#[derive(Debug, Clone, Copy)]
pub struct Revoker;

impl Revoker {
    /// Asks whoever has the lock node at this path (one of
    /// [`participants`](super::InterProcessMutex::participants)) to release its lock. If it is not revocable, nothing
    /// comes of it. Sends setData (5).
    ///
    /// # Errors
    ///
    /// Those of the session, after the retries of `policy`. That the node is gone is no error: so is the hold.
    ///
    /// # Cancel safety
    ///
    /// The request may have been sent.
    ///
    /// # Example
    ///
    /// ```
    /// # async fn example(client: docent_session::Client) -> Result<(), docent_recipes::Error> {
    /// use docent_recipes::locks::{InterProcessMutex, LockOptions, Revoker};
    ///
    /// let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
    /// let policy = docent_session::retry::RetryNTimes::new(3, std::time::Duration::from_millis(100));
    /// if let Some(holder) = mutex.participants().await?.first() {
    ///     Revoker::attempt_revoke(&client, &policy, holder).await?;
    /// }
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
    /// Source: `Revoker.attemptRevoke`.
    pub async fn attempt_revoke(
        client: &Client,
        policy: &dyn RetryPolicy,
        path: &str,
    ) -> Result<(), Error> {
        let write = || client.set_data(path, REVOKE_MESSAGE, None);
        match call_with_retry(client, policy, write).await {
            Err(error) if error.kind() != ErrorKind::NoNode => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Who is told.
pub(crate) type Listener = Arc<dyn Fn() + Send + Sync>;

/// Whether a lock object is revocable: for one acquire and its release.
///
/// Source: `LockInternals.revocable`.
#[derive(Default)]
pub(crate) struct Revocation(Mutex<Option<Listener>>);

impl Revocation {
    pub(crate) fn set(&self, listener: Listener) {
        *self.lock() = Some(listener);
    }

    pub(crate) fn clear(&self) {
        *self.lock() = None;
    }

    pub(crate) fn listener(&self) -> Option<Listener> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Listener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Revocation").field(&self.listener().is_some()).finish()
    }
}

/// Listens to what is written into our own node, until it is gone or its watch removed. Other writes than
/// the message only have the watch set again.
///
/// Source: `LockInternals.revocableWatcher`, which reads in ZooKeeper's event thread; here it is a task.
pub(crate) fn watch_over(
    client: &Client,
    policy: Arc<dyn RetryPolicy>,
    watches: Arc<WatcherRemovalManager>,
    path: String,
    mut watch: Entered,
    listener: Listener,
) {
    let task = {
        let client = client.clone();
        async move {
            while let Some(event) = watch.changed().await {
                if event.event_type != EventType::NodeDataChanged {
                    return;
                }
                let read = || client.get_data_and_watch(&path);
                match call_with_retry(&client, &*policy, read).await {
                    Ok((node, watcher)) => {
                        watch = watches.enter(watcher);
                        if node.data == REVOKE_MESSAGE {
                            debug!(path, "asked to give the lock up");
                            listener();
                        }
                    }
                    Err(error) => return ignore(&path, &error),
                }
            }
        }
    };
    client.spawn(task);
}

/// A node that is gone needs no revocation; one that cannot be read is heard of no more.
fn ignore(path: &str, error: &SessionError) {
    debug!(path, %error, "no longer revocable");
}
