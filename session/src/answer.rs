//! How an answer gets from the driver to who waits for it.
//!
//! A [`Slot`] is shared by the two and used again for later requests, with the room for the path in it: while
//! requests come and go, waiting for an answer allocates nothing.

use std::{
    collections::VecDeque,
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{Error, ErrorKind, Outcome, state::Body};

/// What becomes of a request.
type Told = Result<Body, Error>;

/// Paths that take more are not kept with their slot.
const KEPT_PATH: usize = 256;

/// How many slots are kept for later requests.
const KEPT_SLOTS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Slot {
    /// As the caller knows it.
    path: String,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// For the answer; who is to be woken by it.
    Waiting(Option<Waker>),
    Answered(Told),
    /// The answer was taken, or nobody wants it.
    Over,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The driver's half: answers once. Dropped without that, it says that the client is gone.
#[derive(Debug)]
pub(crate) struct Token(Option<Arc<Slot>>);

/// The caller's half. Dropping it gives up the answer.
#[derive(Debug)]
pub(crate) struct Answer {
    slot: Arc<Slot>,
    taken: bool,
}

/// Slots that were used and can be used again.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    used: VecDeque<Arc<Slot>>,
}

impl Slots {
    /// The two halves of a slot for a request about `path`.
    pub(crate) fn take(&mut self, path: &str) -> (Token, Answer) {
        let slot = self.reuse(path).unwrap_or_else(|| {
            Arc::new(Slot { path: path.to_owned(), state: Mutex::new(State::Waiting(None)) })
        });
        (Token(Some(Arc::clone(&slot))), Answer { slot, taken: false })
    }

    /// The oldest, unless its caller still has it: then it is left to the caller.
    fn reuse(&mut self, path: &str) -> Option<Arc<Slot>> {
        let mut slot = self.used.pop_front()?;
        let Slot { path: old, state } = Arc::get_mut(&mut slot)?;
        old.clear();
        old.push_str(path);
        *state.get_mut().unwrap_or_else(PoisonError::into_inner) = State::Waiting(None);
        Some(slot)
    }

    /// Takes back what [`Token::answer`] has left.
    pub(crate) fn give_back(&mut self, slots: &mut Vec<Arc<Slot>>) {
        let room = KEPT_SLOTS.saturating_sub(self.used.len());
        slots.truncate(room);
        self.used.extend(slots.drain(..).filter(|slot| slot.path.capacity() <= KEPT_PATH));
    }

    /// Lets go of all but a few.
    pub(crate) fn shrink_to(&mut self, len: usize) {
        self.used.truncate(len);
        self.used.shrink_to(len);
    }
}

impl Token {
    /// Gives the answer, and the slot back.
    pub(crate) fn answer(mut self, told: Told) -> Option<Arc<Slot>> {
        let slot = self.0.take()?;
        // Nobody else has it: the caller has gone, and nobody keeps the answer in memory.
        if Arc::strong_count(&slot) > 1 {
            tell(&slot, told);
        }
        Some(slot)
    }
}

fn tell(slot: &Slot, told: Told) {
    // An answer that nobody wants, and the waker, are dropped behind the lock.
    let before = {
        let mut state = slot.lock();
        match *state {
            State::Waiting(_) => mem::replace(&mut *state, State::Answered(told)),
            State::Answered(_) | State::Over => return,
        }
    };
    if let State::Waiting(Some(waker)) = before {
        waker.wake();
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            tell(&slot, Err(Error::new(ErrorKind::Closed, Outcome::Unknown)));
        }
    }
}

impl Answer {
    /// The path of the request, as the caller gave it.
    pub(crate) fn path(&self) -> &str {
        &self.slot.path
    }
}

impl Future for Answer {
    type Output = Told;

    /// Never ready again once it was.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Told> {
        let told = {
            let mut state = self.slot.lock();
            match &mut *state {
                State::Answered(_) => mem::replace(&mut *state, State::Over),
                State::Waiting(waker) => {
                    match waker {
                        Some(waker) => waker.clone_from(cx.waker()),
                        None => *waker = Some(cx.waker().clone()),
                    }
                    return Poll::Pending;
                }
                State::Over => return Poll::Pending,
            }
        };
        self.taken = true;
        match told {
            State::Answered(told) => Poll::Ready(told),
            State::Waiting(_) | State::Over => Poll::Pending,
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.taken {
            // The answer may be large, and the slot may be kept.
            let state = mem::replace(&mut *self.slot.lock(), State::Over);
            drop(state);
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

    use bytes::Bytes;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn body(zxid: i64) -> Told {
        Ok(Body { zxid, bytes: Bytes::new() })
    }

    fn poll(answer: &mut Answer, waker: &Arc<Count>) -> Poll<Option<i64>> {
        let waker = Waker::from(Arc::clone(waker));
        Pin::new(answer)
            .poll(&mut Context::from_waker(&waker))
            .map(|told| told.ok().map(|body| body.zxid))
    }

    #[test]
    fn an_answer_wakes_who_asked_last_and_comes_once() {
        let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let (token, mut answer) = Slots::default().take("/a");
        assert_eq!(poll(&mut answer, &first), Poll::Pending);
        assert_eq!(poll(&mut answer, &second), Poll::Pending);
        token.answer(body(7));
        assert_eq!(first.0.load(Ordering::Relaxed), 0);
        assert_eq!(second.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut answer, &first), Poll::Ready(Some(7)));
        assert_eq!(poll(&mut answer, &first), Poll::Pending);
    }

    #[test]
    fn a_token_that_is_dropped_is_an_answer_too() {
        let waker = Arc::new(Count::default());
        let (token, mut answer) = Slots::default().take("/a");
        assert_eq!(poll(&mut answer, &waker), Poll::Pending);
        drop(token);
        assert_eq!(waker.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut answer, &waker), Poll::Ready(None));
    }

    #[test]
    fn a_slot_is_used_again_once_both_have_let_go_of_it() {
        let waker = Arc::new(Count::default());
        let mut slots = Slots::default();
        let (token, mut answer) = slots.take("/a/long/one");
        let old = Arc::as_ptr(&answer.slot);
        slots.give_back(&mut token.answer(body(1)).into_iter().collect());
        // Its caller still has it.
        let (_, other) = slots.take("/b");
        assert_ne!(Arc::as_ptr(&other.slot), old);
        assert_eq!(poll(&mut answer, &waker), Poll::Ready(Some(1)));

        let (token, mut answer) = slots.take("/c");
        let old = Arc::as_ptr(&answer.slot);
        let mut spent: Vec<_> = token.answer(body(2)).into_iter().collect();
        assert_eq!(poll(&mut answer, &waker), Poll::Ready(Some(2)));
        drop(answer);
        slots.give_back(&mut spent);
        let (_token, mut answer) = slots.take("/d");
        assert_eq!(Arc::as_ptr(&answer.slot), old);
        assert_eq!(answer.path(), "/d");
        assert_eq!(poll(&mut answer, &waker), Poll::Pending, "not the answer of before");
    }

    /// Neither before nor after it has come, nor with the waker of who asked.
    #[test]
    fn an_answer_that_nobody_wants_stays_nowhere() {
        let waker = Arc::new(Count::default());
        let large = Bytes::from(vec![0; 100]);
        let told = || Ok(Body { zxid: 1, bytes: large.clone() });
        let mut slots = Slots::default();

        let (token, answer) = slots.take("/before");
        drop(answer);
        let kept = token.answer(told());
        assert!(kept.is_some() && large.is_unique());

        let (token, mut answer) = slots.take("/after");
        let weak: Weak<Count> = Arc::downgrade(&waker);
        assert_eq!(poll(&mut answer, &waker), Poll::Pending);
        drop(waker);
        let kept = token.answer(told());
        assert!(weak.upgrade().is_none());
        drop(answer);
        assert!(kept.is_some() && large.is_unique());
    }

    #[test]
    fn not_more_than_so_many_are_kept() {
        let mut slots = Slots::default();
        let mut spent: Vec<_> = (0..KEPT_SLOTS + 10)
            .filter_map(|_| Slots::default().take("/a").0.answer(body(1)))
            .collect();
        let long = "/".repeat(KEPT_PATH + 1);
        spent.insert(0, Slots::default().take(&long).0.answer(body(1)).unwrap());
        slots.give_back(&mut spent);
        assert!(spent.is_empty());
        assert_eq!(slots.used.len(), KEPT_SLOTS - 1);
        slots.shrink_to(2);
        assert_eq!(slots.used.len(), 2);
    }
}
