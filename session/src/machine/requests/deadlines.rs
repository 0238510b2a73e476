//! The deadlines of the pending requests: the request timeout of all, and the limits of single calls.
//!
//! Those of the request timeout are in the order of the requests: looking for the ones that have come visits no other
//! request. The limits of single calls are in no order. They are in a heap, with the xids of their requests, so that each
//! one costs a logarithm of the pending requests, and another one when it ends.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    mem,
    time::Duration,
};

use super::{Pending, Requests};
use crate::time::{Instant, NEVER};

/// The number of limits, beside two for each pending request, above which those of answered requests are forgotten.
const KEPT_LIMITS: usize = 64;

/// The limit of one call. It is in force if the deadline of its request is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Limit {
    at: Instant,
    xid: i32,
    /// The limit as the caller gave it.
    within: Duration,
}

/// The limits of single calls, the first one on top.
#[derive(Debug, Default)]
pub(super) struct Limits(BinaryHeap<Reverse<Limit>>);

#[cfg(test)]
impl Limits {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// What has timed out, and the limit of the call; `None` for the request timeout.
pub(in super::super) type TimedOut<E> = Vec<(E, Option<Duration>)>;

impl<T, W> Pending<T, W> {
    fn is_due_later(&self, now: Instant) -> bool {
        self.deadline != NEVER && self.deadline > now
    }
}

impl<T, W> Requests<T, W> {
    /// Limits the time of the request pushed last: when it fails unless it was sent by then, and when it fails in any
    /// case. Without limits of single calls, deadlines never decrease from one request to the next.
    pub(in super::super) fn limit_last(
        &mut self,
        expires: Option<Instant>,
        deadline: Option<Instant>,
    ) {
        let is_first = self.pending.len() == 1;
        let Some(request) = self.pending.back_mut() else { return };
        request.expires = expires.unwrap_or(request.expires);
        if let Some(deadline) = deadline {
            request.deadline = deadline;
            let earlier = if is_first { NEVER } else { self.next_deadline };
            self.next_deadline = earlier.min(deadline);
        }
    }

    /// Limits the time of the request with this xid, if it is pending and has a caller.
    pub(in super::super) fn limit(&mut self, xid: i32, now: Instant, within: Duration) {
        let at = now + within;
        let found = self.position(xid).and_then(|index| self.pending.get_mut(index));
        let Some(request) = found.filter(|request| request.token.is_some()) else { return };
        if request.deadline <= at {
            return;
        }
        request.deadline = at;
        self.next_deadline = self.next_deadline.min(at);
        self.limits.0.push(Reverse(Limit { at, xid, within }));
        if self.limits.0.len() > KEPT_LIMITS + 2 * self.pending.len() {
            let mut limits = mem::take(&mut self.limits.0);
            limits.retain(|Reverse(limit)| self.index_of(limit).is_some());
            self.limits.0 = limits;
        }
    }

    /// The index of the pending request with this xid.
    fn position(&self, xid: i32) -> Option<usize> {
        // From `i32::MAX`, xids go on at 1.
        let first = self.pending.front()?.xid;
        let from_first =
            |xid: i32| xid.wrapping_sub(first).wrapping_add(if xid < first { i32::MAX } else { 0 });
        let is_at = |index: &usize| self.pending.get(*index).is_some_and(|other| other.xid == xid);
        // Xids have no gaps, except where requests were taken out before they were sent.
        let place = usize::try_from(from_first(xid)).ok().filter(is_at);
        place.or_else(|| {
            let is_before = |other: &Pending<T, W>| from_first(other.xid) < from_first(xid);
            Some(self.pending.partition_point(is_before)).filter(is_at)
        })
    }

    /// The index of the request of a limit, if that is in force.
    fn index_of(&self, limit: &Limit) -> Option<usize> {
        let is_limited = |index: &usize| {
            self.pending.get(*index).is_some_and(|request| request.deadline == limit.at)
        };
        self.position(limit.xid).filter(is_limited)
    }

    /// The first limit of a call that is in force, and the index of its request. Forgets those before it.
    fn first_limit(&mut self) -> Option<(Limit, usize)> {
        loop {
            let Reverse(limit) = *self.limits.0.peek()?;
            if let Some(index) = self.index_of(&limit) {
                return Some((limit, index));
            }
            self.limits.0.pop();
        }
    }

    /// When to look for requests that have timed out: at the first deadline or, when that request was answered meanwhile,
    /// earlier. Which deadline is the first now is found out then, since this is read in each call.
    pub(in super::super) fn next_deadline(&self) -> Option<Instant> {
        Some(self.next_deadline).filter(|at| *at != NEVER && !self.pending.is_empty())
    }

    /// Whether [`next_deadline`](Self::next_deadline) has come.
    pub(in super::super) fn is_deadline_due(&self, now: Instant) -> bool {
        self.next_deadline <= now
    }

    /// Takes the callers of the sent requests whose deadline has come, which keep their places, for their replies may
    /// still come; and the unsent requests whose deadline has come.
    pub(in super::super) fn time_out(
        &mut self,
        now: Instant,
    ) -> (TimedOut<T>, TimedOut<Pending<T, W>>) {
        let (mut sent, mut limits, mut due) = (Vec::new(), HashMap::new(), 0);
        while let Some((limit, index)) = self.first_limit().filter(|(limit, _)| limit.at <= now) {
            self.limits.0.pop();
            if index >= self.sent {
                limits.insert(limit.xid, limit.within);
                due = due.max(index + 1 - self.sent);
            } else if let Some(request) = self.pending.get_mut(index) {
                request.deadline = NEVER;
                sent.extend(request.token.take().map(|token| (token, Some(limit.within))));
            }
        }
        if self.has_timeout {
            due = due.max(self.time_out_in_order(now, &mut sent));
        }
        let unsent = match due {
            0 => Vec::new(),
            _ => self.take_unsent(due, |request| request.deadline <= now),
        };
        let with_limit = |request: Pending<T, W>| {
            let limit = limits.remove(&request.xid);
            (request, limit)
        };
        let unsent = unsent.into_iter().map(with_limit).collect();
        let of_calls = self.first_limit().map_or(NEVER, |(limit, _)| limit.at);
        self.next_deadline = of_calls.min(self.next_timeout());
        (sent, unsent)
    }

    /// Takes the callers of the sent requests with a request timeout that is over; returns the number of unsent requests up
    /// to the last one of these. A limit of a call is no later than the timeout of its request, and those that are due were
    /// taken: behind a request that is due later, no timeout is over.
    fn time_out_in_order(&mut self, now: Instant, sent: &mut TimedOut<T>) -> usize {
        while self.timed_out < self.sent {
            let Some(request) = self.pending.get_mut(self.timed_out) else { break };
            if request.is_due_later(now) {
                return 0;
            }
            self.timed_out += 1;
            if mem::replace(&mut request.deadline, NEVER) != NEVER {
                sent.extend(request.token.take().map(|token| (token, None)));
            }
        }
        let first = self.pending.range(self.sent..);
        first.take_while(|request| !request.is_due_later(now)).count()
    }

    /// The deadline of the first request that has one, if there is a request timeout.
    fn next_timeout(&self) -> Instant {
        if !self.has_timeout {
            return NEVER;
        }
        // The machine's own requests have none.
        let mut deadlines = self.pending.range(self.timed_out..).map(|request| request.deadline);
        deadlines.find(|at| *at != NEVER).unwrap_or(NEVER)
    }

    /// Forgets the limits of calls if no request is pending.
    pub(super) fn shrink_limits(&mut self) {
        if self.pending.is_empty() {
            self.limits = Limits::default();
        }
    }
}
