//! How much may be in flight, where requests wait for room: [`WhenFull::Wait`].

use super::{Answers, Pending, Session};
use crate::WhenFull;

impl<T, W: Clone + PartialEq, A: Answers<T>> Session<T, W, A> {
    /// What was not handed to a socket.
    pub(super) fn unsent(&self) -> &[u8] {
        self.outgoing.get(self.taken..).unwrap_or_default()
    }

    /// Whether the next request may be sent. One that is too large for the limit may go alone.
    pub(super) fn next_has_room(&self) -> bool {
        if self.config.when_full == WhenFull::Fail || self.sent == 0 {
            return true;
        }
        self.pending.get(self.sent).is_some_and(|next| {
            self.sent < self.config.max_requests
                && self.bytes_in_flight() + next.size as usize <= self.config.max_pending_bytes
        })
    }

    /// How many requests may be sent now, and their bytes.
    pub(super) fn room(&self) -> (usize, usize) {
        let all = (self.pending.len() - self.sent, self.unsent().len());
        if self.config.when_full == WhenFull::Fail {
            return all;
        }
        let in_flight = self.bytes_in_flight();
        let (mut count, mut bytes) = (0, 0);
        for request in self.pending.range(self.sent..) {
            let full = self.sent + count >= self.config.max_requests
                || in_flight + bytes + request.size as usize > self.config.max_pending_bytes;
            if full && self.sent + count > 0 {
                break;
            }
            count += 1;
            bytes += request.size as usize;
        }
        (count, bytes)
    }

    /// Hands out the first so many bytes of what was not handed out.
    pub(super) fn take_front(&mut self, bytes: usize, out: &mut Vec<u8>) {
        let front = self.unsent().get(..bytes).unwrap_or_default();
        out.extend_from_slice(front);
        self.taken += bytes;
        self.compact();
    }

    /// Moves the line once that is as little work as what has left it.
    fn compact(&mut self) {
        if self.taken * 2 >= self.outgoing.len() {
            self.forget_taken();
        }
    }

    /// Takes those of the first `count` unsent requests that are `wanted` out of the line, with their frames.
    /// The line itself does not move.
    pub(super) fn take_unsent(
        &mut self,
        count: usize,
        wanted: impl Fn(&Pending<T, W>) -> bool,
    ) -> Vec<Pending<T, W>> {
        let first: Vec<_> = self.pending.drain(self.sent..self.sent + count).collect();
        let (mut taken, mut kept, mut frames) = (Vec::new(), Vec::new(), Vec::new());
        let mut end = self.taken;
        for request in first {
            let start = end;
            end += request.size as usize;
            if wanted(&request) {
                taken.push(request);
            } else {
                frames.extend_from_slice(self.outgoing.get(start..end).unwrap_or_default());
                kept.push(request);
            }
        }
        for request in kept.into_iter().rev() {
            self.pending.insert(self.sent, request);
        }
        self.taken = end - frames.len();
        if let Some(place) = self.outgoing.get_mut(self.taken..end) {
            place.copy_from_slice(&frames);
        }
        self.compact();
        taken
    }

    /// Moves the line to the front of its buffer.
    pub(super) fn forget_taken(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        self.outgoing.drain(..taken.min(self.outgoing.len()));
    }

    const fn bytes_in_flight(&self) -> usize {
        // What is pending was sent or was not.
        self.pending_bytes.saturating_sub(self.outgoing.len() - self.taken)
    }
}
