//! The watches to be set again: the paths about which the server has refused a request, and the pause until the next.

use std::{collections::BTreeSet, mem, sync::Arc, time::Duration};

use super::rng::Rng;
use crate::time::Instant;

/// The first and the longest pause before a refused request about watches is sent again. Up to half is subtracted at
/// random: the server that refused it has many clients.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The watches to be set again.
#[derive(Debug)]
pub(super) struct Unset {
    /// Paths about which a request was refused.
    paths: BTreeSet<Arc<str>>,
    /// When requests about these paths are sent again.
    retry_at: Option<Instant>,
    /// The pause before `retry_at`.
    pause: Duration,
    rng: Rng,
    /// The time of the last input; the time of the refusals in it.
    now: Instant,
    /// The last zxid when the last connection, and its watches with it, was lost.
    since: Option<i64>,
}

impl Unset {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            paths: BTreeSet::new(),
            retry_at: None,
            pause: PAUSES.0,
            rng: Rng::new(seed),
            now: Instant::ZERO,
            since: None,
        }
    }

    #[inline]
    pub(super) const fn note_time(&mut self, now: Instant) {
        self.now = now;
    }

    pub(super) const fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    pub(super) const fn set_since(&mut self, zxid: i64) {
        self.since = Some(zxid);
    }

    /// The last zxid when the last connection was lost, if watches were lost with it and are not set again.
    pub(super) const fn take_since(&mut self) -> Option<i64> {
        self.since.take()
    }

    /// Adds a path about which a request was refused by the input of the last [`note_time`](Self::note_time).
    pub(super) fn put_off(&mut self, path: &Arc<str>) {
        self.paths.insert(Arc::clone(path));
        if self.retry_at.is_none() {
            self.retry_at = Some(self.now + self.pause - self.rng.jitter(self.pause / 2));
            self.pause = (self.pause * 2).min(PAUSES.1);
        }
    }

    /// The paths about which requests are sent again now, if the pause is over.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<BTreeSet<Arc<str>>> {
        if self.retry_at.is_none_or(|at| at > now) {
            return None;
        }
        self.retry_at = None;
        Some(mem::take(&mut self.paths))
    }

    /// A request was not refused: the next pause is a short one.
    pub(super) const fn reset_pause(&mut self) {
        self.pause = PAUSES.0;
    }

    /// Forgets all of them.
    pub(super) fn forget(&mut self) {
        self.paths.clear();
        self.retry_at = None;
        self.since = None;
        self.reset_pause();
    }
}
