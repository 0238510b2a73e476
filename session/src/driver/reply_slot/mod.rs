//! Delivers replies from the machine to their callers.
//!
//! A [`ReplySlot`] is shared by the machine's side ([`Token`]) and the caller's side ([`PendingReply`]). Slots are
//! reused for later requests with the capacity of their path and reply buffers: in steady state, a request and its reply
//! allocate nothing here.
//!
//! The machine stores a reply in its slot as soon as it has read it; the caller is woken after the machine's lock is
//! released. A reply that follows undelivered events is deferred until they are delivered: a client learns of a change
//! from its watcher before it can read it.

use std::{
    cell::Cell,
    fmt, mem,
    ops::Range,
    sync::{PoisonError, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use docent_protocol::{Decode, DecodeError, OpCode, jute::Reader};
use tracing::{Span, trace, trace_span};

use crate::{
    Error, ErrorKind, Outcome,
    machine::{Answers, Body, Reply, answers::MAX_MEMORY_FACTOR},
    planted,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicI32, Ordering},
        thread_local,
    },
};

/// The largest capacity of a path, in bytes, with which a slot is reused.
const KEPT_PATH: usize = 256;

/// The largest number of slots kept for reuse.
const KEPT_SLOTS: usize = 1024;

/// The place of one reply, between the machine and the caller.
#[derive(Debug)]
pub(crate) struct ReplySlot {
    /// The caller's path, without the chroot.
    path: String,
    /// The xid of the request; 0 if it was refused. Undefined for requests that have none.
    xid: AtomicI32,
    state: Mutex<SlotState>,
    limiter: Option<Weak<dyn Limiter>>,
}

/// Limits the time of a request that is pending.
pub(crate) trait Limiter: fmt::Debug + Send + Sync {
    /// Limits the time of the request that was queued with this xid, from now. Without it, or once it was answered, this
    /// does nothing.
    fn limit(&self, xid: i32, time: Duration);
}

/// Fields rather than variants, so that a change of stage drops nothing.
struct SlotState {
    stage: Stage,
    /// The waker of the caller.
    waker: Option<Waker>,
    reply: StoredReply,
    error: Option<Error>,
    /// The span of the request, if requests are traced.
    span: Option<Box<Span>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// There is no reply yet.
    Waiting,
    /// The reply is stored and follows events that are not delivered yet.
    Deferred,
    /// The reply is `error` if that is set, and otherwise `reply`.
    Ready,
    /// The caller has dropped its half.
    Abandoned,
}

impl SlotState {
    /// Returns the waker of an earlier poll, to be dropped after the slot is unlocked: the drop may run code of the
    /// caller, which may lock the machine.
    #[must_use]
    fn register(&mut self, cx: &Context<'_>) -> Option<Waker> {
        match &self.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            None if self.stage == Stage::Abandoned => None,
            _ => self.waker.replace(cx.waker().clone()),
        }
    }
}

/// Without the reply, which may contain data.
impl fmt::Debug for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt(f)
    }
}

impl ReplySlot {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the reply and returns the waker to call; none if the reply is deferred.
    #[inline(always)] // 52 more instructions a getData without `put`, `fill`, `store`.
    fn fill(&self, result: Result<Reply<'_>, Error>, deferred: bool) -> Option<Waker> {
        let mut slot = self.lock();
        if slot.stage != Stage::Waiting {
            return None;
        }
        slot.stage = if deferred { Stage::Deferred } else { Stage::Ready };
        match result {
            Ok(reply) => slot.reply.store(reply),
            Err(error) => slot.error = Some(error),
        }
        if deferred { None } else { slot.waker.take() }
    }

    /// Makes a deferred reply ready and returns the waker to call.
    fn release(&self) -> Option<Waker> {
        let mut slot = self.lock();
        if slot.stage != Stage::Deferred {
            return None;
        }
        slot.stage = Stage::Ready;
        slot.waker.take()
    }
}

/// The machine's half of a slot. The machine returns every token it was given, with one reply.
#[derive(Debug)]
pub(crate) struct Token(Arc<ReplySlot>);

/// The caller's half of a slot. Dropping it abandons the reply.
#[derive(Debug)]
pub(crate) struct PendingReply {
    slot: Arc<ReplySlot>,
    stage: CallerStage,
}

/// One check of a poll finds all that is unusual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallerStage {
    Waiting,
    /// As `Waiting`, and the slot has the span of the request.
    Traced,
    /// The reply was taken.
    Taken,
}

/// Used slots, for reuse in the order of their return.
#[derive(Debug, Default)]
pub(crate) struct SlotPool {
    /// The slots to take next, from the back.
    next: Vec<Arc<ReplySlot>>,
    /// The slots after them, from the front. Two lists: with a `VecDeque`, a getData takes 14 more instructions.
    later: Vec<Arc<ReplySlot>>,
    /// That of all slots.
    limiter: Option<Weak<dyn Limiter>>,
}

impl SlotPool {
    /// The two halves of a slot for a request about `path`.
    #[inline(always)] // 21 more instructions a getData without `take`, `reuse`.
    pub(crate) fn take(&mut self, path: &str) -> (Token, PendingReply) {
        let slot = self.reuse(path).unwrap_or_else(|| self.new_slot(path));
        (Token(Arc::clone(&slot)), PendingReply { slot, stage: CallerStage::Waiting })
    }

    /// The oldest slot. If its caller still holds it, it is left to the caller, and a new one is created.
    #[inline(always)] // 21 more instructions a getData without `take`, `reuse`.
    fn reuse(&mut self, path: &str) -> Option<Arc<ReplySlot>> {
        if self.next.is_empty() {
            self.refill();
        }
        let mut slot = self.next.pop()?;
        let ReplySlot { path: old, xid: _, state, limiter: _ } = Arc::get_mut(&mut slot)?;
        old.clear();
        old.push_str(path);
        let state = state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.stage = Stage::Waiting;
        state.reply.short.clear();
        Some(slot)
    }

    #[cold]
    fn new_slot(&self, path: &str) -> Arc<ReplySlot> {
        let state = SlotState {
            stage: Stage::Waiting,
            waker: None,
            reply: StoredReply::default(),
            error: None,
            span: None,
        };
        Arc::new(ReplySlot {
            path: path.to_owned(),
            xid: AtomicI32::new(0),
            state: Mutex::new(state),
            limiter: self.limiter.clone(),
        })
    }

    #[cold]
    fn refill(&mut self) {
        mem::swap(&mut self.next, &mut self.later);
        self.next.reverse();
    }

    fn len(&self) -> usize {
        self.next.len() + self.later.len()
    }

    /// Keeps a filled slot for reuse.
    #[inline]
    fn put_back(&mut self, slot: Arc<ReplySlot>) {
        #[cfg(docent_threads)]
        assert!(
            !self.next.iter().chain(&self.later).any(|kept| Arc::ptr_eq(kept, &slot)),
            "a slot is released twice"
        );
        if self.len() < KEPT_SLOTS && slot.path.capacity() <= KEPT_PATH {
            self.later.push(slot);
        }
    }

    /// Drops all slots except `len`, and the buffers of the remaining ones.
    fn shrink_to(&mut self, len: usize) {
        self.next.append(&mut self.later);
        self.later = Vec::new();
        self.next.truncate(len);
        self.next.shrink_to(len);
        for state in self.next.iter_mut().filter_map(Arc::get_mut).map(|slot| slot.state.get_mut())
        {
            state.unwrap_or_else(PoisonError::into_inner).reply.short = Vec::new();
        }
    }
}

/// Records up to this size, in bytes, are copied into their slot. A Stat has 68.
const SHORT: usize = 80;

/// The number of slots that an idle session keeps.
const IDLE_SLOTS: usize = 2;

/// The [`Answers`] of the driver's machine: puts each reply into its slot.
#[derive(Debug, Default)]
pub(crate) struct ReplySlots {
    pool: SlotPool,
    /// To be called after the machine's lock is released.
    wakers: Vec<Waker>,
    /// Slots whose replies follow undelivered events.
    deferred: Vec<Arc<ReplySlot>>,
}

impl ReplySlots {
    #[cold]
    fn defer(&mut self, slot: &Arc<ReplySlot>, result: Result<Reply<'_>, Error>) {
        slot.fill(result, true);
        self.deferred.push(Arc::clone(slot));
    }

    /// Sets what limits the time of the requests.
    pub(crate) fn set_limiter(&mut self, limiter: Weak<dyn Limiter>) {
        self.pool.limiter = Some(limiter);
    }

    #[inline]
    pub(crate) fn take_slot(&mut self, path: &str) -> (Token, PendingReply) {
        self.pool.take(path)
    }
}

impl Answers<Token> for ReplySlots {
    #[inline(always)] // 52 more instructions a getData without `put`, `fill`, `store`.
    fn put(&mut self, token: Token, result: Result<Reply<'_>, Error>, after_events: bool) {
        let Token(slot) = token;
        // A caller that has dropped its half needs no reply, and nothing keeps the reply in memory.
        let is_wanted = Arc::strong_count(&slot) > 1;
        if planted::is("slot-released-twice") && !is_wanted {
            self.pool.put_back(Arc::clone(&slot));
        }
        if is_wanted {
            if after_events {
                self.defer(&slot, result);
            } else if let Some(waker) = slot.fill(result, false) {
                self.wakers.push(waker);
            }
        }
        self.pool.put_back(slot);
    }

    #[inline]
    fn note_queued(&mut self, Token(slot): &Token, xid: i32) {
        slot.xid.store(xid, Ordering::Relaxed);
    }

    fn is_wanted(&self, Token(slot): &Token) -> bool {
        Arc::strong_count(slot) > 1
    }

    fn is_empty(&self) -> bool {
        self.wakers.is_empty() && self.deferred.is_empty()
    }

    fn shrink_to(&mut self, entries: usize) {
        self.pool.shrink_to(IDLE_SLOTS);
        self.wakers.shrink_to(entries);
        self.deferred.shrink_to(entries);
    }
}

/// The wake-ups of replies, taken out of the machine to be done after its lock is released.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    wakers: Vec<Waker>,
    deferred: Vec<Arc<ReplySlot>>,
}

impl Wakeups {
    /// Takes over all wakers and deferred replies.
    pub(crate) fn collect(&mut self, slots: &mut ReplySlots) {
        if self.wakers.is_empty() {
            mem::swap(&mut self.wakers, &mut slots.wakers);
        } else {
            self.wakers.append(&mut slots.wakers);
        }
        self.deferred.append(&mut slots.deferred);
    }

    /// Takes over the wakers alone: deferred replies stay behind their events.
    pub(crate) fn collect_wakers(&mut self, slots: &mut ReplySlots) {
        self.wakers.append(&mut slots.wakers);
    }

    /// Wakes the callers whose replies are ready.
    pub(crate) fn wake(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }

    /// Makes the deferred replies ready, after the events before them were delivered.
    pub(crate) fn release_deferred(&mut self) {
        for slot in self.deferred.drain(..) {
            if let Some(waker) = slot.release() {
                waker.wake();
            }
        }
    }

    pub(crate) fn shrink_to(&mut self, entries: usize) {
        self.wakers.shrink_to(entries);
        self.deferred.shrink_to(entries);
    }
}

/// The target of the spans and events of requests.
const TRACE_TARGET: &str = "docent::request";

thread_local! {
    /// Whether this thread drops a call whose requests are not wanted any more.
    static WITHDRAWS: Cell<bool> = const { Cell::new(false) };
}

/// Drops a call of several requests: those that were not sent yet are not sent any more.
pub(crate) fn withdraw(call: impl Sized) {
    WITHDRAWS.with(|withdraws| withdraws.set(true));
    drop(call);
    WITHDRAWS.with(|withdraws| withdraws.set(false));
}

impl PendingReply {
    /// Opens a span at level TRACE, which ends when the caller takes the reply.
    #[cold]
    pub(crate) fn trace(&mut self, op: OpCode) {
        if matches!(op, OpCode::Unknown(_)) {
            // A wait for capacity is no request.
            return;
        }
        let has_xid = !matches!(op, OpCode::Auth | OpCode::CloseSession);
        let path = &*self.slot.path;
        let xid = Some(self.slot.xid.load(Ordering::Relaxed)).filter(|xid| has_xid && *xid != 0);
        let span = trace_span!(target: TRACE_TARGET, "request", %op, path, xid);
        if !span.is_disabled() {
            self.slot.lock().span = Some(Box::new(span));
            self.stage = CallerStage::Traced;
        }
    }

    /// Whether the reply was taken. If it is there and the request is traced, its span ends.
    #[cold]
    fn is_taken(&mut self) -> bool {
        if self.stage == CallerStage::Taken {
            return true;
        }
        let mut slot = self.slot.lock();
        if slot.stage == Stage::Ready {
            self.stage = CallerStage::Waiting;
            let (span, error) = (slot.span.take(), slot.error.clone());
            drop(slot);
            // A subscriber is not called under the lock.
            match (span, error) {
                (None, _) => {}
                (Some(span), None) => trace!(target: TRACE_TARGET, parent: &*span, "reply"),
                (Some(span), Some(error)) => {
                    trace!(target: TRACE_TARGET, parent: &*span, %error, "failed");
                }
            }
        }
        false
    }

    /// Limits the time of the request, from now: it fails then, unless it was answered or refused before.
    #[cold]
    pub(crate) fn limit(&self, time: Duration) {
        // Nothing is locked under a slot's lock.
        let _inverted = planted::is("lock-order-inverted").then(|| self.slot.lock());
        let limiter = self.slot.limiter.as_ref().and_then(Weak::upgrade);
        let xid = self.slot.xid.load(Ordering::Relaxed);
        // Without a client, its end has completed the request.
        if let Some(limiter) = limiter.filter(|_| xid != 0 && self.stage != CallerStage::Taken) {
            limiter.limit(xid, time);
        }
    }

    /// The path of the request, as the caller gave it.
    pub(crate) fn path(&self) -> &str {
        &self.slot.path
    }

    /// Polls for the reply, and decodes it with `read` in place. Errors pass through `name`, which also receives the
    /// path. Polled again after completion, it returns an error.
    #[inline]
    pub(crate) fn poll_read<R>(
        &mut self,
        cx: &Context<'_>,
        name: impl Fn(Error, &str) -> Error,
        read: impl FnOnce(&mut StoredReply) -> Result<R, Error>,
    ) -> Poll<Result<R, Error>> {
        if self.stage != CallerStage::Waiting && self.is_taken() {
            return Poll::Ready(Err(already_taken()));
        }
        let mut slot = self.slot.lock();
        if slot.stage != Stage::Ready {
            let replaced = slot.register(cx);
            drop(slot);
            drop(replaced);
            return Poll::Pending;
        }
        self.stage = CallerStage::Taken;
        if slot.error.is_some() {
            return self.failed(slot, name);
        }
        let result = read(&mut slot.reply);
        slot.reply.memory = None;
        match result {
            Ok(value) => Poll::Ready(Ok(value)),
            Err(error) => Poll::Ready(Err(name(error, self.path()))),
        }
    }

    #[cold]
    fn failed<R>(
        &self,
        mut slot: MutexGuard<'_, SlotState>,
        name: impl Fn(Error, &str) -> Error,
    ) -> Poll<Result<R, Error>> {
        let error = slot.error.take().unwrap_or_else(already_taken);
        Poll::Ready(Err(name(error, self.path())))
    }

    #[cold]
    fn abandon(&self) {
        if WITHDRAWS.with(Cell::get) {
            self.limit(Duration::ZERO);
        }
        // The reply may be large, and the slot may be kept.
        let mut slot = self.slot.lock();
        slot.stage = Stage::Abandoned;
        let contents = (slot.waker.take(), slot.reply.memory.take(), slot.error.take());
        let span = slot.span.take();
        drop(slot);
        drop(contents);
        if let Some(span) = span {
            trace!(target: TRACE_TARGET, parent: &*span, "dropped by the caller");
        }
    }
}

impl Drop for PendingReply {
    #[inline]
    fn drop(&mut self) {
        if self.stage != CallerStage::Taken {
            self.abandon();
        }
    }
}

/// The error of a future that is polled again after completion, instead of a panic.
#[cold]
pub(crate) fn already_taken() -> Error {
    Error::new(ErrorKind::Closed, Outcome::Unknown).with_detail("the reply was taken before")
}

/// A reply in its slot, before it is decoded.
#[derive(Default)]
pub(crate) struct StoredReply {
    /// The zxid of the reply header.
    zxid: i64,
    /// The record of a short reply, copied.
    short: Vec<u8>,
    /// The shareable memory that contains the record of a longer reply.
    memory: Option<Bytes>,
    /// The offset of the record in `memory`, and its length.
    place: (usize, usize),
    /// Parts of a longer record that are shorter than this are copied.
    copy_below: usize,
}

impl StoredReply {
    #[inline(always)] // 52 more instructions a getData without `put`, `fill`, `store`.
    fn store(&mut self, reply: Reply<'_>) {
        self.zxid = reply.zxid();
        match reply.memory() {
            Some((memory, start)) if reply.bytes().len() > SHORT => {
                self.copy_below = reply.copy_below();
                self.place = (start, reply.bytes().len());
                self.memory = Some(memory.clone());
            }
            _ => self.short.extend_from_slice(reply.bytes()),
        }
    }

    /// The reply as it was stored.
    #[inline]
    pub(crate) fn reply(&self) -> Reply<'_> {
        let Some(memory) = &self.memory else { return Reply::new(self.zxid, &self.short) };
        let (start, len) = self.place;
        let bytes = memory.get(start..start + len).unwrap_or_default();
        Reply::new(self.zxid, bytes).within(memory, self.copy_below)
    }

    /// The one part of the record that the caller owns; the memory is passed on, not shared.
    #[inline]
    pub(crate) fn take_part(&mut self, part: Range<usize>) -> Bytes {
        match self.memory.take() {
            Some(mut memory) if part.len() >= self.copy_below => {
                let (start, _) = self.place;
                memory.truncate(start + part.end);
                memory.advance((start + part.start).min(memory.len()));
                memory
            }
            memory => self.copy(memory, part),
        }
    }

    #[cold]
    fn copy(&mut self, memory: Option<Bytes>, part: Range<usize>) -> Bytes {
        self.memory = memory;
        Bytes::copy_from_slice(self.reply().bytes().get(part).unwrap_or_default())
    }
}

impl<'a> Reply<'a> {
    #[inline]
    pub(crate) fn read<R: Decode<'a>>(&self) -> Result<R, DecodeError> {
        R::decode(&mut Reader::new(self.bytes()))
    }

    /// The whole record, and the size below which a part of it is copied.
    pub(crate) fn body_of_parts(&self) -> (Body, usize) {
        let body = self.to_body();
        let copy_below = match self.memory() {
            Some(_) if self.bytes().len() >= self.copy_below() => self.copy_below(),
            // The body has its own memory.
            _ => body.bytes.len().div_ceil(MAX_MEMORY_FACTOR),
        };
        (body, copy_below)
    }
}

#[cfg(test)]
mod tests;
