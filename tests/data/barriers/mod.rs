//! Barriers. Tests ported from Curator's `TestDistributedBarrier` and `TestDistributedDoubleBarrier` have the Java name
//! above them. Cn: the defects of Curator in `docs/CURATOR.md`.

pub(crate) mod double;
mod double_faults;
mod time;

use std::time::Duration;

use docent::{
    Client, Config, DistributedBarrier, DistributedDoubleBarrier, LockOptions, OpCode,
    retry::RetryNTimes,
};
use docent_testing::fault::Fault;
use tokio::task::JoinHandle;

use crate::{
    atomic::lock_options,
    support::{cut_off, eventually, fixture::Fixture, has_watches, ms, polled, within_deadline},
};

on_both_servers! {
    a_wait_leaves_no_watch
    a_barrier_that_was_removed_and_set_again_was_open
    a_wait_survives_an_outage_that_outlasts_all_retries
    a_wait_is_dropped_at_every_poll
    a_full_queue_delays_a_wait_and_an_enter
}

pub(crate) fn barrier(client: &Client, path: &str) -> DistributedBarrier {
    DistributedBarrier::with_options(client, path, lock_options()).unwrap()
}

/// Starts to wait, and returns once the wait has its watch.
async fn waiting(fixture: &Fixture, label: &str, client: &Client) -> JoinHandle<()> {
    let before = fixture.tap.len();
    let barrier = barrier(client, &fixture.path);
    let waiter = tokio::spawn(async move { barrier.wait_on_barrier().await.unwrap() });
    eventually("the watch", async || {
        let trace = fixture.tap.trace().since(before);
        trace.iter().any(|r| &*r.client == label && r.is_reply(OpCode::GetData)).then_some(())
    })
    .await;
    waiter
}

/// C11: in Curator, each wait on an open barrier leaves a watch, at the client and at the server.
async fn a_wait_leaves_no_watch(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let (b, _tap_b) = fixture.client("B").await;
    let barrier_a = barrier(&a, &fixture.path);
    barrier_a.wait_on_barrier().await.unwrap();
    barrier_a.set_barrier().await.unwrap();
    assert!(!barrier_a.wait_on_barrier_timeout(ms(100)).await.unwrap());
    has_watches(&a, 0).await;
    let before = fixture.tap.len();
    barrier(&b, &fixture.path).remove_barrier().await.unwrap();
    barrier(&b, &fixture.path).set_barrier().await.unwrap();
    // An event of the barrier would come before this reply.
    a.sync(&fixture.path).await.unwrap();
    a.exists(&fixture.path).await.unwrap();
    let trace = fixture.tap.trace().since(before).of("A");
    let text = trace.text();
    assert!(!text.contains("EVENT"), "{text}");
}

/// C12: in Curator, a waiter that looks too late waits on.
async fn a_barrier_that_was_removed_and_set_again_was_open(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let others = barrier(&observer, &fixture.path);
    others.set_barrier().await.unwrap();
    let waiter = waiting(&fixture, "A", &a).await;
    others.remove_barrier().await.unwrap();
    others.set_barrier().await.unwrap();
    within_deadline("the wait", waiter).await.unwrap();
    let waiter = waiting(&fixture, "A", &a).await;
    cut_off(&a, &tap).await;
    others.remove_barrier().await.unwrap();
    others.set_barrier().await.unwrap();
    tap.accept().await.unwrap();
    within_deadline("the wait", waiter).await.unwrap();
}

/// C12, `testServerCrash`: in Curator, the wait fails with `ConnectionLoss`.
async fn a_wait_survives_an_outage_that_outlasts_all_retries(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    barrier(&observer, &fixture.path).set_barrier().await.unwrap();
    let never = LockOptions::default().with_retry_policy(RetryNTimes::new(0, Duration::ZERO));
    let barrier_a = DistributedBarrier::with_options(&a, &fixture.path, never).unwrap();
    let waiter = tokio::spawn(async move { barrier_a.wait_on_barrier().await });
    fixture.tap.inject(Fault::drop_reply(OpCode::GetData).of("A").nth(2));
    for _ in 0..2 {
        cut_off(&a, &tap).await;
        tap.accept().await.unwrap();
        a.wait_until_connected(ms(60_000)).await.unwrap();
    }
    assert!(!waiter.is_finished());
    barrier(&observer, &fixture.path).remove_barrier().await.unwrap();
    within_deadline("the wait", waiter).await.unwrap().unwrap();
}

async fn a_wait_is_dropped_at_every_poll(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let barrier = barrier(&a, &fixture.path);
    barrier.set_barrier().await.unwrap();
    for polls in 1..8 {
        let wait = polled(polls, barrier.wait_on_barrier());
        let wait = tokio::time::timeout(ms(200), wait).await;
        assert!(wait.ok().flatten().is_none());
        has_watches(&a, 0).await;
    }
}

/// The client refuses each request for a while. That ends no wait, and opens no barrier.
// Case (Found in docent itself): a wait at a barrier, an enter and a leave failed when the client's
// queue was full.
async fn a_full_queue_delays_a_wait_and_an_enter(fixture: Fixture) {
    let tap = fixture.tap.client("A").await.unwrap();
    let config = Config::new(&tap.connect_string()).unwrap().with_max_requests(1);
    let client = config.with_session_timeout(ms(20_000)).connect().await.unwrap();
    let barrier = barrier(&client, &fixture.path);
    barrier.set_barrier().await.unwrap();
    let mut member =
        DistributedDoubleBarrier::new(&client, &format!("{}-double", fixture.path), 1).unwrap();

    tap.stall();
    let first = client.exists("/");
    let refused = client.metrics().refused;
    let waiter = tokio::spawn(async move { barrier.wait_on_barrier().await });
    let entering = tokio::spawn(async move { member.enter().await.map(|()| member) });
    eventually("two refusals", async || (client.metrics().refused >= refused + 2).then_some(()))
        .await;
    tap.resume();
    first.await.unwrap();
    let mut member = within_deadline("the enter", entering).await.unwrap().unwrap();
    within_deadline("the leave", member.leave()).await.unwrap();
    assert!(!waiter.is_finished());
    let observer = fixture.observer().await;
    observer.delete(&fixture.path, None).await.unwrap();
    within_deadline("the wait", waiter).await.unwrap().unwrap();
}
