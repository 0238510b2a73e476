//! The deadlines of the pending requests: the request timeout of all, and the limits of single calls.
//!
//! With a request timeout alone, deadlines are in the order of the requests: looking for those that have come visits no
//! other request. With limits of single calls they are in no order, and looking visits all pending requests. It is done at
//! a deadline, or at most once for each time limit if all requests are answered in time.

use std::mem;

use super::{Pending, Requests};
use crate::time::{Instant, NEVER};

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
            self.has_own_limits &= !is_first;
        }
    }

    /// Limits the time of the request with this xid, if it is pending and has a caller.
    pub(in super::super) fn limit(&mut self, xid: i32, deadline: Instant) {
        let Some(front) = self.pending.front() else { return };
        // From `i32::MAX`, xids go on at 1.
        let first = front.xid;
        let from_first =
            |xid: i32| xid.wrapping_sub(first).wrapping_add(if xid < first { i32::MAX } else { 0 });
        let index = self.pending.partition_point(|other| from_first(other.xid) < from_first(xid));
        let found = self.pending.get_mut(index).filter(|other| other.xid == xid);
        let Some(request) = found.filter(|request| request.token.is_some()) else { return };
        request.deadline = request.deadline.min(deadline);
        self.next_deadline = self.next_deadline.min(deadline);
        self.has_own_limits = true;
        self.timed_out = 0;
    }

    /// Whether there may be requests with a limit of their own.
    pub(in super::super) const fn has_own_limits(&self) -> bool {
        self.has_own_limits
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
    pub(in super::super) fn time_out(&mut self, now: Instant) -> (Vec<T>, Vec<Pending<T, W>>) {
        if self.has_own_limits {
            return self.time_out_any(now);
        }
        let mut sent = Vec::new();
        // Requests with a deadline have them in order, with the machine's own, which have none, between them.
        while self.timed_out < self.sent {
            let Some(request) = self.pending.get_mut(self.timed_out) else { break };
            if request.is_due_later(now) {
                break;
            }
            self.timed_out += 1;
            if mem::replace(&mut request.deadline, NEVER) != NEVER {
                sent.extend(request.token.take());
            }
        }
        let mut unsent = Vec::new();
        if self.timed_out == self.sent {
            let first = self.pending.range(self.sent..);
            let due = first.take_while(|request| !request.is_due_later(now)).count();
            unsent = self.take_unsent(due, |request| request.deadline != NEVER);
        }
        // The machine's own requests have none.
        let mut deadlines = self.pending.range(self.timed_out..).map(|request| request.deadline);
        self.next_deadline = deadlines.find(|at| *at != NEVER).unwrap_or(NEVER);
        (sent, unsent)
    }

    /// As [`time_out`](Self::time_out), for deadlines in no order.
    fn time_out_any(&mut self, now: Instant) -> (Vec<T>, Vec<Pending<T, W>>) {
        let (mut sent, mut due) = (Vec::new(), 0);
        for (index, request) in self.pending.iter_mut().enumerate() {
            if request.deadline > now {
                continue;
            }
            if index < self.sent {
                request.deadline = NEVER;
                sent.extend(request.token.take());
            } else {
                due = index + 1 - self.sent;
            }
        }
        let unsent = match due {
            0 => Vec::new(),
            _ => self.take_unsent(due, |request| request.deadline <= now),
        };
        let first = self.pending.iter().map(|request| request.deadline).min();
        self.next_deadline = first.unwrap_or(NEVER);
        self.has_own_limits = self.next_deadline != NEVER;
        (sent, unsent)
    }
}
