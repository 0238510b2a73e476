//! How an answer gets from the driver to who waits for it.
//!
//! A [`Slot`] is shared by the two and used again for later requests, with the room for the path and the answer in
//! it: while requests come and go, waiting for an answer allocates nothing.
//!
//! The machine puts an answer into its slot as soon as it has read it; only who waits is woken later, behind the
//! machine's lock. An answer behind events that were not told yet is held back until they are: a client hears of a
//! change before it reads it.

use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use crate::{
    Error, ErrorKind, Outcome,
    response::{Received, Record, Request},
    state::{Answers, Reply},
};

/// Paths that take more are not kept with their slot.
const KEPT_PATH: usize = 256;

/// How many slots are kept for later requests.
const KEPT_SLOTS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Slot {
    /// As the caller knows it.
    path: String,
    told: Mutex<Told>,
}

/// What becomes of a request. Fields rather than variants, so that a change of stage drops nothing.
struct Told {
    stage: Stage,
    /// Who is to be woken by the answer.
    waker: Option<Waker>,
    /// Of the reply.
    zxid: i64,
    /// A short reply, copied.
    short: Vec<u8>,
    /// The memory a longer one is a part of, if that can be shared.
    long: Option<Bytes>,
    /// Where in `long` it begins, and its length.
    place: (usize, usize),
    /// Of a longer one: what is shorter is copied out of it.
    copy_below: usize,
    error: Option<Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// There is an answer, but it is not told yet.
    Held,
    /// By `error`, `long` or `short`, the first that is there.
    Answered,
    /// Nobody wants the answer.
    Over,
}

impl Told {
    fn wait(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None if self.stage == Stage::Over => {}
            None => self.waker = Some(cx.waker().clone()),
        }
    }
}

/// Without the reply, which may have data in it.
impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt(f)
    }
}

impl Slot {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the answer there, and says whom to wake; nobody if it is held back.
    #[inline(always)]
    fn tell(&self, told: Result<Reply<'_>, Error>, held: bool) -> Option<Waker> {
        let mut slot = self.lock();
        if slot.stage != Stage::Waiting {
            return None;
        }
        slot.stage = if held { Stage::Held } else { Stage::Answered };
        match told {
            Ok(reply) => {
                slot.zxid = reply.zxid();
                match reply.memory() {
                    Some((memory, start)) if reply.bytes().len() > SHORT => {
                        slot.copy_below = reply.copy_below();
                        slot.place = (start, reply.bytes().len());
                        slot.long = Some(memory.clone());
                    }
                    _ => slot.short.extend_from_slice(reply.bytes()),
                }
            }
            Err(error) => slot.error = Some(error),
        }
        if held { None } else { slot.waker.take() }
    }

    /// Tells an answer that was held back, and says whom to wake.
    fn release(&self) -> Option<Waker> {
        let mut slot = self.lock();
        if slot.stage != Stage::Held {
            return None;
        }
        slot.stage = Stage::Answered;
        slot.waker.take()
    }
}

/// The driver's half, for the one answer there will be: the machine gives back every token it was given.
#[derive(Debug)]
pub(crate) struct Token(Arc<Slot>);

/// The caller's half. Dropping it gives up the answer.
#[derive(Debug)]
pub(crate) struct Answer {
    slot: Arc<Slot>,
    taken: bool,
}

/// Slots that were used and can be used again, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// From the back.
    next: Vec<Arc<Slot>>,
    /// Those behind them, from the front. Two lists, for a queue takes more than twice as many steps.
    later: Vec<Arc<Slot>>,
}

impl Slots {
    /// The two halves of a slot for a request about `path`.
    #[inline(always)]
    pub(crate) fn take(&mut self, path: &str) -> (Token, Answer) {
        let slot = self.reuse(path).unwrap_or_else(|| new_slot(path));
        (Token(Arc::clone(&slot)), Answer { slot, taken: false })
    }

    /// The oldest, unless its caller still has it: then it is left to the caller.
    #[inline(always)]
    fn reuse(&mut self, path: &str) -> Option<Arc<Slot>> {
        if self.next.is_empty() {
            self.turn();
        }
        let mut slot = self.next.pop()?;
        let Slot { path: old, told } = Arc::get_mut(&mut slot)?;
        old.clear();
        old.push_str(path);
        let told = told.get_mut().unwrap_or_else(PoisonError::into_inner);
        told.stage = Stage::Waiting;
        told.short.clear();
        Some(slot)
    }

    #[cold]
    fn turn(&mut self) {
        mem::swap(&mut self.next, &mut self.later);
        self.next.reverse();
    }

    fn len(&self) -> usize {
        self.next.len() + self.later.len()
    }

    /// Takes a slot back that has its answer.
    #[inline(always)]
    fn give_back(&mut self, slot: Arc<Slot>) {
        if self.len() < KEPT_SLOTS && slot.path.capacity() <= KEPT_PATH {
            self.later.push(slot);
        }
    }

    /// Lets go of all but a few.
    fn shrink_to(&mut self, len: usize) {
        self.next.append(&mut self.later);
        self.later = Vec::new();
        self.next.truncate(len);
        self.next.shrink_to(len);
        for told in self.next.iter_mut().filter_map(Arc::get_mut).map(|slot| slot.told.get_mut()) {
            told.unwrap_or_else(PoisonError::into_inner).short = Vec::new();
        }
    }
}

#[cold]
fn new_slot(path: &str) -> Arc<Slot> {
    let told = Told {
        stage: Stage::Waiting,
        waker: None,
        zxid: 0,
        short: Vec::new(),
        long: None,
        place: (0, 0),
        copy_below: 0,
        error: None,
    };
    Arc::new(Slot { path: path.to_owned(), told: Mutex::new(told) })
}

/// Replies up to this size stay in their slot: a Stat does.
const SHORT: usize = 80;

/// How many slots an idle session keeps.
const IDLE_SLOTS: usize = 2;

/// Where the driver's machine puts its answers: into the slots of who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    slots: Slots,
    /// Whom to wake behind the lock.
    wakers: Vec<Waker>,
    /// Whose answers are behind events that were not told yet.
    held: Vec<Arc<Slot>>,
}

impl Delivery {
    #[cold]
    fn hold(&mut self, slot: &Arc<Slot>, told: Result<Reply<'_>, Error>) {
        slot.tell(told, true);
        self.held.push(Arc::clone(slot));
    }

    #[inline(always)]
    pub(crate) fn take_slot(&mut self, path: &str) -> (Token, Answer) {
        self.slots.take(path)
    }
}

impl Answers<Token> for Delivery {
    #[inline(always)]
    fn put(&mut self, token: Token, told: Result<Reply<'_>, Error>, after_events: bool) {
        let Token(slot) = token;
        // If nobody else has it, the caller has gone, and nobody keeps the answer in memory.
        if Arc::strong_count(&slot) > 1 {
            if after_events {
                self.hold(&slot, told);
            } else if let Some(waker) = slot.tell(told, false) {
                self.wakers.push(waker);
            }
        }
        self.slots.give_back(slot);
    }

    fn is_empty(&self) -> bool {
        self.wakers.is_empty() && self.held.is_empty()
    }

    fn shrink_to(&mut self, entries: usize) {
        self.slots.shrink_to(IDLE_SLOTS);
        self.wakers.shrink_to(entries);
        self.held.shrink_to(entries);
    }
}

/// What is done behind the lock about answers.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    wakers: Vec<Waker>,
    held: Vec<Arc<Slot>>,
}

impl Delivered {
    /// Takes over what there is to do.
    pub(crate) fn collect(&mut self, delivery: &mut Delivery) {
        if self.wakers.is_empty() {
            mem::swap(&mut self.wakers, &mut delivery.wakers);
        } else {
            self.wakers.append(&mut delivery.wakers);
        }
        self.held.append(&mut delivery.held);
    }

    /// Wakes those whose answers are in their slots.
    pub(crate) fn wake(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }

    /// Gives the answers that were held back, once the events in front of them are told.
    pub(crate) fn release(&mut self) {
        for slot in self.held.drain(..) {
            if let Some(waker) = slot.release() {
                waker.wake();
            }
        }
    }

    pub(crate) fn shrink_to(&mut self, entries: usize) {
        self.wakers.shrink_to(entries);
        self.held.shrink_to(entries);
    }
}

impl Answer {
    /// The path of the request, as the caller gave it.
    pub(crate) fn path(&self) -> &str {
        &self.slot.path
    }

    /// The answer, as `read` reads it where it lies. An error once it was ready.
    #[inline(always)]
    pub(crate) fn poll_read<R>(
        &mut self,
        cx: &Context<'_>,
        request: &Request,
        read: impl FnOnce(Received<'_>) -> Result<R, Error>,
    ) -> Poll<Result<R, Error>> {
        if self.taken {
            return Poll::Ready(Err(taken_before()));
        }
        let mut told = self.slot.lock();
        if told.stage != Stage::Answered {
            told.wait(cx);
            return Poll::Pending;
        }
        self.taken = true;
        if told.error.is_some() {
            return self.failed(told, request);
        }
        let told = &mut *told;
        let (start, len) = told.place;
        // In one place for both, so that it is not a function.
        let result = read(Received {
            zxid: told.zxid,
            record: match told.long.take() {
                Some(memory) => Record::Shared { memory, start, len, copy_below: told.copy_below },
                None => Record::Short(&told.short),
            },
            request,
        });
        match result {
            Ok(value) => Poll::Ready(Ok(value)),
            Err(error) => Poll::Ready(Err(request.named(error, self.path()))),
        }
    }

    #[cold]
    fn failed<R>(
        &self,
        mut told: MutexGuard<'_, Told>,
        request: &Request,
    ) -> Poll<Result<R, Error>> {
        let error = told.error.take().unwrap_or_else(taken_before);
        Poll::Ready(Err(request.named(error, self.path())))
    }
}

/// A future was polled after it was ready: an error rather than a panic.
#[cold]
pub(crate) fn taken_before() -> Error {
    Error::new(ErrorKind::Closed, Outcome::Unknown).with_detail("the answer was taken before")
}

impl Answer {
    #[cold]
    fn give_up(&self) {
        // The answer may be large, and the slot may be kept.
        let mut told = self.slot.lock();
        told.stage = Stage::Over;
        let before = (told.waker.take(), told.long.take(), told.error.take());
        drop(told);
        drop(before);
    }
}

impl Drop for Answer {
    #[inline]
    fn drop(&mut self) {
        if !self.taken {
            self.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Weak,
        atomic::{AtomicUsize, Ordering},
    };
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    const fn reply(zxid: i64) -> Result<Reply<'static>, Error> {
        Ok(Reply::empty(zxid))
    }

    /// Answers, wakes, and gives the slots to the next.
    fn deliver(delivery: &mut Delivery, token: Token, told: Result<Reply<'_>, Error>) {
        delivery.put(token, told, false);
        let mut delivered = Delivered::default();
        delivered.collect(delivery);
        assert!(delivery.is_empty());
        delivered.wake();
    }

    fn poll(answer: &mut Answer, waker: &Arc<Count>) -> Poll<Option<i64>> {
        let waker = Waker::from(Arc::clone(waker));
        answer
            .poll_read(&Context::from_waker(&waker), &Request::nothing(), |reply| Ok(reply.zxid))
            .map(Result::ok)
    }

    #[test]
    fn an_answer_wakes_who_asked_last_and_comes_once() {
        let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let mut delivery = Delivery::default();
        let (token, mut answer) = delivery.take_slot("/a");
        assert_eq!(poll(&mut answer, &first), Poll::Pending);
        assert_eq!(poll(&mut answer, &second), Poll::Pending);
        deliver(&mut delivery, token, reply(7));
        assert_eq!(first.0.load(Ordering::Relaxed), 0);
        assert_eq!(second.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut answer, &first), Poll::Ready(Some(7)));
        assert_eq!(poll(&mut answer, &first), Poll::Ready(None));
    }

    #[test]
    fn a_slot_is_used_again_once_both_have_let_go_of_it() {
        let waker = Arc::new(Count::default());
        let mut delivery = Delivery::default();
        let (token, mut answer) = delivery.take_slot("/a/long/one");
        let old = Arc::as_ptr(&answer.slot);
        deliver(&mut delivery, token, Ok(Reply::new(1, b"old")));
        // Its caller still has it.
        let (_, other) = delivery.take_slot("/b");
        assert_ne!(Arc::as_ptr(&other.slot), old);
        assert_eq!(poll(&mut answer, &waker), Poll::Ready(Some(1)));

        let (token, mut answer) = delivery.take_slot("/c");
        let old = Arc::as_ptr(&answer.slot);
        deliver(&mut delivery, token, Ok(Reply::new(2, b"old")));
        assert_eq!(poll(&mut answer, &waker), Poll::Ready(Some(2)));
        drop(answer);
        let (token, mut answer) = delivery.take_slot("/d");
        assert_eq!(Arc::as_ptr(&answer.slot), old);
        assert_eq!(answer.path(), "/d");
        assert_eq!(poll(&mut answer, &waker), Poll::Pending, "not the answer of before");
        deliver(&mut delivery, token, Ok(Reply::new(3, b"new")));
        let context = Waker::from(waker);
        let told = answer.poll_read(&Context::from_waker(&context), &Request::nothing(), |reply| {
            Ok(reply.body())
        });
        assert!(matches!(told, Poll::Ready(Ok(body)) if body.bytes == "new"));
    }

    /// Neither before nor after it has come, nor with the waker of who asked.
    #[test]
    fn an_answer_that_nobody_wants_stays_nowhere() {
        let waker = Arc::new(Count::default());
        let long = Bytes::from(vec![0; SHORT + 1]);
        let told = || Ok(Reply::new(1, &long).within(&long, 0));
        let mut delivery = Delivery::default();

        let (token, answer) = delivery.take_slot("/before");
        drop(answer);
        deliver(&mut delivery, token, told());
        assert!(delivery.slots.len() == 1 && long.is_unique());

        let (token, answer) = delivery.take_slot("/between");
        let told_there = answer.slot.tell(told(), false);
        assert!(told_there.is_none() && !long.is_unique());
        drop(answer);
        assert!(long.is_unique());
        drop(token);

        let (token, mut answer) = delivery.take_slot("/after");
        let weak: Weak<Count> = Arc::downgrade(&waker);
        assert_eq!(poll(&mut answer, &waker), Poll::Pending);
        drop(waker);
        deliver(&mut delivery, token, told());
        assert!(weak.upgrade().is_none() && !long.is_unique());
        drop(answer);
        assert!(long.is_unique());
    }

    /// So that a client hears of a change before it reads it.
    #[test]
    fn an_answer_behind_events_is_held_until_they_are_told() {
        let waker = Arc::new(Count::default());
        let mut delivery = Delivery::default();
        let (token, mut answer) = delivery.take_slot("/a");
        assert_eq!(poll(&mut answer, &waker), Poll::Pending);
        delivery.put(token, reply(7), true);
        assert!(!delivery.is_empty());
        let mut delivered = Delivered::default();
        delivered.collect(&mut delivery);
        delivered.wake();
        assert_eq!(poll(&mut answer, &waker), Poll::Pending);
        assert_eq!(waker.0.load(Ordering::Relaxed), 0);
        delivered.release();
        assert_eq!(waker.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut answer, &waker), Poll::Ready(Some(7)));
    }

    #[test]
    fn nothing_of_a_reply_is_in_a_log() {
        let mut delivery = Delivery::default();
        let (token, answer) = delivery.take_slot("/a");
        delivery.put(token, Ok(Reply::new(1, b"secret")), true);
        assert!(!format!("{delivery:?}").contains(&format!("{:?}", b"secret")));
        let (token, _answer) = delivery.take_slot("/b");
        delivery.put(token, Ok(Reply::new(1, b"secret")), false);
        assert!(!format!("{delivery:?} {answer:?}").contains(&format!("{:?}", b"secret")[1..9]));
    }

    #[test]
    fn not_more_than_so_many_are_kept() {
        let mut delivery = Delivery::default();
        let answers: Vec<_> = (0..KEPT_SLOTS + 10)
            .map(|_| {
                let (token, answer) = Delivery::default().take_slot("/a");
                delivery.put(token, Ok(Reply::new(1, b"short")), false);
                answer
            })
            .collect();
        assert_eq!(delivery.slots.len(), KEPT_SLOTS);
        drop(answers);
        delivery.shrink_to(16);
        assert_eq!(delivery.slots.len(), IDLE_SLOTS);
        let told = |slot: &Arc<Slot>| slot.lock().short.capacity();
        assert!(delivery.slots.next.iter().all(|slot| told(slot) == 0));

        let long = "/".repeat(KEPT_PATH + 1);
        let (token, _answer) = Delivery::default().take_slot(&long);
        delivery.put(token, reply(1), false);
        assert_eq!(delivery.slots.len(), IDLE_SLOTS);
    }
}
