//! Waits of a thread for a future, and their refusal inside an async runtime.
//!
//! A call is checked before the async call is made, because calls queue their request: a refused call has sent nothing.
//! A refusal is recognized by tokio's budget of cooperative scheduling: only code that tokio polls has one, and a
//! thread of `spawn_blocking` has not. Asking tokio in another way panics, or also refuses those threads.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use tokio::{runtime::Handle, task::coop};

use crate::{Clock, Error, ErrorKind};

/// Refuses a blocking call inside a tokio runtime. Called before a request is made, so that a refused call sends
/// nothing.
pub fn check() -> Result<(), Error> {
    if is_inside_runtime() {
        let why = "use docent::Client here, or call it on another thread, by tokio::task::spawn_blocking for example";
        return Err(Error::refused(ErrorKind::WouldBlock, why));
    }
    Ok(())
}

/// The number of steps after which tokio has surely made a task yield; its budget for one poll is 128.
const MORE_THAN_A_BUDGET: usize = 1024;

/// Whether this thread is polling a task or the future of `block_on` of a tokio runtime.
///
/// A thread of `spawn_blocking` has a handle too, and may block. What distinguishes them without a panic is the budget
/// of cooperative scheduling, which only polled code has: it is spent here, so that a refused task yields once. A task
/// in `unconstrained` has none and is not recognized; the call then blocks its thread, as any blocking call does.
pub(super) fn is_inside_runtime() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    let mut cx = Context::from_waker(Waker::noop());
    (0..MORE_THAN_A_BUDGET).any(|_| match coop::poll_proceed(&mut cx) {
        Poll::Ready(step) => {
            step.made_progress();
            false
        }
        Poll::Pending => true,
    })
}

/// Wakes a thread that waits for a future.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The flag says which wait was woken: one wait may poll a future that waits in turn, on the same thread.
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Waits for a future. It is polled on this thread; the timers and sockets that it waits for are those of the client.
pub fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Some(output) = wait_until(future.as_mut(), &mut || Some(Duration::MAX)) {
            return output;
        }
    }
}

/// Waits for a future for at most `wait` on this clock; `None` if it is not ready by then, and is dropped.
pub(super) fn wait_timeout<F: Future>(
    clock: &Clock,
    wait: Duration,
    future: F,
) -> Option<F::Output> {
    // A deadline beyond the clock's range is none.
    let deadline = clock.now().checked_add(wait);
    let mut remaining = || match deadline {
        None => Some(Duration::MAX),
        Some(deadline) => {
            deadline.checked_duration_since(clock.now()).filter(|remaining| !remaining.is_zero())
        }
    };
    wait_until(pin!(future), &mut remaining)
}

/// Waits for a future while `remaining` returns a time to wait. It is polled at least once.
pub(super) fn wait_until<F: Future>(
    mut future: Pin<&mut F>,
    remaining: &mut dyn FnMut() -> Option<Duration>,
) -> Option<F::Output> {
    let unpark = Arc::new(Unpark { thread: thread::current(), woken: AtomicBool::new(true) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut cx = Context::from_waker(&waker);
    loop {
        if unpark.woken.swap(false, Ordering::Acquire)
            && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
        {
            return Some(output);
        }
        let remaining = remaining()?;
        if !unpark.woken.load(Ordering::Acquire) {
            thread::park_timeout(remaining);
        }
    }
}
