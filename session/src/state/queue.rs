//! The queue of requests: how they get in, how long they may stay, and how they leave it unanswered.

use std::sync::Arc;

use docent_protocol::{
    FrameTooLarge, WatcherType,
    call::{Call, RemoveWatches},
    frame,
    request::WatchesRequest,
    xid,
};

use super::{Answers, Closing, Effect, NEVER, Pending, Registration, Reply, Session, WatchEffect};
use crate::{Error, ErrorKind, Outcome, WhenFull, time::Instant};

impl<T, W: Clone + PartialEq, A: Answers<T>> Session<T, W, A> {
    /// Queues a request. Its place among the others is given here and now.
    ///
    /// `now` is only asked for while there is no connection, or with a request timeout. A refusal (closed,
    /// too large, too many) comes as a completion too.
    #[inline(always)]
    pub fn submit<C: Call>(
        &mut self,
        call: &C,
        token: T,
        watch: Option<Registration<W>>,
        now: impl FnOnce() -> Instant,
    ) {
        let effect = match watch {
            Some(registration) => WatchEffect::Watch { registration, covered: false }.into(),
            None => Effect::None,
        };
        self.enqueue(call, Some(token), effect, now);
    }

    /// Queues a removeWatches (18): all watches of a type on a path, whoever's they are.
    pub fn remove_watches(
        &mut self,
        path: Arc<str>,
        watcher_type: WatcherType,
        token: T,
        now: impl FnOnce() -> Instant,
    ) {
        let call = RemoveWatches(WatchesRequest { path: (&*path).into(), watcher_type });
        let effect = WatchEffect::Remove { path: Arc::clone(&path), watcher_type };
        self.enqueue(&call, Some(token), effect.into(), now);
    }

    #[inline(always)]
    pub(super) fn enqueue<C: Call>(
        &mut self,
        call: &C,
        token: Option<T>,
        effect: Effect<W>,
        now: impl FnOnce() -> Instant,
    ) {
        let start = self.outgoing.len();
        let xid = xid::next(self.last_xid);
        if self.pending.len() >= self.most_pending
            && let Some(error) = self.refusal_of_more(&effect)
        {
            return self.refuse(token, error);
        }
        let put = frame::put_call(&mut self.outgoing, self.config.max_request_bytes, xid, call);
        if let Err(error) = put {
            return self.refuse(token, too_large(error));
        }
        let bytes = self.pending_bytes + (self.outgoing.len() - start);
        if bytes > self.config.max_pending_bytes
            && !self.pending.is_empty()
            && let Some(error) = self.refusal_of_more(&effect)
        {
            self.outgoing.truncate(start);
            return self.refuse(token, error);
        }
        self.last_xid = xid;
        // Nobody waits for the machine's own.
        let has_timeout = self.config.request_timeout.is_some() && token.is_some();
        self.push_pending(xid, start, token, effect);
        if has_timeout || !self.is_connected() {
            self.set_limits(has_timeout, now());
        }
    }

    /// How long the last request may wait.
    #[cold]
    fn set_limits(&mut self, has_timeout: bool, now: Instant) {
        let connected = self.is_connected();
        let Some(request) = self.pending.back_mut() else { return };
        if !connected {
            request.expires = now + self.config.connection_timeout;
        }
        if let Some(timeout) = self.config.request_timeout.filter(|_| has_timeout) {
            request.deadline = now + timeout;
        }
    }

    #[cold]
    fn refuse(&mut self, token: Option<T>, error: Error) {
        self.metrics.refused += 1;
        self.complete(token, Err(error));
    }

    /// Why no more requests like this are taken, if so: nothing more can happen, or there are too many, where
    /// that is refused. The machine's own about its watches are never too many: there are no more of them than
    /// watches.
    #[cold]
    fn refusal_of_more(&self, effect: &Effect<W>) -> Option<Error> {
        if self.is_ended() || !matches!(self.closing, Closing::No) {
            return Some(self.refusal());
        }
        let limited = self.config.when_full == WhenFull::Fail;
        (limited && !matches!(effect, Effect::Internal))
            .then(|| Error::new(ErrorKind::TooManyRequests, Outcome::NotApplied))
    }

    /// Notes the request whose frame begins at `start` of `outgoing`.
    #[inline(always)]
    pub(super) fn push_pending(
        &mut self,
        xid: i32,
        start: usize,
        token: Option<T>,
        effect: Effect<W>,
    ) {
        self.metrics.requests += 1;
        self.adding += usize::from(effect.is_add_watch());
        // A frame is no longer than its length can say.
        let size = u32::try_from(self.outgoing.len() - start).unwrap_or(u32::MAX);
        self.pending_bytes += size as usize;
        let (expires, deadline) = (NEVER, NEVER);
        let request = Pending { xid, size, token, effect, expires, deadline };
        self.pending.push_back(request);
    }

    /// Answers `token` once there is room in the queue: at once, unless it is full; then when half of it has
    /// gone.
    pub fn wait_for_room(&mut self, token: T) {
        if self.is_ended() {
            return self.complete(Some(token), Err(self.refusal()));
        }
        self.waiting.push_back(token);
        let full = self.pending.len() >= self.config.max_requests
            || self.pending_bytes >= self.config.max_pending_bytes;
        if !full {
            self.grant_room();
        }
    }

    /// Wakes those who wait for room. All of them, since some may have gone.
    pub(super) fn grant_room(&mut self) {
        for token in std::mem::take(&mut self.waiting) {
            self.complete(Some(token), Ok(Reply::empty(self.last_zxid)));
        }
    }

    /// Whether those who wait for room are to be woken: not for each request that is answered.
    pub(super) fn has_much_room(&self) -> bool {
        self.pending.len() <= self.config.max_requests / 2
            && self.pending_bytes <= self.config.max_pending_bytes / 2
    }

    /// When the next request has waited for its reply for as long as any may.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.config.request_timeout?;
        // Those without one are the machine's own.
        let mut deadlines =
            self.pending.iter().skip(self.timed_out).map(|request| request.deadline);
        deadlines.find(|at| *at != NEVER)
    }

    /// Requests that waited for an answer for too long. What was sent keeps its place, for its reply may come.
    pub(super) fn fail_timed_out(&mut self, now: Instant) {
        let Some(timeout) = self.config.request_timeout else { return };
        let error = |outcome| {
            Error::new(ErrorKind::OperationTimeout, outcome)
                .with_detail(format_args!("no answer for {timeout:?}"))
        };
        // All wait equally long, so those that are due come first, but for the machine's own between them.
        let is_later = |at: Instant| at != NEVER && at > now;
        while self.timed_out < self.sent {
            let Some(request) = self.pending.get_mut(self.timed_out) else { break };
            if is_later(request.deadline) {
                return;
            }
            self.timed_out += 1;
            if std::mem::replace(&mut request.deadline, NEVER) != NEVER {
                let token = request.token.take();
                self.metrics.timed_out += 1;
                self.complete(token, Err(error(Outcome::Unknown)));
            }
        }
        let waiting = self.pending.range(self.sent..);
        let due = waiting.take_while(|request| !is_later(request.deadline)).count();
        for request in self.take_unsent(due, |request| request.deadline != NEVER) {
            self.metrics.timed_out += 1;
            self.fail(request, &error(Outcome::NotApplied));
        }
    }

    /// Requests that waited for a connection for too long.
    pub(super) fn fail_overdue(&mut self, now: Instant) {
        if self.is_connected() {
            return;
        }
        // All wait equally long, so the first that may still wait is followed by no other.
        let waiting = self.pending.range(self.sent..);
        let count = waiting.take_while(|request| request.expires <= now).count();
        if count == 0 {
            return;
        }
        let error =
            Error::new(ErrorKind::ConnectionLoss, Outcome::NotApplied).with_detail(format_args!(
                "no connection for {:?}; last: {}",
                self.config.connection_timeout,
                self.last_failure().unwrap_or("none was tried")
            ));
        for request in self.take_unsent(count, |_| true) {
            self.fail(request, &error);
        }
    }

    /// Fails what was never handed to a socket.
    pub(super) fn fail_queued(&mut self, error: &Error) {
        self.outgoing.clear();
        self.taken = 0;
        for request in self.pending.split_off(self.sent.min(self.pending.len())) {
            self.fail(request, error);
        }
    }

    /// Fails what was handed to a socket that is gone.
    pub(super) fn fail_sent(&mut self, error: &Error) {
        let queued = self.pending.split_off(self.sent.min(self.pending.len()));
        for request in std::mem::replace(&mut self.pending, queued) {
            self.fail(request, error);
        }
        self.sent = 0;
        self.timed_out = 0;
        self.batches.clear();
    }

    /// A request has left the queue.
    pub(super) const fn settle(&mut self, effect: &Effect<W>, size: u32) {
        self.pending_bytes = self.pending_bytes.saturating_sub(size as usize);
        if effect.is_add_watch() {
            self.adding = self.adding.saturating_sub(1);
        }
    }

    /// Fails a request that has left the queue, whatever it was.
    pub(super) fn fail(&mut self, request: Pending<T, W>, error: &Error) {
        self.settle(&request.effect, request.size);
        if request.is_internal() && error.outcome() == Outcome::Unknown {
            // The watch is gone with its connection, which is what was asked for.
            return self.nothing_to_send(request.token);
        }
        self.complete(request.token, Err(error.clone()));
    }
}

#[cold]
fn too_large(FrameTooLarge { len, limit }: FrameTooLarge) -> Error {
    Error::refused(
        ErrorKind::RequestTooLarge,
        format_args!("{len} bytes, and the limit (jute.maxbuffer) is {limit}"),
    )
}
