//! A mutex whose holds are proven not to overlap.
//!
//! The holds of Curator's locks end when the holder learns of the end of its session, which may be after a rival was
//! granted the lock. Here a rival waits for the holder instead, by a record of the last holder. The proof needs clocks
//! whose rates differ by 1 % at most, and nothing else: no bound on delays, pauses, elections or ticks.
//!
//! * A **holder** names itself in the record by a write that is applied only while its node exists. It holds the lock for
//!   a time `T`, which is in the record, from the send time `b` of the last such write: until `b + T`. So its node, if it
//!   is gone, was deleted after `b`.
//! * A **rival** whose record names a holder waits until the node of the holder is gone, then for `T`, and then replaces
//!   the record at the version that it has read. So it holds the lock after `b + T`.
//! * A **release** deletes the node and frees the record at once. The next holder does not wait.
//!
//! Which of several rivals takes over is decided by the version of the record. The queue of lock nodes only decides their
//! order, so nothing that happens to it can grant the lock twice. The record is the parent of the lock nodes: it
//! cannot be deleted before the node of the holder.
//!
//! | module | contents |
//! |---|---|
//! | `record` | the record, and its format |
//! | `claim` | the time of a hold, and the writes that begin, renew and end it |
//! | `contenders` | the queue, and nodes of other recipes |
//! | `take` | taking the lock over |
//! | `renewal` | the task that renews the claim of a hold |
//! | `release` | releasing the lock |

mod claim;
mod contenders;
mod record;
mod release;
mod renewal;
mod take;

use std::{fmt, sync::Arc, time::Duration};

use docent_protocol::CreateMode;
use docent_session::{Client, CreateOptions, Error, ErrorKind, retry::RetryLoop, runtime::Clock};

use self::{
    claim::{StrictClaim, waited},
    contenders::{Contenders, STRICT_LOCK_NAME},
    record::Record,
    take::{LostHolder, Takeover},
};
use super::{
    InterProcessLock, LockFuture, LockGuard, LockOptions,
    hold::Hold,
    lock_internals::{LockInternals, is_node_missing},
    owners::Owners,
};
use crate::{
    deadline::{Deadline, Ended},
    error,
    parents::{LastNode, create_parents},
};

/// A mutex whose hold is proven to end before the next one begins, also when sessions are killed, members are cut off
/// from each other, and processes stall.
///
/// Its guard is that of the other locks, with one difference: [`proven_until`](LockGuard::proven_until) is the end of the
/// hold, and is renewed while there is a connection to a majority. [`is_held`](LockGuard::is_held) and
/// [`lost`](LockGuard::lost) end with it. A program that has stopped its work by `proven_until` overlaps with no other
/// holder.
///
/// A hold that was lost without a release costs time: the next holder waits for one session timeout and 1 % of the lost
/// session, from when it sees that the lock node is gone. A lock that was released, or whose guard was dropped while
/// there was a connection, is acquired without a wait. A shorter session timeout shortens the wait.
///
/// Curator has no equivalent.
///
/// # Rules for its users
///
/// * All contenders use `StrictMutex` at this path. Curator's locks keep none of its rules: their holders do not wait. A
///   strict mutex does not grant the lock when it finds a node of another recipe below its path, or data that are no
///   record in it, and fails with [`ForeignNode`](ErrorKind::ForeignNode). The mutexes of Curator and docent, at the path
///   of a strict one, queue behind its nodes, and make its next acquires fail.
/// * The path belongs to it alone. The node at the path holds the record of the last holder, as text, and stays for ever.
///   Delete it only when no client uses the lock: without it, the next holder does not know that there was one.
/// * The work ends by `proven_until`, not after it: check the time after each blocking step, and leave room for the
///   longest one. A request sent before may be delayed and arrive later: [`guarded`](LockGuard::guarded) writes and the
///   [`fencing_token`](LockGuard::fencing_token) protect against that, as with every lock.
/// * Clocks run at rates that differ by less than 1 %, and count the time of a suspension, as [`Client::now`] does. A
///   virtual machine that is frozen and resumed has no such clock.
/// * The client connects to no read-only server (the default).
///
/// # Backups
///
/// A snapshot of the servers keeps their zxids, and a lock restored with it goes on. But its record, and the fencing tokens,
/// are those of the time of the snapshot: holders since then are unknown, and their tokens are granted again. So stop all
/// clients of the lock before a restore, and start them one session timeout after it at the earliest; a resource that
/// compares tokens has to forget those it has seen.
///
/// A tool that copies nodes one by one, into another ensemble or an empty one, copies the token of the record, but not the
/// zxid it was compared with. Exclude the paths of strict mutexes from such a copy. A copied record with a token that the
/// new ensemble has not reached makes each acquire fail with [`ForeignRecord`](ErrorKind::ForeignRecord): delete the node
/// of the lock when no client uses it. A copied record that names a holder costs the first acquire one wait.
///
/// It is not re-entrant. Clones are the same lock object. One client serves any number of locks.
///
/// # Requests
///
/// A free lock is acquired by four requests, one after the other: create2 (15) of an ephemeral sequential node,
/// getChildren2 (12), getData (4) of the record, and a multi (14) that checks the node and writes the record. A hold is
/// renewed every third of the session timeout by a multi of two checks, which changes no node and wakes no watch. The
/// release is a multi that deletes the node and writes the record.
///
/// # Example
///
/// ```
/// use docent::{Client, StrictMutex};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = Client::connect(&server.connect_string()).await?;
/// # async fn print_a_page() {}
/// let mutex = StrictMutex::new(&client, "/locks/printer")?;
/// let guard = mutex.acquire().await?;
/// tokio::select! {
///     () = print_a_page() => {}
///     () = guard.lost() => println!("not renewed in time: stopped before another client prints"),
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StrictMutex(Arc<Inner>);

struct Inner {
    internals: LockInternals,
    owners: Owners,
    lost: LostHolder,
}

impl StrictMutex {
    /// A lock at this path, with the default [`LockOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath) for an invalid path, and for `/`.
    /// [`BadArguments`](crate::ErrorKind::BadArguments) for a client that may connect to read-only servers
    /// ([`Config::with_read_only`](docent_session::Config::with_read_only)): they show writes that were never committed.
    pub fn new(client: &Client, path: &str) -> Result<Self, Error> {
        Self::with_options(client, path, LockOptions::default())
    }

    /// A lock at this path. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_options(client: &Client, path: &str, options: LockOptions) -> Result<Self, Error> {
        // A server without a majority resumes sessions (before 3.7), with everything in its log. A record or deletion
        // that the majority never accepted must not begin a hold or the wait for its end.
        if client.config().read_only() {
            return Err(error::bad_arguments(
                "a strict mutex needs a client that connects to no read-only server, which may show writes that were \
                 never committed: use another client, without Config::with_read_only",
            ));
        }
        let internals = LockInternals::new(client, path, STRICT_LOCK_NAME, 1, options)?;
        let internals = internals.without_base_path();
        Ok(Self(Arc::new(Inner {
            internals,
            owners: Owners::default(),
            lost: LostHolder::default(),
        })))
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// * [`ForeignNode`](crate::ErrorKind::ForeignNode) when the path has nodes or data of another recipe.
    /// * [`ForeignRecord`](crate::ErrorKind::ForeignRecord) when the record was copied from another ensemble.
    /// * [`BadReply`](crate::ErrorKind::BadReply) when the record is damaged, or of a later version of docent.
    /// * `ConnectionLoss` or `SessionExpired`, when the connection or session is lost for longer than the retry policy
    ///   allows; `NoNode` when the own node is deleted more often than it allows.
    /// * `NoAuth`, `Closed`, [`SequenceExhausted`](crate::ErrorKind::SequenceExhausted).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue, and releases the lock if it was just granted, in the background: no node is
    /// left behind while the client lives.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        let deadline = Deadline::after(self.0.internals.client(), None);
        self.attempt(&deadline).await.map_err(Ended::into_error)
    }

    /// Waits for the lock, and returns `None` when it was not acquired within `wait`.
    ///
    /// `None` means that another client or call is ahead in the queue, or that the claim of a lost holder is not over. A
    /// zero timeout still acquires a free lock that the last holder has released. The timeout bounds the whole call,
    /// also the wait for a lost holder; only a step in progress at the deadline may take one second more.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Unanswered`](crate::ErrorKind::Unanswered) when no reply has shown within
    /// `wait` whether the lock is free.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        let deadline = Deadline::after(self.0.internals.client(), Some(wait));
        deadline.answered(self.path(), self.attempt(&deadline).await).await
    }

    /// Whether the lock is held through this object.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.0.owners.any_held()
    }

    /// The paths of the lock nodes of the holder and all waiters, in the order of the queue. Sends getChildren2 (12).
    ///
    /// # Errors
    ///
    /// Those of the session; a missing path has no participants.
    pub async fn participants(&self) -> Result<Vec<String>, Error> {
        self.0.internals.participants(&Contenders::default()).await
    }

    /// How long an acquire has to wait for the claim of a holder whose node is gone without a release; `None` if there is
    /// no such holder. It counts from when the acquire sees that, so a process that only polls never gets the lock. Sends
    /// getChildren2 (12) and getData (4).
    ///
    /// # Errors
    ///
    /// Those of the session, and those of a node that is no record of a strict mutex, as [`acquire`](Self::acquire);
    /// `NoNode` before the first hold.
    pub async fn lost_claim(&self) -> Result<Option<Duration>, Error> {
        let (client, path) = (self.0.internals.client(), self.path());
        let (children, node) = (client.get_children_with_stat(path), client.get_data(path));
        let (children, _) = children.await?;
        let holder = Record::read(&node.await?, path)?.holder;
        let lost = holder.filter(|holder| !children.contains(&holder.node));
        Ok(lost.map(|holder| waited(holder.claim)))
    }

    /// The path of the lock, including its namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.internals.base_path()
    }

    async fn attempt(&self, deadline: &Deadline<'_>) -> Result<LockGuard, Ended> {
        let internals = &self.0.internals;
        let mut retry = RetryLoop::new(internals.client(), internals.options().retry_policy());
        let mut has_record = false;
        loop {
            match self.one_attempt(deadline).await {
                Err(Ended::Failed(error)) if is_node_missing(&error) => {
                    // The first time the lock may never have been used.
                    if has_record {
                        internals.note_loss(deadline);
                        deadline.bound_by_end(retry.pause_after_any_error(error)).await?;
                    }
                    deadline.bound(self.create_record()).await?;
                    has_record = true;
                }
                other => return other,
            }
        }
    }

    async fn one_attempt(&self, deadline: &Deadline<'_>) -> Result<LockGuard, Ended> {
        let internals = &self.0.internals;
        let (client, options) = (internals.client(), internals.options());
        let contenders = Contenders::default();
        let acquired = internals.one_attempt(&contenders, None, deadline).await?;
        let takeover = Takeover::new(client, options, self.path(), acquired, &self.0.lost);
        if let Some(name) = contenders.foreign() {
            // The error of the queue is the one that is returned.
            drop(takeover.leave(deadline).await);
            return Err(error::foreign_node(self.path(), format_args!("found {name}")).into());
        }
        let (acquired, claim) = takeover.take(deadline).await?;
        let (node, session) = (acquired.node.path.clone(), acquired.claim.clone());
        let state = Arc::clone(&acquired.state);
        let hold = Hold::new(internals.releaser(), acquired, Box::new(|_| {}));
        let hold = Arc::new(hold.bounded_by(Arc::clone(&claim) as _));
        // From here on, dropping the guard releases the lock.
        let guard = LockGuard::new(Arc::clone(&hold));
        renewal::renew_until_over(client, node, claim, session, state);
        self.0.owners.add(None, &hold);
        Ok(guard)
    }

    /// Creates the node of the record, and its parents.
    async fn create_record(&self) -> Result<(), Error> {
        let internals = &self.0.internals;
        let (client, options, path) = (internals.client(), internals.options(), self.path());
        let free = Record::free(0).to_string();
        let create = || async {
            let acl = options.parents().acls.of(path);
            let data = free.as_bytes();
            let create = || {
                client.create(path, data, CreateOptions::new(CreateMode::Persistent).with_acl(acl))
            };
            let created = match create().await {
                Err(error) if error.kind() == ErrorKind::NoNode && !error.is_missing_chroot() => {
                    create_parents(client, path, LastNode::Skip, options.parents()).await?;
                    create().await
                }
                other => other,
            };
            match created {
                // By another contender, or by a create whose reply was lost.
                Err(error) if error.kind() == ErrorKind::NodeExists => Ok(()),
                other => other.map(drop),
            }
        };
        client.retry_idempotent(options.retry_policy(), create).await
    }
}

impl InterProcessLock for StrictMutex {
    fn clock(&self) -> Clock {
        self.0.internals.client().clock().clone()
    }

    fn acquire(&self) -> LockFuture<'_, LockGuard> {
        Box::pin(self.acquire())
    }

    fn acquire_timeout(&self, wait: Duration) -> LockFuture<'_, Option<LockGuard>> {
        Box::pin(self.acquire_timeout(wait))
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.is_acquired_in_this_process()
    }
}

impl fmt::Debug for StrictMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StrictMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}
