//! A node that is kept present.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use docent_protocol::{CreateMode, path as paths};
use docent_session::{Client, Error, ErrorKind, Events, Outcome};
use tokio::sync::{
    broadcast::{
        self,
        error::{RecvError, TryRecvError},
    },
    watch,
};
use tokio_util::sync::CancellationToken;

use super::{
    keeper::{Keeper, Memory},
    options::NodeOptions,
    status::{NodeEvent, Status, Wanted},
};
use crate::{
    error,
    node_task::{NodeTask, closed_in_time},
    select::{Either, select},
};

/// The number of events that a listener can be behind before it misses the oldest.
const EVENTS: usize = 64;

/// A node that is kept present: created again when it is deleted, and when its session has ended. The
/// [`events`](Self::events) report when it was gone.
///
/// The node of another client at the same path is left alone: that is a [`Conflict`](NodeEvent::Conflict), and the node is
/// created once that one is gone. A node is ours if our session owns it, if our GUID is in its name, or if it has the
/// `czxid` of our last one.
///
/// Two kept nodes of one client must not have the same path: they have the same session, so both take an ephemeral node
/// for their own, and the close of one deletes the other's.
///
/// Clones are the same node; dropping the last one closes it in the background. [`close`](Self::close) deletes the node.
///
/// # Example
///
/// ```
/// use docent::{CreateMode, PersistentNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent::Client::connect(&server.connect_string()).await?;
/// let node = PersistentNode::start(&client, "/workers/7", CreateMode::Ephemeral, "idle")?;
/// assert_eq!(node.created().await?, "/workers/7");
/// node.set_data("busy");
/// node.written().await?;
/// node.close().await?;
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: `PersistentNode`. The module `keeper` of this crate lists the steps, their frames, and the differences.
#[derive(Clone)]
pub struct PersistentNode {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    path: String,
    wanted: Arc<watch::Sender<Wanted>>,
    status: Arc<watch::Sender<Status>>,
    events: broadcast::Sender<NodeEvent>,
    closing: CancellationToken,
    /// Whether the close deletes the node.
    deletes: Arc<AtomicBool>,
}

impl PersistentNode {
    /// As [`start_with`](Self::start_with), with the default [`NodeOptions`].
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub fn start(
        client: &Client,
        path: &str,
        mode: CreateMode,
        data: impl Into<Bytes>,
    ) -> Result<Self, Error> {
        Self::start_with(client, path, mode, data, NodeOptions::default())
    }

    /// Keeps a node at `path` present. Returns at once: a task waits for a connection and creates the node. The path of a
    /// sequential or protected node is known from [`created`](Self::created).
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath). All later errors are returned by [`created`](Self::created) and
    /// [`written`](Self::written).
    ///
    /// Source: the constructor, `start`.
    pub fn start_with(
        client: &Client,
        path: &str,
        mode: CreateMode,
        data: impl Into<Bytes>,
        options: NodeOptions,
    ) -> Result<Self, Error> {
        let refused = |why: &dyn fmt::Display| {
            error::invalid_path(format_args!("{path:?} cannot be the path of a kept node: {why}"))
        };
        match paths::validate(path) {
            Err(error) => return Err(refused(&error).caused_by(error)),
            Ok(()) if path == "/" => return Err(refused(&"the root exists")),
            Ok(()) => {}
        }
        // Version 0 is that of a node whose data is not known.
        let wanted = Arc::new(watch::Sender::new(Wanted { data: data.into(), version: 1 }));
        let status = Arc::new(watch::Sender::new(Status::default()));
        let events = broadcast::Sender::new(EVENTS);
        let task = NodeTask::new(client, &options.lock);
        let closing = task.closing.clone();
        let deletes = Arc::new(AtomicBool::new(options.deletes));
        let keeper = Keeper {
            task,
            connection: client.state(),
            path: path.to_owned(),
            mode,
            options,
            wanted: wanted.subscribe(),
            adopted: Arc::downgrade(&wanted),
            seen: 0,
            memory: Memory::default(),
            status: Arc::clone(&status),
            events: events.clone(),
            deletes: Arc::clone(&deletes),
        };
        // Made here: a task that is dropped with its runtime may never have been polled.
        let abandoned = Abandoned(Arc::clone(&status));
        client.runtime().spawn(Box::pin(async move {
            keeper.run().await;
            drop(abandoned);
        }));
        let (client, path) = (client.clone(), path.to_owned());
        let inner = Inner { client, path, wanted, status, events, closing, deletes };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Waits until the node was created or adopted for the first time, and returns its path.
    ///
    /// # Errors
    ///
    /// The error for which the node cannot be created now: it is tried again after the next reconnect, and when the data
    /// is set. `NodeExists` while another client's node is there. `Closed` when the node or the client is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `waitForInitialCreate`, which returns no error.
    pub async fn created(&self) -> Result<String, Error> {
        let version = self.inner.wanted.borrow().version;
        let path =
            |status: &Status| status.was_created.then(|| status.path.clone().unwrap_or_default());
        self.wait_for(version, path).await
    }

    /// Waits until the node is there, and the data that was last [set](Self::set_data) before the call, or later data, was
    /// written to it. While there is no connection, the last known state of the node counts. Data that another client
    /// writes over it afterwards is not noticed; the next `set_data`, also of the same data, replaces it.
    ///
    /// # Errors
    ///
    /// As [`created`](Self::created). Errors of earlier data are not reported.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn written(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (node, version) = (self.clone(), self.inner.wanted.borrow().version);
        async move {
            // A new session does not own the node of the one before, even if the task has not noticed yet.
            let is_there = |status: &Status| {
                let session = || node.inner.client.session().map(|lease| lease.session_id());
                status.present.is_some_and(|owner| owner == 0 || Some(owner) == session())
            };
            let is_written = |status: &Status| status.written >= version && is_there(status);
            node.wait_for(version, |status| is_written(status).then_some(())).await
        }
    }

    /// Waits until the status is as wanted, or an error of this version of the data or a later one is reported.
    async fn wait_for<T>(
        &self,
        version: u64,
        wanted: impl Fn(&Status) -> Option<T>,
    ) -> Result<T, Error> {
        let mut status = self.inner.status.subscribe();
        loop {
            {
                let status = status.borrow_and_update();
                if status.closed.is_some() || self.inner.closing.is_cancelled() {
                    return Err(self.closed());
                }
                if let Some(found) = wanted(&status) {
                    return Ok(found);
                }
                if let Some((failed, error)) = &status.failed
                    && *failed >= version
                {
                    return Err(error.clone());
                }
                if status.conflict {
                    return Err(Error::new(ErrorKind::NodeExists, Outcome::NotApplied)
                        .with_path(&self.inner.path)
                        .with_detail("another client's node"));
                }
            }
            let changed = status.changed();
            match crate::select::select(changed, self.inner.closing.cancelled()).await {
                crate::select::Either::Left(Ok(())) => {}
                _ => return Err(self.closed()),
            }
        }
    }

    /// Sets the data of the node. Returns at once: it is written when the node is there. Of several values set in quick
    /// succession, possibly only the last is written. Sends setData (5).
    ///
    /// If the node is deleted, and another client creates one at the same path, while the setData is in flight, it is
    /// written to the other client's node: setData checks neither the owner nor the `czxid`, and the version of a new node
    /// can be the same. [`written`](Self::written) does not return `Ok` for such a write. Before a write is repeated, the
    /// node is looked at.
    ///
    /// For the same reason, a setData that was delayed on the way to the leader while its session was lost can be applied
    /// to the node of the next session. That node has the older data then, until the next `set_data`.
    ///
    /// Source: `setData`, which fails before the node was first created.
    pub fn set_data(&self, data: impl Into<Bytes>) {
        let data = data.into();
        self.inner.wanted.send_modify(|wanted| {
            wanted.data = data;
            wanted.version += 1;
        });
    }

    /// The data that was last set, or [adopted](NodeOptions::with_data_adoption). It is not read from the server.
    ///
    /// Source: `getData`.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.inner.wanted.borrow().data.clone()
    }

    /// The path of the node; `None` before it was first created. It does not change.
    ///
    /// Source: `getActualPath`.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        self.inner.status.borrow().path.clone()
    }

    /// The `czxid` of the node; `None` while it is not known to be there.
    #[must_use]
    pub fn czxid(&self) -> Option<i64> {
        self.inner.status.borrow().czxid
    }

    /// The events from now on, until the node is closed. A reader that is more than 64 events behind misses the oldest, and
    /// receives [`Lagged`](NodeEvent::Lagged) in their place.
    ///
    /// Source: `getListenable`.
    #[must_use]
    pub fn events(&self) -> Events<NodeEvent> {
        let (receiver, status) = (self.inner.events.subscribe(), self.inner.status.subscribe());
        Reader { receiver, status }.events()
    }

    /// Deletes the node, if it is ours and the options do not [leave it](NodeOptions::without_deletion), and keeps it no
    /// longer. Sends delete (2). It waits for the reply, at most for the connection timeout.
    ///
    /// # Errors
    ///
    /// `OperationTimeout` when the node is not yet deleted, and `NoAuth` while its ACL does not allow it: the background
    /// repeats the delete until the session or the client ends. Other errors when it cannot be deleted, such as `NotEmpty`.
    ///
    /// # Cancel safety
    ///
    /// The node is closed even if the future is dropped or never polled.
    ///
    /// Source: `close`, which deletes the nodes of other clients too (L16).
    pub fn close(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.inner.closing.cancel();
        let client = self.inner.client.clone();
        let mut status = self.inner.status.subscribe();
        let path = self.inner.path.clone();
        async move {
            let closed = async {
                match status.wait_for(|status| status.closed.is_some()).await {
                    Ok(status) => status.closed.clone().unwrap_or(Ok(())),
                    Err(_) => Ok(()),
                }
            };
            closed_in_time(&client, &path, closed).await
        }
    }

    /// As [`close`](Self::close), and deletes the node also if the options [leave it](NodeOptions::without_deletion). It has
    /// no effect on a node that is closed already.
    ///
    /// ```
    /// # use docent_protocol::CreateMode;
    /// # use docent_recipes::nodes::{NodeOptions, PersistentNode};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = docent_session::Client::connect(&server.connect_string()).await?;
    /// let options = NodeOptions::default().with_adoption().without_deletion();
    /// let keep = || {
    ///     PersistentNode::start_with(&client, "/n", CreateMode::Persistent, "x", options.clone())
    /// };
    /// let node = keep()?;
    /// node.created().await?;
    /// node.close().await?;
    /// assert!(client.exists("/n").await?.is_some());
    /// let node = keep()?;
    /// node.created().await?;
    /// node.close_and_delete().await?;
    /// assert!(client.exists("/n").await?.is_none());
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close).
    ///
    /// # Cancel safety
    ///
    /// As [`close`](Self::close).
    pub fn close_and_delete(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        // Read behind the cancellation.
        self.inner.deletes.store(true, Ordering::Release);
        self.close()
    }

    /// The wanted data, whose changes end with the node; and the token that a close cancels.
    pub(super) fn wanted(&self) -> (watch::Receiver<Wanted>, CancellationToken) {
        (self.inner.wanted.subscribe(), self.inner.closing.clone())
    }

    /// Where its events are reported.
    pub(super) fn reports(&self) -> broadcast::Sender<NodeEvent> {
        self.inner.events.clone()
    }

    fn closed(&self) -> Error {
        Error::refused(ErrorKind::Closed, format_args!("the node {} is closed", self.inner.path))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

/// The end of the task, also with its runtime.
struct Abandoned(Arc<watch::Sender<Status>>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.send_if_modified(|status| {
            let is_open = status.closed.is_none();
            if is_open {
                status.closed = Some(Ok(()));
            }
            is_open
        });
    }
}

impl fmt::Debug for PersistentNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentNode")
            .field("path", &self.inner.path)
            .field("czxid", &self.czxid())
            .finish_non_exhaustive()
    }
}

/// Reads the events of a kept node.
struct Reader {
    receiver: broadcast::Receiver<NodeEvent>,
    status: watch::Receiver<Status>,
}

impl Reader {
    fn events(self) -> Events<NodeEvent> {
        Events::unfold(self, |mut reader| async move { Some((reader.next().await?, reader)) })
    }

    async fn next(&mut self) -> Option<NodeEvent> {
        let closed = self.status.wait_for(|status| status.closed.is_some());
        let first = select(self.receiver.recv(), closed).await;
        let received = match first {
            Either::Left(received) => received.map_err(|error| match error {
                RecvError::Lagged(missed) => Some(missed),
                RecvError::Closed => None,
            }),
            // The events before the close.
            Either::Right(_) => self.receiver.try_recv().map_err(|error| match error {
                TryRecvError::Lagged(missed) => Some(missed),
                TryRecvError::Empty | TryRecvError::Closed => None,
            }),
        };
        received.map_or_else(|missed| Some(NodeEvent::Lagged { missed: missed? }), Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_lags_is_notified_before_and_after_the_close() {
        let (events, receiver) = broadcast::channel(2);
        let (status, shown) = watch::channel(Status::default());
        let mut reader = Reader { receiver, status: shown }.events();
        for is_closed in [false, true] {
            for _ in 0..5 {
                events.send(NodeEvent::Lost).unwrap();
            }
            status.send_modify(|status| status.closed = is_closed.then_some(Ok(())));
            assert!(matches!(reader.next().await, Some(NodeEvent::Lagged { missed: 3 })));
            assert!(matches!(reader.next().await, Some(NodeEvent::Lost)));
            assert!(matches!(reader.next().await, Some(NodeEvent::Lost)));
        }
        assert!(reader.next().await.is_none());
    }
}
