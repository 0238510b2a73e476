//! Latches whose nodes, requests, connections or sessions are lost. Ln: a defect of Curator in `docs/CURATOR.md`.

use docent::{ConnectionState, leader::ConnectionStateErrorPolicy};

use super::*;
use crate::support::{
    given_up_session::{give_up_session, short_session, without_expiry},
    reaches,
};

on_both_servers! {
    a_close_ends_the_pause_of_a_create
    a_listener_hears_of_the_loss_during_the_pause_of_a_retry
}

async fn leads(latch: &LeaderLatch) -> docent::Leadership {
    within_deadline("the leadership", latch.leadership()).await.unwrap()
}

async fn next(changes: &mut Events<LeadershipChange>) -> Option<LeadershipChange> {
    within_deadline("a change", changes.next()).await
}

/// Options whose first retry comes long after the test.
fn rare_retries() -> LeaderOptions {
    let policy = docent::retry::RetryNTimes::new(10, DEADLINE * 10);
    docent::LockOptions::default().with_retry_policy(policy).into()
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
    let creates = fixture.sent("A", before).into_iter().filter(|op| *op == OpCode::Create2);
    assert_eq!(creates.count(), 1);
}

// Case (Found in docent itself): a latch reported the end of its leadership to its listeners only
// after the pause of a retry.
async fn a_listener_hears_of_the_loss_during_the_pause_of_a_retry(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let options = rare_retries().with_error_policy(ConnectionStateErrorPolicy::Session);
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", options).unwrap();
    let leadership = leads(&latch).await;
    let mut changes = latch.changes();
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::Leader(_))));
    let before = fixture.tap.len();
    fixture.tap.inject(Fault::drop_reply(OpCode::GetChildren2).of("A"));
    tap.cut();
    let is_listing = |r: &Record| &*r.client == "A" && r.is_request(OpCode::GetChildren2);
    fixture.tap.subscribe_from(before).until(DEADLINE, is_listing).await.unwrap();
    // The next listing would follow minutes later.
    tap.kill_session(DEADLINE).await.unwrap();
    within_deadline("the loss", leadership.lost()).await;
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::NotLeader)));
    drop(latch);
}

/// L27, N3: Curator sends the delete with the namespace twice in the path.
#[tokio::test]
async fn in_a_namespace_the_node_of_a_former_session_is_deleted() {
    let (fixture, _server) = without_expiry().await;
    let (a, tap) = short_session(&fixture, "A").await;
    let lock = docent::LockOptions::default().with_namespace("space");
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", lock).unwrap();
    let leadership = leads(&latch).await;
    let queue = format!("/space{}", fixture.path);
    assert!(leadership.path().starts_with(&queue));
    let before = fixture.tap.len();
    give_up_session(&a, &tap).await;
    let again = leads(&latch).await;
    assert_ne!(again.path(), leadership.path());
    fixture.children(&queue, 1).await;
    let trace = fixture.tap.trace().since(before);
    let deletes: Vec<_> =
        trace.iter().filter(|r| r.is_request(OpCode::Delete)).map(Record::path).collect();
    assert_eq!(deletes, [Some(leadership.path())]);
}
