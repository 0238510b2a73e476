//! The members of a group.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use bytes::Bytes;
use docent_protocol::CreateMode;
use docent_session::{Client, Error, Events, retry::RetryPolicy};

use super::{
    group_view::GroupView, options::NodeOptions, persistent_node::PersistentNode, status::NodeEvent,
};
use crate::{
    base_path::check_base_path, error, locks::LockOptions, path::join, planted,
    read_nodes::read_nodes,
};

/// A member of a group: an ephemeral node below the group's path, called after the member's id, and kept present.
///
/// Ids must be unique. A member whose id is taken by another session reports it: [`joined`](Self::joined) returns
/// `NodeExists`, and it joins once the other one is gone.
///
/// Clones are the same member; dropping the last one leaves the group in the background.
///
/// # Example
///
/// ```
/// use docent::GroupMember;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent::Client::connect(&server.connect_string()).await?;
/// let member = GroupMember::join(&client, "/workers", "host-7", "10.0.0.7:80")?;
/// member.joined().await?;
/// assert_eq!(&*member.current_members().await?["host-7"], b"10.0.0.7:80");
/// member.leave().await?;
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// Source: `GroupMember`. Curator's always keeps a cache of the group; this one reads it on request, and
/// [`view`](Self::view) keeps a cache.
#[derive(Debug, Clone)]
pub struct GroupMember {
    client: Client,
    group: String,
    id: String,
    options: LockOptions,
    node: PersistentNode,
}

impl GroupMember {
    /// As [`join_with`](Self::join_with), with the default [`LockOptions`].
    ///
    /// # Errors
    ///
    /// As [`join_with`](Self::join_with).
    pub fn join(
        client: &Client,
        membership_path: &str,
        id: &str,
        data: impl Into<Bytes>,
    ) -> Result<Self, Error> {
        Self::join_with(client, membership_path, id, data, LockOptions::default())
    }

    /// Joins a group. Returns at once.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath), also for an id that cannot be the name of a node.
    ///
    /// Source: the constructor, `start`.
    pub fn join_with(
        client: &Client,
        membership_path: &str,
        id: &str,
        data: impl Into<Bytes>,
        options: LockOptions,
    ) -> Result<Self, Error> {
        check_base_path(membership_path)?;
        if id.is_empty() || id.contains('/') {
            let why = format_args!("{id:?} cannot be the id of a group's member");
            return Err(error::invalid_path(why));
        }
        let path = join(membership_path, id);
        let node_options = NodeOptions::default().with_lock_options(options.clone());
        let mode = CreateMode::Ephemeral;
        let node = PersistentNode::start_with(client, &path, mode, data, node_options)?;
        let (group, id) = (membership_path.to_owned(), id.to_owned());
        Ok(Self { client: client.clone(), group, id, options, node })
    }

    /// Waits until this member has joined.
    ///
    /// # Errors
    ///
    /// As [`PersistentNode::created`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn joined(&self) -> Result<(), Error> {
        self.node.created().await.map(drop)
    }

    /// Sets the data of this member. See [`PersistentNode::set_data`]: it needs no wait for the join (CURATOR-485).
    ///
    /// Source: `setThisData`.
    pub fn set_this_data(&self, data: impl Into<Bytes>) {
        self.node.set_data(data);
    }

    /// The members with their data, by id. This member is always there, with its wanted data. Sends getChildren2 (12),
    /// and getData (4) for each other member, up to 64 at
    /// a time.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `getCurrentMembers`.
    pub async fn current_members(&self) -> Result<BTreeMap<String, Bytes>, Error> {
        let policy: &dyn RetryPolicy = &*self.options.retry_policy;
        let list = || self.client.get_children_with_stat(&self.group);
        let listed = self.client.retry_idempotent(policy, list).await;
        let (children, _) = error::default_if_missing(listed)?;
        let mut members = BTreeMap::from([(self.id.clone(), self.node.data())]);
        let missed = usize::from(planted::is("group-misses-a-member"));
        let ids = children.iter().filter(|name| *name != self.id).skip(missed);
        let paths: Vec<String> = ids.map(|id| join(&self.group, id)).collect();
        let nodes = read_nodes(&self.client, policy, &paths).await?;
        // A missing one has left since the listing.
        let there =
            paths.iter().zip(&nodes).filter_map(|(path, node)| Some((path, node.as_ref()?)));
        members.extend(there.map(|(path, node)| {
            let id = path.rsplit('/').next().unwrap_or_default();
            // A slice of the reply would keep up to 64 times its size in memory.
            (id.to_owned(), Bytes::copy_from_slice(&node.data))
        }));
        Ok(members)
    }

    /// The members with their data as they come, go and change: the present ones first, then those of each change. Of several
    /// changes in quick succession, possibly only the last state is returned. This member is always there, with its wanted
    /// data. The view keeps no member in the group, and ends when this one leaves or the client has ended; a lost
    /// connection or session ends nothing.
    ///
    /// Each map is one moment. A change costs no copy of the map, unless an earlier one is still held then. The view is a
    /// [`CuratorCache`](crate::cache::CuratorCache) of the group and its direct children, with the frames of that cache. A
    /// task of the client's runtime reads them, up to 128 at a time, also while the view is not polled.
    ///
    /// # Errors
    ///
    /// Those of a member that cannot be read, or of a group that cannot be listed, such as `NoAuth`: each is returned
    /// once, and the view goes on without that member.
    ///
    /// ```
    /// # async fn example(member: docent_recipes::nodes::GroupMember) -> Result<(), docent_recipes::Error> {
    /// let mut view = member.view();
    /// while let Some(members) = view.next().await {
    ///     println!("now {} members", members?.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: `GroupMember.getCurrentMembers`, and the cache that it reads.
    #[must_use]
    pub fn view(&self) -> Events<Result<Arc<BTreeMap<String, Bytes>>, Error>> {
        let (wanted, closing) = self.node.wanted();
        GroupView::start(&self.client, &self.group, &self.id, wanted, closing)
    }

    /// The events of this member's node.
    #[must_use]
    pub fn events(&self) -> Events<NodeEvent> {
        self.node.events()
    }

    /// The id of this member.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Leaves the group: deletes the node. See [`PersistentNode::close`].
    ///
    /// # Errors
    ///
    /// As [`PersistentNode::close`].
    ///
    /// # Cancel safety
    ///
    /// As [`PersistentNode::close`].
    ///
    /// Source: `close`.
    pub fn leave(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.node.close()
    }
}
