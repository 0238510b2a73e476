//! How a lock is acquired and released: Curator's `LockInternals`, step by step.
//!
//! | step | frame | Curator | here |
//! |---|---|---|---|
//! | 1. put a node at the end of the queue | create2 (15), ephemeral sequential, with a GUID in its name | `StandardLockInternalsDriver.createsTheLock` | `LockInternals::one_attempt` |
//! | 2. make the parents if they are missing, as containers | exists (3) upward, createContainer (19) downward, create2 again | `ZKPaths.mkdirs` | `crate::parents` |
//! | 3. look at the queue | getChildren2 (12) | `LockInternals.getSortedChildren` | `LockInternals::contenders` |
//! | 4. first in it: the lock is ours | – | `StandardLockInternalsDriver.getsTheLock` | [`gets_the_lock`] |
//! | 5. not first: watch the node ahead | getData (4) with watch | `LockInternals.internalLockLoop` | `LockInternals::internal_lock_loop` |
//! | 6. when anything happens to it, from 3 on | – | the watcher wakes all waiters | `LockInternals::wait` |
//! | 7. out of time: leave the queue | delete (2) | `LockInternals.deleteOurPath` | `LockInternals::give_up` |
//! | 8. release | checkWatches (17) for each watch of this instance that is left, delete (2) | `LockInternals.releaseLock` | `LockInternals::release_lock` |
//!
//! Step 5 is getData and not exists, because exists on a node that has just gone would leave a watch behind
//! (CURATOR-107). When the own node is missing in step 3, or the parent vanished under step 1, the error is
//! NoNode: the retry policy is asked, and everything begins again with a new GUID, at the end of the queue.
//!
//! Beyond Curator:
//!
//! * A node of another session than the current one counts as missing: the server is about to delete it,
//!   and would give the lock to another while we believe in it (N2, CURATOR-604).
//! * A hold begins with a [`SessionClaim`] that was made before the listing which granted it.
//! * The time allowed bounds the whole call, also without a connection (N8): a step that is under way when
//!   the time is up may take one second more.
//! * Whatever is dropped on the way is cleaned up through the session's queue.

use std::{
    borrow::Cow,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use docent_protocol::{CreateMode, WatcherType, acl};
use docent_session::{Client, Instant, Outcome, SessionClaim, Watcher};
use tokio::sync::Notify;
use tracing::{debug, trace};

use super::{
    LockOptions,
    standard_lock_internals_driver::{
        PredicateError, PredicateResults, gets_the_lock, sorted_contenders,
    },
};
use crate::{
    Error, guaranteed_delete,
    protection::{self, Created, NewNode, join},
    race::{First, race},
    retry_loop::{RetryLoop, call_with_retry},
};

/// The lock name of a mutex: it stands between the GUID and the digits.
///
/// Source: `InterProcessMutex.LOCK_NAME`.
pub const LOCK_NAME: &str = "lock-";

/// How long a step that was begun in time may take when the time is up.
const STEP_GRACE: Duration = Duration::from_secs(1);

/// How many characters of a lock node's name are its protection.
const PROTECTED_LENGTH: usize = 40;

/// The machinery under a lock, one for each lock object.
#[derive(Debug)]
pub(crate) struct LockInternals {
    client: Client,
    base_path: String,
    lock_name: &'static str,
    max_leases: usize,
    options: LockOptions,
    /// What the lock node says by default; found out once.
    local_address: tokio::sync::OnceCell<Bytes>,
    watches: Watches,
}

/// A lock that was got.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) path: String,
    pub(crate) claim: SessionClaim,
    /// `None` when the node's creation was not answered: it can be asked for.
    pub(crate) czxid: Option<i64>,
}

impl LockInternals {
    pub(crate) fn new(
        client: &Client,
        base_path: &str,
        lock_name: &'static str,
        max_leases: usize,
        options: LockOptions,
    ) -> Result<Self, Error> {
        check_base_path(base_path)?;
        Ok(Self {
            client: client.clone(),
            base_path: base_path.to_owned(),
            lock_name,
            max_leases,
            options,
            local_address: tokio::sync::OnceCell::new(),
            watches: Watches::default(),
        })
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    /// Acquires the lock; `None` when `wait` has passed.
    ///
    /// Source: `LockInternals.attemptLock`.
    pub(crate) async fn attempt_lock(
        &self,
        wait: Option<Duration>,
    ) -> Result<Option<Acquired>, Error> {
        let time = Time { client: &self.client, until: wait.map(|wait| self.client.now() + wait) };
        let mut retry = RetryLoop::new(&self.client, &*self.options.retry_policy);
        loop {
            match self.one_attempt(&time).await {
                Err(error) if error.is_no_node() => {
                    debug!(path = self.base_path, %error, "begins again, if the policy allows");
                    match time.bound(retry.pause_whatever(error)).await {
                        Some(allowed) => allowed?,
                        None => return Ok(None),
                    }
                }
                other => return other,
            }
        }
    }

    async fn one_attempt(&self, time: &Time<'_>) -> Result<Option<Acquired>, Error> {
        let Some(data) = time.bound(self.data()).await else { return Ok(None) };
        let node = NewNode {
            parent: &self.base_path,
            name: self.lock_name,
            data: &data,
            acl: acl::OPEN_ACL_UNSAFE,
            parents_acl: acl::OPEN_ACL_UNSAFE,
            mode: CreateMode::EphemeralSequential,
        };
        trace!(path = self.base_path, "create the lock node");
        let create = protection::create(&self.client, &*self.options.retry_policy, &node);
        let Some(created) = time.bound(create).await else { return Ok(None) };
        let mut ours = OurNode { internals: self, created: Some(created?) };
        let result = self.internal_lock_loop(&mut ours, time).await;
        match result {
            Ok(Some(claim)) => Ok(ours.created.take().map(|created| Acquired {
                path: created.path,
                claim,
                czxid: created.czxid,
            })),
            Ok(None) => {
                self.give_up(ours, time).await?;
                Ok(None)
            }
            Err(error) => {
                // The first error is the one that is told (CURATOR-41).
                if let Err(second) = self.give_up(ours, time).await {
                    debug!(%second, "while leaving the queue");
                }
                Err(error)
            }
        }
    }

    /// Waits until our node is first; `None` when the time is up.
    ///
    /// Source: `LockInternals.internalLockLoop`.
    async fn internal_lock_loop(
        &self,
        ours: &mut OurNode<'_>,
        time: &Time<'_>,
    ) -> Result<Option<SessionClaim>, Error> {
        let Some(created) = &ours.created else { return Ok(None) };
        let our_name = self.name_of(&created.path);
        loop {
            let claim = self.claim(created)?;
            trace!(path = created.path, "look at the queue");
            let Some(children) = time.bound(self.children()).await else { return Ok(None) };
            let children = children?;
            let names: Vec<Cow<'_, str>> = children.iter().collect();
            let contenders = self.contenders(&names, our_name);
            match gets_the_lock(&contenders, our_name, self.max_leases) {
                Ok(PredicateResults::GetsTheLock) if claim.is_valid(self.client.now()) => {
                    trace!(path = created.path, "held");
                    return Ok(Some(claim));
                }
                // Ours when the server answered, but the answer took too long to be believed: ask again.
                Ok(PredicateResults::GetsTheLock) => {}
                Ok(PredicateResults::PathToWatch(ahead)) => {
                    let ahead = join(&self.base_path, ahead);
                    let mut wake = Wake::arm(&self.client);
                    trace!(path = created.path, ahead, "watch the node ahead");
                    let watch = self.watch(&ahead);
                    let watcher = match time.bound(watch).await {
                        None => return Ok(None),
                        Some(Ok(watcher)) => watcher,
                        // It has gone meanwhile: who is next?
                        Some(Err(error)) if error.is_no_node() => continue,
                        Some(Err(error)) => return Err(error),
                    };
                    let watch = self.watches.enter(watcher);
                    if time.is_up() {
                        return Ok(None);
                    }
                    self.wait(watch, &mut wake, time).await;
                }
                Err(PredicateError::OurNodeMissing) => {
                    return Err(Error::own_node_missing(our_name));
                }
                Err(PredicateError::SequenceExhausted) => {
                    return Err(Error::SequenceExhausted { path: self.base_path.clone() });
                }
            }
        }
    }

    /// Relies on the session that our node was made in. That must be the current one: a node of another
    /// is not ours any more, though the server may still have it.
    fn claim(&self, created: &Created) -> Result<SessionClaim, Error> {
        if let Some(kind) = self.client.ended() {
            return Err(docent_session::Error::new(kind, Outcome::NotApplied).into());
        }
        match self.client.session() {
            Some(lease) if lease.session_id() == created.owner => Ok(lease.claim()),
            _ => Err(Error::own_node_missing(self.name_of(&created.path))),
        }
    }

    /// Lists the children; a missing parent has none.
    async fn children(&self) -> Result<docent_session::Children, Error> {
        let list = || self.client.get_children2(&self.base_path);
        match call_with_retry(&self.client, &*self.options.retry_policy, list).await {
            Ok((children, _)) => Ok(children),
            Err(error) if error.kind() == docent_session::ErrorKind::NoNode => {
                Ok(docent_session::Children::default())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Who wants the lock, without what our own create left behind: where a server that lagged showed no
    /// node of ours, another was made under the same GUID. The older one is deleted.
    fn contenders<'a>(
        &self,
        names: &'a [Cow<'_, str>],
        our_name: &str,
    ) -> Vec<super::standard_lock_internals_driver::Contender<'a>> {
        let protection = our_name.get(..PROTECTED_LENGTH).unwrap_or(our_name);
        let mut contenders = sorted_contenders(names.iter().map(AsRef::as_ref), self.lock_name);
        contenders.retain(|contender| {
            let twin = contender.name != our_name && contender.name.starts_with(protection);
            if twin {
                debug!(name = contender.name, "a second node of one create is deleted");
                guaranteed_delete::delete_in_background(
                    &self.client,
                    &join(&self.base_path, contender.name),
                );
            }
            !twin
        });
        contenders
    }

    async fn watch(&self, path: &str) -> Result<Watcher, Error> {
        let read = || self.client.get_data_and_watch(path);
        let (_, watcher) = call_with_retry(&self.client, &*self.options.retry_policy, read).await?;
        Ok(watcher)
    }

    /// Waits until anything happened that may concern us: an event, the watch's removal by a release of
    /// this instance, another state of the connection, or the end of the time.
    async fn wait(&self, mut watch: Entered<'_>, wake: &mut Wake, time: &Time<'_>) {
        let woken = race(watch.changed(), wake.changed());
        match time.until {
            None => {
                woken.await;
            }
            Some(until) => {
                let left = until.since(self.client.now());
                // Out of time, the queue is looked at once more.
                let _ = tokio::time::timeout(left, woken).await;
            }
        }
    }

    /// Leaves the queue.
    ///
    /// Source: `LockInternals.deleteOurPath`.
    async fn give_up(&self, mut ours: OurNode<'_>, time: &Time<'_>) -> Result<(), Error> {
        let Some(created) = &ours.created else { return Ok(()) };
        trace!(path = created.path, "leave the queue");
        let delete =
            guaranteed_delete::delete(&self.client, &*self.options.retry_policy, &created.path);
        let result = time.bound(delete).await;
        // Done, or being done in the background.
        ours.created = None;
        match result {
            Some(Err(error)) if error.kind() != docent_session::ErrorKind::NoNode => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// Gives the lock up.
    ///
    /// Source: `LockInternals.releaseLock`.
    pub(crate) async fn release_lock(&self, path: &str) -> Result<(), Error> {
        self.remove_watches();
        trace!(path, "release");
        let policy = &*self.options.retry_policy;
        match guaranteed_delete::delete(&self.client, policy, path).await {
            Err(error) if error.kind() != docent_session::ErrorKind::NoNode => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// As [`release_lock`](Self::release_lock), for those who cannot wait.
    pub(crate) fn release_lock_in_background(&self, path: &str) {
        self.remove_watches();
        guaranteed_delete::delete_in_background(&self.client, path);
    }

    /// Forgets the watches of this instance, those of its waiters too, who look again.
    ///
    /// As Curator, it asks the server about each (checkWatches), which removes nothing there (N11): the event
    /// still comes, and finds nobody.
    fn remove_watches(&self) {
        for path in self.watches.remove_all() {
            drop(self.client.check_watches(&path, WatcherType::Any));
        }
    }

    /// All who want the lock or have it, first come first, as paths.
    ///
    /// Source: `LockInternals.getParticipantNodes`.
    pub(crate) async fn participants(&self) -> Result<Vec<String>, Error> {
        let children = self.children().await?;
        let names: Vec<Cow<'_, str>> = children.iter().collect();
        let contenders = sorted_contenders(names.iter().map(AsRef::as_ref), self.lock_name);
        Ok(contenders.iter().map(|contender| join(&self.base_path, contender.name)).collect())
    }

    fn name_of<'a>(&self, path: &'a str) -> &'a str {
        path.get(self.base_path.len() + 1..).unwrap_or_default()
    }

    async fn data(&self) -> Bytes {
        match &self.options.data {
            Some(data) => data.clone(),
            None => self.local_address.get_or_init(|| local_address(&self.client)).await.clone(),
        }
    }
}

fn check_base_path(path: &str) -> Result<(), Error> {
    let refuse = |why: &dyn std::fmt::Display| {
        Err(Error::InvalidPath(format!("{path:?} cannot be the path of a lock: {why}")))
    };
    match docent_protocol::path::validate(path) {
        Err(error) => refuse(&error),
        // Curator takes it, and fails at each acquire (N10).
        Ok(()) if path == "/" => refuse(&"the root is no place for lock nodes"),
        Ok(()) => Ok(()),
    }
}

/// This host's address on its way to the first server; empty if there is none. Nothing is sent.
async fn local_address(client: &Client) -> Bytes {
    let hosts = client.config().connect_string.hosts();
    let Some(host) = hosts.first() else { return Bytes::new() };
    let address = async {
        let server = tokio::net::lookup_host((host.name.as_str(), host.port)).await.ok()?.next()?;
        let any: std::net::IpAddr = if server.is_ipv4() {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = tokio::net::UdpSocket::bind((any, 0)).await.ok()?;
        socket.connect(server).await.ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    };
    address.await.map(Bytes::from).unwrap_or_default()
}

/// The time a call has.
struct Time<'a> {
    client: &'a Client,
    /// `None`: any.
    until: Option<Instant>,
}

impl Time<'_> {
    fn is_up(&self) -> bool {
        self.until.is_some_and(|until| until <= self.client.now())
    }

    /// Lets a step take what is left of the time, and [`STEP_GRACE`] in any case: with no time at all, a free
    /// lock is still got. `None` when it took longer; it is then dropped, and cleans up.
    async fn bound<F: Future>(&self, step: F) -> Option<F::Output> {
        match self.until {
            None => Some(step.await),
            Some(until) => {
                let left = until.since(self.client.now()).max(STEP_GRACE);
                tokio::time::timeout(left, step).await.ok()
            }
        }
    }
}

/// Our node, which must not stay behind: dropped, it is deleted.
struct OurNode<'a> {
    internals: &'a LockInternals,
    created: Option<Created>,
}

impl Drop for OurNode<'_> {
    fn drop(&mut self) {
        if let Some(created) = &self.created {
            guaranteed_delete::delete_in_background(&self.internals.client, &created.path);
        }
    }
}

/// What wakes a waiter besides its watch: any change of the connection's state.
struct Wake(tokio::sync::watch::Receiver<Option<docent_session::ConnectionState>>);

impl Wake {
    /// From now on. To be called before the request whose answer is then waited upon.
    fn arm(client: &Client) -> Self {
        let mut state = client.state();
        state.mark_unchanged();
        Self(state)
    }

    async fn changed(&mut self) {
        // An error means that the client has gone; then, too, there is reason to look.
        let _ = self.0.changed().await;
    }
}

/// The watches of one lock object, left over or waited upon.
///
/// A waiter that ran out of time leaves its watch behind, to go with its event or with the next release of
/// the object: Curator does, and so a trace of ours looks like one of its own.
///
/// Source: `WatcherRemovalManager`.
#[derive(Debug, Default)]
struct Watches {
    entries: Mutex<Vec<Entry>>,
    next_id: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    path: String,
    removed: Arc<Notify>,
    /// Once nobody waits for it any more.
    left_over: Option<Watcher>,
}

/// A watch that is waited upon.
struct Entered<'a> {
    watches: &'a Watches,
    id: u64,
    removed: Arc<Notify>,
    watcher: Option<Watcher>,
    fired: bool,
}

impl Watches {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, watcher: Watcher) -> Entered<'_> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let removed = Arc::new(Notify::new());
        let entry = Entry {
            id,
            path: watcher.path().to_owned(),
            removed: Arc::clone(&removed),
            left_over: None,
        };
        let mut entries = self.lock();
        entries.retain_mut(|entry| !entry.has_fired());
        entries.push(entry);
        Entered { watches: self, id, removed, watcher: Some(watcher), fired: false }
    }

    /// Forgets all, wakes who waits, and says which had not fired.
    fn remove_all(&self) -> Vec<String> {
        let entries = std::mem::take(&mut *self.lock());
        entries
            .into_iter()
            .filter_map(|mut entry| {
                entry.removed.notify_one();
                (!entry.has_fired()).then_some(entry.path)
            })
            .collect()
    }
}

impl Entry {
    fn has_fired(&mut self) -> bool {
        self.left_over.as_mut().is_some_and(|watcher| watcher.try_changed().is_some())
    }
}

impl Entered<'_> {
    /// Waits for the event, or for the watch's removal.
    async fn changed(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        if let First::Left(_) = race(watcher.changed(), self.removed.notified()).await {
            self.fired = true;
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut entries = self.watches.lock();
        // Gone from the list: removed by a release.
        let Some(at) = entries.iter().position(|entry| entry.id == self.id) else { return };
        if self.fired {
            entries.swap_remove(at);
        } else if let Some(entry) = entries.get_mut(at) {
            entry.left_over = self.watcher.take();
        }
    }
}
