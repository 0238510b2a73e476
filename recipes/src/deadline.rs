//! The deadline of a call.
//!
//! Not mirrored: Curator checks the time only between two steps, and a step takes as long as the retry policy
//! allows (N8 in `docs/CURATOR.md`).

use std::{
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use docent_session::{Client, Error, Instant};

use crate::{error, timer};

/// How long the steps in progress at the deadline may go on, all together.
const STEP_GRACE: Duration = Duration::from_secs(1);

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
    /// own node was deleted.
    pub(crate) fn note_answer(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// The result of a timed acquire of the lock at `path`: a timeout before any [answer](Self::note_answer) is an error.
    pub(crate) async fn answered<T>(
        &self,
        path: &str,
        acquired: Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        match acquired {
            Ok(None) if !self.is_answered.load(Ordering::Relaxed) => {
                Err(error::unanswered(self.client, path).await)
            }
            other => other,
        }
    }

    /// The remaining time; `None` for a call without a timeout.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.until.map(|until| until.duration_since(self.client.now()))
    }

    pub(crate) fn has_passed(&self) -> bool {
        self.remaining() == Some(Duration::ZERO)
    }

    /// Runs a step for at most the remaining time, but at least [`STEP_GRACE`]: so a zero timeout still acquires a
    /// free lock. In no case longer than [`bound_by_end`](Self::bound_by_end). `None` when the step took longer; it is
    /// then dropped, which starts its clean-up.
    pub(crate) async fn bound<F: Future>(&self, step: F) -> Option<F::Output> {
        match self.until {
            None => Some(step.await),
            Some(until) => {
                let now = self.client.now();
                let (left, end) =
                    (until.duration_since(now), (until + STEP_GRACE).duration_since(now));
                timer::timeout(self.client, left.max(STEP_GRACE).min(end), step).await
            }
        }
    }

    /// Runs clean-up after the last step, or a pause. All of them, and all steps, share one [`STEP_GRACE`] after the
    /// deadline: each step of a slow server, and each node and lock that is given up, would delay the call once more.
    pub(crate) async fn bound_by_end<F: Future>(&self, step: F) -> Option<F::Output> {
        match self.until {
            None => Some(step.await),
            Some(until) => {
                let left = (until + STEP_GRACE).duration_since(self.client.now());
                timer::timeout(self.client, left, step).await
            }
        }
    }

    /// Waits for an event until the deadline.
    pub(crate) async fn wait_for(&self, event: impl Future) {
        match self.remaining() {
            None => {
                event.await;
            }
            Some(left) => {
                timer::timeout(self.client, left, event).await;
            }
        }
    }
}
