//! Latches whose nodes, requests, connections or sessions are lost. Ln: a defect of Curator in `docs/CURATOR.md`.

use docent::leader::ConnectionStateErrorPolicy;

use super::*;
use crate::support::{
    given_up_session::{config_without_expiry, give_up_session, short_session},
    reaches,
};

on_both_servers! {
    a_close_ends_the_pause_of_a_create
    a_listener_hears_of_the_loss_during_the_pause_of_a_retry
}

/// Options whose first retry comes long after the test.
fn rare_retries() -> LeaderOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(10, DEADLINE * 10)).into()
}

/// L4: after a close, no create is sent.
// Case (Found in docent itself): a close during the pause of a create's retry created the node, and
// deleted it.
// Case (Leader election and kept nodes): a close without a connection.
async fn a_close_ends_the_pause_of_a_create(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
    let before = fixture.tap.len();
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", rare_retries()).unwrap();
    fixture.children(&fixture.path, 1).await;
    reaches(&a, ConnectionState::Reconnected).await;
    let error = within_deadline("the close", latch.close()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OperationTimeout, "the node may be there: {error}");
    fixture.children(&fixture.path, 0).await;
    assert_eq!(fixture.requests(before, OpCode::Create2), 1);
}

// Case (Found in docent itself): a latch reported the end of its leadership to its listeners only
// after the pause of a retry.
async fn a_listener_hears_of_the_loss_during_the_pause_of_a_retry(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let options = rare_retries().with_error_policy(ConnectionStateErrorPolicy::Session);
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", options).unwrap();
    let leadership = leads(&latch).await;
    let mut changes = latch.changes();
    assert!(matches!(change(&mut changes).await, Some(LeadershipChange::Leader(_))));
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::drop_reply(OpCode::GetChildren2).of("A"));
    tap.cut();
    records.until(DEADLINE, request("A", OpCode::GetChildren2)).await.unwrap();
    // The next listing would follow minutes later.
    tap.kill_session(DEADLINE).await.unwrap();
    within_deadline("the loss", leadership.lost()).await;
    assert!(matches!(change(&mut changes).await, Some(LeadershipChange::NotLeader)));
    drop(latch);
}

/// L27, N3: Curator sends the delete with the namespace twice in the path.
#[tokio::test]
async fn in_a_namespace_the_node_of_a_former_session_is_deleted() {
    let fixture = Fixture::with(config_without_expiry()).await;
    let (a, tap) = short_session(&fixture, "A").await;
    let lock = LockOptions::default().with_namespace("space");
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", lock).unwrap();
    let leadership = leads(&latch).await;
    let queue = format!("/space{}", fixture.path);
    assert!(leadership.path().starts_with(&queue));
    let (before, mut records) = (fixture.tap.len(), fixture.tap.subscribe());
    fixture.tap.inject(Fault::delay_request(OpCode::Create2, DEADLINE).of("A"));
    give_up_session(&a, &tap).await;
    records.until(DEADLINE, request("A", OpCode::Create2)).await.unwrap();
    assert_eq!(latch.our_path(), None, "between two nodes");
    fixture.tap.end_delays();
    let again = leads(&latch).await;
    assert_ne!(again.path(), leadership.path());
    fixture.children(&queue, 1).await;
    let deletes = fixture.tap.trace().since(before).filter(request("A", OpCode::Delete));
    let deleted: Vec<_> = deletes.iter().map(Record::path).collect();
    assert_eq!(deleted, [Some(leadership.path())]);
}
