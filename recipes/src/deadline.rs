//! The time that a call has.
//!
//! Not mirrored: Curator looks at the clock only between two steps, and a step takes as long as the retry
//! policy likes (N8).

use std::{future::Future, time::Duration};

use docent_session::{Client, Instant};

/// How long a step that was begun in time may take when the time is up.
const STEP_GRACE: Duration = Duration::from_secs(1);

/// Until when a call may last.
#[derive(Debug, Clone)]
pub(crate) struct Deadline<'a> {
    client: &'a Client,
    /// `None`: for ever.
    until: Option<Instant>,
}

impl<'a> Deadline<'a> {
    pub(crate) fn after(client: &'a Client, wait: Option<Duration>) -> Self {
        Self { client, until: wait.map(|wait| client.now() + wait) }
    }

    /// What is left of the time; `None` when it has no end.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.since(self.client.now()))
    }

    pub(crate) fn is_up(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    /// Lets a step take what is left of the time, and [`STEP_GRACE`] in any case: with no time at all, a free
    /// lock is still got. `None` when it took longer; it is then dropped, and cleans up.
    pub(crate) async fn bound<F: Future>(&self, step: F) -> Option<F::Output> {
        match self.left() {
            None => Some(step.await),
            Some(left) => tokio::time::timeout(left.max(STEP_GRACE), step).await.ok(),
        }
    }

    /// Waits for something, up to the end of the time.
    pub(crate) async fn wait_for(&self, event: impl Future) {
        match self.left() {
            None => {
                event.await;
            }
            Some(left) => {
                let _ = tokio::time::timeout(left, event).await;
            }
        }
    }
}
