//! Waits of a thread for a future, and their refusal inside an async runtime.
//!
//! A refusal is recognized by tokio's budget of cooperative scheduling: only code that tokio polls has one, and a
//! thread of `spawn_blocking` has not. Asking tokio in another way panics, or also refuses those threads.

use std::{
    future::{Future, IntoFuture},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
#[cfg(not(docent_threads))]
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, Thread},
};

#[cfg(docent_threads)]
use docent_threads_sync::{
    atomic::{AtomicBool, Ordering},
    thread::{self, Thread},
};

use tokio::{runtime::Handle, task::coop};

use crate::{Error, ErrorKind, runtime::Clock};

/// Makes an async call, and waits for its result: what `.await` is to a task, this is to a thread.
///
/// ```
/// use docent::{CreateMode, blocking::{Client, wait}};
///
/// # fn example(client: &Client) -> Result<(), docent::Error> {
/// let (acl, _) = wait(|| client.get_acl("/jobs"))?;
/// # drop(acl);
///
/// let mut transaction = client.transaction();
/// transaction.check("/config", Some(3)).create("/jobs/1", b"", CreateMode::Persistent);
/// wait(|| transaction.commit())?;
///
/// // One call with a limit of its time.
/// let limit = std::time::Duration::from_secs(2);
/// let node = wait(|| client.as_async().get_data("/config").timeout(limit))?;
/// # drop(node);
///
/// // Several calls, whose requests are sent at once. `Ok` is for what cannot fail.
/// let (one, two) = (client.get_acl("/one"), client.get_acl("/two"));
/// wait(async || Ok((one.await?, two.await?)))?;
/// # Ok(())
/// # }
/// ```
///
/// The future is polled on this thread. It may wait for everything that is made of a client; it is not inside a
/// runtime, so timers and sockets of tokio panic in it. A call of this thread in it, such as one of
/// [`Client`](super::Client), is a wait within a wait, and works.
///
/// # Errors
///
/// Those of the future. `WouldBlock` inside an async runtime: `call` is then not called, so nothing is sent.
pub fn wait<R, F>(call: impl FnOnce() -> F) -> Result<R, Error>
where
    F: IntoFuture<Output = Result<R, Error>>,
{
    check()?;
    let mut future = pin!(call().into_future());
    loop {
        if let Some(output) = poll_for(Duration::MAX, future.as_mut()) {
            return output;
        }
    }
}

/// As [`wait`], for at most `limit`; `None` if the future is not ready by then, and is dropped. It is polled at least
/// once. `Duration::MAX` is no limit.
///
/// What a drop means is in the documentation of each call: a request is sent all the same, a waiter leaves its queue.
///
/// ```
/// # use std::time::Duration;
/// # use docent::{Error, blocking::{Client, wait_timeout}};
/// # fn example(client: &Client) -> Result<(), Error> {
/// let stat = wait_timeout(Duration::from_secs(5), || client.wait_until_exists("/ready"))?;
/// println!("{}", if stat.is_some() { "ready" } else { "not ready yet" });
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As those of [`wait`].
pub fn wait_timeout<R, F>(limit: Duration, call: impl FnOnce() -> F) -> Result<Option<R>, Error>
where
    F: IntoFuture<Output = Result<R, Error>>,
{
    check()?;
    poll_for(limit, pin!(call().into_future())).transpose()
}

/// Refuses a wait inside a tokio runtime. Called before a request is made, because calls queue their request.
pub(super) fn check() -> Result<(), Error> {
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

/// Polls a future on this thread until it is ready, for at most `limit`. The time is that of the system: a client's
/// clock may stand still.
pub(super) fn poll_for<F: Future>(limit: Duration, mut future: Pin<&mut F>) -> Option<F::Output> {
    let clock = Clock::system();
    // A deadline beyond the clock's range is none.
    let deadline = clock.now().checked_add(limit);
    let unpark = Arc::new(Unpark { thread: thread::current(), woken: AtomicBool::new(true) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut cx = Context::from_waker(&waker);
    loop {
        if unpark.woken.swap(false, Ordering::Acquire)
            && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
        {
            return Some(output);
        }
        let remaining = match deadline {
            None => Duration::MAX,
            Some(deadline) => deadline.checked_duration_since(clock.now())?,
        };
        if remaining.is_zero() {
            return None;
        }
        if !unpark.woken.load(Ordering::Acquire) {
            thread::park_timeout(remaining);
        }
    }
}
