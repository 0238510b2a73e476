//! The pause before a lost node is created again.
//!
//! A process that deletes unknown nodes in a loop would otherwise make each loss a new node at once: a loop of writes that
//! is as fast as the network.
//!
//! A node is created again at once the first time, and then after growing pauses.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use docent_session::{
    Client,
    runtime::{Clock, Instant},
};

use crate::{deadline::Deadline, persistent_retry::pause, select::select, sync::lock, timer};

/// A node that was kept for this long was not lost in a loop: after its loss the next one is created without a pause.
const SETTLED: Duration = Duration::from_secs(5);

/// The pause after each of several losses: none after the first one, then 100 ms, doubled each time, up to 5 s.
#[derive(Debug, Default)]
pub(crate) struct RecreatePause {
    /// The losses since a node was last kept for [`SETTLED`].
    losses: u32,
    /// The end of the last pause.
    until: Instant,
}

impl RecreatePause {
    /// Counts a loss that was noticed at `now`, and returns the pause before the next create. A loss during a pause does
    /// not count: several nodes were lost at once.
    fn note_loss(&mut self, now: Instant) -> Duration {
        let left = self.left(now);
        if !left.is_zero() {
            return left;
        }
        if now.duration_since(self.until) >= SETTLED {
            self.losses = 0;
        }
        let pause = self.losses.checked_sub(1).map_or(Duration::ZERO, pause);
        self.losses = self.losses.saturating_add(1);
        self.until = now + pause;
        pause
    }

    /// Counts a loss, and waits for the pause or the end of the client.
    pub(crate) async fn pause(&mut self, client: &Client) {
        let pause = self.note_loss(client.now());
        if !pause.is_zero() {
            select(timer::sleep(client, pause), timer::ended(client)).await;
        }
    }

    /// The time until the end of the last pause.
    fn left(&self, now: Instant) -> Duration {
        self.until.duration_since(now)
    }
}

/// The pause of all contenders of one lock object.
#[derive(Debug)]
pub(crate) struct SharedRecreatePause {
    clock: Clock,
    pause: Mutex<RecreatePause>,
}

impl SharedRecreatePause {
    pub(crate) fn new(clock: &Clock) -> Arc<Self> {
        Arc::new(Self { clock: clock.clone(), pause: Mutex::default() })
    }

    /// Counts a loss. Call this once its deletion is known.
    pub(crate) fn note_loss(&self) {
        lock(&self.pause).note_loss(self.clock.now());
    }

    /// Waits for the rest of the last pause, but not beyond the deadline: also then a free lock is acquired.
    pub(crate) async fn wait(&self, client: &Client, deadline: &Deadline<'_>) {
        let left = lock(&self.pause).left(self.clock.now());
        if !left.is_zero() {
            deadline.wait_for(select(timer::sleep(client, left), timer::ended(client))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_pauses_of_a_loop_of_losses_grow_until_a_node_is_kept() {
        let mut pause = RecreatePause::default();
        let mut now = at(60_000);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let next = pause.note_loss(now);
            pauses.push(next.as_millis());
            assert_eq!(pause.left(now), next);
            now += next + Duration::from_millis(4_999);
        }
        assert_eq!(pauses, [0, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert!(!pause.note_loss(now).is_zero());
        now += pause.left(now) + SETTLED;
        assert!(pause.note_loss(now).is_zero(), "the node was kept");
    }

    #[test]
    fn nodes_that_are_lost_at_once_are_lost_in_one_loop() {
        let mut pause = RecreatePause::default();
        let now = at(60_000);
        assert!(pause.note_loss(now).is_zero());
        for _ in 0..100 {
            assert_eq!(pause.note_loss(now), Duration::from_millis(100));
        }
        assert_eq!(pause.note_loss(now + Duration::from_millis(60)), Duration::from_millis(40));
        assert_eq!(pause.note_loss(at(60_100)), Duration::from_millis(200));
    }
}
