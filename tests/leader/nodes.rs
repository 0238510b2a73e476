//! Kept nodes. Tests ported from Curator's `TestPersistentNode`, `TestPersistentEphemeralNode` and
//! `TestPersistentTtlNode` have the Java name above them. Ln: a defect of Curator in `docs/CURATOR.md`.

use super::*;
use crate::support::{
    given_up_session::{config_without_expiry, give_up_session, short_session},
    reaches,
};

on_both_servers! {
    a_close_without_a_reply_to_the_create_deletes_the_node
    a_closing_client_ends_its_kept_nodes
    a_dropped_node_is_deleted
    a_close_after_an_outage_leaves_another_clients_node
    a_node_with_a_time_to_live_is_touched_and_stays_after_the_close
}

fn options() -> NodeOptions {
    NodeOptions::default().with_lock_options(lock_options().with_default_data("10.0.0.1"))
}

pub(super) fn keep(client: &Client, path: &str, mode: CreateMode) -> PersistentNode {
    PersistentNode::start_with(client, path, mode, "v1", options()).unwrap()
}

pub(super) async fn created(node: &PersistentNode) -> String {
    within_deadline("the node", node.created()).await.unwrap()
}

pub(super) async fn next(events: &mut Events<NodeEvent>) -> NodeEvent {
    within_deadline("an event", events.next()).await.unwrap()
}

/// A client, its tap, and a path whose parent exists.
pub(super) async fn client(fixture: &Fixture) -> (Client, TapClient, String) {
    let (a, tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    (a, tap, format!("{}/n", fixture.path))
}

/// L4, for kept nodes.
// Case (Leader election and kept nodes): a close before there is a reply to the create.
// Case (Found in docent itself): a kept node that was closed before the reply to its create stayed,
// for ever if it was persistent; a latch, or a protected kept node, said that its node was deleted.
async fn a_close_without_a_reply_to_the_create_deletes_the_node(fixture: Fixture) {
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    for mode in [CreateMode::Ephemeral, CreateMode::Persistent, CreateMode::EphemeralSequential] {
        let timeouts = |config: Config| {
            config.with_session_timeout(ms(20_000)).with_connection_timeout(ms(4000))
        };
        let (a, tap) = fixture.client_with("A", timeouts).await;
        fixture.tap.inject(Fault::delay_reply(OpCode::Create2, DEADLINE).of("A"));
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

/// A client that is being closed refuses requests before it has ended. If a refused request were repeated at once, this
/// thread would have no time for anything else.
// Case (Found in docent itself): a kept node kept a thread busy while its client closed: a refused
// write was repeated at once.
async fn a_closing_client_ends_its_kept_nodes(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let node = keep(&a, &path, CreateMode::Ephemeral);
    created(&node).await;
    has_watches(&a, 1).await;
    tap.stall();
    let closing = tokio::spawn({
        let a = a.clone();
        async move { a.close().await }
    });
    eventually("a refusal", async || {
        // Before the close begins, the request gets no reply.
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

/// Another client replaces the node while its owner has no connection.
async fn a_close_after_an_outage_leaves_another_clients_node(fixture: Fixture) {
    let (a, tap, path) = client(&fixture).await;
    let observer = fixture.observer().await;
    for mode in [CreateMode::Ephemeral, CreateMode::Persistent] {
        let node = keep(&a, &path, mode);
        created(&node).await;
        has_watches(&a, 1).await;
        tap.refuse().await.unwrap();
        tap.cut();
        reaches(&a, ConnectionState::Suspended).await;
        observer.delete(&path, None).await.unwrap();
        observer.create(&path, b"other", CreateMode::Persistent).await.unwrap();
        let closing = node.close();
        tap.accept().await.unwrap();
        within_deadline("the close", closing).await.unwrap();
        assert_eq!(&*observer.get_data(&path).await.unwrap().data, b"other", "{mode:?}");
        observer.delete(&path, None).await.unwrap();
    }
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
    // A node of an earlier run is adopted.
    let again = PersistentTtlNode::start_with(&a, &path, ttl, "v2", options()).unwrap();
    within_deadline("the node", again.created()).await.unwrap();
    within_deadline("the write", again.written()).await.unwrap();
}

/// L20: the client gives up its session by its own clock. The server keeps the node of that session, and would delete it
/// later.
#[tokio::test]
async fn the_node_of_a_former_session_is_replaced_at_once() {
    let fixture = Fixture::with(config_without_expiry()).await;
    let (a, tap) = short_session(&fixture, "A").await;
    let node = keep(&a, "/n", CreateMode::Ephemeral);
    created(&node).await;
    let former = session_id(&a);
    let mut events = node.events();
    give_up_session(&a, &tap).await;
    for wanted in ["Lost", "Created", "Restored"] {
        let event = next(&mut events).await;
        assert!(format!("{event:?}").starts_with(wanted), "{event:?} instead of {wanted}");
    }
    assert!(fixture.testing_server().session_ids().contains(&former), "it is alive");
    let stat = a.exists("/n").await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, session_id(&a));
    node.close().await.unwrap();
}
