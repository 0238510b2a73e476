//! The members of a group, kept by watches.

use std::{
    collections::BTreeMap,
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use docent_session::{Children, Client, Error, ErrorKind, Watcher, retry::RetryPolicy};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::status::Wanted;
use crate::{
    persistent_retry::PersistentRetry,
    protection::join,
    select::{Either, select},
};

/// The members of a group with their data, as they change. Created by
/// [`GroupMember::view`](super::GroupMember::view).
///
/// The view has a watch on the group, getChildren (8), and one on each other member, getData (4), and repeats the reads
/// whose watches have fired. It has no task: nothing is read while [`next`](Self::next) is not polled, and of several
/// changes in quick succession, possibly only the last state is returned.
pub struct GroupView {
    client: Client,
    group: String,
    id: String,
    policy: PersistentRetry,
    wanted: watch::Receiver<Wanted>,
    closing: CancellationToken,
    /// The watch on the group, or on its creation; `None` before the first read, and after an event.
    group_watch: Option<Watcher>,
    others: BTreeMap<String, Other>,
    shown: Option<BTreeMap<String, Bytes>>,
}

/// Another member.
struct Other {
    data: Bytes,
    /// `None` before the first read, and after an event.
    watch: Option<Watcher>,
}

impl GroupView {
    pub(super) fn new(
        client: Client,
        group: String,
        id: String,
        policy: Arc<dyn RetryPolicy>,
        wanted: watch::Receiver<Wanted>,
        closing: CancellationToken,
    ) -> Self {
        let policy = PersistentRetry::new(policy, closing.clone());
        Self {
            client,
            group,
            id,
            policy,
            wanted,
            closing,
            group_watch: None,
            others: BTreeMap::new(),
            shown: None,
        }
    }

    /// Waits until the members or their data differ from those that were last returned; the first call returns the
    /// present ones. The own member is always there, with its wanted data. `None` when the own member has left, or the
    /// client has ended. A lost connection or session ends nothing: the reads are repeated.
    ///
    /// # Errors
    ///
    /// Errors that no retry mends, such as `NoAuth`. The next call tries again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// Source: `GroupMember.getCurrentMembers`, and the cache that it reads.
    pub async fn next(&mut self) -> Option<Result<BTreeMap<String, Bytes>, Error>> {
        let closing = self.closing.clone();
        match select(closing.cancelled(), self.next_change()).await {
            Either::Left(()) => None,
            Either::Right(Err(error))
                if self.client.ended().is_some() || error.kind() == ErrorKind::Closed =>
            {
                None
            }
            Either::Right(result) => result.transpose(),
        }
    }

    /// `None` when the own member is gone.
    async fn next_change(&mut self) -> Result<Option<BTreeMap<String, Bytes>>, Error> {
        loop {
            self.read().await?;
            let own = self.wanted.borrow_and_update().data.clone();
            let others = self.others.iter().map(|(id, other)| (id.clone(), other.data.clone()));
            let members: BTreeMap<_, _> = others.chain([(self.id.clone(), own)]).collect();
            if self.shown.as_ref() != Some(&members) {
                self.shown = Some(members.clone());
                return Ok(Some(members));
            }
            let (group_watch, others) = (&mut self.group_watch, &mut self.others);
            let event = poll_fn(|cx| poll_events(group_watch, others, cx));
            if let Either::Right(Err(_)) = select(event, self.wanted.changed()).await {
                return Ok(None);
            }
        }
    }

    /// Reads the group and the members whose watches have fired.
    async fn read(&mut self) -> Result<(), Error> {
        while self.group_watch.is_none() {
            let list = || self.client.get_children_and_watch(&self.group);
            let (children, watch) = match self.client.retry_idempotent(&self.policy, list).await {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    let exists = || self.client.exists_and_watch(&self.group);
                    match self.client.retry_idempotent(&self.policy, exists).await? {
                        (None, watch) => (Children::default(), watch),
                        // Created since: listed again.
                        (Some(_), _) => continue,
                    }
                }
                Err(error) => return Err(error),
            };
            let names: Vec<&str> = children.iter().filter(|name| *name != self.id).collect();
            self.others.retain(|id, _| names.contains(&id.as_str()));
            for name in names {
                let unread = || Other { data: Bytes::new(), watch: None };
                self.others.entry(name.to_owned()).or_insert_with(unread);
            }
            self.group_watch = Some(watch);
        }
        let fired = self.others.iter().filter(|(_, other)| other.watch.is_none());
        for id in fired.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let path = join(&self.group, &id);
            let read = || self.client.get_data_and_watch(&path);
            match self.client.retry_idempotent(&self.policy, read).await {
                Ok((node, watch)) => {
                    self.others.insert(id, Other { data: node.data, watch: Some(watch) });
                }
                // It has left since the listing, whose watch fires.
                Err(error) if error.kind() == ErrorKind::NoNode => drop(self.others.remove(&id)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Takes the watches that have fired away; ready if there are any.
fn poll_events(
    group_watch: &mut Option<Watcher>,
    others: &mut BTreeMap<String, Other>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let mut has_fired = false;
    for watch in [group_watch].into_iter().chain(others.values_mut().map(|other| &mut other.watch))
    {
        if watch.as_mut().is_none_or(|watch| watch.poll_changed(cx).is_ready()) {
            (*watch, has_fired) = (None, true);
        }
    }
    if has_fired { Poll::Ready(()) } else { Poll::Pending }
}

impl fmt::Debug for GroupView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupView")
            .field("group", &self.group)
            .field("members", &self.shown)
            .finish_non_exhaustive()
    }
}
