//! A leadership that lasts as long as a future.

use std::{
    fmt,
    future::Future,
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use docent_session::{Client, Error};
use tokio_util::sync::CancellationToken;

use super::{
    leadership::Leadership,
    options::{ConnectionStateErrorPolicy, LeaderOptions},
    participant::{Participant, participants},
};
use crate::{
    locks::{InterProcessMutex, LockGuard, lock_internals::LOCK_NAME},
    persistent_retry::PersistentRetry,
    select::{Either, select},
    sync::lock,
};

/// A participant of an election that leads for one term at a time: while a future runs.
///
/// [`run`](Self::run) joins the queue, waits for its turn, and runs the future of a closure with the [`Leadership`]. When
/// the future completes, the node is deleted, and the next participant leads. When the leadership ends first, the future
/// is dropped at its next `await`. [`run_requeued`](Self::run_requeued) joins again after each term.
///
/// Waiting is not disturbed by a lost connection: the place stays while the session lives, and a new place is taken
/// after its end. Dropping the future of `run` leaves the election, and ends the term if there is one.
///
/// Clients of Curator's `LeaderSelector` and of this one can take part in the same election.
///
/// # Example
///
/// ```
/// use docent::{LeaderSelector, leader::Term};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent::Client::connect(&server.connect_string()).await?;
/// let selector = LeaderSelector::new(&client, "/election", "host-7")?;
/// let term = selector
///     .run(|leadership| async move {
///         println!("leading with token {:?}", leadership.fencing_token().await);
///         // Work here; it is dropped when the leadership is lost.
///         42
///     })
///     .await?;
/// assert!(matches!(term, Term::Completed(42)));
/// # client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// # The node is not watched
///
/// As with a lock, the deletion of the node by another client is seen only with a watch, which the first call of
/// [`Leadership::lost`] or [`Leadership::cancellation_token`] sets. Curator's selector does not watch its node either.
///
/// Source: `LeaderSelector`. The frames are those of [`InterProcessMutex`].
#[derive(Clone)]
pub struct LeaderSelector {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    mutex: InterProcessMutex,
    id: String,
    options: LeaderOptions,
    /// The number of terms that have begun.
    terms: AtomicU64,
    current: Mutex<Option<Leadership>>,
}

/// How a term has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term<T> {
    /// The future has completed with this value.
    Completed(T),
    /// The leadership ended first, and the future was dropped.
    Lost,
}

impl LeaderSelector {
    /// A participant of the election at `path` under the name `id`, with the default [`LeaderOptions`]. It joins with
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath).
    pub fn new(client: &Client, path: &str, id: &str) -> Result<Self, Error> {
        Self::with_options(client, path, id, LeaderOptions::default())
    }

    /// As [`new`](Self::new), with options. The id is the data of the node; with an empty id, it is the
    /// [default data](crate::locks::LockOptions::with_default_data).
    ///
    /// # Errors
    ///
    /// [`InvalidPath`](crate::ErrorKind::InvalidPath).
    ///
    /// Source: the constructor, `setId`.
    pub fn with_options(
        client: &Client,
        path: &str,
        id: &str,
        options: impl Into<LeaderOptions>,
    ) -> Result<Self, Error> {
        let options = options.into();
        let mut lock = options.lock.clone();
        lock.data = (!id.is_empty()).then(|| id.to_owned().into());
        lock.pipelined = false;
        // Waiting does not end with the retries of one outage (L12).
        let policy = PersistentRetry::new(lock.retry_policy, CancellationToken::new());
        lock.retry_policy = Arc::new(policy);
        let mutex = InterProcessMutex::with_options(client, path, lock)?;
        let inner = Inner {
            client: client.clone(),
            mutex,
            id: id.to_owned(),
            options,
            terms: AtomicU64::new(0),
            current: Mutex::new(None),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Joins the queue, waits, and leads for one term: until the future of `term` completes, or the leadership ends. Then
    /// the node is deleted, and this returns when that is done.
    ///
    /// The leadership has ended, and its token is cancelled, before the delete is sent. `term` runs in this future, not
    /// in a task. Several calls at once are several participants.
    ///
    /// # Errors
    ///
    /// Errors that no retry mends, such as `NoAuth` for the create, and `Closed` when the client is closed. The future
    /// of `term` was not started then. An error of the delete is not returned: the background repeats it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops that of `term`, and deletes the node in the background.
    ///
    /// Source: `start`, `takeLeadership`, `interruptLeadership`, `close`.
    pub async fn run<F, R>(&self, term: F) -> Result<Term<R::Output>, Error>
    where
        F: FnOnce(Leadership) -> R,
        R: Future,
    {
        let inner = &*self.inner;
        let running = loop {
            match inner.begin(inner.mutex.acquire().await?) {
                Ok(running) => break running,
                // The session or the connection has changed since the listing. The delete is answered before the next
                // create is sent, so that one participant never has two nodes; the background repeats a failed one.
                Err(guard) => drop(guard.release().await),
            }
        };
        let leadership = running.leadership.clone();
        let ended = running.leadership.ended();
        let result = match select(term(leadership), ended).await {
            Either::Left(value) => Term::Completed(value),
            Either::Right(()) => Term::Lost,
        };
        running.finish().await;
        Ok(result)
    }

    /// Leads for one term after the other, each at the end of the queue, until `term` breaks: with
    /// [`ControlFlow::Break`], whose value is returned. A lost term is followed by the next one, after a pause of up to 5 s
    /// if other clients delete the node again and again.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run): a final error ends the participation, and is not repeated.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    ///
    /// Source: `autoRequeue`.
    pub async fn run_requeued<F, R, T>(&self, mut term: F) -> Result<T, Error>
    where
        F: FnMut(Leadership) -> R,
        R: Future<Output = ControlFlow<T>>,
    {
        loop {
            if let Term::Completed(ControlFlow::Break(value)) = self.run(&mut term).await? {
                return Ok(value);
            }
        }
    }

    /// The leadership of the running term; `None` if there is none. Sends nothing.
    ///
    /// Source: `hasLeadership`.
    #[must_use]
    pub fn current_leadership(&self) -> Option<Leadership> {
        lock(&self.inner.current).clone().filter(Leadership::is_held)
    }

    /// The participants, in the order of the queue; the first leads. See
    /// [`LeaderLatch::participants`](super::LeaderLatch::participants).
    ///
    /// # Errors
    ///
    /// Those of the session, after retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `getParticipants`.
    pub async fn participants(&self) -> Result<Vec<Participant>, Error> {
        self.queue(false).await
    }

    /// The first participant in the queue; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Those of the session, after retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// Source: `getLeader`.
    pub async fn leader(&self) -> Result<Option<Participant>, Error> {
        Ok(self.queue(true).await?.pop())
    }

    async fn queue(&self, only_first: bool) -> Result<Vec<Participant>, Error> {
        let Inner { client, mutex, options, .. } = &*self.inner;
        let policy = &*options.lock.retry_policy;
        participants(client, policy, mutex.path(), LOCK_NAME, only_first).await
    }

    /// The id of this participant.
    ///
    /// Source: `getId`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.inner.id
    }
}

impl Inner {
    /// Returns the guard if its hold has ended already.
    fn begin(&self, guard: LockGuard) -> Result<Running<'_>, LockGuard> {
        let Some(hold) = guard.holds().first().cloned() else { return Err(guard) };
        if self.options.error_policy == ConnectionStateErrorPolicy::Standard {
            let mut connection = self.client.state();
            if !connection.get().is_some_and(docent_session::ConnectionState::is_connected) {
                return Err(guard);
            }
            hold.end_with_connection(connection);
        }
        if !hold.is_held() {
            return Err(guard);
        }
        let epoch = self.terms.fetch_add(1, Ordering::Relaxed) + 1;
        let leadership = Leadership::new(hold, epoch);
        *lock(&self.current) = Some(leadership.clone());
        Ok(Running { inner: self, leadership, guard: Some(guard) })
    }
}

/// A running term. Dropping it ends the leadership, and deletes the node in the background.
struct Running<'a> {
    inner: &'a Inner,
    leadership: Leadership,
    guard: Option<LockGuard>,
}

impl Running<'_> {
    async fn finish(mut self) {
        self.end();
        if let Some(guard) = self.guard.take() {
            // The background repeats a failed delete.
            let _ = guard.release().await;
        }
    }

    fn end(&self) {
        // Cancelled first: work under the leadership stops before another participant can lead.
        self.leadership.end();
        let mut current = lock(&self.inner.current);
        if current.as_ref().is_some_and(|one| one.epoch() == self.leadership.epoch()) {
            *current = None;
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for LeaderSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderSelector")
            .field("path", &self.inner.mutex.path())
            .field("id", &self.inner.id)
            .field("leadership", &self.current_leadership())
            .finish_non_exhaustive()
    }
}
