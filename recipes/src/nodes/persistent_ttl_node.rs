//! A node that outlives its process by a time to live.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use docent_protocol::{CreateMode, Ttl};
use docent_session::{Client, Error, ErrorKind, Events};
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use super::{options::NodeOptions, persistent_node::PersistentNode, status::NodeEvent};
use crate::{create, default_data::default_data, error, select::select};

/// The name of the child that is written to keep the node.
///
/// Source: `PersistentTtlNode.DEFAULT_CHILD_NODE_NAME`.
const TOUCH: &str = "touch";

/// How often the child is written within a time to live.
///
/// Source: `PersistentTtlNode.DEFAULT_TOUCH_SCHEDULE_FACTOR`.
const TOUCH_SCHEDULE_FACTOR: u32 = 2;

/// A node with a time to live that is kept present: it outlives the session, and the server removes it once no process
/// has kept it for the time to live.
///
/// The node is created in the mode [`PersistentWithTtl`](CreateMode::PersistentWithTtl). Its child `touch` is written
/// twice within each time to live, which keeps both, and fires no watch of the node. An existing node, such as that of an
/// earlier run, is adopted. [`close`](Self::close) deletes nothing.
///
/// The server must support such nodes (`zookeeper.extendedTypesEnabled`): otherwise [`created`](Self::created) returns
/// `Unimplemented`, and no more is sent.
///
/// Clones are the same node; dropping the last one closes it.
///
/// Source: `PersistentTtlNode`.
#[derive(Debug, Clone)]
pub struct PersistentTtlNode {
    node: PersistentNode,
    _touching: Arc<DropGuard>,
}

impl PersistentTtlNode {
    /// As [`start_with`](Self::start_with), with the default [`NodeOptions`].
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub fn start(
        client: &Client,
        path: &str,
        ttl: Duration,
        data: impl Into<Bytes>,
    ) -> Result<Self, Error> {
        Self::start_with(client, path, ttl, data, NodeOptions::default())
    }

    /// Keeps a node at `path` present. Returns at once. Sends createTTL (21) for the node, and setData (5) for the child,
    /// twice within the time to live.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath); [`BadArguments`](crate::ErrorKind::BadArguments) for a time to live
    /// under a millisecond or above [`Ttl::MAX`].
    ///
    /// Source: the constructor, `start`.
    pub fn start_with(
        client: &Client,
        path: &str,
        ttl: Duration,
        data: impl Into<Bytes>,
        mut options: NodeOptions,
    ) -> Result<Self, Error> {
        let Some(valid) = Ttl::from_duration(ttl) else {
            return Err(error::bad_arguments(format_args!(
                "the time to live is {ttl:?}, and must be 1 to 2^40-1 ms"
            )));
        };
        options.deletes = false;
        options.adopts = true;
        let mode = CreateMode::PersistentWithTtl(valid);
        let node = PersistentNode::start_with(client, path, mode, data, options.clone())?;
        let closed = CancellationToken::new();
        let touching = touch(client.clone(), node.clone(), mode, ttl, options);
        let ended = closed.clone();
        client.runtime().spawn(Box::pin(async move {
            select(ended.cancelled(), touching).await;
        }));
        Ok(Self { node, _touching: Arc::new(closed.drop_guard()) })
    }

    /// Waits until the node was created or adopted for the first time, and returns its path. See
    /// [`PersistentNode::created`].
    ///
    /// # Errors
    ///
    /// As [`PersistentNode::created`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn created(&self) -> Result<String, Error> {
        self.node.created().await
    }

    /// Sets the data of the node. See [`PersistentNode::set_data`].
    pub fn set_data(&self, data: impl Into<Bytes>) {
        self.node.set_data(data);
    }

    /// Waits until the node has the data that was last set. See [`PersistentNode::written`].
    ///
    /// # Errors
    ///
    /// As [`PersistentNode::created`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn written(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.node.written()
    }

    /// The data that was last set.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.node.data()
    }

    /// The events from now on. [`Failed`](NodeEvent::Failed) is also reported when the child cannot be written.
    #[must_use]
    pub fn events(&self) -> Events<NodeEvent> {
        self.node.events()
    }

    /// Keeps the node no longer. Deletes nothing: the server does, after the time to live.
    ///
    /// # Errors
    ///
    /// As [`PersistentNode::close`].
    ///
    /// # Cancel safety
    ///
    /// As [`PersistentNode::close`].
    pub fn close(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.node.close()
    }
}

/// Writes the child until the node is closed. A failed write is repeated at the next turn. An error that no retry mends,
/// such as `NoAuth`, is reported once: without the child, the server removes the node after its time to live.
///
/// Source: `PersistentTtlNode.touchTask`.
async fn touch(
    client: Client,
    node: PersistentNode,
    mode: CreateMode,
    ttl: Duration,
    options: NodeOptions,
) {
    let (cache, mut status) = (OnceCell::new(), node.events());
    // The handle of this task must not keep the node open.
    let path = loop {
        match node.created().await {
            Ok(path) => break path,
            Err(error) if error.kind() == ErrorKind::Closed => return,
            Err(_) => {
                if status.next().await.is_none() {
                    return;
                }
            }
        }
    };
    let reports = node.reports();
    drop(node);
    let child = format!("{path}/{TOUCH}");
    let closed = async { while status.next().await.is_some() {} };
    let touching = async {
        let mut is_reported = false;
        loop {
            client.runtime().timer(ttl / TOUCH_SCHEDULE_FACTOR).await;
            let data = default_data(&cache, &client, &options.lock).await;
            let touched = match client.set_data(&child, &data, None).await {
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    let acl = options.lock.parents().acls.of(&child);
                    create::create(&client, &child, &data, mode, acl).await.map(drop)
                }
                other => other.map(drop),
            };
            match touched {
                Err(error) if client.ended().is_some() => {
                    debug!(child, %error, "no more touches");
                    return;
                }
                Err(error) => {
                    debug!(child, %error, "not touched; again at the next turn");
                    if !error.is_retryable() && !std::mem::replace(&mut is_reported, true) {
                        // Without listeners, the event is lost.
                        let _ = reports.send(NodeEvent::Failed(error));
                    }
                }
                Ok(()) => is_reported = false,
            }
        }
    };
    select(closed, touching).await;
}
