//! The watches of a lock object: one for each watched node, for any number of waiters.

use super::*;

on_both_servers! {
    waiters_behind_one_node_share_one_watch_and_all_wake
}

async fn waiters_behind_one_node_share_one_watch_and_all_wake(fixture: Fixture) {
    const READERS: usize = 20;
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let (ours, theirs) = (pair(&fixture, &a), pair(&fixture, &b));
    let reading = ours.read_lock().acquire().await.unwrap();
    let writing = spawn_acquire(theirs.write_lock());
    let queue = fixture.children(&fixture.path, 2).await;
    let writer = queue.iter().find(|name| name.contains("__WRIT__")).unwrap().clone();
    let waiting: Vec<_> = (0..READERS).map(|_| spawn_acquire(ours.read_lock())).collect();
    fixture.children(&fixture.path, 2 + READERS).await;
    has_watches(&a, READERS).await;
    let before = fixture.tap.len();
    reading.release().await.unwrap();
    assert_eq!(fixture.requests(before, OpCode::CheckWatches), 1);
    // The readers have listed again, and watch the same writer, which has the lock now.
    let writing = within_deadline("the writer", writing).await.unwrap().unwrap();
    until("the readers watch the writer", async || {
        let watched = format!("{}/{writer}", fixture.path);
        let is_read = request("A", OpCode::GetData);
        let again = |record: &Record| is_read(record) && record.path() == Some(&*watched);
        let again = fixture.tap.trace().since(before).filter(again);
        again.iter().count() == READERS && pending_and_watches(&a) == (0, READERS)
    })
    .await;
    writing.release().await.unwrap();
    for reader in waiting {
        let guard = within_deadline("a reader", reader).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(a.metrics().watches, 0);
}
