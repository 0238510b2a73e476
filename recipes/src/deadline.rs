//! The deadline of a call, which ends it in each step, by `?`.
//!
//! Not mirrored: Curator checks the time only between two steps, and a step takes as long as the retry policy
//! allows (N8 in `docs/CURATOR.md`).

use std::{
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use docent_session::{Client, Error, ErrorKind, Outcome, runtime::Instant};
use tracing::debug;

use crate::{error, timer};

/// How long the steps in progress at the deadline may go on, all together.
pub(crate) const STEP_GRACE: Duration = Duration::from_secs(1);

/// Why a call ended without its result.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The deadline has passed.
    TimedOut,
    Failed(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Ended {
    /// The error of a call without a timeout, which has no deadline that passes.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::TimedOut => Error::new(ErrorKind::OperationTimeout, Outcome::NotApplied),
            Self::Failed(error) => error,
        }
    }

    /// The end of the call after the delete of its node. The first error is the one that is returned (CURATOR-41).
    pub(crate) fn after_delete(self, delete: Result<(), Self>) -> Self {
        let Err(Self::Failed(error)) = delete else { return self };
        debug!(%error, "lock node not deleted; retrying in the background");
        match self {
            Self::TimedOut => Self::Failed(error),
            failed => failed,
        }
    }
}

/// The result of a call with a timeout; `None` after its deadline.
pub(crate) fn in_time<T>(result: Result<T, Ended>) -> Result<Option<T>, Error> {
    match result {
        Ok(output) => Ok(Some(output)),
        Err(Ended::TimedOut) => Ok(None),
        Err(Ended::Failed(error)) => Err(error),
    }
}

/// When a call has to return.
#[derive(Debug)]
pub(crate) struct Deadline<'a> {
    client: &'a Client,
    /// `None` for a call without a timeout.
    until: Option<Instant>,
    /// See [`note_answer`](Self::note_answer).
    is_answered: AtomicBool,
}

impl<'a> Deadline<'a> {
    pub(crate) fn after(client: &'a Client, wait: Option<Duration>) -> Self {
        let until = wait.map(|wait| client.now() + wait);
        Self { client, until, is_answered: AtomicBool::new(false) }
    }

    /// Notes that the call knows from the servers why it does not have the lock yet: another contender is ahead, or its
    /// own node was deleted; or that it has one of several leases.
    pub(crate) fn note_answer(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// The result of a timed acquire of the lock at `path`: a timeout before any [answer](Self::note_answer) is an error.
    pub(crate) async fn answered<T>(
        &self,
        path: &str,
        acquired: Result<T, Ended>,
    ) -> Result<Option<T>, Error> {
        match in_time(acquired)? {
            None if !self.is_answered.load(Ordering::Relaxed) => {
                Err(error::unanswered(self.client, Some(path)).await)
            }
            other => Ok(other),
        }
    }

    /// The remaining time; `None` for a call without a timeout.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.until.map(|until| until.duration_since(self.client.now()))
    }

    pub(crate) fn has_passed(&self) -> bool {
        self.remaining() == Some(Duration::ZERO)
    }

    /// Ends the call if the deadline has passed.
    pub(crate) fn check(&self) -> Result<(), Ended> {
        if self.has_passed() { Err(Ended::TimedOut) } else { Ok(()) }
    }

    /// Runs a step for at most the remaining time, but at least [`STEP_GRACE`]: so a zero timeout still acquires a
    /// free lock. In no case longer than [`bound_by_end`](Self::bound_by_end). A step that takes longer is dropped, which
    /// starts its clean-up.
    pub(crate) fn bound<T, E>(
        &self,
        step: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, Ended>>
    where
        Ended: From<E>,
    {
        let least = self.until_end().map(|end| end.min(STEP_GRACE));
        self.limit(self.remaining().max(least), step)
    }

    /// Runs clean-up after the last step, or a pause. All of them, and all steps, share one [`STEP_GRACE`] after the
    /// deadline: each step of a slow server, and each node and lock that is given up, would delay the call once more.
    pub(crate) fn bound_by_end<T, E>(
        &self,
        step: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, Ended>>
    where
        Ended: From<E>,
    {
        self.limit(self.until_end(), step)
    }

    /// The time until the end of the grace.
    fn until_end(&self) -> Option<Duration> {
        self.until.map(|until| (until + STEP_GRACE).duration_since(self.client.now()))
    }

    async fn limit<T, E>(
        &self,
        limit: Option<Duration>,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Ended>
    where
        Ended: From<E>,
    {
        let output = match limit {
            None => step.await,
            Some(limit) => timer::timeout(self.client, limit, step).await.ok_or(Ended::TimedOut)?,
        };
        output.map_err(Ended::from)
    }

    /// Waits for an event until the deadline.
    pub(crate) async fn wait_for(&self, event: impl Future) {
        match self.remaining() {
            // A wait that lasts half a minute longer.
            #[cfg(docent_sim)]
            Some(left) if crate::planted::is("wait-beyond-limit") => {
                timer::timeout(self.client, left + Duration::from_secs(30), event).await;
            }
            None => {
                event.await;
            }
            Some(left) => {
                timer::timeout(self.client, left, event).await;
            }
        }
    }
}
