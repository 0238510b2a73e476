//! A barrier whose members enter and leave together.
//!
//! A member passes because of a `ready` that is newer than its own node, because it has counted the members in a
//! listing, or because a member older than `ready` is inside. A wake-up alone opens nothing. `ready` is written only in
//! the session that owns the node of the writer. A leave waits for the members of its first listing only: a later node
//! may be one of the next round, which waits for this member.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use docent_protocol::{CreateMode, EventType, Stat};
use docent_session::{Client, Error, ErrorKind, Watcher};
use tokio::sync::OnceCell;
use tracing::debug;

use super::{
    member::{self, Member, READY, list, members},
    persistently::{persistently, persistently_while, removed_on_drop},
};
use crate::{
    base_path::check_base_path,
    create::create,
    deadline::{Deadline, in_time},
    default_data::default_data,
    error,
    options::LockOptions,
    path::join,
    planted,
    recreate_pause::RecreatePause,
    select::select,
};

/// A barrier that a number of members enter together, and leave together.
///
/// [`enter`](Self::enter) waits until all members have entered, [`leave`](Self::leave) until all have left. An object is
/// one member; it enters, leaves, and can then enter again. Dropping it inside the barrier deletes its node in the
/// background: the others do not wait for it.
///
/// # Nodes
///
/// Below the path there is an ephemeral node for each member, called by a UUID, and the persistent node `ready`, which
/// the member creates that completes the number. Children that are no UUIDs do not count. Members may be docent's and
/// Curator's.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use std::time::Duration;
/// use docent::DistributedDoubleBarrier;
///
/// let mut first = DistributedDoubleBarrier::new(&client, "/computation", 2)?;
/// let mut second = DistributedDoubleBarrier::new(&client, "/computation", 2)?;
/// // A member alone does not pass.
/// assert!(!first.enter_timeout(Duration::ZERO).await?);
/// let (entered, also) = tokio::join!(first.enter(), second.enter());
/// entered.and(also)?;
/// // Compute.
/// let (left, also) = tokio::join!(first.leave(), second.leave());
/// left.and(also)?;
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
/// Source: Curator's `DistributedDoubleBarrier`.
pub struct DistributedDoubleBarrier {
    pub(super) client: Client,
    pub(super) path: Arc<str>,
    pub(super) ready_path: String,
    member_qty: usize,
    options: LockOptions,
    default_data: OnceCell<Bytes>,
    member_id: String,
    /// Whether a node of this id may have been created.
    is_id_used: bool,
    pub(super) inside: Option<Inside>,
}

/// A member that has entered.
#[derive(Debug)]
pub(super) struct Inside {
    /// `None` for a member whose time was up just when the barrier opened: its node is deleted.
    pub(super) member: Option<Member>,
}

/// What a member that enters sees.
enum Look {
    Open,
    /// Not open. The watches fire when it opens, and when the member's node is deleted.
    Closed {
        ready: Watcher,
        own: Watcher,
    },
}

impl DistributedDoubleBarrier {
    /// A member of the barrier at this path for `member_qty` members, with the default
    /// [`LockOptions`](crate::locks::LockOptions). Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`with_options`](Self::with_options).
    pub fn new(client: &Client, path: &str, member_qty: usize) -> Result<Self, Error> {
        Self::with_options(client, path, member_qty, LockOptions::default())
    }

    /// A member of the barrier at this path. Sends nothing. It uses these options: the default data, the ACL provider,
    /// and the mode of the parents.
    ///
    /// # Errors
    ///
    /// * [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    /// * `BadArguments` for a number of 0 members.
    /// * `InvalidConfig` if the client's runtime has no randomness for a member id.
    pub fn with_options(
        client: &Client,
        path: &str,
        member_qty: usize,
        options: LockOptions,
    ) -> Result<Self, Error> {
        check_base_path(path)?;
        if member_qty == 0 {
            return Err(error::bad_arguments("a barrier needs at least one member"));
        }
        Ok(Self {
            client: client.clone(),
            ready_path: join(path, READY),
            path: path.into(),
            member_qty,
            options,
            default_data: OnceCell::new(),
            member_id: member::new_id(&**client.runtime())?,
            is_id_used: false,
            inside: None,
        })
    }

    /// Waits until all members have entered.
    ///
    /// Sends exists (3) with watch for `ready`, create2 (15) for the member, getChildren2 (12), and create2 for `ready` if
    /// this member completes the number; otherwise exists with watch for its own node. After each reconnect it looks again.
    /// In a new session it creates another node, and after another process has deleted its node: at once, then, if the
    /// next ones are deleted, too, after a pause of 100 ms to 5 s.
    ///
    /// # Errors
    ///
    /// `BadArguments` if this object is inside already; `Closed` when the client has ended; `NoAuth`, and other errors of
    /// requests that a repetition does not mend. After an error, the node of the member is deleted.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node of the member is deleted in the background. The others may have counted it.
    ///
    /// Source: `DistributedDoubleBarrier.enter`. Not mirrored: C13, C14, C16, C18, C19, C20, C40 in `docs/CURATOR.md`.
    pub async fn enter(&mut self) -> Result<(), Error> {
        self.enter_within(None).await.map(drop)
    }

    /// As [`enter`](Self::enter), but returns false when not all members have entered within `wait`: the node of the
    /// member is then deleted. If the barrier opens before that, it returns true all the same.
    ///
    /// The timeout bounds the whole call, also without a connection; the steps in progress at the deadline may take one
    /// second more, all together.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    ///
    /// # Cancel safety
    ///
    /// As [`enter`](Self::enter).
    ///
    /// Source: `DistributedDoubleBarrier.enter(long, TimeUnit)`.
    pub async fn enter_timeout(&mut self, wait: Duration) -> Result<bool, Error> {
        self.enter_within(Some(wait)).await
    }

    /// The id of this member: the name of its node. Each round has another one.
    #[must_use]
    pub fn member_id(&self) -> &str {
        &self.member_id
    }

    /// Whether this member has entered, and not left.
    #[must_use]
    pub const fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// The path of the barrier.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    async fn enter_within(&mut self, wait: Option<Duration>) -> Result<bool, Error> {
        if self.inside.is_some() {
            return Err(error::bad_arguments("this member is inside the barrier already"));
        }
        let client = self.client.clone();
        let deadline = Deadline::after(&client, wait);
        let data = default_data(&self.default_data, &client, &self.options).await;
        // Dropped with this future, which deletes the node.
        let mut member = None;
        let mut recreate = RecreatePause::default();
        loop {
            let mut changes = client.state();
            let look = self.look(&mut member, &mut recreate, &data);
            let Some(look) = in_time(deadline.bound(look).await)? else { return Ok(false) };
            let Look::Closed { mut ready, mut own } = look else { break };
            if deadline.has_passed() {
                drop((ready, own));
                return self.give_up(member, &deadline).await;
            }
            let mut event = None;
            let opened = async { event = ready.next().await };
            let woken = select(opened, select(own.next(), changes.next()));
            deadline.wait_for(woken).await;
            #[cfg(docent_sim)]
            planted::delay("double-passed-late", &client, 9).await;
            // The watch was set, or had not fired, when the member had its node: `ready` is newer.
            if event.is_some_and(|event| event.event_type == EventType::NodeCreated) {
                break;
            }
        }
        if let Some(member) = &mut member {
            member.saw_ready = true;
        }
        self.inside = Some(Inside { member });
        Ok(true)
    }

    /// Looks at `ready` and counts the members. Creates the node of the member if it has none. A member that waits watches
    /// its node, too: without it, it does not count, and no other event would come.
    async fn look(
        &mut self,
        own: &mut Option<Member>,
        recreate: &mut RecreatePause,
        data: &[u8],
    ) -> Result<Look, Error> {
        let client = self.client.clone();
        loop {
            let look = || client.exists_and_watch(&self.ready_path);
            let (ready, watcher) = persistently(&client, look).await?;
            let mut watcher = removed_on_drop(&client, watcher);
            // The server is about to delete the node of a former session.
            *own = own.take().filter(Member::is_current);
            if own.is_none() {
                self.create_member(own, data).await?;
                if watcher.try_next().is_some() {
                    // It is open whether `ready` is newer than the node, and there is a watch to set.
                    continue;
                }
            }
            let Some(member) = own else { continue };
            if let Some(ready) = &ready {
                member.saw_ready = true;
                if ready.mzxid > member.czxid || planted::is("old-ready-opens") {
                    return Ok(Look::Open);
                }
            }
            let children = list(&client, &self.path).await?;
            let members = members(&children);
            if !members.contains(&member.name()) {
                self.lose_node(own, recreate).await;
                continue;
            }
            if members.len() >= self.member_qty {
                member.saw_ready = true;
                if self.open(ready, data, member).await? {
                    return Ok(Look::Open);
                }
                continue;
            }
            if let Some(ready) = ready
                && self.is_of_these_members(&ready, member, &members).await?
            {
                return Ok(Look::Open);
            }
            let watch = || client.exists_and_watch(member.path());
            let (found, own_watcher) = persistently(&client, watch).await?;
            let own_watcher = removed_on_drop(&client, own_watcher);
            if found.is_some_and(|stat| stat.czxid == member.czxid) {
                return Ok(Look::Closed { ready: watcher, own: own_watcher });
            }
            self.lose_node(own, recreate).await;
        }
    }

    /// Another process has deleted the node of the member, which needs another one.
    async fn lose_node(&self, own: &mut Option<Member>, recreate: &mut RecreatePause) {
        debug!(path = %self.path, id = self.member_id, "member node missing; creating another one");
        *own = None;
        recreate.pause(&self.client).await;
    }

    async fn create_member(&mut self, own: &mut Option<Member>, data: &[u8]) -> Result<(), Error> {
        while own.is_none() {
            if self.is_id_used {
                // A late delete of the node of the last round cannot hit this one.
                self.member_id = member::new_id(&**self.client.runtime())?;
            }
            self.is_id_used = true;
            let path = join(&self.path, &self.member_id);
            *own = Member::create(&self.client, path, data, &self.options).await?;
        }
        Ok(())
    }

    /// Whether a member that is older than `ready` is still there: then this one comes late, and passes. Otherwise
    /// `ready` was left behind by a former round. Sends exists (3) for each member until one is older.
    ///
    /// Not mirrored: in Curator, every later round passes at once (C18).
    async fn is_of_these_members(
        &self,
        ready: &Stat,
        own: &Member,
        members: &[&str],
    ) -> Result<bool, Error> {
        for name in members.iter().filter(|name| **name != own.name()) {
            let path = join(&self.path, name);
            let stat = persistently(&self.client, || self.client.exists(&path)).await?;
            if stat.is_some_and(|stat| stat.czxid < ready.mzxid) {
                return Ok(true);
            }
        }
        debug!(
            path = self.ready_path,
            "the node of a former round; waiting for this one's members"
        );
        Ok(false)
    }

    /// Creates `ready`, or writes the one of a former round, which wakes the members that wait. After either, `ready`
    /// is newer than each of them. False without a definite reply, or if `ready` is deleted meanwhile: what was counted may
    /// be over, so that the member looks again.
    ///
    /// Not in another session than that of the member: its node ends with its session.
    async fn open(
        &self,
        left_behind: Option<Stat>,
        data: &[u8],
        own: &Member,
    ) -> Result<bool, Error> {
        let mut is_first = true;
        let once = || std::mem::take(&mut is_first) && own.is_current();
        let path = &self.ready_path;
        let (written, others_faster) = match left_behind {
            Some(ready) => {
                let write = || self.client.set_data(path, data, Some(ready.version));
                let written = persistently_while(&self.client, once, write).await;
                (written.map(|written| written.map(drop)), ErrorKind::BadVersion)
            }
            None => {
                let (mode, acl) = (CreateMode::Persistent, self.options.parents().acls.of(path));
                let write = || create(&self.client, path, data, mode, acl);
                let written = persistently_while(&self.client, once, write).await;
                (written.map(|written| written.map(drop)), ErrorKind::NodeExists)
            }
        };
        match written {
            Some(Ok(())) => Ok(true),
            Some(Err(error)) if error.kind() == others_faster => Ok(true),
            Some(Err(error)) if error.kind() != ErrorKind::NoNode => Err(error),
            _ => Ok(false),
        }
    }

    /// Deletes the node of a member whose time is up. If the barrier has opened before the delete, the others count on
    /// this member: it has entered, without a node.
    async fn give_up(
        &mut self,
        member: Option<Member>,
        deadline: &Deadline<'_>,
    ) -> Result<bool, Error> {
        let Some(member) = member else { return Ok(false) };
        if planted::is("double-node-left") {
            member.forget();
            return Ok(false);
        }
        let czxid = member.czxid;
        let given_up = async {
            member.delete().await?;
            persistently(&self.client, || self.client.exists(&self.ready_path)).await
        };
        let Some(ready) = in_time(deadline.bound_by_end(given_up).await)? else {
            return Ok(false);
        };
        let has_opened = ready.is_some_and(|ready| ready.mzxid > czxid);
        if has_opened {
            self.inside = Some(Inside { member: None });
        }
        Ok(has_opened)
    }
}

impl fmt::Debug for DistributedDoubleBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedDoubleBarrier")
            .field("path", &self.path)
            .field("member_qty", &self.member_qty)
            .field("is_inside", &self.is_inside())
            .finish_non_exhaustive()
    }
}
