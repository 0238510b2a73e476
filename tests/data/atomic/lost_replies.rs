//! Writes whose request or reply is lost: the outcome is `Unknown` unless a read shows it. No write is applied twice.

use docent::{DistributedAtomicInteger, SharedCount};

use super::{lock_options, options};
use crate::*;

on_both_servers! {
    a_blind_write_without_a_reply_undoes_no_later_one
    a_lost_create_below_a_missing_parent_is_repeated
    a_write_by_version_is_not_repeated_into_a_later_node
    a_swap_without_a_reply_knows_what_the_node_shows
}

#[track_caller]
fn is_unknown<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
}

async fn count(observer: &Client, path: &str) -> i32 {
    let node = observer.get_data(path).await.unwrap();
    i32::from_be_bytes(node.data[..].try_into().unwrap())
}

/// Loses a request or its reply, and makes a change before the client is connected again.
async fn lose_and_change<T>(
    fixture: &Fixture,
    tap: &TapClient,
    client: &Client,
    fault: Fault,
    operation: impl Future<Output = T>,
    change: impl AsyncFnOnce(&Client),
) -> T {
    let observer = fixture.observer().await;
    tap.refuse().await.unwrap();
    fixture.tap.inject(fault.of("A"));
    let changing = async {
        reaches(client, ConnectionState::Suspended).await;
        change(&observer).await;
        tap.accept().await.unwrap();
    };
    let result = tokio::join!(operation, changing).0;
    observer.close().await.unwrap();
    result
}

/// Shared values, forced writes and barriers: Curator repeats the write. docent repeats it only if nothing has changed since.
// Case (Found in docent itself): a write of a shared value, and a barrier that was set or removed,
// whose first reply was lost, undid a later change of another client.
async fn a_blind_write_without_a_reply_undoes_no_later_one(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let (value_path, barrier_path) =
        (format!("{}/value", fixture.path), format!("{}/barrier", fixture.path));
    let value = SharedCount::start_with(&a, &value_path, 1, &lock_options()).await.unwrap();
    let number = DistributedAtomicInteger::with_options(&a, &value_path, options(1)).unwrap();
    let barrier = DistributedBarrier::with_options(&a, &barrier_path, lock_options()).unwrap();
    let mode = CreateMode::Persistent;
    for lose in [Fault::drop_reply, Fault::drop_before] {
        let unchanged = async |_: &Client| {};
        let fault = || lose(OpCode::SetData);
        lose_and_change(&fixture, &tap, &a, fault(), value.set_count(2), unchanged).await.unwrap();
        assert_eq!(value.count(), 2);
        let change = async |observer: &Client| {
            observer.set_data(&value_path, &3_i32.to_be_bytes(), None).await.unwrap();
        };
        is_unknown(lose_and_change(&fixture, &tap, &a, fault(), value.set_count(9), change).await);
        is_unknown(lose_and_change(&fixture, &tap, &a, fault(), number.force_set(9), change).await);
        assert_eq!(&*a.get_data(&value_path).await.unwrap().data, 3_i32.to_be_bytes());
        let fault = || lose(OpCode::Create2);
        let set = barrier.set_barrier();
        lose_and_change(&fixture, &tap, &a, fault(), set, unchanged).await.unwrap();
        barrier.remove_barrier().await.unwrap();
        let change = async |observer: &Client| {
            // Creates the barrier, unless the client's create has arrived, and removes it.
            let _ = observer.create(&barrier_path, b"", mode).await;
            observer.delete(&barrier_path, None).await.unwrap();
        };
        let set = barrier.set_barrier();
        is_unknown(lose_and_change(&fixture, &tap, &a, fault(), set, change).await);
        assert!(a.exists(&barrier_path).await.unwrap().is_none());
        barrier.set_barrier().await.unwrap();
        let fault = || lose(OpCode::Delete);
        let change = async |observer: &Client| {
            let _ = observer.delete(&barrier_path, None).await;
            observer.create(&barrier_path, b"", mode).await.unwrap();
        };
        let remove = barrier.remove_barrier();
        is_unknown(lose_and_change(&fixture, &tap, &a, fault(), remove, change).await);
        assert!(a.exists(&barrier_path).await.unwrap().is_some());
        let remove = barrier.remove_barrier();
        lose_and_change(&fixture, &tap, &a, fault(), remove, unchanged).await.unwrap();
    }
}

/// The missing parent proves that the barrier was not written, unless the parent existed before and was deleted since.
async fn a_lost_create_below_a_missing_parent_is_repeated(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let (parent, path) = (format!("{}/x", fixture.path), format!("{}/x/barrier", fixture.path));
    let barrier = DistributedBarrier::with_options(&a, &path, lock_options()).unwrap();
    let fault = || Fault::drop_before(OpCode::Create2);
    let unchanged = async |_: &Client| {};
    lose_and_change(&fixture, &tap, &a, fault(), barrier.set_barrier(), unchanged).await.unwrap();
    let remove = async |observer: &Client| {
        observer.delete(&path, None).await.unwrap();
        observer.delete(&parent, None).await.unwrap();
    };
    let removed = async |observer: &Client| {
        observer.create(&path, b"", CreateMode::Persistent).await.unwrap();
        remove(observer).await;
    };
    remove(&a).await;
    a.create(&parent, b"", CreateMode::Persistent).await.unwrap();
    is_unknown(lose_and_change(&fixture, &tap, &a, fault(), barrier.set_barrier(), removed).await);
    assert!(a.exists(&parent).await.unwrap().is_none());
}

/// The versions of a node that is created anew begin again at 0: the version of a write does not make it one that is applied
/// at most once.
// Case (Found in docent itself): a `try_set_value`, an increment or an `initialize` whose reply was lost
// was applied twice, when another client deleted its node meanwhile (and created it anew).
async fn a_write_by_version_is_not_repeated_into_a_later_node(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let (value_path, number_path) =
        (format!("{}/value", fixture.path), format!("{}/number", fixture.path));
    let value = SharedCount::start_with(&a, &value_path, 1, &lock_options()).await.unwrap();
    let number = DistributedAtomicInteger::with_options(&a, &number_path, options(1)).unwrap();
    number.initialize(1).await.unwrap();
    let mode = CreateMode::Persistent;
    let anew = async |observer: &Client, path: &str| {
        observer.delete(path, None).await.unwrap();
        observer.create(path, &1_i32.to_be_bytes(), mode).await.unwrap();
    };
    let fault = || Fault::drop_reply(OpCode::SetData);
    let (seen, change) = (value.versioned_value(), async |of: &Client| anew(of, &value_path).await);
    let set = value.try_set_count(&seen, 2);
    is_unknown(lose_and_change(&fixture, &tap, &a, fault(), set, change).await);
    assert_eq!(count(&a, &value_path).await, 1);
    let change = async |of: &Client| anew(of, &number_path).await;
    is_unknown(lose_and_change(&fixture, &tap, &a, fault(), number.increment(), change).await);
    assert_eq!(count(&a, &number_path).await, 1);
    a.delete(&number_path, None).await.unwrap();
    let deleted = async |of: &Client| of.delete(&number_path, None).await.unwrap();
    let fault = || Fault::drop_reply(OpCode::Create2);
    is_unknown(lose_and_change(&fixture, &tap, &a, fault(), number.increment(), deleted).await);
    is_unknown(lose_and_change(&fixture, &tap, &a, fault(), number.initialize(5), deleted).await);
    assert!(a.exists(&number_path).await.unwrap().is_none());
    // Deleted, and created anew by another client.
    let change = async |of: &Client| anew(of, &number_path).await;
    is_unknown(lose_and_change(&fixture, &tap, &a, fault(), number.initialize(5), change).await);
    assert_eq!(count(&a, &number_path).await, 1);
}

/// Of a `try_set_value` without a reply: the state before it is repeated, and another client's data in the next version are
/// false. Curator returns false in each case but the first.
async fn a_swap_without_a_reply_knows_what_the_node_shows(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let path = format!("{}/value", fixture.path);
    let value = SharedCount::start_with(&a, &path, 1, &lock_options()).await.unwrap();
    let set_to = async |of: &Client, number: i32| {
        of.set_data(&path, &number.to_be_bytes(), None).await.unwrap();
    };
    let unchanged = async |_: &Client| {};
    let fault = || Fault::drop_before(OpCode::SetData);
    let seen = value.versioned_value();
    let set = value.try_set_count(&seen, 2);
    assert!(lose_and_change(&fixture, &tap, &a, fault(), set, unchanged).await.unwrap());
    let (set, change) = (value.try_set_count(&seen, 3), unchanged);
    assert!(!lose_and_change(&fixture, &tap, &a, fault(), set, change).await.unwrap(), "stale");
    let seen = value.versioned_value();
    let (set, change) = (value.try_set_count(&seen, 3), async |of: &Client| set_to(of, 4).await);
    assert!(!lose_and_change(&fixture, &tap, &a, fault(), set, change).await.unwrap());
    assert_eq!(value.count(), 4);
    let mut changes = value.subscribe();
    let mut at = async |count: i32| {
        let bytes = count.to_be_bytes();
        let seen = changes.wait_for(|seen| *seen.value == bytes);
        within_deadline("the value", seen).await.unwrap();
        value.versioned_value()
    };
    let seen = at(4).await;
    // The same data may have been written by either.
    let (set, change) = (value.try_set_count(&seen, 5), async |of: &Client| set_to(of, 5).await);
    is_unknown(lose_and_change(&fixture, &tap, &a, fault(), set, change).await);
    let (seen, fault) = (value.versioned_value(), || Fault::drop_reply(OpCode::SetData));
    is_unknown(
        lose_and_change(&fixture, &tap, &a, fault(), value.try_set_count(&seen, 6), unchanged)
            .await,
    );
    let seen = value.versioned_value();
    let (set, change) = (value.try_set_count(&seen, 7), async |of: &Client| set_to(of, 8).await);
    is_unknown(lose_and_change(&fixture, &tap, &a, fault(), set, change).await);
    assert_eq!(count(&a, &path).await, 8);
}
