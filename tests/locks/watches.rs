//! The watches of a lock object: one for each watched node, for any number of waiters.

use docent::{EventType, OpCode, locks::InterProcessReadWriteLock};

use crate::{
    Fixture, ms, mutex, options,
    support::{acquiring, eventually, has_watches, pending_and_watches, within_deadline},
};

on_both_servers! {
    acquires_that_time_out_leave_one_watch
    waiters_behind_one_node_share_one_watch_and_all_wake
    the_own_node_and_the_node_ahead_are_two_watches
    a_timed_out_acquire_beside_a_waiter_leaves_the_waiters_watch
}

// Case (Found in docent itself): each timed-out try of a lock left a watch of its own, which every
// later try looked at, and the next release sent a checkWatches for each before its delete; so did
// readers behind one writer.
async fn acquires_that_time_out_leave_one_watch(fixture: Fixture) {
    const ACQUIRES: usize = 50;
    let (client, _tap) = fixture.client("A").await;
    let mutex = mutex(&fixture, &client);
    let guard = mutex.acquire().await.unwrap();
    for _ in 0..ACQUIRES {
        assert!(mutex.acquire_timeout(ms(0)).await.unwrap().is_none());
    }
    assert_eq!(client.metrics().watches, 1, "one node is watched");
    let before = fixture.tap.len();
    guard.release().await.unwrap();
    assert_eq!(fixture.requests(before, OpCode::CheckWatches), 1);
    assert_eq!(client.metrics().watches, 0);
}

async fn waiters_behind_one_node_share_one_watch_and_all_wake(fixture: Fixture) {
    const READERS: usize = 20;
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let ours = InterProcessReadWriteLock::with_options(&a, &fixture.path, options()).unwrap();
    let theirs = InterProcessReadWriteLock::with_options(&b, &fixture.path, options()).unwrap();
    let reading = ours.read_lock().acquire().await.unwrap();
    let writing = acquiring(theirs.write_lock());
    let queue = fixture.children(&fixture.path, 2).await;
    let writer = queue.iter().find(|name| name.contains("__WRIT__")).unwrap().clone();
    let waiting: Vec<_> = (0..READERS)
        .map(|_| {
            let ours = ours.clone();
            acquiring(ours.read_lock())
        })
        .collect();
    fixture.children(&fixture.path, 2 + READERS).await;
    has_watches(&a, READERS).await;
    let before = fixture.tap.len();
    reading.release().await.unwrap();
    assert_eq!(fixture.requests(before, OpCode::CheckWatches), 1);
    // The readers have listed again, and watch the same writer, which has the lock now.
    let writing = within_deadline("the writer", writing).await.unwrap().unwrap();
    eventually("the readers watch the writer", async || {
        let watched = format!("{}/{writer}", fixture.path);
        let again = fixture.tap.trace().since(before).of("A");
        let again = again.iter().filter(|record| {
            record.is_request(OpCode::GetData) && record.path() == Some(&*watched)
        });
        (again.count() == READERS && pending_and_watches(&a) == (0, READERS)).then_some(())
    })
    .await;
    writing.release().await.unwrap();
    for reader in waiting {
        let guard = within_deadline("a reader", reader).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(a.metrics().watches, 0);
}

async fn the_own_node_and_the_node_ahead_are_two_watches(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let mutex = mutex(&fixture, &client);
    mutex.make_revocable(|| {});
    let guard = mutex.acquire().await.unwrap();
    let node = guard.path().to_owned();
    for _ in 0..3 {
        assert!(mutex.acquire_timeout(ms(0)).await.unwrap().is_none());
    }
    let before = fixture.tap.len();
    guard.release().await.unwrap();
    let trace = fixture.tap.trace().since(before);
    let ours = trace
        .iter()
        .filter(|record| record.is_request(OpCode::CheckWatches) && record.path() == Some(&*node));
    assert_eq!(ours.count(), 2, "the holder's watch, and one for all later acquires");
}

/// The watch that the timed-out acquire leaves behind is the waiter's, which must not miss its event.
async fn a_timed_out_acquire_beside_a_waiter_leaves_the_waiters_watch(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let ours = InterProcessReadWriteLock::with_options(&a, &fixture.path, options()).unwrap();
    let theirs = InterProcessReadWriteLock::with_options(&b, &fixture.path, options()).unwrap();
    let writing = theirs.write_lock().acquire().await.unwrap();
    // One acquire before the waiter, and one behind it.
    assert!(ours.read_lock().acquire_timeout(ms(0)).await.unwrap().is_none());
    assert_eq!(a.metrics().watches, 1);
    let reader = ours.clone();
    let waiting = acquiring(reader.read_lock());
    fixture.children(&fixture.path, 2).await;
    has_watches(&a, 1).await;
    assert!(ours.read_lock().acquire_timeout(ms(0)).await.unwrap().is_none());
    assert_eq!(a.metrics().watches, 1, "only the waiter's watch is left");
    let before = fixture.tap.len();
    let node = writing.path().to_owned();
    writing.release().await.unwrap();
    let guard = within_deadline("the reader", waiting).await.unwrap().unwrap();
    let events = fixture.tap.trace().since(before).of("A");
    assert_eq!(events.iter().filter(|r| r.is_event(EventType::NodeDeleted, &node)).count(), 1);
    guard.release().await.unwrap();
}
