//! A leadership that lasts until it is given up.

use std::{fmt, future::Future, sync::Arc};

use bytes::Bytes;
use docent_session::{Client, Error, ErrorKind, Events};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    leadership::Leadership,
    options::{CloseMode, LeaderOptions},
    participant::{Participant, participants},
    state::{End, LOCK_NAME, Participation, Status},
};
use crate::{
    base_path::check_base_path,
    namespace::Namespace,
    node_task::{NodeTask, closed_in_time},
    planted,
};

/// A participant of an election, which leads from its turn on until it is closed.
///
/// Each participant has a node below the latch path; the one whose node is first leads. [`start`](Self::start) joins the
/// queue in a task of the client's runtime. That task keeps the place in the queue over reconnects, joins again at the
/// end of the queue when the node or the session is lost, and so leads again later. Only [`close`](Self::close) leaves
/// the election, and dropping the last clone, which closes it in the background.
///
/// [`leadership`](Self::leadership) waits until this participant leads and returns the [`Leadership`], which reports its
/// end. [`changes`](Self::changes) is the sequence of all leaderships.
///
/// Clients of Curator's `LeaderLatch` and of this one can take part in the same election.
///
/// # Example
///
/// ```
/// use docent::LeaderLatch;
///
/// # async fn work() -> std::io::Result<()> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent::Client::connect(&server.connect_string()).await?;
/// let latch = LeaderLatch::start(&client, "/election", "host-7")?;
/// let leadership = latch.leadership().await?;
/// println!("leading with token {}", leadership.fencing_token().await?);
/// let stop = leadership.cancellation_token();
/// if let Some(result) = stop.run_until_cancelled(work()).await {
///     result?;
/// }
/// latch.close().await?;
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors that last
///
/// A lost connection or session is no error: the task repeats its requests with pauses, and the place is kept while the
/// session lives. An error that no retry mends, such as `NoAuth` for the create, ends the participation:
/// [`leadership`](Self::leadership) returns it, and so does [`changes`](Self::changes).
///
/// Source: `LeaderLatch`. The module `participation` of this crate lists the steps, their frames, and the differences.
#[derive(Clone)]
pub struct LeaderLatch {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    /// Includes the namespace.
    path: String,
    id: String,
    options: LeaderOptions,
    status: Arc<watch::Sender<Status>>,
    closing: CancellationToken,
}

impl LeaderLatch {
    /// Joins the election at `path` under the name `id`, with the default [`LeaderOptions`]. See
    /// [`start_with`](Self::start_with).
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    pub fn start(client: &Client, path: &str, id: &str) -> Result<Self, Error> {
        Self::start_with(client, path, id, LeaderOptions::default())
    }

    /// Joins the election at `path` under the name `id`, which is the data of the node; several participants may have the
    /// same id. Returns at once: the task waits for a connection, creates the parents if they are missing, and
    /// joins the queue.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath). All later errors are returned by
    /// [`leadership`](Self::leadership).
    ///
    /// Source: the constructor, `start`.
    pub fn start_with(
        client: &Client,
        path: &str,
        id: &str,
        options: impl Into<LeaderOptions>,
    ) -> Result<Self, Error> {
        check_base_path(path)?;
        let options = options.into();
        let namespace = Namespace::new(options.lock.namespace.as_deref())?;
        let path = namespace.fix_for_namespace(path);
        let status = Arc::new(watch::Sender::new(Status::default()));
        let task = NodeTask::new(client, &options.lock);
        let closing = task.closing.clone();
        let participation = Participation {
            task,
            path: path.clone(),
            namespace,
            id: Bytes::copy_from_slice(id.as_bytes()),
            options: options.clone(),
            status: Arc::clone(&status),
        };
        // Made here: a task that is dropped with its runtime may never have been polled.
        let abandoned = Abandoned(Arc::clone(&status));
        client.runtime().spawn(Box::pin(async move {
            participation.run().await;
            drop(abandoned);
        }));
        let (client, id) = (client.clone(), id.to_owned());
        let inner = Inner { client, path, id, options, status, closing };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Waits until this participant leads. If it leads already, returns the current leadership. It is held when this
    /// returns; ask it, not the latch, whether it still is.
    ///
    /// # Errors
    ///
    /// The error that has ended the participation, and [`Closed`](crate::ErrorKind::Closed) when the latch or the client
    /// is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the place in the queue stays.
    ///
    /// Source: `await`, which returns nothing.
    pub async fn leadership(&self) -> Result<Leadership, Error> {
        let mut status = self.inner.status.subscribe();
        loop {
            {
                let status = status.borrow_and_update();
                match &status.end {
                    Some(End::Failed { error, .. }) => return Err(error.clone()),
                    Some(End::Closed { .. }) => return Err(self.closed()),
                    None => {}
                }
                if let Some(leadership) = held(&status) {
                    return Ok(leadership);
                }
            }
            if status.changed().await.is_err() {
                return Err(self.closed());
            }
        }
    }

    /// The current leadership; `None` if this participant does not lead. Sends nothing.
    ///
    /// Source: `hasLeadership`.
    #[must_use]
    pub fn current_leadership(&self) -> Option<Leadership> {
        held(&self.inner.status.borrow())
    }

    /// The beginnings and ends of this participant's leaderships, from the current one on:
    /// [`Leader`](LeadershipChange::Leader) and [`NotLeader`](LeadershipChange::NotLeader) alternate. They end with the
    /// participation: the latch or the client was closed, or has [failed](LeadershipChange::Failed). Any number of
    /// listeners can have their own.
    ///
    /// No number of changes is kept. A slow listener holds up nothing, and misses leaderships that have ended since; the
    /// [`epoch`](Leadership::epoch) of the next one shows how many.
    ///
    /// Source: `addListener`. Curator calls a `LeaderLatchListener` under the latch's monitor (L10).
    #[must_use]
    pub fn changes(&self) -> Events<LeadershipChange> {
        let status = self.inner.status.subscribe();
        let changes = Changes { status, leading: None, over: false };
        Events::unfold(changes, |mut changes| async move { Some((changes.next().await?, changes)) })
    }

    /// The participants, in the order of the queue; the first leads. Sends getChildren2 (12), and getData (4) for each.
    /// What the servers say can differ from [`current_leadership`](Self::current_leadership), which this process knows.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries. A missing path is no error: there are no participants.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `getParticipants`.
    pub async fn participants(&self) -> Result<Vec<Participant>, Error> {
        self.queue(false).await
    }

    /// The first participant in the queue; `None` if there is none. Sends getChildren2 (12) and getData (4).
    ///
    /// # Errors
    ///
    /// As [`participants`](Self::participants).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `getLeader`, which returns a participant with an empty id if there is none.
    pub async fn leader(&self) -> Result<Option<Participant>, Error> {
        Ok(self.queue(true).await?.pop())
    }

    async fn queue(&self, only_first: bool) -> Result<Vec<Participant>, Error> {
        let Inner { client, path, options, .. } = &*self.inner;
        participants(client, &*options.lock.retry_policy, path, LOCK_NAME, only_first).await
    }

    /// The id of this participant.
    ///
    /// Source: `getId`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// The path of this participant's node; `None` while it has none.
    ///
    /// Source: `getOurPath`.
    #[must_use]
    pub fn our_path(&self) -> Option<String> {
        let status = self.inner.status.borrow();
        if planted::is("path-of-node-ahead") && status.node_ahead.is_some() {
            return status.node_ahead.clone();
        }
        status.path.clone()
    }

    /// The path of the node whose deletion this participant waits for: that of the participant before it in the queue.
    /// `None` while it leads, or has no place yet.
    #[must_use]
    pub fn node_ahead(&self) -> Option<String> {
        self.inner.status.borrow().node_ahead.clone()
    }

    /// The path of the node that last led; `None` if this participant never led. It says nothing about now.
    ///
    /// Source: `getLastPathIsLeader`.
    #[must_use]
    pub fn last_path_is_leader(&self) -> Option<String> {
        self.inner.status.borrow().last_path_is_leader.clone()
    }

    /// Leaves the election, in the close mode of the options. See [`close_with`](Self::close_with).
    ///
    /// # Errors
    ///
    /// As [`close_with`](Self::close_with).
    ///
    /// # Cancel safety
    ///
    /// As [`close_with`](Self::close_with).
    pub fn close(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.close_with(self.inner.options.close_mode)
    }

    /// Leaves the election and waits until the node is deleted. The leadership ends in the call itself, before the
    /// delete is sent; then nothing is sent but delete (2) and, for a waiter, checkWatches (17). It waits for no
    /// listener and no holder of the leadership. A second call waits for the same end.
    ///
    /// # Errors
    ///
    /// When the node could not be deleted within the retries, or within the connection timeout
    /// ([`Config::with_connection_timeout`](docent_session::Config::with_connection_timeout)): the background then
    /// repeats the delete until it succeeds or the client ends. Until then, there is no leader. Also when the connection
    /// was lost while the node was created: the background then searches for it.
    ///
    /// # Cancel safety
    ///
    /// The latch is closed even if the future is dropped or never polled.
    ///
    /// Source: `close(CloseMode)`, which does not wait.
    pub fn close_with(
        &self,
        mode: CloseMode,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.inner.begin_close(mode);
        let (client, path) = (self.inner.client.clone(), self.inner.path.clone());
        let mut status = self.inner.status.subscribe();
        async move {
            let closed = async {
                loop {
                    if let Some(
                        End::Closed { deleted: Some(deleted), .. } | End::Failed { deleted, .. },
                    ) = &status.borrow_and_update().end
                    {
                        return deleted.clone();
                    }
                    if status.changed().await.is_err() {
                        return Ok(());
                    }
                }
            };
            closed_in_time(&client, &path, closed).await
        }
    }

    fn closed(&self) -> Error {
        Error::refused(
            ErrorKind::Closed,
            format_args!("the latch at {} is closed", self.inner.path),
        )
    }
}

/// The leadership of a status, if it is still held.
fn held(status: &Status) -> Option<Leadership> {
    status.leadership.clone().filter(Leadership::is_held)
}

impl Inner {
    /// Ends the leadership, and asks the task to leave.
    fn begin_close(&self, mode: CloseMode) {
        // From here on, no leadership is published. No listener is notified before the holders.
        let mut leadership = None;
        self.status.send_if_modified(|status| {
            status.resigns = true;
            leadership.clone_from(&status.leadership);
            false
        });
        if let Some(leadership) = leadership {
            leadership.end();
        }
        self.status.send_if_modified(|status| {
            let is_open = status.end.is_none();
            if is_open {
                let notify = mode == CloseMode::NotifyLeader;
                status.end = Some(End::Closed { notify, deleted: None });
            }
            is_open
        });
        self.closing.cancel();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.begin_close(CloseMode::Silent);
    }
}

/// The end of the task, also with its runtime: the status no longer changes, so all waits end.
struct Abandoned(Arc<watch::Sender<Status>>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.send_if_modified(|status| match &mut status.end {
            Some(End::Closed { deleted, .. }) if deleted.is_none() => {
                *deleted = Some(Ok(()));
                true
            }
            Some(_) => false,
            None => {
                status.end = Some(End::Closed { notify: true, deleted: Some(Ok(())) });
                true
            }
        });
    }
}

impl fmt::Debug for LeaderLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderLatch")
            .field("path", &self.inner.path)
            .field("id", &self.inner.id)
            .field("leadership", &self.current_leadership())
            .finish_non_exhaustive()
    }
}

/// A change of a participant's leadership.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LeadershipChange {
    /// This participant leads.
    Leader(Leadership),
    /// It no longer leads. Follows each [`Leader`](Self::Leader), unless the latch was closed
    /// [silently](CloseMode::Silent).
    NotLeader,
    /// The participation has ended with an error.
    Failed(Error),
}

/// Reads the changes of a participant's leadership.
struct Changes {
    status: watch::Receiver<Status>,
    /// The leadership last returned, unless its end was returned too.
    leading: Option<Leadership>,
    over: bool,
}

impl Changes {
    async fn next(&mut self) -> Option<LeadershipChange> {
        loop {
            if self.over {
                return None;
            }
            if let Some(change) = self.look() {
                return Some(change);
            }
            if !self.over && self.status.changed().await.is_err() {
                self.over = true;
            }
        }
    }

    fn look(&mut self) -> Option<LeadershipChange> {
        let status = self.status.borrow_and_update();
        let current = match status.end {
            None => status.leadership.clone(),
            Some(_) => None,
        };
        let is_same = |one: &Leadership| {
            current.as_ref().is_some_and(|current| current.epoch() == one.epoch())
        };
        if self.leading.as_ref().is_some_and(|leading| !is_same(leading)) {
            self.leading = None;
            if !matches!(status.end, Some(End::Closed { notify: false, .. })) {
                return Some(LeadershipChange::NotLeader);
            }
        }
        if let (None, Some(leadership)) = (&self.leading, current) {
            self.leading = Some(leadership.clone());
            return Some(LeadershipChange::Leader(leadership));
        }
        self.over = status.end.is_some();
        match &status.end {
            Some(End::Failed { error, .. }) => Some(LeadershipChange::Failed(error.clone())),
            _ => None,
        }
    }
}
