//! Slots are reused, filled and read once; replies behind events are deferred; memory stays bounded.

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

/// Stores a reply, and wakes its caller.
fn deliver(slots: &mut ReplySlots, token: Token, result: Result<Reply<'_>, Error>) {
    slots.put(token, result, false);
    let mut wakeups = Wakeups::default();
    wakeups.collect(slots);
    assert!(slots.is_empty());
    wakeups.wake();
}

fn unnamed(error: Error, _: &str) -> Error {
    error
}

fn poll(answer: &mut PendingReply, waker: &Arc<Count>) -> Poll<Option<i64>> {
    let waker = Waker::from(Arc::clone(waker));
    answer
        .poll_read(&Context::from_waker(&waker), unnamed, |stored| Ok(stored.zxid))
        .map(Result::ok)
}

#[test]
fn a_reply_wakes_the_last_poller_and_comes_once() {
    let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let mut slots = ReplySlots::default();
    let (token, mut answer) = slots.take_slot("/a");
    assert_eq!(poll(&mut answer, &first), Poll::Pending);
    assert_eq!(poll(&mut answer, &second), Poll::Pending);
    deliver(&mut slots, token, reply(7));
    assert_eq!(first.0.load(Ordering::Relaxed), 0);
    assert_eq!(second.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut answer, &first), Poll::Ready(Some(7)));
    assert_eq!(poll(&mut answer, &first), Poll::Ready(None));
}

/// A waker that locks the slot when it is dropped, as one does that owns the last clone of the client.
struct LocksWhenDropped(Arc<ReplySlot>);

impl Wake for LocksWhenDropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for LocksWhenDropped {
    fn drop(&mut self) {
        assert!(self.0.state.try_lock().is_ok(), "the slot is locked");
    }
}

// Case (Found in docent itself): a waker that owned the last clone of the client was dropped under the lock of a slot.
#[test]
fn a_replaced_waker_is_dropped_without_a_lock() {
    let (_token, mut answer) = ReplySlots::default().take_slot("/a");
    let first = Waker::from(Arc::new(LocksWhenDropped(Arc::clone(&answer.slot))));
    for waker in [first, Waker::from(Arc::new(Count::default()))] {
        let poll =
            answer.poll_read(&Context::from_waker(&waker), unnamed, |stored| Ok(stored.zxid));
        assert!(poll.is_pending());
    }
}

#[test]
fn a_slot_is_reused_once_both_halves_are_dropped() {
    let waker = Arc::new(Count::default());
    let mut slots = ReplySlots::default();
    let (token, mut answer) = slots.take_slot("/a/long/one");
    let old = Arc::as_ptr(&answer.slot);
    deliver(&mut slots, token, Ok(Reply::new(1, b"old")));
    // The caller still has the first slot.
    let (_, other) = slots.take_slot("/b");
    assert_ne!(Arc::as_ptr(&other.slot), old);
    assert_eq!(poll(&mut answer, &waker), Poll::Ready(Some(1)));

    let (token, mut answer) = slots.take_slot("/c");
    let old = Arc::as_ptr(&answer.slot);
    deliver(&mut slots, token, Ok(Reply::new(2, b"old")));
    assert_eq!(poll(&mut answer, &waker), Poll::Ready(Some(2)));
    drop(answer);
    let (token, mut answer) = slots.take_slot("/d");
    assert_eq!(Arc::as_ptr(&answer.slot), old);
    assert_eq!(answer.path(), "/d");
    assert_eq!(poll(&mut answer, &waker), Poll::Pending, "not the previous reply");
    deliver(&mut slots, token, Ok(Reply::new(3, b"new")));
    let context = Waker::from(waker);
    let body = answer
        .poll_read(&Context::from_waker(&context), unnamed, |stored| Ok(stored.reply().to_body()));
    assert!(matches!(body, Poll::Ready(Ok(body)) if body.bytes == "new"));
}

#[test]
fn a_token_is_wanted_until_its_caller_has_gone() {
    let mut slots = ReplySlots::default();
    let (token, answer) = slots.take_slot("");
    assert!(slots.is_wanted(&token));
    drop(answer);
    assert!(!slots.is_wanted(&token));
}

/// Abandoned before the reply, after it, or while its waker is registered.
#[test]
fn an_abandoned_reply_is_not_kept_in_memory() {
    let waker = Arc::new(Count::default());
    let long = Bytes::from(vec![0; SHORT + 1]);
    let long_reply = || Ok(Reply::new(1, &long).within(&long, 0));
    let mut slots = ReplySlots::default();

    let (token, answer) = slots.take_slot("/before");
    drop(answer);
    deliver(&mut slots, token, long_reply());
    assert!(slots.pool.len() == 1 && long.is_unique());

    let (token, answer) = slots.take_slot("/between");
    let woken = answer.slot.fill(long_reply(), false);
    assert!(woken.is_none() && !long.is_unique());
    drop(answer);
    assert!(long.is_unique());
    drop(token);

    let (token, mut answer) = slots.take_slot("/after");
    let weak: Weak<Count> = Arc::downgrade(&waker);
    assert_eq!(poll(&mut answer, &waker), Poll::Pending);
    drop(waker);
    deliver(&mut slots, token, long_reply());
    assert!(weak.upgrade().is_none() && !long.is_unique());
    drop(answer);
    assert!(long.is_unique());
}

/// A client learns of a change before it can read it.
#[test]
fn a_reply_after_events_is_deferred_until_they_are_delivered() {
    let waker = Arc::new(Count::default());
    let mut slots = ReplySlots::default();
    let (token, mut answer) = slots.take_slot("/a");
    assert_eq!(poll(&mut answer, &waker), Poll::Pending);
    slots.put(token, reply(7), true);
    assert!(!slots.is_empty());
    let mut wakeups = Wakeups::default();
    wakeups.collect(&mut slots);
    wakeups.wake();
    assert_eq!(poll(&mut answer, &waker), Poll::Pending);
    assert_eq!(waker.0.load(Ordering::Relaxed), 0);
    wakeups.release_deferred();
    assert_eq!(waker.0.load(Ordering::Relaxed), 1);
    assert_eq!(poll(&mut answer, &waker), Poll::Ready(Some(7)));
}

#[test]
fn debug_output_has_no_reply_data() {
    let mut slots = ReplySlots::default();
    let (token, answer) = slots.take_slot("/a");
    slots.put(token, Ok(Reply::new(1, b"secret")), true);
    assert!(!format!("{slots:?}").contains(&format!("{:?}", b"secret")));
    let (token, _answer) = slots.take_slot("/b");
    slots.put(token, Ok(Reply::new(1, b"secret")), false);
    assert!(!format!("{slots:?} {answer:?}").contains(&format!("{:?}", b"secret")[1..9]));
}

#[test]
fn the_number_of_kept_slots_is_bounded() {
    let mut slots = ReplySlots::default();
    let answers: Vec<_> = (0..KEPT_SLOTS + 10)
        .map(|_| {
            let (token, answer) = ReplySlots::default().take_slot("/a");
            slots.put(token, Ok(Reply::new(1, b"short")), false);
            answer
        })
        .collect();
    assert_eq!(slots.pool.len(), KEPT_SLOTS);
    drop(answers);
    slots.shrink_to(16);
    assert_eq!(slots.pool.len(), IDLE_SLOTS);
    let capacity = |slot: &Arc<ReplySlot>| slot.lock().reply.short.capacity();
    assert!(slots.pool.next.iter().all(|slot| capacity(slot) == 0));

    let long = "/".repeat(KEPT_PATH + 1);
    let (token, _answer) = ReplySlots::default().take_slot(&long);
    slots.put(token, reply(1), false);
    assert_eq!(slots.pool.len(), IDLE_SLOTS);
}
