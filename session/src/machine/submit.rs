//! Submission of requests, and their failure without a reply.

use std::{sync::Arc, time::Duration};

use docent_protocol::{
    FrameTooLarge, WatcherType,
    operation::{ApplicationOperation, HarmfulWrite, Multi, Operation, RemoveWatches},
    request::WatchesRequest,
    xid,
};

use super::{
    answers::{Answers, Reply},
    effect::{Effect, WatchEffect},
    requests::Pending,
    session::Session,
    watch_table::{Mode, Registration},
};
use crate::{Error, ErrorKind, Outcome, planted, time::Instant};

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Queues a request. Its place among the others is given here and now.
    ///
    /// `now` is only asked for while there is no connection, or with a request timeout. A refusal (closed,
    /// too large, too many, [harmful](ApplicationOperation::harm)) comes as a completion too.
    #[inline]
    pub fn submit<O: ApplicationOperation>(
        &mut self,
        operation: &O,
        token: T,
        watch: Option<Registration<W>>,
        now: impl FnOnce() -> Instant,
    ) {
        if let Some(harm) = operation.harm() {
            self.refuse(Some(token), harmful(harm));
            return;
        }
        match watch {
            None => {
                self.enqueue(operation, Some(token), Effect::None, now);
            }
            Some(registration) => {
                self.submit_registration(operation, token, registration, false, now)
            }
        }
    }

    /// As [`submit`](Self::submit), for a request that gives something back: it is queued when
    /// [`max_requests`](crate::Config::with_max_requests) or
    /// [`max_pending_bytes`](crate::Config::with_max_pending_bytes) is reached.
    pub(crate) fn submit_reserved<O: ApplicationOperation>(
        &mut self,
        operation: &O,
        token: T,
        now: impl FnOnce() -> Instant,
    ) {
        if let Some(harm) = operation.harm() {
            self.refuse(Some(token), harmful(harm));
            return;
        }
        self.enqueue(operation, Some(token), Effect::Reserved, now);
    }

    /// As [`submit`](Self::submit), also when its limits are reached, for a write whose success renews the proven bound of
    /// the session's [lease](crate::session::SessionLease), counted from the connect request of the connection that
    /// carried it, or at the leader from the write itself. See [`reattach`](Self::reattach).
    pub fn submit_proof(&mut self, transaction: &Multi, token: T, now: impl FnOnce() -> Instant) {
        if let Some(harm) = transaction.harm() {
            self.refuse(Some(token), harmful(harm));
            return;
        }
        self.enqueue(transaction, Some(token), Effect::Proof, now);
    }

    /// Sends all requests that wait for capacity in flight, without their replies: for the last write on a connection.
    pub(crate) const fn lift_limit_in_flight(&mut self) {
        self.requests.lift_limit_in_flight();
    }

    /// Queues a removeWatches (18): all watches of a type on a path, whoever's they are.
    pub fn remove_watches(
        &mut self,
        path: Arc<str>,
        watcher_type: WatcherType,
        token: T,
        now: impl FnOnce() -> Instant,
    ) {
        let operation = RemoveWatches(WatchesRequest { path: (&*path).into(), watcher_type });
        let effect = WatchEffect::Remove { path: Arc::clone(&path), watcher_type };
        if self.enqueue(&operation, Some(token), effect.into(), now) {
            // The rest of the watch covers no read.
            self.expect_mode(&path, Mode::None);
        }
    }

    /// Returns whether the request was queued. Otherwise `token` is completed with the reason.
    #[inline]
    pub(super) fn enqueue<O: Operation>(
        &mut self,
        operation: &O,
        token: Option<T>,
        effect: Effect<W>,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let xid = xid::next(self.last_xid);
        let op = operation.op_code();
        let effect = effect.for_operation(op);
        if let Some(error) = self.refusal_of_missing(op, &effect) {
            return self.refuse(token, error);
        }
        if self.requests.needs_check()
            && let Some(error) = self.refusal_of_more(&effect)
        {
            return self.refuse(token, error);
        }
        let size = match self.requests.encode(self.config.max_request_bytes, xid, operation) {
            Ok(size) => size,
            Err(error) => return self.refuse_too_large(token, error),
        };
        if self.requests.exceeds_bytes(size)
            && let Some(error) = self.refusal_of_more(&effect)
        {
            self.requests.discard(size);
            return self.refuse(token, error);
        }
        self.last_xid = xid;
        // The machine's own requests have no caller.
        let has_timeout = self.config.request_timeout.is_some() && token.is_some();
        self.push_request(xid, size, token, effect);
        if has_timeout || !self.connection.is_usable() {
            self.set_limits(has_timeout, now());
        }
        true
    }

    /// Limits the time of the request queued last.
    #[cold]
    fn set_limits(&mut self, has_timeout: bool, now: Instant) {
        let expires = (!self.connection.is_usable()).then(|| now + self.config.connection_timeout);
        let is_limited = has_timeout && !planted::is("request-timeout-ignored");
        let timeout = self.config.request_timeout.filter(|_| is_limited);
        self.requests.limit_last(expires, timeout.map(|timeout| now + timeout));
    }

    /// Fails a request that is pending with this xid, the number of [`Answers::note_queued`], unless it is answered
    /// `within` this time from now: as the request timeout, which stays in force.
    pub fn limit(&mut self, xid: i32, now: Instant, within: Duration) {
        if xid < 0 {
            self.limit_auth(xid, now, within);
        } else {
            self.requests.limit(xid, now, within);
        }
    }

    #[cold]
    pub(super) fn refuse_too_large(
        &mut self,
        token: Option<T>,
        FrameTooLarge { len, limit }: FrameTooLarge,
    ) -> bool {
        let sizes = format_args!("{len} bytes, and the limit (jute.maxbuffer) is {limit}");
        self.refuse(token, Error::refused(ErrorKind::RequestTooLarge, sizes))
    }

    #[cold]
    fn refuse(&mut self, token: Option<T>, error: Error) -> bool {
        self.metrics.refused += 1;
        if let Some(token) = &token {
            self.answers.note_queued(token, 0);
        }
        self.complete(token, Err(error));
        false
    }

    /// Why no more requests like this are taken, if so: nothing more can happen, or there are too many, where
    /// that is refused. Three kinds are never too many: the machine's own about its watches, of which there are no
    /// more than watches; those that delete what earlier requests created; and those that prove a hold.
    #[cold]
    fn refusal_of_more(&self, effect: &Effect<W>) -> Option<Error> {
        if self.is_ended() || self.is_closing() {
            return Some(self.refusal());
        }
        let limited = self.requests.refuses();
        (limited && !effect.is_internal() && !effect.is_reserved())
            .then(|| Error::new(ErrorKind::TooManyRequests, Outcome::NotApplied))
    }

    /// Appends a request whose frame was encoded.
    #[inline]
    pub(super) fn push_request(
        &mut self,
        xid: i32,
        size: usize,
        token: Option<T>,
        effect: Effect<W>,
    ) {
        self.metrics.requests += 1;
        if let Some(token) = &token {
            self.answers.note_queued(token, xid);
        }
        self.requests.push(xid, size, token, effect);
    }

    /// Completes `token` once there is capacity for more requests: at once unless the queue is full, otherwise when half
    /// of it is free.
    pub fn wait_for_capacity(&mut self, token: T) {
        if self.is_ended() || self.is_closing() {
            return self.complete(Some(token), Err(self.refusal()));
        }
        if self.requests.has_many_waiters() {
            // Those whose callers have gone.
            for token in self.requests.take_unwanted_waiters(|token| self.answers.is_wanted(token))
            {
                self.complete(Some(token), Ok(Reply::empty(self.last_zxid)));
            }
        }
        if self.requests.wait_for_capacity(token) {
            self.notify_capacity();
        }
    }

    /// Completes all waiters for capacity.
    pub(super) fn notify_capacity(&mut self) {
        for token in self.requests.take_waiters() {
            self.complete(Some(token), Ok(Reply::empty(self.last_zxid)));
        }
    }

    /// Fails the requests whose reply did not come in time. A sent request keeps its place, for its reply may come.
    pub(super) fn fail_timed_out(&mut self, now: Instant) {
        let credentials = self.time_out_auth(now);
        let is_due = self.requests.is_deadline_due(now);
        if credentials.is_empty() && !is_due {
            return;
        }
        let timeout = self.config.request_timeout;
        let error = |limit: Option<Duration>, outcome| {
            let error = Error::new(ErrorKind::OperationTimeout, outcome);
            match (limit, timeout) {
                (Some(limit), _) => error.with_detail(format_args!(
                    "no reply within {limit:?}, the time limit of the call"
                )),
                (None, Some(timeout)) => error
                    .with_detail(format_args!("no reply within {timeout:?}, the request timeout")),
                (None, None) => error,
            }
        };
        let (sent, unsent) =
            if is_due { self.requests.time_out(now) } else { (Vec::new(), Vec::new()) };
        for (token, limit) in credentials.into_iter().chain(sent) {
            self.metrics.timed_out += 1;
            self.complete(Some(token), Err(error(limit, Outcome::Unknown)));
        }
        for (request, limit) in unsent {
            self.metrics.timed_out += 1;
            self.fail_alone(request, &error(limit, Outcome::NotApplied));
        }
    }

    /// Fails all unsent requests.
    pub(super) fn fail_unsent(&mut self, error: &Error) {
        for request in self.requests.fail_unsent() {
            self.fail(request, error);
        }
    }

    /// Fails all sent requests: their connection is gone.
    pub(super) fn fail_sent(&mut self, error: &Error) {
        for request in self.requests.fail_sent() {
            self.fail(request, error);
        }
    }

    /// Fails a request while others stay: a watch it was about may not be wanted any more.
    pub(super) fn fail_alone(&mut self, request: Pending<T, W>, error: &Error) {
        let path = request.effect.watched_path().cloned();
        self.fail(request, error);
        if let Some(path) = path {
            self.reconcile(&path);
        }
    }

    /// Fails a request that has left the queue, whatever it was.
    pub(super) fn fail(&mut self, request: Pending<T, W>, error: &Error) {
        let is_internal = request.effect.is_internal();
        if let Effect::Watches(effect) = request.effect {
            self.withdraw(*effect);
        }
        if is_internal && error.outcome() == Outcome::Unknown {
            // The watch is gone with its connection, as the caller requested.
            return self.nothing_to_send(request.token);
        }
        self.complete(request.token, Err(error.clone()));
    }
}

#[cold]
fn harmful(harm: HarmfulWrite) -> Error {
    let error = Error::refused(ErrorKind::BadArguments, harm);
    harm.index.into_iter().fold(error, Error::with_index)
}
