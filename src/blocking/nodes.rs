//! Nodes that are kept present, and groups: [`docent::recipes::nodes`](crate::recipes::nodes) with methods that wait.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{Client, context::Context, wait::check};
use crate::{CreateMode, Error, LockOptions, NodeEvent, NodeOptions};

/// A node that is kept present.
///
/// As [`PersistentNode`](crate::PersistentNode).
#[derive(Clone)]
pub struct PersistentNode {
    inner: crate::PersistentNode,
    context: Context,
}

impl PersistentNode {
    forward! { PersistentNode;
        /// Keeps a node at `path` present, with the default options. Returns at once.
        new fn start(client, path: &str, mode: CreateMode, data: impl Into<Bytes>);
        /// As [`start`](Self::start), with options.
        new fn start_with(client, path: &str, mode: CreateMode, data: impl Into<Bytes>, options: NodeOptions);
        /// Waits until the node was created or adopted for the first time, and returns its path.
        async fn created(&self) -> Result<String, Error>;
        /// Waits until the node has the data that was last [set](Self::set_data).
        async fn written(&self) -> Result<(), Error>;
        /// Deletes the node, if it is ours and the options do not leave it, and keeps it no longer.
        async fn close(&self) -> Result<(), Error>;
        /// As [`close`](Self::close), but deletes the node although the options leave it.
        async fn close_and_delete(&self) -> Result<(), Error>;
        /// Sets the data of the node. Returns at once.
        fn set_data(&self, data: impl Into<Bytes>);
        /// The data that was last set.
        #[must_use]
        fn data(&self) -> Bytes;
        /// The path of the node; `None` before it was first created.
        #[must_use]
        fn path(&self) -> Option<String>;
        /// The `czxid` of the node; `None` while it is not known to be there.
        #[must_use]
        fn czxid(&self) -> Option<i64>;
    }

    /// As [`created`](Self::created), for at most `wait`; `None` if the node was not created by then.
    pub fn created_timeout(&self, wait: Duration) -> Result<Option<String>, Error> {
        check()?;
        self.context.wait_timeout(wait, self.inner.created()).transpose()
    }

    /// As [`written`](Self::written), for at most `wait`; false if the data was not written by then.
    pub fn written_timeout(&self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.written()).transpose()?.is_some())
    }

    /// The events from now on: an iterator that waits.
    ///
    /// As [`PersistentNode::events`](crate::PersistentNode::events).
    #[must_use]
    pub fn events(&self) -> NodeEvents {
        NodeEvents { inner: self.inner.events(), context: self.context.clone() }
    }
}

/// A node that is kept present while this process lives, and that its server deletes by its TTL.
///
/// As [`PersistentTtlNode`](crate::PersistentTtlNode).
#[derive(Clone)]
pub struct PersistentTtlNode {
    inner: crate::PersistentTtlNode,
    context: Context,
}

impl PersistentTtlNode {
    forward! { PersistentTtlNode;
        /// Keeps a node at `path` present, with the default options. Returns at once.
        new fn start(client, path: &str, ttl: Duration, data: impl Into<Bytes>);
        /// As [`start`](Self::start), with options.
        new fn start_with(client, path: &str, ttl: Duration, data: impl Into<Bytes>, options: NodeOptions);
        /// Waits until the node was created or adopted for the first time, and returns its path.
        async fn created(&self) -> Result<String, Error>;
        /// Waits until the node has the data that was last [set](Self::set_data).
        async fn written(&self) -> Result<(), Error>;
        /// Keeps the node no longer.
        async fn close(&self) -> Result<(), Error>;
        /// Sets the data of the node. Returns at once.
        fn set_data(&self, data: impl Into<Bytes>);
        /// The data that was last set.
        #[must_use]
        fn data(&self) -> Bytes;
    }

    /// As [`created`](Self::created), for at most `wait`; `None` if the node was not created by then.
    pub fn created_timeout(&self, wait: Duration) -> Result<Option<String>, Error> {
        check()?;
        self.context.wait_timeout(wait, self.inner.created()).transpose()
    }

    /// As [`written`](Self::written), for at most `wait`; false if the data was not written by then.
    pub fn written_timeout(&self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.written()).transpose()?.is_some())
    }

    /// The events from now on: an iterator that waits.
    ///
    /// As [`PersistentTtlNode::events`](crate::PersistentTtlNode::events).
    #[must_use]
    pub fn events(&self) -> NodeEvents {
        NodeEvents { inner: self.inner.events(), context: self.context.clone() }
    }
}

/// The events of a kept node, in order: an iterator that waits, and ends once the node is closed. Created by
/// [`PersistentNode::events`].
///
/// As [`NodeEvents`](crate::NodeEvents).
pub struct NodeEvents {
    pub(super) inner: crate::NodeEvents,
    pub(super) context: Context,
}

events!(NodeEvents, NodeEvent);

impl NodeEvents {
    async fn following(&mut self) -> Option<Result<NodeEvent, Error>> {
        self.inner.next().await.map(Ok)
    }
}

/// A member of a group.
///
/// As [`GroupMember`](crate::GroupMember).
#[derive(Clone)]
pub struct GroupMember {
    inner: crate::GroupMember,
    context: Context,
}

impl GroupMember {
    forward! { GroupMember;
        /// Joins the group at a path under the name `id`, with the default options. Returns at once.
        new fn join(client, membership_path: &str, id: &str, data: impl Into<Bytes>);
        /// As [`join`](Self::join), with options.
        new fn join_with(client, membership_path: &str, id: &str, data: impl Into<Bytes>, options: LockOptions);
        /// Waits until this member's node was created for the first time.
        async fn joined(&self) -> Result<(), Error>;
        /// Reads the members and their data.
        async fn current_members(&self) -> Result<BTreeMap<String, Bytes>, Error>;
        /// Leaves the group: deletes the node.
        async fn leave(&self) -> Result<(), Error>;
        /// Sets the data of this member. Returns at once.
        fn set_this_data(&self, data: impl Into<Bytes>);
        /// The id of this member.
        #[must_use]
        fn id(&self) -> &str;
    }

    /// As [`joined`](Self::joined), for at most `wait`; false if the node was not created by then.
    pub fn joined_timeout(&self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.joined()).transpose()?.is_some())
    }

    /// The events of this member's node from now on: an iterator that waits.
    ///
    /// As [`GroupMember::events`](crate::GroupMember::events).
    #[must_use]
    pub fn events(&self) -> NodeEvents {
        NodeEvents { inner: self.inner.events(), context: self.context.clone() }
    }

    /// The members, now and after each change: an iterator that waits.
    ///
    /// As [`GroupMember::view`](crate::GroupMember::view).
    #[must_use]
    pub fn view(&self) -> GroupView {
        GroupView { inner: self.inner.view(), context: self.context.clone() }
    }
}

/// The members of a group after each change: an iterator that waits, and ends when the member has left. Created by
/// [`GroupMember::view`].
///
/// As [`GroupView`](crate::GroupView).
pub struct GroupView {
    inner: crate::GroupView,
    context: Context,
}

events!(GroupView, Arc<BTreeMap<String, Bytes>>);

impl GroupView {
    async fn following(&mut self) -> Option<Result<Arc<BTreeMap<String, Bytes>>, Error>> {
        self.inner.next().await
    }
}

debug_as_inner!(PersistentNode PersistentTtlNode NodeEvents GroupMember GroupView);
