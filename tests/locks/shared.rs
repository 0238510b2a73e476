//! Source: `TestSharedCount`, `TestSharedValue` as far as the semaphore leans on them.

use docent::{
    ErrorKind,
    recipes::shared::{SharedCount, SharedValue, count_of},
};

use crate::{
    Stage, options,
    support::{DEADLINE, within_deadline},
};

on_both_servers! {
    a_count_is_seeded_once_and_followed
    a_stale_write_is_refused_and_the_newer_value_read
    a_value_is_followed_through_a_broken_connection
    a_deleted_value_stays_known
}

async fn a_count_is_seeded_once_and_followed(stage: Stage) {
    let ((a, _a), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let first = SharedCount::start_with(&a, &stage.path, 5, &options()).await.unwrap();
    let second = SharedCount::start_with(&b, &stage.path, 9, &options()).await.unwrap();
    assert_eq!((first.count(), second.count()), (5, 5));
    assert_eq!(a.get_data(&stage.path).await.unwrap().data[..], [0, 0, 0, 5]);
    let mut told = second.subscribe();
    first.set_count(-7).await.unwrap();
    assert_eq!(first.count(), -7);
    within_deadline("the news", told.wait_for(|value| count_of(value) == -7)).await.unwrap();
    assert_eq!(second.count(), -7);
}

async fn a_stale_write_is_refused_and_the_newer_value_read(stage: Stage) {
    let ((a, _a), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let first = SharedValue::start_with(&a, &stage.path, "one", &options()).await.unwrap();
    let second = SharedValue::start_with(&b, &stage.path, "", &options()).await.unwrap();
    let seen = first.versioned_value();
    assert!(second.try_set_value(&second.versioned_value(), "two").await.unwrap());
    assert!(!first.try_set_value(&seen, "three").await.unwrap());
    assert_eq!(first.value(), "two");
    assert!(first.try_set_value(&first.versioned_value(), "three").await.unwrap());
}

async fn a_value_is_followed_through_a_broken_connection(stage: Stage) {
    let ((a, tap), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let first = SharedValue::start_with(&a, &stage.path, "old", &options()).await.unwrap();
    let mut told = first.subscribe();
    tap.refuse().await.unwrap();
    tap.cut();
    b.set_data(&stage.path, b"new", None).await.unwrap();
    tap.accept().await.unwrap();
    within_deadline("the news", told.wait_for(|value| value.value == "new")).await.unwrap();
    // And through a session's end.
    tap.kill_session(DEADLINE).await.unwrap();
    b.set_data(&stage.path, b"newer", None).await.unwrap();
    within_deadline("the news", told.wait_for(|value| value.value == "newer")).await.unwrap();
}

async fn a_deleted_value_stays_known(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let value = SharedValue::start_with(&client, &stage.path, "x", &options()).await.unwrap();
    client.delete(&stage.path, None).await.unwrap();
    let error = value.set_value("y").await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoNode));
    assert_eq!(value.value(), "x");
    // Made again, it is heard of.
    let mut told = value.subscribe();
    let path = stage.path.clone();
    let made = async {
        // The watcher sets its watch on the missing node on its own time.
        crate::support::eventually("the watch", async || (client.load().1 > 0).then_some(())).await;
        let _ = client.create(&path, b"z", docent::CreateMode::Persistent).await;
        told.wait_for(|value| value.value == "z").await.map(drop)
    };
    within_deadline("the news", made).await.unwrap();
}
