//! The members of a group, as a cache shows them.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    future::ready,
    sync::Arc,
};

use bytes::Bytes;
use docent_session::{Client, Error, Events};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::status::Wanted;
use crate::{
    cache::{CacheEvent, CacheOptions, CachedNode, CuratorCache},
    path::join,
    planted,
    select::{Either, select},
};

/// The members of a group with their data.
type Members = Arc<BTreeMap<String, Bytes>>;

/// The members of a group, as they change.
pub(super) struct GroupView {
    id: String,
    cache: CuratorCache,
    events: Events<CacheEvent>,
    wanted: watch::Receiver<Wanted>,
    closing: CancellationToken,
    members: Members,
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
    ) -> Events<Result<Members, Error>> {
        let options = CacheOptions::direct_children();
        let (cache, events) = CuratorCache::start_checked(client, group, options);
        let view = Self {
            id: id.to_owned(),
            cache,
            events,
            wanted,
            closing,
            members: Arc::default(),
            returned: BTreeMap::new(),
            is_loaded: false,
        };
        Events::unfold(view, |mut view| async move { Some((view.next().await?, view)) })
    }

    async fn next(&mut self) -> Option<Result<Members, Error>> {
        let closing = self.closing.clone();
        match select(closing.cancelled(), self.next_change()).await {
            Either::Left(()) => None,
            Either::Right(result) => result.transpose(),
        }
    }

    /// `None` when the own member or the client is gone.
    async fn next_change(&mut self) -> Result<Option<Members>, Error> {
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
            CacheEvent::Deleted { .. } if planted::is("view-keeps-gone") => {}
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
