//! Shared values. Source: those tests of `TestSharedCount` and `TestSharedValue` that the semaphore depends on.

use docent::{
    acl::{CREATOR_ALL_ACL, OPEN_ACL_UNSAFE},
    shared::count_of,
};

use super::*;

on_both_servers! {
    a_count_is_seeded_once_and_watched
    a_stale_write_is_refused_and_the_newer_value_read
    a_value_is_updated_after_a_broken_connection
    a_deleted_value_stays_known
    a_value_created_again_before_its_absence_is_watched_is_read
    a_read_that_times_out_is_repeated
    a_value_that_is_temporarily_unreadable_is_read_again
    a_value_deleted_between_its_create_and_its_read_is_created_again
    receivers_end_with_their_client
}

async fn a_count_is_seeded_once_and_watched(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let first = SharedCount::start_with(&a, &fixture.path, 5, &options()).await.unwrap();
    let second = SharedCount::start_with(&b, &fixture.path, 9, &options()).await.unwrap();
    assert_eq!((first.count(), second.count()), (5, 5));
    assert_eq!(a.get_data(&fixture.path).await.unwrap().data[..], [0, 0, 0, 5]);
    let mut values = second.subscribe();
    first.set_count(-7).await.unwrap();
    assert_eq!(first.count(), -7);
    within_deadline("the new value", values.wait_for(|value| count_of(value) == -7)).await.unwrap();
    assert_eq!(second.count(), -7);
}

async fn a_stale_write_is_refused_and_the_newer_value_read(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let first = SharedValue::start_with(&a, &fixture.path, "one", &options()).await.unwrap();
    let second = SharedValue::start_with(&b, &fixture.path, "", &options()).await.unwrap();
    let seen = first.versioned_value();
    assert!(second.try_set_value(&second.versioned_value(), "two").await.unwrap());
    assert!(!first.try_set_value(&seen, "three").await.unwrap());
    assert_eq!(first.value(), "two");
    assert!(first.try_set_value(&first.versioned_value(), "three").await.unwrap());
}

async fn a_value_is_updated_after_a_broken_connection(fixture: Fixture) {
    let ((a, tap), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let first = SharedValue::start_with(&a, &fixture.path, "old", &options()).await.unwrap();
    let mut values = first.subscribe();
    tap.refuse().await.unwrap();
    tap.cut();
    b.set_data(&fixture.path, b"new", None).await.unwrap();
    tap.accept().await.unwrap();
    within_deadline("the new value", values.wait_for(|value| value.value == "new")).await.unwrap();
    // A value is updated after the end of the session, too.
    tap.kill_session(DEADLINE).await.unwrap();
    b.set_data(&fixture.path, b"newer", None).await.unwrap();
    within_deadline("the value", values.wait_for(|value| value.value == "newer")).await.unwrap();
}

async fn a_deleted_value_stays_known(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let value = started(&fixture, &client, "x").await;
    client.delete(&fixture.path, None).await.unwrap();
    let error = value.set_value("y").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoNode);
    assert_eq!(value.value(), "x");
    // A node that is created again is read.
    let mut values = value.subscribe();
    let path = fixture.path.clone();
    let created = async {
        // The background task sets the watch on the missing node.
        until("the watch", async || client.metrics().watches > 0).await;
        client.create(&path, b"z", CreateMode::Persistent).await.unwrap();
        values.wait_for(|value| value.value == "z").await.map(drop)
    };
    within_deadline("the new value", created).await.unwrap();
}

/// Waits for this value.
async fn wait_for(value: &SharedValue, wanted: &str) {
    let mut values = value.subscribe();
    within_deadline(wanted, values.wait_for(|value| value.value == *wanted)).await.unwrap();
}

async fn started(fixture: &Fixture, client: &Client, seed: &'static str) -> SharedValue {
    let value = SharedValue::start_with(client, &fixture.path, seed, &options()).await.unwrap();
    fixture.keep_parent(client).await;
    value
}

/// An ensemble that was restored from a backup is behind the value.
// Case (Found in docent itself): after its ensemble was restored from a backup, a shared value stayed
// the one of before, and no `try_set_value` replaced it, until the zxids of the servers were beyond it.
#[tokio::test]
async fn a_value_of_an_ensemble_that_was_restored_is_replaced() {
    let fixture = Fixture::embedded().await;
    let tap = fixture.tap.client("A").await.unwrap();
    let config = Config::new(&tap.connect_string()).unwrap();
    let config = config.with_session_timeout(Duration::from_secs(1));
    let client = config.connect().await.unwrap();
    let value = started(&fixture, &client, "kept").await;
    for _ in 0..50 {
        value.set_value("lost").await.unwrap();
    }

    let restored = Fixture::embedded().await;
    let operator = restored.observer().await;
    fixture.create_path(&operator).await;
    operator.set_data(&fixture.path, b"kept", None).await.unwrap();
    fixture.tap.set_upstream(&restored.server);
    tap.cut();
    wait_for(&value, "kept").await;
    assert!(value.try_set_value(&value.versioned_value(), "new").await.unwrap());
    assert_eq!(value.value(), "new");
}

// Case (Found in docent itself): a shared value stayed stale for ever: the node was deleted and
// created again between its two reads.
async fn a_value_created_again_before_its_absence_is_watched_is_read(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let value = started(&fixture, &a, "old").await;
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::delay_request(OpCode::Exists, DEADLINE).of("A"));
    b.delete(&fixture.path, None).await.unwrap();
    records.until(DEADLINE, request("A", OpCode::Exists)).await.unwrap();
    b.create(&fixture.path, b"new", CreateMode::Persistent).await.unwrap();
    fixture.tap.end_delays();
    wait_for(&value, "new").await;
    // The watch is set on the new node.
    b.set_data(&fixture.path, b"newer", None).await.unwrap();
    wait_for(&value, "newer").await;
}

// Case (Found in docent itself): a shared value stayed stale for ever after one read that failed.
async fn a_read_that_times_out_is_repeated(fixture: Fixture) {
    let timeout = |config: Config| config.with_request_timeout(ms(300));
    let (client, _tap) = fixture.client_with("A", timeout).await;
    let (b, _b) = fixture.client("B").await;
    let value = started(&fixture, &client, "old").await;
    fixture.tap.inject(Fault::delay_reply(OpCode::GetData, ms(1000)).of("A"));
    b.set_data(&fixture.path, b"new", None).await.unwrap();
    wait_for(&value, "new").await;
    fixture.tap.inject(Fault::delay_reply(OpCode::Exists, ms(1000)).of("A"));
    b.delete(&fixture.path, None).await.unwrap();
    fixture.wait_for_reply("A", OpCode::Exists).await;
    b.create(&fixture.path, b"newer", CreateMode::Persistent).await.unwrap();
    wait_for(&value, "newer").await;
}

async fn a_value_that_is_temporarily_unreadable_is_read_again(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    b.add_auth("digest", b"b:b").await.unwrap();
    let value = started(&fixture, &a, "old").await;
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::delay_request(OpCode::GetData, DEADLINE).of("A"));
    b.delete(&fixture.path, None).await.unwrap();
    records.until(DEADLINE, request("A", OpCode::GetData)).await.unwrap();
    let own = CreateOptions::new(CreateMode::Persistent).with_acl(CREATOR_ALL_ACL);
    b.create(&fixture.path, b"new", own).await.unwrap();
    fixture.tap.end_delays();
    records.until(DEADLINE, reply("A", OpCode::GetData)).await.unwrap();
    b.set_acl(&fixture.path, OPEN_ACL_UNSAFE, None).await.unwrap();
    wait_for(&value, "new").await;
}

// Case (Found in docent itself): a shared value did not start when its node was deleted between its
// create and its first read.
async fn a_value_deleted_between_its_create_and_its_read_is_created_again(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    drop(started(&fixture, &b, "old").await);
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::delay_request(OpCode::GetData, DEADLINE).of("A"));
    let options = options();
    let (value, ()) =
        tokio::join!(SharedValue::start_with(&a, &fixture.path, "seed", &options), async {
            let read = records.until(DEADLINE, |r| r.is_request(OpCode::GetData));
            read.await.unwrap();
            b.delete(&fixture.path, None).await.unwrap();
            fixture.tap.end_delays();
        });
    assert_eq!(value.unwrap().value(), "seed");
}

/// A close ends the receivers, and so does the hand-over of the session.
// Case (Found in docent itself): receivers of a shared value or count waited for ever when the
// client had ended.
async fn receivers_end_with_their_client(fixture: Fixture) {
    for is_closed in [true, false] {
        let (client, _tap) = fixture.client("A").await;
        let value = started(&fixture, &client, "x").await;
        let path = format!("{}-count", fixture.path);
        let count = SharedCount::start_with(&client, &path, 7, &options()).await.unwrap();
        let (mut values, mut counts) = (value.subscribe(), count.subscribe());
        let waiting = tokio::spawn(async move { counts.wait_for(|_| false).await.map(drop) });
        if is_closed {
            client.close().await.unwrap();
        } else {
            client.detach().unwrap();
        }
        assert_eq!(within_deadline("the end of the value", values.next()).await, None);
        assert_eq!(within_deadline("the end of the count", waiting).await.unwrap(), None);
        // The last value stays; a later receiver has ended too.
        assert_eq!((value.value(), count.count()), ("x".into(), 7));
        assert_eq!(within_deadline("a late reader", value.subscribe().next()).await, None);
        assert_eq!(value.set_value("y").await.unwrap_err().kind(), ErrorKind::Closed);
        let observer = fixture.observer().await;
        for path in [&fixture.path, &format!("{}-sibling", fixture.path), &path] {
            observer.delete(path, None).await.unwrap();
        }
    }
}

/// Dropping the last clone ends the receivers; the client continues.
#[tokio::test]
async fn receivers_end_with_the_last_clone() {
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    let value = started(&fixture, &client, "x").await;
    let (clone, mut values) = (value.clone(), value.subscribe());
    drop(value);
    clone.set_value("y").await.unwrap();
    within_deadline("a value", values.next()).await.unwrap();
    drop(clone);
    assert_eq!(within_deadline("the end", values.next()).await, None);
    assert_eq!(client.ended(), None);
}
