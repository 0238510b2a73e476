//! The shared parts of the integration tests: real and embedded servers, clients and taps, and peers.
//!
//! Tests wait for conditions, up to [`DEADLINE`]; nothing sleeps to wait.

pub mod certificates;
pub mod each_lock;
pub mod ensemble;
pub mod fixture;
pub mod given_up_session;
pub mod in_process;
pub mod peer;
pub mod real;
pub mod traced;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use docent::{
    Client, ConnectionState, Error, Events,
    locks::{InterProcessLock, LockGuard},
    session::StateEvent,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The longest wait of a test for any condition: far longer than a busy machine needs.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// A session timeout that is longer than any restart: a private server has 300 s to start.
pub const LONG_SESSION: Duration = Duration::from_secs(3600);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The result of a future that must end before the deadline.
#[track_caller]
pub fn within_deadline<F: Future>(
    what: &str,
    future: F,
) -> impl Future<Output = F::Output> + use<'_, F> {
    let caller = std::panic::Location::caller();
    async move {
        match timeout(DEADLINE, future).await {
            Ok(result) => result,
            Err(_) => panic!("{caller}: not within {DEADLINE:?}: {what}"),
        }
    }
}

/// Repeats a check until it returns `Some`, and returns its value.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        let waited = start.elapsed();
        assert!(waited < DEADLINE, "not within {DEADLINE:?}: {what}");
        sleep(pause(waited)).await;
    }
}

/// The pause between two checks of a condition without a notification: a short wait ends soon, and a long one leaves the
/// processors to what it waits for.
fn pause(waited: Duration) -> Duration {
    (waited / 8).clamp(Duration::from_millis(1), Duration::from_millis(30))
}

/// Repeats a check until it holds.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    eventually(what, async || is_so().await.then_some(())).await;
}

/// The number of pending requests, and the number of watches.
pub fn pending_and_watches(client: &Client) -> (usize, usize) {
    let metrics = client.metrics();
    (metrics.pending, metrics.watches)
}

/// Waits until a client has no pending request, and this number of watches.
pub async fn has_watches(client: &Client, watches: usize) {
    let what = format!("{watches} watches, and no pending request");
    until(&what, async || pending_and_watches(client) == (0, watches)).await;
}

/// Waits until a client has no pending request.
pub async fn has_no_request(client: &Client) {
    until("no request", async || client.metrics().pending == 0).await;
}

/// Waits until the connection of a client is in this state.
pub async fn reaches(client: &Client, wanted: ConnectionState) {
    let mut state = client.state();
    let reached = state.wait_for(|state| *state == Some(wanted));
    within_deadline(&format!("{wanted:?}"), reached).await.unwrap();
}

/// Waits until a client has been in this state, since its events were subscribed to.
pub async fn passes(states: &mut Events<StateEvent>, wanted: ConnectionState) {
    let passed = async { while states.next().await != Some(wanted.into()) {} };
    within_deadline(&format!("{wanted:?}"), passed).await;
}

/// The session of a client that has one.
pub fn session_id(client: &Client) -> i64 {
    client.session().unwrap().session_id()
}

pub fn spawn_acquire<L: InterProcessLock + Clone + 'static>(
    lock: &L,
) -> JoinHandle<Result<LockGuard, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await })
}

/// Polls a future once, and drops it. It is not ready.
#[track_caller]
pub fn poll_once<F: Future>(future: F) {
    assert!(pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// Polls a future at most `polls` times, each time it is woken; `None` if it is not ready by then.
pub async fn poll_at_most<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The limit is reached.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Like [`until`], outside a runtime.
pub fn until_blocking(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually_blocking(what, || is_so().then_some(()));
}

/// Like [`eventually`], outside a runtime.
pub fn eventually_blocking<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        let waited = start.elapsed();
        assert!(waited < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(pause(waited));
    }
}
