//! Waits for the creation or deletion of a node.
//!
//! A follower of a node by one-shot watches always has a watch on the state it has seen, or a read in flight. A failed
//! read is repeated, and an exists that finds a node that was missing is followed by another read.

use std::time::Duration;

use docent_protocol::{EventType, OpCode, Stat};
use tracing::debug;

use super::{client::Client, response::Call, watcher::OnDrop};
use crate::{Error, driver::timer};

/// The pause after the first failed read; each further one is twice as long, up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause after a failed read.
const MAX_PAUSE: Duration = Duration::from_secs(5);

impl Client {
    /// Waits until a node exists, and returns its Stat. The wait has no limit of time:
    /// [`timeout`](Call::timeout) sets one.
    ///
    /// Sends exists (3). Without the node, sends exists with a watch, waits for the event of the creation, and reads
    /// again. A node that was deleted again before that read is waited for further.
    ///
    /// The wait survives reconnects, as its watch does. The end of the session does not end it: the watch is set again
    /// in the next session. Errors for which [`Error::is_retryable`] holds, such as `ConnectionLoss` while no server is
    /// reachable, are retried, after a pause of 100 ms at first, at most 5 s.
    ///
    /// A server sends no event of a node that the client may not read at that moment, and forgets the watch (see
    /// [`Watcher`](crate::Watcher)). Where the ACL of the node may forbid that, limit the wait and call again.
    ///
    /// # Errors
    ///
    /// * `Closed`, `AuthFailed`: the client has ended.
    /// * `NoAuth`, from servers since 3.9.2: the node exists, and the client may not read it.
    /// * `InvalidPath`, `TooManyRequests`, and other errors that are not retryable.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. Its watch is removed from the server, unless another watcher of this client
    /// needs it, with removeWatches (18); a server before 3.5 closes the connection at that request.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// # use docent_session::{Client, ErrorKind};
    /// # use docent_protocol::CreateMode;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = Client::connect(&server.connect_string()).await?;
    /// # client.create("/ready", b"", CreateMode::Ephemeral).await?;
    /// let ready = client.wait_until_exists("/ready").timeout(Duration::from_secs(30));
    /// match ready.allow(ErrorKind::OperationTimeout).await? {
    ///     Some(stat) => println!("ready since {}", stat.ctime),
    ///     None => println!("not ready within 30 s"),
    /// }
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_until_exists<'a>(&'a self, path: &'a str) -> Call<'a, Stat> {
        Call::new(self.runtime(), OpCode::Exists, path, self.wait_until(path, |found| found))
    }

    /// Waits until a node does not exist: because it never existed, or was deleted, or its session ended. The wait has
    /// no limit of time: [`timeout`](Call::timeout) sets one.
    ///
    /// Sends exists (3). With the node, sends exists with a watch, and waits for the event of the deletion. Changes of
    /// the data lead to another read. A node may exist again when this returns.
    ///
    /// **A server that lags behind may not have applied the creation of the node yet; then this returns at once.** To wait
    /// for a node that another client has created, call [`delete`](Self::delete) first, with a path that never exists:
    /// in its session, reads behind the refusal see everything that was committed before. [`sync`](Self::sync) is not
    /// enough, as a leader that has lost its majority replies to it. `DistributedBarrier` does this in each session.
    ///
    /// The wait survives reconnects and the end of the session, and retries errors, as
    /// [`wait_until_exists`](Self::wait_until_exists). If a node is deleted and created again while there is no
    /// connection, the wait continues.
    ///
    /// # Errors
    ///
    /// As [`wait_until_exists`](Self::wait_until_exists).
    ///
    /// # Cancel safety
    ///
    /// As [`wait_until_exists`](Self::wait_until_exists).
    pub fn wait_until_deleted<'a>(&'a self, path: &'a str) -> Call<'a, ()> {
        let is_missing = |found: Option<Stat>| found.is_none().then_some(());
        Call::new(self.runtime(), OpCode::Exists, path, self.wait_until(path, is_missing))
    }

    /// Waits until `until` returns a value for the Stat of the node, which is `None` while it is missing.
    async fn wait_until<R>(
        &self,
        path: &str,
        until: impl Fn(Option<Stat>) -> Option<R>,
    ) -> Result<R, Error> {
        let mut pause = MIN_PAUSE;
        loop {
            match self.wait_for_event(path, &until).await {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => pause = MIN_PAUSE,
                Err(error) if error.is_retryable() => {
                    debug!(path, %error, ?pause, "node not read; retrying");
                    // False means that the runtime has ended; the next read then returns an error.
                    timer(&*self.handle.runtime, pause).await;
                    pause = pause.saturating_mul(2).min(MAX_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the node, and waits for its next event if `until` returns no value for it. `None` after an event that
    /// leaves open whether the node exists.
    async fn wait_for_event<R>(
        &self,
        path: &str,
        until: &impl Fn(Option<Stat>) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        // Without a watch, which would stay on the server after the wait.
        if let Some(value) = until(self.exists(path).await?) {
            return Ok(Some(value));
        }
        let (found, mut watcher) = self.exists_and_watch(path).await?;
        watcher.set_on_drop(OnDrop::Remove);
        if let Some(value) = until(found) {
            return Ok(Some(value));
        }
        match watcher.next().await.map(|event| event.event_type) {
            Some(EventType::NodeDeleted) => Ok(until(None)),
            _ => Ok(None),
        }
    }
}
