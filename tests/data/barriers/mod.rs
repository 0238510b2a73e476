//! Barriers. Tests ported from Curator's `TestDistributedBarrier` and `TestDistributedDoubleBarrier` have the Java name
//! above them. Cn: a defect of Curator in `docs/CURATOR.md`.

pub(crate) mod double;
mod double_faults;
mod time;

use super::*;

on_both_servers! {
    a_wait_is_dropped_at_every_poll
    a_full_queue_delays_a_wait_and_an_enter
    an_opening_in_an_outage_ends_a_wait
}

pub(crate) fn barrier(client: &Client, path: &str) -> DistributedBarrier {
    DistributedBarrier::with_options(client, path, lock_options()).unwrap()
}

async fn a_wait_is_dropped_at_every_poll(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let barrier = barrier(&a, &fixture.path);
    barrier.set_barrier().await.unwrap();
    for polls in 1..8 {
        let wait = poll_at_most(polls, barrier.wait_on_barrier());
        let wait = tokio::time::timeout(ms(200), wait).await;
        assert!(wait.ok().flatten().is_none());
        has_watches(&a, 0).await;
    }
}

/// The client refuses every request for a while. This neither ends a wait nor opens a barrier.
// Case (Found in docent itself): a wait at a barrier, an enter and a leave failed when the client's
// queue was full.
async fn a_full_queue_delays_a_wait_and_an_enter(fixture: Fixture) {
    let limits = |config: Config| config.with_max_requests(1).with_session_timeout(ms(20_000));
    let (client, tap) = fixture.client_with("A", limits).await;
    let barrier = barrier(&client, &fixture.path);
    barrier.set_barrier().await.unwrap();
    let mut member =
        DistributedDoubleBarrier::new(&client, &format!("{}-double", fixture.path), 1).unwrap();

    tap.stall();
    let first = client.exists("/");
    let refused = client.metrics().refused;
    let waiter = tokio::spawn(async move { barrier.wait_on_barrier().await });
    let entering = tokio::spawn(async move { member.enter().await.map(|()| member) });
    until("two refusals", async || client.metrics().refused >= refused + 2).await;
    tap.resume();
    first.await.unwrap();
    let mut member = within_deadline("the enter", entering).await.unwrap().unwrap();
    within_deadline("the leave", member.leave()).await.unwrap();
    assert!(!waiter.is_finished());
    let observer = fixture.observer().await;
    observer.delete(&fixture.path, None).await.unwrap();
    within_deadline("the wait", waiter).await.unwrap().unwrap();
}

/// The barrier is removed and set again while the waiter has no connection.
async fn an_opening_in_an_outage_ends_a_wait(fixture: Fixture) {
    let ((a, tap), b) = (fixture.client("A").await, fixture.observer().await);
    let [waits, sets] = [&a, &b].map(|client| barrier(client, &fixture.path));
    sets.set_barrier().await.unwrap();
    let waiter = tokio::spawn(async move { waits.wait_on_barrier().await });
    has_watches(&a, 1).await;
    tap.refuse().await.unwrap();
    tap.cut();
    sets.remove_barrier().await.unwrap();
    sets.set_barrier().await.unwrap();
    tap.accept().await.unwrap();
    within_deadline("the wait", waiter).await.unwrap().unwrap();
}
