//! The members of a group, as a cache shows them.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    future::ready,
    sync::Arc,
};

use bytes::Bytes;
use docent_session::{Client, Error};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::status::Wanted;
use crate::{
    cache::{CacheEvent, CacheEvents, CacheOptions, CachedNode, CuratorCache},
    protection::join,
    select::{Either, select},
};

/// The members of a group with their data, as they change. Created by
/// [`GroupMember::view`](super::GroupMember::view).
///
/// The view is a [`CuratorCache`] of the group and its direct children, with the frames of that cache. A task of the
/// client's runtime reads them, up to 128 at a time, also while [`next`](Self::next) is not polled. Of several changes
/// in quick succession, possibly only the last state is returned.
pub struct GroupView {
    id: String,
    cache: CuratorCache,
    events: CacheEvents,
    wanted: watch::Receiver<Wanted>,
    closing: CancellationToken,
    members: Arc<BTreeMap<String, Bytes>>,
    /// The members that differ from those last returned, with the data that was returned; `None` for those that were
    /// not returned.
    returned: BTreeMap<String, Option<Bytes>>,
    /// The first load is complete.
    is_loaded: bool,
}

impl GroupView {
    /// Starts the cache of a group whose path is valid.
    pub(super) fn start(
        client: &Client,
        group: &str,
        id: &str,
        wanted: watch::Receiver<Wanted>,
        closing: CancellationToken,
    ) -> Self {
        let options = CacheOptions::direct_children();
        let (cache, events) = CuratorCache::start_checked(client, group, options);
        Self {
            id: id.to_owned(),
            cache,
            events,
            wanted,
            closing,
            members: Arc::default(),
            returned: BTreeMap::new(),
            is_loaded: false,
        }
    }

    /// Waits until the members or their data differ from those that were last returned; the first call returns the
    /// present ones. The own member is always there, with its wanted data. `None` when the own member has left, or the
    /// client has ended. A lost connection or session ends nothing.
    ///
    /// Each map is one moment. A change costs no copy of the map, unless an earlier one is still held then.
    ///
    /// # Errors
    ///
    /// Those of a member that cannot be read, or of a group that cannot be listed, such as `NoAuth`: each is returned
    /// once, and the view goes on without that member, as a [`CuratorCache`] does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// Source: `GroupMember.getCurrentMembers`, and the cache that it reads.
    pub async fn next(&mut self) -> Option<Result<Arc<BTreeMap<String, Bytes>>, Error>> {
        let closing = self.closing.clone();
        match select(closing.cancelled(), self.next_change()).await {
            Either::Left(()) => None,
            Either::Right(result) => result.transpose(),
        }
    }

    /// `None` when the own member or the client is gone.
    async fn next_change(&mut self) -> Result<Option<Arc<BTreeMap<String, Bytes>>>, Error> {
        loop {
            let own = self.wanted.borrow_and_update().data.clone();
            self.set(&self.id.clone(), Some(&own));
            // The events that have arrived.
            while let Either::Left(event) = select(self.events.next(), ready(())).await {
                let Some(event) = event else { return Ok(None) };
                self.apply(event)?;
            }
            if self.is_loaded && !self.returned.is_empty() {
                self.returned.clear();
                return Ok(Some(Arc::clone(&self.members)));
            }
            match select(self.events.next(), self.wanted.changed()).await {
                Either::Left(Some(event)) => self.apply(event)?,
                Either::Left(None) | Either::Right(Err(_)) => return Ok(None),
                Either::Right(Ok(())) => {}
            }
        }
    }

    fn apply(&mut self, event: CacheEvent) -> Result<(), Error> {
        match event {
            CacheEvent::Created { node } | CacheEvent::Changed { new: node, .. } => {
                self.set_node(&node, node.data());
            }
            CacheEvent::Deleted { node } => self.set_node(&node, None),
            CacheEvent::Initialized { .. } => self.is_loaded = true,
            CacheEvent::Failed { error, .. } => return Err(error),
            CacheEvent::Lagged { nodes, initialized, .. } => {
                self.is_loaded |= initialized;
                let there: BTreeSet<&str> = nodes.iter().map(CachedNode::path).collect();
                let is_gone = |id: &&String| !there.contains(&*join(self.cache.path(), id));
                for id in self.members.keys().filter(is_gone).cloned().collect::<Vec<_>>() {
                    self.set_other(&id, None);
                }
                for node in &nodes {
                    self.set_node(node, node.data());
                }
            }
            CacheEvent::Stale | CacheEvent::Resynced { .. } => {}
        }
        Ok(())
    }

    fn set_node(&mut self, node: &CachedNode, data: Option<&Bytes>) {
        if node.path() != self.cache.path() {
            self.set_other(node.path().rsplit('/').next().unwrap_or_default(), data);
        }
    }

    fn set_other(&mut self, id: &str, data: Option<&Bytes>) {
        if id != self.id {
            self.set(id, data);
        }
    }

    fn set(&mut self, id: &str, data: Option<&Bytes>) {
        if self.members.get(id) == data {
            return;
        }
        let members = Arc::make_mut(&mut self.members);
        let before = match data {
            Some(data) => members.insert(id.to_owned(), data.clone()),
            None => members.remove(id),
        };
        match self.returned.entry(id.to_owned()) {
            Entry::Occupied(returned) if returned.get().as_ref() == data => drop(returned.remove()),
            Entry::Occupied(_) => {}
            Entry::Vacant(entry) => drop(entry.insert(before)),
        }
    }
}

impl fmt::Debug for GroupView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupView")
            .field("group", &self.cache.path())
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}
