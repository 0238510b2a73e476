//! Kept nodes. Tests ported from Curator's `TestPersistentNode`, `TestPersistentEphemeralNode` and
//! `TestPersistentTtlNode` have the Java name above them. Ln: the defects of Curator in `docs/CURATOR.md`.

use std::time::Duration;

use docent::{
    Client, CreateMode, ErrorKind, GroupMember, LockOptions, NodeEvent, NodeEvents, NodeOptions,
    OpCode, PersistentNode, PersistentTtlNode, retry::RetryNTimes,
};
use docent_testing::{
    fault::Fault,
    tap::{Record, TapClient},
};

use crate::{
    Fixture, ms, requests,
    support::{
        DEADLINE, eventually,
        given_up_session::{give_up_session, short_session, without_expiry},
        within_deadline,
    },
};

on_both_servers! {
    a_kept_node_is_created_written_and_deleted
    a_deleted_node_is_created_again_and_a_written_one_is_left
    a_cut_writes_nothing
    a_killed_session_loses_and_restores_the_node
    a_protected_sequential_node_keeps_its_name
    a_lost_create_of_a_sequential_node_makes_one_node
    the_last_wanted_data_is_the_last_written
    a_repeated_write_looks_at_the_node_first
    a_repeated_delete_looks_at_the_node_first
    another_clients_node_is_neither_written_nor_deleted
    a_close_before_the_conflict_is_known_deletes_nothing
    a_missing_parent_is_reported_and_the_node_comes_after_a_reconnect
    a_node_below_an_ephemeral_one_is_an_error_without_a_loop
    a_close_during_an_outage_is_not_done_and_deletes_later
    a_close_without_a_reply_to_the_create_deletes_the_node
    a_lost_look_is_repeated
    a_closing_client_ends_its_kept_nodes
    a_dropped_node_is_deleted
    a_node_with_a_time_to_live_is_touched_and_stays_after_the_close
    paths_and_times_that_cannot_be_are_refused
}

fn options() -> NodeOptions {
    let policy = RetryNTimes::new(10, Duration::from_millis(100));
    let lock = LockOptions::default().with_retry_policy(policy).with_default_data("10.0.0.1");
    NodeOptions::default().with_lock_options(lock)
}

pub(super) fn keep(client: &Client, path: &str, mode: CreateMode) -> PersistentNode {
    PersistentNode::start_with(client, path, mode, "v1", options()).unwrap()
}

pub(super) async fn created(node: &PersistentNode) -> String {
    within_deadline("the node", node.created()).await.unwrap()
}

pub(super) async fn next(events: &mut NodeEvents) -> NodeEvent {
    within_deadline("an event", events.next()).await.unwrap()
}

/// A client with a path whose parent exists.
pub(super) async fn client(fixture: &Fixture) -> (Client, TapClient, String) {
    let (a, tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    (a, tap, format!("{}/n", fixture.path))
}

async fn sent(fixture: &Fixture, label: &str, before: u64, wanted: &[OpCode]) {
    eventually(&format!("{wanted:?}"), async || {
        (requests(fixture, label, before) == wanted).then_some(())
    })
    .await;
}

/// `TestPersistentNode.testBasic`, `testQuickSetData`.
async fn a_kept_node_is_created_written_and_deleted(fixture: Fixture) {
    use OpCode::{Create2, Delete, Exists, SetData};
    let (a, _tap, path) = client(&fixture).await;
    let before = fixture.tap.len();
    let node = keep(&a, &path, CreateMode::Ephemeral);
    assert_eq!(created(&node).await, path);
    sent(&fixture, "A", before, &[Create2, Exists]).await;
    let stat = a.exists(&path).await.unwrap().unwrap();
    assert_eq!(node.czxid(), Some(stat.czxid));
    let before = fixture.tap.len();
    node.set_data("v2");
    within_deadline("the write", node.written()).await.unwrap();
    sent(&fixture, "A", before, &[SetData, Exists]).await;
    assert_eq!(&*a.get_data(&path).await.unwrap().data, b"v2");
    let before = fixture.tap.len();
    within_deadline("the close", node.close()).await.unwrap();
    assert_eq!(requests(&fixture, "A", before), [Delete]);
    assert!(a.exists(&path).await.unwrap().is_none());
    assert_eq!(node.created().await.unwrap_err().kind(), ErrorKind::Closed);
}

/// `TestPersistentEphemeralNode.testRecreatesNodeWhenItGetsDeleted`.
async fn a_deleted_node_is_created_again_and_a_written_one_is_left(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    let observer = fixture.observer().await;
    let before = fixture.tap.len();
    let node = keep(&a, &path, CreateMode::Persistent);
    created(&node).await;
    sent(&fixture, "A", before, &[OpCode::Create2, OpCode::Exists]).await;
    let mut events = node.events();
    observer.delete(&path, None).await.unwrap();
    assert!(matches!(next(&mut events).await, NodeEvent::Lost));
    assert!(matches!(next(&mut events).await, NodeEvent::Created { .. }));
    assert!(matches!(next(&mut events).await, NodeEvent::Restored));
    sent(
        &fixture,
        "A",
        before,
        &[OpCode::Create2, OpCode::Exists, OpCode::Create2, OpCode::Exists],
    )
    .await;
    let before = fixture.tap.len();
    observer.set_data(&path, b"other", None).await.unwrap();
    sent(&fixture, "A", before, &[OpCode::Exists]).await;
    assert_eq!(&*observer.get_data(&path).await.unwrap().data, b"other");
    assert_eq!(&*node.data(), b"v1");
}

/// L19: in Curator, each reconnect writes the node, and all watches on it fire.
async fn a_cut_writes_nothing(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let before = fixture.tap.len();
    let node = keep(&a, &path, CreateMode::Ephemeral);
    created(&node).await;
    sent(&fixture, "A", before, &[OpCode::Create2, OpCode::Exists]).await;
    let czxid = node.czxid();
    let before = fixture.tap.len();
    tap.cut();
    sent(&fixture, "A", before, &[OpCode::SetWatches, OpCode::Exists]).await;
    a.sync("/").await.unwrap();
    let stat = a.exists(&path).await.unwrap().unwrap();
    assert_eq!((stat.version, Some(stat.czxid)), (0, czxid));
}

/// `TestPersistentEphemeralNode.testRecreatesNodeWhenSessionReconnects`.
async fn a_killed_session_loses_and_restores_the_node(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let node = keep(&a, &path, CreateMode::Ephemeral);
    created(&node).await;
    let czxid = eventually("the czxid", async || node.czxid()).await;
    let mut events = node.events();
    tap.kill_session(DEADLINE).await.unwrap();
    assert!(matches!(next(&mut events).await, NodeEvent::Lost));
    let NodeEvent::Created { czxid: Some(again), .. } = next(&mut events).await else { panic!() };
    assert!(again > czxid);
    let stat = a.exists(&path).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, a.session().unwrap().session_id());
}

/// `TestPersistentNode.testEphemeralSequentialWithProtectionReconnection`, CURATOR-483.
async fn a_protected_sequential_node_keeps_its_name(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let observer = fixture.observer().await;
    let path = format!("{path}-");
    let node = PersistentNode::start_with(
        &a,
        &path,
        CreateMode::EphemeralSequential,
        "v1",
        options().with_protection(),
    )
    .unwrap();
    let name = created(&node).await;
    assert!(name.starts_with(&format!("{}/_c_", fixture.path)) && name.ends_with("-n-0000000000"));
    let mut events = node.events();
    observer.delete(&name, None).await.unwrap();
    for _ in 0..2 {
        assert!(matches!(next(&mut events).await, NodeEvent::Lost));
        assert!(matches!(next(&mut events).await, NodeEvent::Created { path, .. } if path == name));
        assert!(matches!(next(&mut events).await, NodeEvent::Restored));
        tap.kill_session(DEADLINE).await.ok();
    }
    assert_eq!(fixture.children(&fixture.path, 1).await.len(), 1);
}

/// L14: in Curator, two nodes, of which a close deletes one; without protection, three.
async fn a_lost_create_of_a_sequential_node_makes_one_node(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    for options in [options().with_protection(), options()] {
        fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
        let mode = CreateMode::PersistentSequential;
        let node = PersistentNode::start_with(&a, &path, mode, "v1", options).unwrap();
        created(&node).await;
        fixture.children(&fixture.path, 1).await;
        within_deadline("the close", node.close()).await.unwrap();
        fixture.children(&fixture.path, 0).await;
    }
}

/// L21: in Curator, the retry of the older value is written last.
async fn the_last_wanted_data_is_the_last_written(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    let node = keep(&a, &path, CreateMode::Ephemeral);
    created(&node).await;
    fixture.tap.inject(Fault::drop_before(OpCode::SetData).of("A"));
    let before = fixture.tap.len();
    node.set_data("v2");
    let is_set = |r: &Record| r.is_request(OpCode::SetData);
    let mut records = fixture.tap.subscribe_from(before);
    records.until(DEADLINE, is_set).await.unwrap();
    node.set_data("v3");
    within_deadline("the write", node.written()).await.unwrap();
    a.sync("/").await.unwrap();
    assert_eq!(&*a.get_data(&path).await.unwrap().data, b"v3");
    assert_eq!(&*node.data(), b"v3");
}

/// The node is deleted, and created by another client, while a write has no reply.
async fn a_repeated_write_looks_at_the_node_first(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let observer = fixture.observer().await;
    let node = keep(&a, &path, CreateMode::Persistent);
    created(&node).await;
    let mut events = node.events();
    fixture.tap.inject(Fault::drop_before(OpCode::SetData).of("A"));
    tap.refuse().await.unwrap();
    let mut records = fixture.tap.subscribe_from(fixture.tap.len());
    node.set_data("v2");
    records.until(DEADLINE, |r: &Record| r.is_request(OpCode::SetData)).await.unwrap();
    observer.delete(&path, None).await.unwrap();
    observer.create(&path, b"other", CreateMode::Persistent).await.unwrap();
    tap.accept().await.unwrap();
    assert!(matches!(next(&mut events).await, NodeEvent::Lost));
    assert!(matches!(next(&mut events).await, NodeEvent::Conflict { owner: 0 }));
    let other = observer.get_data(&path).await.unwrap();
    assert_eq!((&*other.data, other.stat.version), (&b"other"[..], 0));
    let error = within_deadline("the conflict", node.written()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeExists);
    within_deadline("the close", node.close()).await.unwrap();
    assert!(observer.exists(&path).await.unwrap().is_some());
}

/// The node is deleted, and created by another client, while the delete of a close has no reply.
async fn a_repeated_delete_looks_at_the_node_first(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let observer = fixture.observer().await;
    let node = keep(&a, &path, CreateMode::Persistent);
    created(&node).await;
    fixture.tap.inject(Fault::drop_before(OpCode::Delete).of("A"));
    tap.refuse().await.unwrap();
    let mut records = fixture.tap.subscribe_from(fixture.tap.len());
    let closing = node.close();
    records.until(DEADLINE, |r: &Record| r.is_request(OpCode::Delete)).await.unwrap();
    observer.delete(&path, None).await.unwrap();
    observer.create(&path, b"other", CreateMode::Persistent).await.unwrap();
    tap.accept().await.unwrap();
    within_deadline("the close", closing).await.unwrap();
    assert!(observer.exists(&path).await.unwrap().is_some());
}

/// L16: in Curator, B adopts A's node, overwrites it, and deletes it when it closes.
async fn another_clients_node_is_neither_written_nor_deleted(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    let (b, _b) = fixture.client("B").await;
    let first = keep(&a, &path, CreateMode::Ephemeral);
    created(&first).await;
    let second = keep(&b, &path, CreateMode::Ephemeral);
    let mut events = second.events();
    let NodeEvent::Conflict { owner } = next(&mut events).await else { panic!("no conflict") };
    assert_eq!(owner, a.session().unwrap().session_id());
    let error = within_deadline("the conflict", second.created()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeExists);
    second.set_data("v9");
    within_deadline("the close", second.close()).await.unwrap();
    let stat = a.exists(&path).await.unwrap().unwrap();
    assert_eq!((stat.version, stat.ephemeral_owner), (0, owner));
    // Another one takes over when the first has gone.
    let third = keep(&b, &path, CreateMode::Ephemeral);
    let mut events = third.events();
    assert!(matches!(next(&mut events).await, NodeEvent::Conflict { .. }));
    first.close().await.unwrap();
    assert!(matches!(next(&mut events).await, NodeEvent::Created { .. }));
}

/// L16: in Curator, the other client's node is deleted.
async fn a_close_before_the_conflict_is_known_deletes_nothing(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    let observer = fixture.observer().await;
    observer.create(&path, b"other", CreateMode::Persistent).await.unwrap();
    fixture.tap.inject(Fault::delay_reply(OpCode::Create2, DEADLINE).of("A"));
    let before = fixture.tap.len();
    let node = keep(&a, &path, CreateMode::Ephemeral);
    let is_refused = |r: &Record| &*r.client == "A" && r.is_reply(OpCode::Create2);
    let mut records = fixture.tap.subscribe_from(before);
    records.until(DEADLINE, is_refused).await.unwrap();
    let closing = node.close();
    fixture.tap.end_delays();
    within_deadline("the close", closing).await.unwrap();
    assert_eq!(requests(&fixture, "A", before), [OpCode::Create2]);
    assert!(observer.exists(&path).await.unwrap().is_some());
}

/// L17: in Curator, the data can never be set after that. `TestPersistentNode.testCreationWithParentCreationOff`.
async fn a_missing_parent_is_reported_and_the_node_comes_after_a_reconnect(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let path = format!("{}/n", fixture.path);
    let options = options().without_parents();
    let before = fixture.tap.len();
    let node = PersistentNode::start_with(&a, &path, CreateMode::Ephemeral, "v1", options).unwrap();
    let error = within_deadline("the refusal", node.created()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoNode);
    assert_eq!(requests(&fixture, "A", before), [OpCode::Create2]);
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    let mut events = node.events();
    tap.cut();
    while !matches!(next(&mut events).await, NodeEvent::Created { .. }) {}
    node.set_data("v2");
    within_deadline("the write", node.written()).await.unwrap();
    assert_eq!(&*a.get_data(&path).await.unwrap().data, b"v2");
}

/// L15: in Curator, thousands of creates a second.
async fn a_node_below_an_ephemeral_one_is_an_error_without_a_loop(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    a.create(&path, b"", CreateMode::Ephemeral).await.unwrap();
    let before = fixture.tap.len();
    let node = keep(&a, &format!("{path}/below"), CreateMode::Persistent);
    let mut events = node.events();
    let error = within_deadline("the refusal", node.created()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoChildrenForEphemerals);
    assert!(matches!(next(&mut events).await, NodeEvent::Failed(_)));
    a.sync("/").await.unwrap();
    assert_eq!(requests(&fixture, "A", before), [OpCode::Create2, OpCode::Sync]);
    // It is tried again when something has changed.
    a.delete(&path, None).await.unwrap();
    node.set_data("v2");
    within_deadline("the node", node.written()).await.unwrap();
}

async fn a_close_during_an_outage_is_not_done_and_deletes_later(fixture: Fixture) {
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    let tap = fixture.tap.client("A").await.unwrap();
    let config = docent::Config::new(&tap.connect_string()).unwrap();
    let a = config
        .with_session_timeout(ms(20_000))
        .with_connection_timeout(ms(1000))
        .connect()
        .await
        .unwrap();
    let path = format!("{}/n", fixture.path);
    let node = keep(&a, &path, CreateMode::Persistent);
    created(&node).await;
    tap.refuse().await.unwrap();
    tap.cut();
    let error = within_deadline("the close", node.close()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OperationTimeout, "{error}");
    tap.accept().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

/// L4, of kept nodes.
async fn a_close_without_a_reply_to_the_create_deletes_the_node(fixture: Fixture) {
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    for mode in [CreateMode::Ephemeral, CreateMode::Persistent, CreateMode::EphemeralSequential] {
        let tap = fixture.tap.client("A").await.unwrap();
        let config = docent::Config::new(&tap.connect_string()).unwrap();
        let config = config.with_session_timeout(ms(20_000)).with_connection_timeout(ms(1000));
        let a = config.connect().await.unwrap();
        let delay = Fault::delay_reply(OpCode::Create2, DEADLINE).of("A");
        fixture.tap.inject(delay);
        let node = keep(&a, &format!("{}/n", fixture.path), mode);
        fixture.children(&fixture.path, 1).await;
        tap.refuse().await.unwrap();
        tap.cut();
        let error = within_deadline("the close", node.close()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OperationTimeout, "{mode:?}: {error}");
        tap.accept().await.unwrap();
        fixture.children(&fixture.path, 0).await;
        a.close().await.unwrap();
    }
}

/// L18: in Curator, the callback fails, and the node is no longer watched.
async fn a_lost_look_is_repeated(fixture: Fixture) {
    use OpCode::{Create2, Exists};
    let (a, _tap, path) = client(&fixture).await;
    let observer = fixture.observer().await;
    fixture.tap.inject(Fault::drop_reply(Exists).of("A"));
    let before = fixture.tap.len();
    let node = keep(&a, &path, CreateMode::Ephemeral);
    sent(&fixture, "A", before, &[Create2, Exists, Exists]).await;
    eventually("a watch", async || (a.metrics().watches == 1).then_some(())).await;
    let first = node.czxid();
    let mut events = node.events();
    observer.delete(&path, None).await.unwrap();
    assert!(matches!(next(&mut events).await, NodeEvent::Lost));
    assert!(matches!(next(&mut events).await, NodeEvent::Created { .. }));
    assert_ne!(node.czxid(), first);
}

/// A client that is being closed refuses requests before it has ended. Repeated at once, they would leave this thread no
/// time for anything else.
async fn a_closing_client_ends_its_kept_nodes(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let node = keep(&a, &path, CreateMode::Ephemeral);
    created(&node).await;
    eventually("a watch", async || (a.metrics().watches == 1).then_some(())).await;
    tap.stall();
    let closing = tokio::spawn({
        let a = a.clone();
        async move { a.close().await }
    });
    eventually("a refusal", async || {
        // Without a reply before the close has begun.
        let refused = tokio::time::timeout(ms(20), a.exists(&path)).await.ok()?.err()?;
        (refused.kind() == ErrorKind::Closed).then_some(())
    })
    .await;
    node.set_data("v2");
    let error = within_deadline("the end", node.written()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    tap.resume();
    within_deadline("the close", closing).await.unwrap().unwrap();
}

async fn a_dropped_node_is_deleted(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    let node = keep(&a, &path, CreateMode::Container);
    created(&node).await;
    drop(node);
    fixture.children(&fixture.path, 0).await;
}

/// `TestPersistentTtlNode.testBasic`.
async fn a_node_with_a_time_to_live_is_touched_and_stays_after_the_close(fixture: Fixture) {
    let (a, _tap, path) = client(&fixture).await;
    let ttl = ms(600);
    let node = PersistentTtlNode::start_with(&a, &path, ttl, "v1", options()).unwrap();
    assert_eq!(within_deadline("the node", node.created()).await.unwrap(), path);
    let touch = format!("{path}/touch");
    eventually("two touches", async || {
        let stat = a.exists(&touch).await.unwrap()?;
        (stat.version > 0).then_some(())
    })
    .await;
    assert_eq!(&*a.get_data(&touch).await.unwrap().data, b"10.0.0.1");
    node.close().await.unwrap();
    assert!(a.exists(&path).await.unwrap().is_some());
    // An earlier run's node is adopted.
    let again = PersistentTtlNode::start_with(&a, &path, ttl, "v2", options()).unwrap();
    within_deadline("the node", again.created()).await.unwrap();
    within_deadline("the write", again.written()).await.unwrap();
}

async fn paths_and_times_that_cannot_be_are_refused(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    for path in ["/", "no/slash", "/a//b", ""] {
        let error = PersistentNode::start(&a, path, CreateMode::Ephemeral, "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{path}");
    }
    for id in ["", "a/b", "."] {
        let error = GroupMember::join(&a, &fixture.path, id, "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{id}");
    }
    for ttl in [Duration::ZERO, Duration::from_secs(1 << 40)] {
        let error = PersistentTtlNode::start(&a, &fixture.path, ttl, "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArguments);
    }
}

/// L20: in Curator, the node of the dead session is adopted, and gone when the server expires that session.
#[tokio::test]
async fn the_node_of_a_former_session_is_replaced_without_a_gap() {
    let (fixture, server) = without_expiry().await;
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    let (a, tap) = short_session(&fixture, "A").await;
    let path = format!("{}/n", fixture.path);
    let node = keep(&a, &path, CreateMode::Ephemeral);
    created(&node).await;
    let old = a.session().unwrap().session_id();
    let mut events = node.events();
    let before = fixture.tap.len();
    give_up_session(&a, &tap).await;
    assert!(matches!(next(&mut events).await, NodeEvent::Lost));
    assert!(matches!(next(&mut events).await, NodeEvent::Created { .. }));
    assert!(server.session_ids().contains(&old), "the server still has it");
    let stat = observer.exists(&path).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, a.session().unwrap().session_id());
    let multis = requests(&fixture, "A", before).iter().filter(|op| **op == OpCode::Multi).count();
    assert_eq!(multis, 1, "deleted and created in one transaction");
    assert!(server.expire_session(old));
    assert!(observer.exists(&path).await.unwrap().is_some());
}

/// Its own writes, and the reconnects of the one that waits, delete nothing in a loop.
#[tokio::test]
async fn a_node_that_another_client_writes_again_and_again_is_replaced_at_once() {
    let server = docent_testing::TestingServer::start().await.unwrap();
    let client = Client::connect(&server.connect_string()).await.unwrap();
    let active = Client::connect(&server.connect_string()).await.unwrap();
    active.create("/n", b"active", CreateMode::Ephemeral).await.unwrap();
    let node = keep(&client, "/n", CreateMode::Ephemeral);
    assert_eq!(node.created().await.unwrap_err().kind(), ErrorKind::NodeExists);
    for load in 0..30 {
        active.set_data("/n", format!("load={load}").as_bytes(), None).await.unwrap();
        tokio::time::sleep(ms(150)).await;
    }
    let gone = std::time::Instant::now();
    active.delete("/n", None).await.unwrap();
    eventually("the node", async || active.exists("/n").await.unwrap()).await;
    assert!(gone.elapsed() < ms(500), "{:?}", gone.elapsed());
    node.close().await.unwrap();
}
