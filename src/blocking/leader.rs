//! The elections: [`docent::recipes::leader`](crate::recipes::leader) with methods that wait.

use std::{cell::Cell, ops::ControlFlow, pin::pin, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    Client, Transaction,
    context::Context,
    wait::{check, wait, wait_until},
};
use crate::{CloseMode, Error, Instant, LeaderOptions, Participant, Term};

/// A participant of an election, which leads from its turn on until it is closed.
///
/// As [`LeaderLatch`](crate::LeaderLatch).
#[derive(Clone)]
pub struct LeaderLatch {
    inner: crate::LeaderLatch,
    context: Context,
}

impl LeaderLatch {
    forward! { LeaderLatch;
        /// Joins the election at `path` under the name `id`, with the default options. Returns at once.
        new fn start(client, path: &str, id: &str);
        /// As [`start`](Self::start), with options.
        new fn start_with(client, path: &str, id: &str, options: impl Into<LeaderOptions>);
        /// The participants, in the order of the queue; the first leads.
        async fn participants(&self) -> Result<Vec<Participant>, Error>;
        /// The first participant in the queue; `None` if there is none.
        async fn leader(&self) -> Result<Option<Participant>, Error>;
        /// Leaves the election, in the close mode of the options, and waits until the node is deleted.
        async fn close(&self) -> Result<(), Error>;
        /// As [`close`](Self::close), in this close mode.
        async fn close_with(&self, mode: CloseMode) -> Result<(), Error>;
        /// The id of this participant.
        #[must_use]
        fn id(&self) -> &str;
        /// The path of this participant's node; `None` while it has none.
        #[must_use]
        fn our_path(&self) -> Option<String>;
        /// The path of the node whose deletion this participant waits for.
        #[must_use]
        fn node_ahead(&self) -> Option<String>;
        /// The path of the node that last led; `None` if this participant never led.
        #[must_use]
        fn last_path_is_leader(&self) -> Option<String>;
    }

    /// Waits until this participant leads.
    ///
    /// Blocking [`LeaderLatch::leadership`](crate::LeaderLatch::leadership).
    pub fn leadership(&self) -> Result<Leadership, Error> {
        check()?;
        wait(self.inner.leadership()).map(|inner| Leadership::new(inner, &self.context))
    }

    /// As [`leadership`](Self::leadership), for at most `wait`; `None` if this participant does not lead by then. Its
    /// place in the queue stays.
    pub fn leadership_timeout(&self, wait: Duration) -> Result<Option<Leadership>, Error> {
        check()?;
        let leadership = self.context.wait_timeout(wait, self.inner.leadership()).transpose()?;
        Ok(leadership.map(|inner| Leadership::new(inner, &self.context)))
    }

    /// The current leadership; `None` if this participant does not lead. Sends nothing.
    ///
    /// As [`LeaderLatch::current_leadership`](crate::LeaderLatch::current_leadership).
    #[must_use]
    pub fn current_leadership(&self) -> Option<Leadership> {
        Some(Leadership::new(self.inner.current_leadership()?, &self.context))
    }

    /// The beginnings and ends of this participant's leaderships, from the current one on: an iterator that waits.
    ///
    /// As [`LeaderLatch::changes`](crate::LeaderLatch::changes).
    #[must_use]
    pub fn changes(&self) -> LeadershipChanges {
        LeadershipChanges { inner: self.inner.changes(), context: self.context.clone() }
    }
}

/// A participant of an election that leads for one term at a time: while a closure runs.
///
/// As [`LeaderSelector`](crate::LeaderSelector).
pub struct LeaderSelector {
    inner: crate::LeaderSelector,
    context: Context,
}

impl LeaderSelector {
    forward! { LeaderSelector;
        /// A participant of the election at `path` under the name `id`, with the default options. It joins with
        /// [`run`](Self::run).
        new fn new(client, path: &str, id: &str);
        /// As [`new`](Self::new), with options.
        new fn with_options(client, path: &str, id: &str, options: impl Into<LeaderOptions>);
        /// The participants, in the order of the queue; the first leads.
        async fn participants(&self) -> Result<Vec<Participant>, Error>;
        /// The first participant in the queue; `None` if there is none.
        async fn leader(&self) -> Result<Option<Participant>, Error>;
        /// The id of this participant.
        #[must_use]
        fn id(&self) -> &str;
    }

    /// Joins the queue, waits, and leads for one term: until `term` returns, on this thread. Then the node is deleted.
    ///
    /// A closure cannot be interrupted: it has to watch its leadership, by [`is_held`](Leadership::is_held) or by its
    /// [token](Leadership::cancellation_token), and return when that has ended. The result is [`Term::Completed`] with
    /// its value also then.
    ///
    /// Blocking [`LeaderSelector::run`](crate::LeaderSelector::run), which drops a term whose leadership has ended.
    pub fn run<R>(&self, term: impl FnOnce(Leadership) -> R) -> Result<Term<R>, Error> {
        check()?;
        wait(self.inner.run(|inner| async { term(Leadership::new(inner, &self.context)) }))
    }

    /// As [`run`](Self::run), but waits for the leadership for at most `wait`; `None` if the term has not begun by then.
    /// A term that has begun has no limit.
    pub fn run_timeout<R>(
        &self,
        wait: Duration,
        term: impl FnOnce(Leadership) -> R,
    ) -> Result<Option<Term<R>>, Error> {
        check()?;
        let begun = Cell::new(false);
        let term = |inner| {
            begun.set(true);
            async { term(Leadership::new(inner, &self.context)) }
        };
        let clock = self.context.clock();
        let deadline = clock.now().checked_add(wait);
        let mut remaining = || match deadline {
            Some(deadline) if !begun.get() => {
                let remaining = deadline.checked_duration_since(clock.now());
                remaining.filter(|remaining| !remaining.is_zero())
            }
            _ => Some(Duration::MAX),
        };
        wait_until(pin!(self.inner.run(term)), &mut remaining).transpose()
    }

    /// Leads for one term after the other, each at the end of the queue, until `term` breaks.
    ///
    /// Blocking [`LeaderSelector::run_requeued`](crate::LeaderSelector::run_requeued).
    pub fn run_requeued<T>(
        &self,
        mut term: impl FnMut(Leadership) -> ControlFlow<T>,
    ) -> Result<T, Error> {
        loop {
            if let Term::Completed(ControlFlow::Break(value)) = self.run(&mut term)? {
                return Ok(value);
            }
        }
    }

    /// The leadership of the running term; `None` if there is none. Sends nothing.
    ///
    /// As [`LeaderSelector::current_leadership`](crate::LeaderSelector::current_leadership).
    #[must_use]
    pub fn current_leadership(&self) -> Option<Leadership> {
        Some(Leadership::new(self.inner.current_leadership()?, &self.context))
    }
}

/// A leadership: a time in which this participant leads. Clones are the same leadership. Dropping it ends nothing.
///
/// As [`Leadership`](crate::Leadership).
#[derive(Clone)]
pub struct Leadership {
    inner: crate::Leadership,
    context: Context,
}

impl Leadership {
    fn new(inner: crate::Leadership, context: &Context) -> Self {
        Self { inner, context: context.clone() }
    }

    forward! { Leadership;
        /// A number that is greater for every later leader.
        async fn fencing_token(&self) -> Result<i64, Error>;
        /// Whether this participant still leads, as far as this process can know. Once false, it stays false.
        #[must_use]
        fn is_held(&self) -> bool;
        /// A token that is cancelled when the leadership ends: ask it with `is_cancelled`.
        #[must_use]
        fn cancellation_token(&self) -> CancellationToken;
        /// The time until which no other client can lead.
        #[must_use]
        fn proven_until(&self) -> Instant;
        /// The path of the node on which the leadership rests.
        #[must_use]
        fn path(&self) -> &str;
        /// The id of the session that leads.
        #[must_use]
        fn session_id(&self) -> i64;
        /// The number of this leadership among those of its latch or selector; the first is 1.
        #[must_use]
        fn epoch(&self) -> u64;
    }

    /// Waits until the leadership ends.
    ///
    /// Blocking [`Leadership::lost`](crate::Leadership::lost).
    pub fn lost(&self) -> Result<(), Error> {
        check()?;
        wait(self.inner.lost());
        Ok(())
    }

    /// As [`lost`](Self::lost), for at most `wait`; false if this participant still leads then.
    pub fn lost_timeout(&self, wait: Duration) -> Result<bool, Error> {
        check()?;
        Ok(self.context.wait_timeout(wait, self.inner.lost()).is_some())
    }

    /// Begins a transaction that the server applies only while this participant leads.
    ///
    /// As [`Leadership::guarded`](crate::Leadership::guarded).
    pub fn guarded(&self) -> Result<Transaction<'_>, Error> {
        Ok(Transaction { inner: self.inner.guarded()? })
    }
}

/// A beginning or an end of a leadership, or the end of a participation.
///
/// As [`LeadershipChange`](crate::LeadershipChange).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LeadershipChange {
    /// A leadership has begun.
    Leader(Leadership),
    /// The leadership has ended.
    NotLeader,
    /// The participation has ended with this error.
    Failed(Error),
}

/// The beginnings and ends of a participant's leaderships: an iterator that waits, and ends with the latch. Created by
/// [`LeaderLatch::changes`].
///
/// As [`LeadershipChanges`](crate::LeadershipChanges).
pub struct LeadershipChanges {
    inner: crate::LeadershipChanges,
    context: Context,
}

events!(LeadershipChanges, LeadershipChange);

impl LeadershipChanges {
    async fn following(&mut self) -> Option<Result<LeadershipChange, Error>> {
        loop {
            return Some(Ok(match self.inner.next().await? {
                crate::LeadershipChange::Leader(inner) => {
                    LeadershipChange::Leader(Leadership::new(inner, &self.context))
                }
                crate::LeadershipChange::NotLeader => LeadershipChange::NotLeader,
                crate::LeadershipChange::Failed(error) => LeadershipChange::Failed(error),
                // Kinds that a later version adds have no counterpart here yet.
                _ => continue,
            }));
        }
    }
}

debug_as_inner!(LeaderLatch LeaderSelector Leadership LeadershipChanges);
