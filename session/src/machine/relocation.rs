//! The state of a planned move to another server; its rules are in [`failback`](super::failback).

use super::connect_string::Host;

/// A planned move.
#[derive(Debug)]
pub(super) struct Relocation<T> {
    /// The server to move to, until the connection to the one before has ended.
    target: Option<Host>,
    /// The server that was left, and is returned to if the attempt fails.
    left: Option<Host>,
    /// The calls that wait for a new connection.
    callers: Vec<T>,
    /// The number of moves that have failed one after the other.
    failed: u32,
}

/// The largest number of failed moves that makes the next one later.
const MAX_FAILED: u32 = 4;

impl<T> Default for Relocation<T> {
    fn default() -> Self {
        Self { target: None, left: None, callers: Vec::new(), failed: 0 }
    }
}

impl<T> Relocation<T> {
    /// Adds a call that waits for a new connection.
    pub(super) fn add_caller(&mut self, token: T) {
        self.callers.push(token);
    }

    pub(super) const fn has_callers(&self) -> bool {
        !self.callers.is_empty()
    }

    pub(super) fn take_callers(&mut self) -> Vec<T> {
        std::mem::take(&mut self.callers)
    }

    /// Records whether a move has succeeded, or that there is a connection that no move has made.
    pub(super) const fn note_end(&mut self, has_failed: bool) {
        self.failed = if has_failed { self.failed.saturating_add(1) } else { 0 };
    }

    /// By how much the time until the next move is multiplied: by two for each failed one, up to 16. A move
    /// has succeeded as soon as its connection plans the next one.
    pub(super) fn delay(&self) -> u32 {
        if self.has_left() { 1 } else { 1 << self.failed.min(MAX_FAILED) }
    }

    /// Plans a move to this server.
    pub(super) fn plan(&mut self, target: Host) {
        self.target = Some(target);
    }

    /// The connection to `left` has ended for the move, or for another planned reconnect. Returns the server to connect to.
    pub(super) fn depart(&mut self, left: &Host) -> Host {
        let target = self.target.take().unwrap_or_else(|| left.clone());
        self.left = (target != *left).then(|| left.clone());
        target
    }

    /// Whether a server was left, and there is no new connection yet.
    pub(super) const fn has_left(&self) -> bool {
        self.left.is_some()
    }

    /// Forgets the move, and returns the server that was left, if it was.
    pub(super) const fn take_left(&mut self) -> Option<Host> {
        self.left.take()
    }

    /// Forgets a move that waits for the end of the connection; returns whether there was one.
    pub(super) fn cancel(&mut self) -> bool {
        self.target.take().is_some()
    }
}
