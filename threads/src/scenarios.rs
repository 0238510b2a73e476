//! The races. In each of them, every call must return once and with its own reply, nothing may wait for ever, and the server
//! must read closeSession once: [`World::finish`] checks the last, shuttle the second.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use docent::{Client, Error, ErrorKind, Node};
use shuttle::{
    future::block_on,
    thread::{JoinHandle, spawn},
};

use crate::{race::calm, world::World};

/// A race of two threads or three, beside the task of a client.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub run: fn(),
    /// The number of preemptions up to which all schedules are run, in the tests and by `cargo xtask threads`.
    pub quick: u8,
    pub full: u8,
    /// The planted faults that it must find.
    pub finds: &'static [&'static str],
}

/// The planted faults. Those of the simulator break no order of threads.
pub const PLANTS: [&str; 3] = ["lock-order-inverted", "slot-released-twice", "wake-up-lost"];

/// All scenarios.
pub const SCENARIOS: [Scenario; 14] = [
    scenario("reply-while-caller-drops", reply_while_caller_drops, &["slot-released-twice"]),
    scenario("wake-up-while-task-sleeps", wake_up_while_task_sleeps, &["wake-up-lost"]),
    // With two preemptions, it has 100,000 schedules.
    Scenario { quick: 1, ..scenario("submit-beside-disconnect", submit_beside_disconnect, &[]) },
    scenario("limit-beside-reply", limit_beside_reply, &["lock-order-inverted"]),
    scenario("one-response-two-threads", one_response_two_threads, &[]),
    scenario("event-beside-wait", event_beside_wait, &[]),
    scenario("reply-behind-event", reply_behind_event, &[]),
    scenario("close-beside-submit", close_beside_submit, &[]),
    scenario("lost-beside-close", lost_beside_close, &[]),
    scenario("last-drop-in-wake-up", last_drop_in_wake_up, &[]),
    scenario("last-drop-with-waker", last_drop_with_waker, &[]),
    scenario("last-drop-beside-end", last_drop_beside_end, &[]),
    scenario("blocking-last-drop", blocking_last_drop, &[]),
    scenario("blocking-wait-beside-end", blocking_wait_beside_end, &[]),
];

const fn scenario(name: &'static str, run: fn(), finds: &'static [&'static str]) -> Scenario {
    Scenario { name, run, quick: 2, full: 3, finds }
}

fn is_own(path: &str, node: Result<Node, Error>) {
    assert_eq!(node.expect("a reply").data, path);
}

/// A reply, or one of the errors that the race allows.
fn is_own_or(allowed: &[ErrorKind], path: &str, node: Result<Node, Error>) {
    match node {
        Err(error) => assert!(allowed.contains(&error.kind()), "{path}: {error}"),
        node => is_own(path, node),
    }
}

/// A thread that gets a node with its own clone of the client.
fn get(client: &Client, path: &'static str) -> JoinHandle<Result<Node, Error>> {
    let client = client.clone();
    spawn(move || block_on(client.get_data(path)))
}

fn join<R>(thread: JoinHandle<R>) -> R {
    thread.join().expect("no panic")
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

/// A caller drops its half of a slot while the reply is put into it; the slot is used again.
fn reply_while_caller_drops() {
    let (world, client) = World::begin();
    let clone = client.clone();
    let dropping = spawn(move || {
        let mut get = clone.get_data("/dropped");
        let _ = poll(&mut get, Waker::noop());
    });
    is_own("/one", block_on(client.get_data("/one")));
    is_own("/two", block_on(client.get_data("/two")));
    join(dropping);
    drop(client);
    world.finish();
}

/// Requests are queued while the task, which has found none, falls asleep.
fn wake_up_while_task_sleeps() {
    let (world, client) = World::begin();
    let other = get(&client, "/other");
    is_own("/own", block_on(client.get_data("/own")));
    is_own("/other", join(other));
    drop(client);
    world.finish();
}

/// Requests are queued and sent while the connection ends, and a close follows.
fn submit_beside_disconnect() {
    let (world, client) = World::begin();
    let other = get(&client, "/other");
    let cut = block_on(client.get_data("/cut"));
    assert!(cut.is_err_and(|error| error.kind() == ErrorKind::ConnectionLoss));
    is_own_or(&[ErrorKind::ConnectionLoss], "/other", join(other));
    calm();
    block_on(client.close()).expect("a close on the next connection");
    world.finish();
}

/// A caller limits the time of a request, which locks the machine, while its reply comes.
fn limit_beside_reply() {
    let (world, client) = World::begin();
    is_own("/own", block_on(client.get_data("/own").timeout(Duration::from_secs(20))));
    drop(client);
    world.finish();
}

/// Two threads poll one response: the reply comes once, and wakes the last of them.
fn one_response_two_threads() {
    let (world, client) = World::begin();
    let response = Arc::new(shuttle::sync::Mutex::new(client.get_data("/own")));
    let shared = Arc::clone(&response);
    let first = spawn(move || poll(&mut *shared.lock().expect("no panic"), Waker::noop()));
    let second = poll(&mut *response.lock().expect("no panic"), Waker::noop());
    let third = block_on(async { (&mut *response.lock().expect("no panic")).await });
    let polls = [join(first), second, Poll::Ready(third)];
    let mut replies = polls.into_iter().filter(|poll| matches!(poll, Poll::Ready(Ok(_))));
    assert!(replies.next().is_some() && replies.next().is_none(), "the reply comes once");
    drop(client);
    world.finish();
}

/// An event comes while its watcher begins to wait.
fn event_beside_wait() {
    let (world, client, mut watcher) = World::watching();
    let waiting = spawn(move || block_on(watcher.next()).expect("an event").path);
    is_own("/change", block_on(client.get_data("/change")));
    assert_eq!(join(waiting), "/watched");
    drop(client);
    world.finish();
}

/// A reply that follows an event: who has read the reply finds the event, whichever thread wakes callers meanwhile.
fn reply_behind_event() {
    let (world, client, mut watcher) = World::watching();
    let other = get(&client, "/other");
    is_own("/change", block_on(client.get_data("/change")));
    assert!(watcher.try_next().is_some(), "the reply is visible before the event");
    is_own("/other", join(other));
    drop(client);
    world.finish();
}

/// Requests are queued while the session is closed.
fn close_beside_submit() {
    let (world, client) = World::begin();
    let other = get(&client, "/other");
    block_on(client.close()).expect("a close");
    is_own_or(&[ErrorKind::Closed], "/other", join(other));
    world.finish();
}

/// The end of a claim is waited for while the session is closed.
fn lost_beside_close() {
    let (world, client) = World::begin();
    let claim = client.session().expect("a session").claim();
    let waiting = spawn(move || block_on(claim.lost()));
    block_on(client.close()).expect("a close");
    join(waiting);
    world.finish();
}

/// Holds the last clone of a client, and drops it when it is woken, or dropped itself.
struct LastClone(Mutex<Option<Client>>);

impl LastClone {
    fn of(client: Client) -> Waker {
        Waker::from(Arc::new(Self(Mutex::new(Some(client)))))
    }
}

impl Wake for LastClone {
    fn wake(self: Arc<Self>) {
        let client = self.0.lock().expect("no panic while it is locked").take();
        drop(client);
    }
}

/// The wake-up of a caller, on the client's task, drops the last clone of the client.
fn last_drop_in_wake_up() {
    let (world, client) = World::begin();
    let (mut own, other) = (client.get_data("/own"), client.get_data("/other"));
    let other = spawn(move || block_on(other));
    let _ = poll(&mut own, &LastClone::of(client));
    is_own("/other", join(other));
    drop(own);
    world.finish();
}

/// A caller polls with another waker, and the one before holds the last clone of the client.
fn last_drop_with_waker() {
    let (world, client) = World::begin();
    let mut own = client.get_data("/own");
    if poll(&mut own, &LastClone::of(client)).is_pending() {
        is_own("/own", block_on(own));
    }
    world.finish();
}

/// The last clone of a client is dropped while its runtime ends.
fn last_drop_beside_end() {
    let (world, client) = World::begin();
    let dropping = spawn(move || drop(client));
    world.end();
    join(dropping);
    world.finish();
}

/// The last of two drops waits until the session is closed, while a thread still waits for a reply.
fn blocking_last_drop() {
    let (world, client) = World::blocking();
    let clone = client.clone();
    let waiting = spawn(move || clone.get_data("/own"));
    drop(client);
    is_own("/own", join(waiting));
    assert!(world.has_closed(), "the drop has not waited");
    world.finish();
}

/// A thread waits for a reply, and drops the client, while the runtime ends.
fn blocking_wait_beside_end() {
    let (world, client) = World::blocking();
    let waiting = spawn(move || client.get_data("/own"));
    world.end();
    is_own_or(&[ErrorKind::Closed], "/own", join(waiting));
    world.finish();
}
