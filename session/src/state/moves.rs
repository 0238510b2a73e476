//! To another server by our own choice: the list has changed, or a read-only server was only good enough.
//!
//! A move loses no request: nothing more is sent, what was sent is waited for, and what waits goes out on
//! the next connection.

use std::time::Duration;

use super::{Answers, Event, Phase, Session};
use crate::{Host, time::Instant};

/// The search for a read-write server.
///
/// Source: `ClientCnxn.SendThread.pingRwServer`.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) next_at: Instant,
    interval: Duration,
    round: usize,
}

/// The first pause of the search, and the longest.
const SEARCH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

impl Search {
    pub(super) fn begin(now: Instant) -> Self {
        Self { next_at: now + SEARCH.0, interval: SEARCH.0, round: 0 }
    }
}

impl<T, W: Clone + PartialEq, A: Answers<T>> Session<T, W, A> {
    /// Takes another list of servers. Who is connected to one that is not in it moves, and so many others that
    /// each server gets its share of all clients.
    ///
    /// Source: `ZooKeeper.updateServerList`.
    pub fn update_server_list(&mut self, hosts: &[Host]) {
        if hosts.is_empty() || self.is_ended() {
            return;
        }
        let connected = self.is_connected();
        let current = self.server().cloned();
        let moves = self.hosts.update(hosts, current.as_ref());
        self.timeouts.share_among(self.hosts.len());
        let attempted = self.host.as_ref().filter(|_| !matches!(self.phase, Phase::Disconnected));
        if connected && moves {
            self.move_on();
        } else if !connected && attempted.is_some_and(|host| !hosts.contains(host)) {
            self.give_up("the server is no longer listed");
        }
    }

    /// What a server said when it was asked whether it is read-write.
    pub fn handle_probe(&mut self, host: &Host, read_write: bool) {
        let wanted = self.is_connected() && self.search.is_some();
        if read_write && wanted && self.hosts.prefer(host) {
            self.move_on();
        }
    }

    /// While connected to a read-only server: asks the next one.
    pub(super) fn search_read_write(&mut self, now: Instant) {
        let Some(search) = self.search.as_mut().filter(|search| search.next_at <= now) else {
            return;
        };
        let host = self.hosts.peek(search.round, self.host.as_ref());
        search.round += 1;
        search.interval = (search.interval * 2).min(SEARCH.1);
        search.next_at = now + search.interval;
        if let Some(host) = host {
            self.events.push_back(Event::Probe(host));
        }
    }

    fn move_on(&mut self) {
        self.moving = true;
        self.leave_if_answered();
    }

    /// Gives the connection up for the move, once nothing is lost by it.
    pub(super) fn leave_if_answered(&mut self) {
        if self.moving && self.sent == 0 && self.is_connected() {
            self.give_up("moving to another server");
        }
    }
}
