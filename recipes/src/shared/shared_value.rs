//! A value in a node, and the latest of it that was heard of.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use docent_protocol::CreateMode;
use docent_session::{
    Client, ConnectionState, Error as SessionError, ErrorKind, Watcher, retry::RetryPolicy,
};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, trace};

use crate::{
    Error,
    acl_provider::acl_of,
    locks::{LockOptions, lock_internals::check_base_path},
    parents::{Last, create_parents},
    race::{First, race},
    retry_loop::RetryLoop,
};

/// A value, and which one it was.
///
/// Source: Curator's `VersionedValue`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionedValue {
    /// The change that wrote it: of two values, the later one has the greater number.
    pub mzxid: i64,
    /// The node's version then.
    pub version: i32,
    /// What was written.
    pub value: Bytes,
}

/// A value that many processes read, write, and are told of.
///
/// It is kept in a persistent node, which [`start`](Self::start) makes if it is missing. A task of the client's
/// runtime watches that node, so [`value`](Self::value) is what was last heard of and costs nothing; others may
/// have written meanwhile.
///
/// Clones are the same object; the watching ends with the last of them.
///
/// # Example
///
/// ```
/// # async fn example(client: docent_session::Client) -> Result<(), docent_recipes::Error> {
/// use docent_recipes::shared::SharedValue;
///
/// let colour = SharedValue::start(&client, "/settings/colour", "red").await?;
/// let seen = colour.versioned_value();
/// if !colour.try_set_value(&seen, "blue").await? {
///     println!("somebody was faster: {:?}", colour.value());
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
    current: watch::Sender<VersionedValue>,
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

    /// Makes the node with `seed_value` if there is none, and begins to watch it. Sends create2 (15), with parents
    /// as a lock node, and getData (4) with watch. Of the options count the retry policy, the ACL provider, and
    /// how parents are made.
    ///
    /// # Errors
    ///
    /// Those of the session, and [`Error::InvalidPath`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may have made the node.
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
        let (first, watcher) = loop {
            match begin(client, path, &seed, options).await {
                Ok(begun) => break begun,
                Err(error) => retry.pause(error).await?,
            }
        };
        let inner = Arc::new(Inner {
            client: client.clone(),
            path: path.to_owned(),
            policy: Arc::clone(&options.retry_policy),
            current: watch::Sender::new(first),
        });
        let closed = CancellationToken::new();
        let task = {
            let (inner, closed) = (Arc::clone(&inner), closed.clone());
            async move {
                race(closed.cancelled(), inner.keep_watching(watcher)).await;
            }
        };
        client.spawn(task);
        Ok(Self { inner, _watching: Arc::new(closed.drop_guard()) })
    }

    /// What was last heard of.
    ///
    /// Source: `SharedValue.getValue`.
    #[must_use]
    pub fn value(&self) -> Bytes {
        self.inner.current.borrow().value.clone()
    }

    /// What was last heard of, with its version: for [`try_set_value`](Self::try_set_value).
    ///
    /// Source: `SharedValue.getVersionedValue`.
    #[must_use]
    pub fn versioned_value(&self) -> VersionedValue {
        self.inner.current.borrow().clone()
    }

    /// Tells of each later value; several in a row may come as one.
    ///
    /// Source: `SharedValue.getListenable`.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<VersionedValue> {
        self.inner.current.subscribe()
    }

    /// Writes, whatever was there. Sends setData (5).
    ///
    /// # Errors
    ///
    /// Those of the session, after retries: then it may have been written.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may have been written.
    ///
    /// Source: `SharedValue.setValue`.
    pub async fn set_value(&self, value: impl Into<Bytes>) -> Result<(), Error> {
        self.inner.write(value.into(), None).await
    }

    /// Writes if `previous` is still there; false, and the newer value is read, if not. Sends setData (5) with
    /// that version, and getData (4) when it failed.
    ///
    /// # Errors
    ///
    /// As [`set_value`](Self::set_value). When a reply is lost and the write tried again, the answer may be false
    /// though the first try has written: look at the value.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may have been written.
    ///
    /// Source: `SharedValue.trySetValue`.
    pub async fn try_set_value(
        &self,
        previous: &VersionedValue,
        value: impl Into<Bytes>,
    ) -> Result<bool, Error> {
        match self.inner.write(value.into(), Some(previous.version)).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Some(ErrorKind::BadVersion) => {
                let node = self.inner.read_value().await?;
                self.inner.update(node);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Makes the node and reads it, watching.
async fn begin(
    client: &Client,
    path: &str,
    seed: &Bytes,
    options: &LockOptions,
) -> Result<(VersionedValue, Watcher), SessionError> {
    let parents = options.parents();
    let acl = acl_of(parents.acl_provider, path);
    let create = || client.create2(path, seed, CreateMode::Persistent, acl);
    let created = match create().await {
        Err(error) if error.kind() == ErrorKind::NoNode => {
            create_parents(client, path, Last::Parent, parents).await?;
            create().await
        }
        other => other,
    };
    match created {
        Err(error) if error.kind() != ErrorKind::NodeExists => return Err(error),
        _ => {}
    }
    let (node, watcher) = client.get_data_and_watch(path).await?;
    Ok((VersionedValue::of(node), watcher))
}

impl Inner {
    async fn write(&self, value: Bytes, version: Option<i32>) -> Result<(), Error> {
        let mut retry = RetryLoop::new(&self.client, &*self.policy);
        loop {
            match self.client.set_data(&self.path, &value, version).await {
                Ok(stat) => {
                    let (mzxid, version) = (stat.mzxid, stat.version);
                    self.update(VersionedValue { mzxid, version, value });
                    return Ok(());
                }
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    async fn read_value(&self) -> Result<VersionedValue, Error> {
        let mut retry = RetryLoop::new(&self.client, &*self.policy);
        loop {
            match self.client.get_data(&self.path).await {
                Ok(node) => return Ok(VersionedValue::of(node)),
                Err(error) => retry.pause(error).await?,
            }
        }
    }

    /// Source: `SharedValue.updateValue`: only what is newer counts.
    fn update(&self, heard: VersionedValue) {
        self.current.send_if_modified(|current| {
            let newer = heard.mzxid > current.mzxid;
            if newer {
                trace!(path = self.path, version = heard.version, "a newer value");
                *current = heard;
            }
            newer
        });
    }

    /// Reads the node again whenever its watch says so, and when there is a connection again.
    ///
    /// Source: `SharedValue.watcher`, `SharedValue.connectionStateListener`.
    async fn keep_watching(&self, watcher: Watcher) {
        let mut watcher = Some(watcher);
        let mut state = self.client.state();
        loop {
            let event = async {
                match &mut watcher {
                    Some(watcher) => drop(watcher.changed().await),
                    None => std::future::pending().await,
                }
            };
            let woken = race(event, state.changed()).await;
            if self.client.ended().is_some() {
                return;
            }
            if let First::Right(Err(_)) = woken {
                return;
            }
            let connected = state.borrow_and_update().is_some_and(ConnectionState::is_connected);
            if !connected {
                // Read again when there is a connection.
                watcher = watcher.filter(|_| matches!(woken, First::Right(_)));
                continue;
            }
            match self.client.get_data_and_watch(&self.path).await {
                Ok((node, again)) => {
                    self.update(VersionedValue::of(node));
                    watcher = Some(again);
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    debug!(path = self.path, "deleted: the last value stays");
                    watcher = self.client.exists_and_watch(&self.path).await.ok().map(|(_, w)| w);
                }
                Err(error) => {
                    debug!(path = self.path, %error, "not read; again when the connection changes");
                    watcher = None;
                }
            }
        }
    }
}

impl VersionedValue {
    fn of(node: docent_session::Node) -> Self {
        Self { mzxid: node.stat.mzxid, version: node.stat.version, value: node.data }
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
