//! A value in a node, watched by each process.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use docent_protocol::{CreateMode, Stat};
use docent_session::{
    Client, ConnectionState, Error, ErrorKind, Latest, Outcome, Watcher,
    retry::{RetryLoop, RetryPolicy},
};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, trace};

use crate::{
    base_path::check_base_path,
    create,
    options::LockOptions,
    parents::{LastNode, create_parents},
    persistent_retry, planted,
    select::{Either, select},
    settle::{BeforeWrite, get_if_exists, read_after_loss, read_behind, read_settled},
    state_changes::session_id,
    swap::{Seen, swap},
    sync::lock,
};

/// A value with its version.
///
/// Source: Curator's `VersionedValue`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionedValue {
    /// The zxid of the change that wrote it: the later of two values has the greater one.
    pub mzxid: i64,
    /// The version of the node's data.
    pub version: i32,
    /// The data of the node.
    pub value: Bytes,
}

/// A value that many processes read, write and subscribe to.
///
/// It is stored in a persistent node, which [`start`](Self::start) creates if it is missing. A task of the client's
/// runtime watches that node: so [`value`](Self::value) returns the last known value without a request, and may be
/// out of date. The task repeats a failed read, whatever the error, after a pause of 100 ms to 5 s, until it succeeds
/// or the client ends. While the node is missing, the last value stays. If the server has an older value, the task sends
/// a transaction (14) that changes nothing, and takes what it reads behind that: values never go back, unless the ensemble
/// was restored from a backup.
///
/// Clones are the same object; dropping the last one ends the watching task. The end of the client ends it too, and
/// with it what [`subscribe`](Self::subscribe) has returned.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use docent::SharedValue;
///
/// let colour = SharedValue::start(&client, "/settings/colour", "red").await?;
/// let seen = colour.versioned_value();
/// if !colour.try_set_value(&seen, "blue").await? {
///     println!("changed by another client: {:?}", colour.value());
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
/// Source: Curator's `SharedValue`.
#[derive(Clone)]
pub struct SharedValue {
    inner: Arc<Inner>,
    _watching: Arc<DropGuard>,
}

struct Inner {
    client: Client,
    path: String,
    policy: Arc<dyn RetryPolicy>,
    /// `None` once the watching task has ended: the receivers then end too.
    sender: Mutex<Option<watch::Sender<VersionedValue>>>,
    /// Keeps the last value.
    current: watch::Receiver<VersionedValue>,
}

impl SharedValue {
    /// As [`start_with`](Self::start_with) with the default [`LockOptions`].
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub async fn start(
        client: &Client,
        path: &str,
        seed_value: impl Into<Bytes>,
    ) -> Result<Self, Error> {
        Self::start_with(client, path, seed_value, &LockOptions::default()).await
    }

    /// Creates the node with `seed_value` if it is missing, and starts to watch it. Sends create2 (15), with parents
    /// like a lock node, and getData (4) with watch. It uses these options: the retry policy, the ACL provider, and the
    /// mode of the parents.
    ///
    /// # Errors
    ///
    /// Those of the session, and [`InvalidPath`](crate::ErrorKind::InvalidPath).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node may have been created.
    ///
    /// Source: `SharedValue.start`.
    pub async fn start_with(
        client: &Client,
        path: &str,
        seed_value: impl Into<Bytes>,
        options: &LockOptions,
    ) -> Result<Self, Error> {
        check_base_path(path)?;
        let seed = seed_value.into();
        let mut retry = RetryLoop::new(client, &*options.retry_policy);
        let (node, watcher) = loop {
            let error = match create_if_missing(client, path, &seed, options).await {
                Ok(()) => match client.get_data_and_watch(path).await {
                    Ok(read) => break read,
                    // Deleted after the create.
                    Err(error) if error.kind() == ErrorKind::NoNode => {
                        retry.pause_after_any_error(error).await?;
                        continue;
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            retry.pause(error).await?;
        };
        let (sender, current) = watch::channel(VersionedValue::of(node));
        let inner = Arc::new(Inner {
            client: client.clone(),
            path: path.to_owned(),
            policy: Arc::clone(&options.retry_policy),
            sender: Mutex::new(Some(sender)),
            current,
        });
        let closed = CancellationToken::new();
        let task = {
            // Made here: a task that is dropped with its runtime may never have been polled.
            let (watching, closed) = (Watching(Arc::clone(&inner)), closed.clone());
            async move {
                select(closed.cancelled(), watching.0.keep_watching(watcher)).await;
            }
        };
        client.runtime().spawn(Box::pin(task));
        Ok(Self { inner, _watching: Arc::new(closed.drop_guard()) })
    }

    /// The last known value.
    ///
    /// Source: `SharedValue.getValue`.
    #[must_use]
    pub fn value(&self) -> Bytes {
        self.inner.current.borrow().value.clone()
    }

    /// The last known value with its version, for [`try_set_value`](Self::try_set_value).
    ///
    /// Source: `SharedValue.getVersionedValue`.
    #[must_use]
    pub fn versioned_value(&self) -> VersionedValue {
        self.inner.current.borrow().clone()
    }

    /// The value and its changes. They end with the client, and with the last clone of this object.
    ///
    /// Source: `SharedValue.getListenable`.
    #[must_use]
    pub fn subscribe(&self) -> Latest<VersionedValue> {
        let mut receiver = self.inner.current.clone();
        receiver.mark_unchanged();
        Latest::new(receiver)
    }

    /// Writes the value unconditionally. Sends setData (5). After a lost reply, it sends a transaction (14) that changes
    /// nothing and getData (4), and repeats the setData only if the node was not written since: it overwrites no later
    /// value of another client.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries. The outcome is `Unknown` if the value may have been written: after a lost
    /// reply, the node has another new value. Call it again to overwrite that, too.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may have been written.
    ///
    /// Source: `SharedValue.setValue`, which repeats it in any case.
    pub async fn set_value(&self, value: impl Into<Bytes>) -> Result<(), Error> {
        self.inner.set(value.into()).await
    }

    /// Writes the value if `previous` is still the current version; if not, reads the newer value and returns false.
    /// Sends setData (5) with that version, and getData (4) after a `BadVersion`. After a lost reply, it reads and repeats
    /// as [`set_value`](Self::set_value) does; false if another client has written the next version.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries. The outcome is `Unknown` if the value may have been written: after a lost
    /// reply, the node has the new value, which another client may have written too, was written further, or was deleted.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may have been written.
    ///
    /// Source: `SharedValue.trySetValue`, which repeats it in any case, and then returns false if the first was applied.
    pub async fn try_set_value(
        &self,
        previous: &VersionedValue,
        value: impl Into<Bytes>,
    ) -> Result<bool, Error> {
        self.inner.try_set(value.into(), previous).await
    }
}

async fn create_if_missing(
    client: &Client,
    path: &str,
    seed: &Bytes,
    options: &LockOptions,
) -> Result<(), Error> {
    let parents = options.parents();
    let acl = parents.acls.of(path);
    let create = || create::create(client, path, seed, CreateMode::Persistent, acl);
    let created = match create().await {
        Err(error) if error.kind() == ErrorKind::NoNode => {
            create_parents(client, path, LastNode::Skip, parents).await?;
            create().await
        }
        other => other,
    };
    match created {
        Err(error) if error.kind() != ErrorKind::NodeExists => Err(error),
        _ => Ok(()),
    }
}

/// The watching task of a value. Its end, also with its runtime, ends the receivers.
struct Watching(Arc<Inner>);

impl Drop for Watching {
    fn drop(&mut self) {
        *lock(&self.0.sender) = None;
    }
}

impl Inner {
    async fn set(&self, value: Bytes) -> Result<(), Error> {
        let mut retry = RetryLoop::new(&self.client, &*self.policy);
        loop {
            let before = BeforeWrite::now(&self.client);
            let error = match self.write(&value).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if error.outcome() == Outcome::Unknown {
                let read = || get_if_exists(&self.client, &self.path);
                let written = |node: &docent_session::Node| node.stat.mzxid;
                let (node, last_change) =
                    read_after_loss(&self.client, &*self.policy, &self.path, read, written).await?;
                if let Some(current) = node.map(VersionedValue::of) {
                    self.update(current.clone());
                    if current.value == value {
                        return Ok(());
                    }
                }
                if !BeforeWrite::is_unchanged(before, &self.client, last_change) {
                    let detail = "the value is another one: not written, or overwritten since";
                    return Err(error.with_detail(detail));
                }
            }
            retry.pause(error).await?;
        }
    }

    async fn try_set(&self, value: Bytes, previous: &VersionedValue) -> Result<bool, Error> {
        let Self { client, policy, path, .. } = self;
        let seen = Seen { mzxid: previous.mzxid, version: previous.version };
        let session = session_id(client);
        let written = swap(client, &**policy, path, seen, &value).await?;
        self.update(match written {
            Some(Stat { mzxid, version, .. }) => VersionedValue { mzxid, version, value },
            None => {
                let read = || read_behind(client, session, path, || client.get_data(path));
                VersionedValue::of(client.retry_idempotent(&**policy, read).await?)
            }
        });
        Ok(written.is_some())
    }

    async fn write(&self, value: &Bytes) -> Result<(), Error> {
        let stat = self.client.set_data(&self.path, value, None).await?;
        let (mzxid, version) = (stat.mzxid, stat.version);
        self.update(VersionedValue { mzxid, version, value: value.clone() });
        Ok(())
    }

    /// Replaces the current value by a newer one. Source: `SharedValue.updateValue`.
    fn update(&self, value: VersionedValue) {
        self.replace(i64::MAX, value);
    }

    /// Replaces the current value by a newer one, and one that has not changed since the zxid of `before` also by an older
    /// one, which was read behind a write.
    fn replace(&self, before: i64, value: VersionedValue) {
        let sender = lock(&self.sender);
        let Some(sender) = &*sender else { return };
        sender.send_if_modified(|current| {
            let replaces = value.mzxid > current.mzxid
                || before == current.mzxid
                || planted::is("value-goes-back");
            if replaces {
                trace!(path = self.path, version = value.version, "a newer value");
                *current = value;
            }
            replaces
        });
    }

    /// Reads the node after each event of its watch, and after each reconnect. A failed read is repeated: it leaves no
    /// watch, so no event would follow.
    ///
    /// Source: `SharedValue.watcher`, `SharedValue.connectionStateListener`. Not mirrored: in Curator, reading a
    /// missing node and a failed read leave no watch.
    async fn keep_watching(&self, watcher: Watcher) {
        let mut watcher = Some(watcher);
        let mut state = self.client.state();
        loop {
            let event = async {
                match &mut watcher {
                    Some(watcher) => watcher.next().await,
                    // It has fired: only the state can wake the task.
                    None => std::future::pending().await,
                }
            };
            match select(event, state.next()).await {
                Either::Left(_) => watcher = None,
                Either::Right(Some(_)) => {}
                Either::Right(None) => return,
            }
            let mut failures = 0;
            loop {
                if self.client.ended().is_some() {
                    return;
                }
                if !state.get().is_some_and(ConnectionState::is_connected) {
                    // Wait for the connection.
                    break;
                }
                match self.read_and_watch().await {
                    Ok(renewed) => {
                        watcher = Some(renewed);
                        break;
                    }
                    Err(_) if planted::is("value-not-read-again") => break,
                    Err(error) => {
                        let pause = persistent_retry::pause(failures);
                        debug!(path = self.path, %error, ?pause, "value not read; retrying");
                        self.client.runtime().timer(pause).await;
                        failures += 1;
                    }
                }
            }
        }
    }

    /// Reads the node and sets a watch that fires when the node is changed or deleted, or, if it is missing, created.
    async fn read_and_watch(&self) -> Result<Watcher, Error> {
        loop {
            let before = self.current.borrow().mzxid;
            let read = || self.client.get_data_and_watch(&self.path);
            match read().await {
                // The server lags behind, or the ensemble was restored from a backup.
                Ok((node, _)) if node.stat.mzxid < before => {
                    debug!(
                        path = self.path,
                        "the server has an older value; reading behind a write"
                    );
                    let (node, watcher) = read_settled(&self.client, &self.path, read).await?;
                    self.replace(before, VersionedValue::of(node));
                    return Ok(watcher);
                }
                Ok((node, watcher)) => {
                    self.update(VersionedValue::of(node));
                    return Ok(watcher);
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    debug!(path = self.path, "node missing; keeping the last value");
                    let (stat, watcher) = self.client.exists_and_watch(&self.path).await?;
                    // A node created between the two requests has to be read.
                    if stat.is_none() {
                        return Ok(watcher);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl VersionedValue {
    fn of(node: docent_session::Node) -> Self {
        // A slice of the reply would keep up to 64 times its size in memory.
        let value = Bytes::copy_from_slice(&node.data);
        Self { mzxid: node.stat.mzxid, version: node.stat.version, value }
    }
}

impl fmt::Debug for SharedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValue")
            .field("path", &self.inner.path)
            .field("value", &self.versioned_value())
            .finish_non_exhaustive()
    }
}
