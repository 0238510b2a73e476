//! The pending requests: their encoded frames, their order on the wire, and how each leaves.
//!
//! ```text
//!             sent                 unsent
//!   pending   [ a  b  c ]          [ d  e ]
//!   outgoing            (sent) .... [ d  e ]     one frame for each unsent request, in the same order
//! ```
//!
//! Requests are pushed at the back. [`transmit`](Requests::transmit) moves the border between sent and unsent.
//! [`answer`](Requests::answer) takes the front. What fails leaves from either part; the frame of an unsent request
//! leaves with it.
//!
//! No call iterates over the requests in front of it: its cost does not depend on the number of pending requests. Tests
//! count the visited entries (`visited.rs`).

mod deadlines;

use std::{collections::VecDeque, mem};

use docent_protocol::{FrameTooLarge, frame, operation::Operation};

use self::deadlines::Limits;
pub(super) use self::deadlines::TimedOut;
use super::{effect::Effect, flow_control::FlowControl, settings::Settings, visited::Queue};
use crate::time::{Instant, NEVER};

/// The most bytes of requests that one [`transmit`](Requests::transmit) takes, if they are several. All of them count as
/// sent at one time, and the replies renew the lease from it: a socket takes a long time for a long burst.
pub(super) const MAX_TRANSMIT: usize = 256 * 1024;

/// A request without a reply.
#[derive(Debug)]
pub(super) struct Pending<T, W> {
    pub(super) xid: i32,
    /// The size of its frame, in bytes.
    pub(super) size: u32,
    /// The caller's; `None` for the machine's own requests, and for a request that has timed out.
    pub(super) token: Option<T>,
    pub(super) effect: Effect<W>,
    /// When the request fails unless it was sent by then; [`NEVER`] while there is a usable connection.
    expires: Instant,
    /// When the request fails in any case; [`NEVER`] without a limit of its time.
    deadline: Instant,
}

/// The requests of one [`transmit`](Requests::transmit).
#[derive(Debug)]
struct Batch {
    sent_at: Instant,
    unanswered: usize,
}

/// See the [module](self).
pub(super) struct Requests<T, W> {
    flow_control: FlowControl,
    /// The number of pending requests from which on another one is checked before it is pushed; 0 to check all.
    check_from: usize,
    pending: Queue<Pending<T, W>>,
    /// The size of all frames in `pending`, in bytes.
    pending_bytes: usize,
    /// The number of requests at the front of `pending` that were sent.
    sent: usize,
    /// The number of sent requests at the front that are known to have timed out, or to have no deadline.
    timed_out: usize,
    /// Not later than the first deadline in `pending`; [`NEVER`] when there is none.
    next_deadline: Instant,
    /// Whether there is a request timeout: requests with a caller have deadlines.
    has_timeout: bool,
    limits: Limits,
    /// The frames of the unsent requests, behind `taken` bytes of sent ones.
    outgoing: Vec<u8>,
    /// The number of bytes at the front of `outgoing` that were sent. They are kept for a while, so that a long queue
    /// does not move for each request that leaves it.
    taken: usize,
    batches: VecDeque<Batch>,
    /// The number of replies since the last [`take_answered`](Self::take_answered).
    answered: usize,
    /// The tokens of callers that wait for capacity.
    waiters: VecDeque<T>,
}

impl<T, W> Requests<T, W> {
    pub(super) fn new(settings: &Settings) -> Self {
        let flow_control = FlowControl::new(settings);
        Self {
            flow_control,
            check_from: flow_control.check_from(),
            pending: Queue::new(),
            pending_bytes: 0,
            sent: 0,
            timed_out: 0,
            next_deadline: NEVER,
            has_timeout: settings.request_timeout.is_some(),
            limits: Limits::default(),
            outgoing: Vec::new(),
            taken: 0,
            batches: VecDeque::new(),
            answered: 0,
            waiters: VecDeque::new(),
        }
    }

    // Getters.

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The size of all pending frames, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.pending_bytes
    }

    /// The number of requests in flight.
    pub(super) const fn in_flight(&self) -> usize {
        self.sent
    }

    /// The number of unsent bytes.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.outgoing.len().saturating_sub(self.taken)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pending<T, W>> {
        self.pending.iter()
    }

    // Pushing.

    /// Whether the next request has to be checked against the limits, or nothing is accepted any more.
    #[inline]
    pub(super) fn needs_check(&self) -> bool {
        self.pending.len() >= self.check_from
    }

    /// From now on, [`needs_check`](Self::needs_check) is true.
    pub(super) const fn check_all(&mut self) {
        self.check_from = 0;
    }

    /// Whether requests above the limits are refused, rather than sent later.
    pub(super) fn refuses(&self) -> bool {
        self.flow_control.refuses()
    }

    /// From now on, sends requests without regard to those in flight.
    pub(super) const fn lift_limit_in_flight(&mut self) {
        self.flow_control.lift_limit_in_flight();
    }

    /// Encodes a frame behind all others, and returns its size. [`push`](Self::push) or [`discard`](Self::discard) has
    /// to follow.
    #[inline(always)] // 22 more instructions a getData without the four of encoding.
    pub(super) fn encode<O: Operation>(
        &mut self,
        limit: usize,
        xid: i32,
        operation: &O,
    ) -> Result<usize, FrameTooLarge> {
        let start = self.outgoing.len();
        frame::put_operation(&mut self.outgoing, limit, xid, operation)?;
        Ok(self.outgoing.len() - start)
    }

    /// The buffer of unsent frames, for encoding at its end. [`push`](Self::push) has to follow for each frame.
    pub(super) const fn outgoing_mut(&mut self) -> &mut Vec<u8> {
        &mut self.outgoing
    }

    /// Whether a frame of this size, just encoded, exceeds the limit of pending bytes. A single request never does.
    #[inline]
    pub(super) fn exceeds_bytes(&self, size: usize) -> bool {
        self.flow_control.exceeds_bytes(self.pending_bytes + size) && !self.pending.is_empty()
    }

    /// Removes the frame encoded last, of this size.
    pub(super) fn discard(&mut self, size: usize) {
        self.outgoing.truncate(self.outgoing.len().saturating_sub(size));
    }

    /// Appends the request of an encoded frame.
    #[inline]
    pub(super) fn push(&mut self, xid: i32, size: usize, token: Option<T>, effect: Effect<W>) {
        self.pending_bytes += size;
        // Nothing is lost: the codec refuses a frame whose length needs more than 31 bits.
        let size = size as u32;
        let (expires, deadline) = (NEVER, NEVER);
        self.pending.push_back(Pending { xid, size, token, effect, expires, deadline });
    }

    /// Sets when unsent requests fail, for all that are pending.
    pub(super) fn set_expiry(&mut self, at: Instant) {
        for request in self.pending.iter_mut() {
            request.expires = at;
        }
    }

    // Capacity.

    /// Adds a waiter for capacity, and returns whether there is capacity now.
    pub(super) fn wait_for_capacity(&mut self, token: T) -> bool {
        self.waiters.push_back(token);
        !self.flow_control.is_full(self.pending.len(), self.pending_bytes)
    }

    /// Whether the list of waiters is full: one more would make it grow.
    pub(super) fn has_many_waiters(&self) -> bool {
        self.waiters.len() == self.waiters.capacity()
    }

    /// Takes the waiters that are not `wanted`. At least half of the capacity is free afterwards, so that the work is
    /// proportional to the number of calls.
    #[cold]
    pub(super) fn take_unwanted_waiters(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let (mut kept, mut unwanted) =
            (VecDeque::with_capacity(self.waiters.capacity()), Vec::new());
        for token in mem::take(&mut self.waiters) {
            if wanted(&token) {
                kept.push_back(token);
            } else {
                unwanted.push(token);
            }
        }
        kept.reserve(kept.len());
        self.waiters = kept;
        unwanted
    }

    /// Whether waiters for capacity are to be completed: once half of it is free, not for each reply.
    #[inline]
    pub(super) fn has_ready_waiters(&self) -> bool {
        !self.waiters.is_empty()
            && self.flow_control.is_half_free(self.pending.len(), self.pending_bytes)
    }

    /// Takes all waiters for capacity: some of them may have gone.
    pub(super) fn take_waiters(&mut self) -> VecDeque<T> {
        mem::take(&mut self.waiters)
    }

    // Sending.

    /// Whether the next request may be sent.
    pub(super) fn can_send(&self) -> bool {
        if self.outgoing.is_empty() {
            return false;
        }
        if self.flow_control.refuses() || self.sent == 0 {
            // A request above the limit is sent alone.
            return true;
        }
        self.pending.get(self.sent).is_some_and(|next| {
            !self.flow_control.exceeds(self.sent + 1, self.bytes_in_flight() + next.size as usize)
        })
    }

    fn bytes_in_flight(&self) -> usize {
        self.pending_bytes.saturating_sub(self.unsent_bytes())
    }

    /// The number of requests that may be sent now, and their bytes.
    fn sendable(&self) -> (usize, usize) {
        let is_unlimited = self.flow_control.refuses();
        if is_unlimited && self.unsent_bytes() <= MAX_TRANSMIT {
            return (self.pending.len() - self.sent, self.unsent_bytes());
        }
        let in_flight = self.bytes_in_flight();
        let (mut count, mut bytes) = (0, 0);
        for request in self.pending.range(self.sent..) {
            let size = bytes + request.size as usize;
            let exceeds = !is_unlimited
                && self.flow_control.exceeds(self.sent + count + 1, in_flight + size)
                && self.sent + count > 0;
            if exceeds || size > MAX_TRANSMIT && count > 0 {
                break;
            }
            count += 1;
            bytes = size;
        }
        (count, bytes)
    }

    /// Moves `control`, then the frames that may be sent, to `out`, which is empty. The requests count as sent at `now`.
    pub(super) fn transmit(&mut self, now: Instant, control: &mut Vec<u8>, out: &mut Vec<u8>) {
        let (unanswered, bytes) = self.sendable();
        if control.is_empty() && bytes == self.outgoing.len() {
            mem::swap(out, &mut self.outgoing);
        } else {
            mem::swap(out, control);
            let front = self.outgoing.get(self.taken..).and_then(|unsent| unsent.get(..bytes));
            out.extend_from_slice(front.unwrap_or_default());
            self.taken += bytes;
            self.compact();
        }
        self.sent += unanswered;
        self.batches.push_back(Batch { sent_at: now, unanswered });
    }

    /// Moves the unsent bytes to the front once they are no more than the sent ones before them.
    fn compact(&mut self) {
        if self.taken * 2 >= self.outgoing.len() {
            self.forget_taken();
        }
    }

    /// Moves the unsent bytes to the front of their buffer.
    pub(super) fn forget_taken(&mut self) {
        let taken = mem::take(&mut self.taken);
        self.outgoing.drain(..taken.min(self.outgoing.len()));
    }

    // Replies.

    /// Takes the request of a reply, the one at the front: its token and its effect.
    #[inline]
    pub(super) fn answer(&mut self, xid: i32) -> Option<(Option<T>, Effect<W>)> {
        let front = self.pending.front().filter(|_| self.sent > 0)?;
        if front.xid != xid {
            return None;
        }
        let request = self.pending.pop_front()?;
        self.answered += 1;
        self.timed_out = self.timed_out.saturating_sub(1);
        self.sent -= 1;
        self.settle(request.size);
        Some((request.token, request.effect))
    }

    /// As [`answer`](Self::answer), for a reply that came before the replies to earlier requests.
    #[cold]
    pub(super) fn answer_overtaking(&mut self, xid: i32) -> Option<(Option<T>, Effect<W>)> {
        let index = self.pending.range(..self.sent).position(|request| request.xid == xid)?;
        self.timed_out -= usize::from(index < self.timed_out);
        let request = self.pending.remove(index)?;
        self.sent -= 1;
        self.settle(request.size);
        Some((request.token, request.effect))
    }

    const fn settle(&mut self, size: u32) {
        self.pending_bytes = self.pending_bytes.saturating_sub(size as usize);
    }

    /// Whether there were replies since the last [`take_answered`](Self::take_answered).
    #[inline]
    pub(super) const fn has_answered(&self) -> bool {
        self.answered > 0
    }

    /// Takes the replies to requests that were sent together: when these were sent, and the number of the replies.
    pub(super) fn take_answered(&mut self) -> Option<(Instant, usize)> {
        if self.answered == 0 {
            return None;
        }
        let Some(batch) = self.batches.front_mut() else {
            self.answered = 0;
            return None;
        };
        let (sent_at, count) = (batch.sent_at, self.answered.min(batch.unanswered));
        self.answered -= count;
        batch.unanswered -= count;
        if batch.unanswered == 0 {
            self.batches.pop_front();
        }
        Some((sent_at, count))
    }

    /// When the request that was answered last was sent, or earlier. Call it before
    /// [`take_answered`](Self::take_answered).
    pub(super) fn last_answered_sent_at(&self) -> Option<Instant> {
        let mut answered = self.answered;
        for batch in &self.batches {
            if answered <= batch.unanswered {
                return Some(batch.sent_at).filter(|_| answered > 0);
            }
            answered -= batch.unanswered;
        }
        None
    }

    /// When the request with this xid was sent, if its reply is the next one. Call it when
    /// [`take_answered`](Self::take_answered) has returned `None`.
    pub(super) fn sent_at_of_next(&self, xid: i32) -> Option<Instant> {
        let next = self.pending.front().filter(|_| self.sent > 0)?;
        self.batches.front().filter(|_| next.xid == xid).map(|batch| batch.sent_at)
    }

    // Failures.

    /// Takes the requests that were sent: their connection is gone.
    pub(super) fn fail_sent(&mut self) -> VecDeque<Pending<T, W>> {
        let unsent = self.pending.split_off(self.sent.min(self.pending.len()));
        let sent = mem::replace(&mut self.pending, unsent).into_inner();
        self.sent = 0;
        self.timed_out = 0;
        self.batches.clear();
        for request in &sent {
            self.settle(request.size);
        }
        sent
    }

    /// Takes the requests that were not sent.
    pub(super) fn fail_unsent(&mut self) -> VecDeque<Pending<T, W>> {
        self.outgoing.clear();
        self.taken = 0;
        let unsent = self.pending.split_off(self.sent.min(self.pending.len())).into_inner();
        for request in &unsent {
            self.settle(request.size);
        }
        unsent
    }

    /// Takes the machine's own requests from the unsent ones: they are about a connection that is gone.
    pub(super) fn fail_internal(&mut self) -> Vec<Pending<T, W>> {
        if !self.pending.range(self.sent..).any(|request| request.effect.is_internal()) {
            return Vec::new();
        }
        self.take_unsent(self.pending.len() - self.sent, |request| request.effect.is_internal())
    }

    /// Takes the unsent requests that have waited for a connection for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Pending<T, W>> {
        // All wait equally long, so the first one that may still wait is followed by no other.
        let unsent = self.pending.range(self.sent..);
        let count = unsent.take_while(|request| request.expires <= now).count();
        if count == 0 { Vec::new() } else { self.take_unsent(count, |_| true) }
    }

    /// When the first unsent request expires, if it does.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let expires = self.pending.get(self.sent).map(|request| request.expires);
        expires.filter(|at| *at != NEVER)
    }

    /// Takes the requests for which `wanted` is true from the first `count` unsent ones, with their frames. The frames of
    /// the requests behind them do not move.
    fn take_unsent(
        &mut self,
        count: usize,
        wanted: impl Fn(&Pending<T, W>) -> bool,
    ) -> Vec<Pending<T, W>> {
        let first = self.pending.drain(self.sent, self.sent + count);
        let (mut taken, mut kept, mut frames) = (Vec::new(), Vec::new(), Vec::new());
        let mut end = self.taken;
        for request in first {
            let start = end;
            end += request.size as usize;
            if wanted(&request) {
                self.settle(request.size);
                taken.push(request);
            } else {
                frames.extend_from_slice(self.outgoing.get(start..end).unwrap_or_default());
                kept.push(request);
            }
        }
        if !kept.is_empty() {
            // The sent requests move once, not once for each request that is kept.
            let sent = self.pending.drain(0, self.sent);
            for request in sent.into_iter().chain(kept).rev() {
                self.pending.push_front(request);
            }
        }
        self.taken = end - frames.len();
        if let Some(place) = self.outgoing.get_mut(self.taken..end) {
            place.copy_from_slice(&frames);
        }
        self.compact();
        taken
    }

    /// Frees the memory of a burst that an idle session does not need.
    pub(super) fn shrink_to(&mut self, bytes: usize, entries: usize) {
        self.outgoing.shrink_to(bytes);
        self.pending.shrink_to(entries);
        self.shrink_limits();
        self.batches.shrink_to(entries);
        self.waiters.shrink_to(entries);
    }
}

#[cfg(test)]
impl<T, W> Requests<T, W> {
    /// Panics unless the fields agree with each other.
    pub(super) fn check(&self) {
        let size = |request: &Pending<T, W>| request.size as usize;
        assert!(self.timed_out <= self.sent && self.sent <= self.pending.len());
        assert_eq!(self.pending.iter().map(size).sum::<usize>(), self.pending_bytes);
        let unsent: usize = self.pending.iter().skip(self.sent).map(size).sum();
        assert_eq!(unsent, self.unsent_bytes());
        let in_batches: usize = self.batches.iter().map(|batch| batch.unanswered).sum();
        assert!(self.sent <= in_batches, "{} of {in_batches}", self.sent);
    }

    /// The length of the buffer of frames, with the sent ones at its front.
    pub(super) fn buffered(&self) -> usize {
        self.outgoing.len()
    }

    /// The number of waiters for capacity.
    pub(super) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    /// The number of limits of calls that are kept.
    pub(super) fn limits(&self) -> usize {
        self.limits.len()
    }

    /// The capacities of the buffer of frames and of the queue of requests.
    pub(super) fn capacities(&self) -> (usize, usize) {
        (self.outgoing.capacity(), self.pending.capacity())
    }
}

#[cfg(test)]
mod tests;
