//! When the data of a kept node counts as written, and what its close deletes, on both servers.

use super::*;
use crate::nodes::{client, created, keep};

on_both_servers! {
    a_refused_write_does_not_fail_a_later_one
    a_refused_write_is_not_repeated_on_the_node_of_another_client
    a_write_completes_once_its_node_exists
    data_that_is_set_during_a_write_is_written
}

/// The refusal of a write arrives after other data was set, and the other data can be written.
// Case (Found in docent itself): a kept node: the refusal of earlier data, arriving late, was
// reported for data that was then written.
async fn a_refused_write_does_not_fail_a_later_one(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    let node = keep(&a, &path, CreateMode::Ephemeral);
    created(&node).await;
    let mut events = node.events();
    let closed = [Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone")];
    let observer = fixture.observer().await;
    observer.set_acl(&path, &closed, None).await.unwrap();
    fixture.tap.inject(Fault::delay_reply(OpCode::SetData, DEADLINE).of("A"));
    let mut records = fixture.tap.subscribe();
    node.set_data("v2");
    let refused = node.written();
    records.until(DEADLINE, reply("A", OpCode::SetData)).await.unwrap();
    node.set_data("v3");
    let written = tokio::spawn(node.written());
    tokio::task::yield_now().await;
    observer.set_acl(&path, docent::acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    fixture.tap.end_delays();
    within_deadline("the write", written).await.unwrap().unwrap();
    assert_eq!(&*a.get_data(&path).await.unwrap().data, b"v3");
    // The wait for the earlier data completes with the write of the later data.
    within_deadline("the write", refused).await.unwrap();
    while !matches!(next(&mut events).await, NodeEvent::Failed(error) if error.kind() == ErrorKind::NoAuth)
    {
    }
    a.close().await.unwrap();
    observer.close().await.unwrap();
}

/// The node is replaced while the connection is broken.
// Case (Found in docent itself): a kept node whose write was refused was written again after a
// reconnect without a look: to the node of another client, which had replaced it meanwhile.
async fn a_refused_write_is_not_repeated_on_the_node_of_another_client(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let observer = fixture.observer().await;
    let node = keep(&a, &path, CreateMode::Persistent);
    created(&node).await;
    within_deadline("the write", node.written()).await.unwrap();
    let mut events = node.events();
    let closed = [Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone")];
    observer.set_acl(&path, &closed, None).await.unwrap();
    node.set_data("v2");
    assert!(matches!(next(&mut events).await, NodeEvent::Failed(_)));
    tap.refuse().await.unwrap();
    tap.cut();
    observer.delete(&path, None).await.unwrap();
    observer.create(&path, b"other", CreateMode::Persistent).await.unwrap();
    tap.accept().await.unwrap();
    while !matches!(next(&mut events).await, NodeEvent::Conflict { .. }) {}
    assert_eq!(&*observer.get_data(&path).await.unwrap().data, b"other");
    a.close().await.unwrap();
}

/// A node that was deleted and created again does not have the data of the earlier write.
// Case (Found in docent itself): a kept node that was lost, or replaced by another client's,
// counted as written; so registering an unchanged instance succeeded without a node.
async fn a_write_completes_once_its_node_exists(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let observer = fixture.observer().await;
    let node = keep(&a, &path, CreateMode::Ephemeral);
    created(&node).await;
    within_deadline("the write", node.written()).await.unwrap();
    let mut events = node.events();
    fixture.tap.inject(Fault::delay_reply(OpCode::Create2, DEADLINE).of("A"));
    observer.delete(&path, None).await.unwrap();
    assert!(matches!(next(&mut events).await, NodeEvent::Lost));
    let mut written = std::pin::pin!(node.written());
    poll_once(written.as_mut());
    fixture.tap.end_delays();
    within_deadline("the write", written).await.unwrap();
    assert!(observer.exists(&path).await.unwrap().is_some());
    // The same in a new session, in which the node of the previous session is gone.
    let (before, session) = (node.czxid(), session_id(&a));
    tap.kill_session(DEADLINE).await.unwrap();
    eventually("a new session", async || (a.session()?.session_id() != session).then_some(()))
        .await;
    within_deadline("the write", node.written()).await.unwrap();
    assert_ne!(Some(observer.exists(&path).await.unwrap().unwrap().czxid), before);
    a.close().await.unwrap();
    observer.close().await.unwrap();
}

async fn data_that_is_set_during_a_write_is_written(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    let node = keep(&a, &path, CreateMode::Ephemeral);
    created(&node).await;
    fixture.tap.inject(Fault::delay_reply(OpCode::SetData, DEADLINE).of("A"));
    let mut records = fixture.tap.subscribe();
    node.set_data("v2");
    records.until(DEADLINE, reply("A", OpCode::SetData)).await.unwrap();
    node.set_data("v3");
    fixture.tap.end_delays();
    within_deadline("the write", node.written()).await.unwrap();
    assert_eq!(&*a.get_data(&path).await.unwrap().data, b"v3");
    a.close().await.unwrap();
}
