//! Latches whose nodes, requests, connections or sessions are lost. Ln: the defects of Curator in `docs/CURATOR.md`.

use docent::{
    Client, ConnectionState, CreateMode, ErrorKind, Events, LeaderLatch, LeaderOptions, OpCode,
    leader::{ConnectionStateErrorPolicy, LeadershipChange},
};
use docent_testing::{
    fault::Fault,
    tap::{Record, TapClient},
};

use crate::{
    Fixture, ms, options,
    support::{
        DEADLINE, cut_off, eventually,
        given_up_session::{give_up_session, short_session, without_expiry},
        has_watches, reaches, within_deadline,
    },
};

on_both_servers! {
    a_close_during_an_outage_says_so_and_the_node_goes_later
    a_close_ends_the_pause_of_a_create
    a_listener_hears_of_the_loss_during_the_pause_of_a_retry
}

fn latch(fixture: &Fixture, client: &Client, id: &str) -> LeaderLatch {
    LeaderLatch::start_with(client, &fixture.path, id, options()).unwrap()
}

async fn leads(latch: &LeaderLatch) -> docent::Leadership {
    within_deadline("the leadership", latch.leadership()).await.unwrap()
}

/// A leader A and a waiter B, which watches A's node.
async fn two(fixture: &Fixture) -> ([(Client, TapClient); 2], [LeaderLatch; 2]) {
    let (a, b) = (fixture.client("A").await, fixture.client("B").await);
    let first = latch(fixture, &a.0, "a");
    leads(&first).await;
    let second = latch(fixture, &b.0, "b");
    eventually("B watches", async || (b.0.metrics().watches == 1).then_some(())).await;
    ([a, b], [first, second])
}

async fn next(changes: &mut Events<LeadershipChange>) -> Option<LeadershipChange> {
    within_deadline("a change", changes.next()).await
}

// Case (Leader election and kept nodes): a close without a connection.
async fn a_close_during_an_outage_says_so_and_the_node_goes_later(fixture: Fixture) {
    let ([(a, ta), _b], [first, second]) = two(&fixture).await;
    cut_off(&a, &ta).await;
    let closed = within_deadline("the close", first.close()).await;
    assert!(closed.is_err(), "the node is not deleted yet");
    assert!(second.current_leadership().is_none());
    ta.accept().await.unwrap();
    leads(&second).await;
    fixture.children(&fixture.path, 1).await;
}

/// Options whose retries come after the test.
fn rare_retries() -> LeaderOptions {
    let policy = docent::retry::RetryNTimes::new(10, DEADLINE * 10);
    docent::LockOptions::default().with_retry_policy(policy).into()
}

/// L4: after a close, no create is sent.
// Case (Found in docent itself): a close during the pause of a create's retry created the node, and
// deleted it.
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
    // The next listing follows in some minutes.
    tap.kill_session(DEADLINE).await.unwrap();
    within_deadline("the loss", leadership.lost()).await;
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::NotLeader)));
    drop(latch);
}

/// L27, N3: in Curator, the delete goes to a path with the namespace twice.
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

/// L23: in Curator, the old leader leads on for up to two thirds of a timeout beside the new one.
#[tokio::test]
async fn with_the_session_policy_a_leadership_ends_before_the_next_one_begins() {
    let server = docent_testing::TestingServer::start().await.unwrap();
    let fixture = Fixture::on(server.connect_string(), None).await;
    let tap = fixture.tap.client("A").await.unwrap();
    let config = docent::Config::new(&tap.connect_string()).unwrap();
    let a = config.with_session_timeout(ms(4000)).connect().await.unwrap();
    let options = options().with_error_policy(ConnectionStateErrorPolicy::Session);
    let first = LeaderLatch::start_with(&a, &fixture.path, "a", options).unwrap();
    let leadership = leads(&first).await;
    let (b, _b) = fixture.client("B").await;
    let second = latch(&fixture, &b, "b");
    has_watches(&b, 1).await;
    let mut changes = first.changes();
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::Leader(_))));
    // A half-open connection: nothing is refused, and nothing arrives.
    tap.refuse().await.unwrap();
    tap.stall();
    let next_leads = tokio::spawn({
        let (second, leadership) = (second.clone(), leadership.clone());
        async move {
            let next = second.leadership().await.unwrap();
            (next.is_held(), leadership.is_held())
        }
    });
    within_deadline("the loss", leadership.lost()).await;
    assert!(second.current_leadership().is_none(), "the old leader learns of it first");
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::NotLeader)));
    let both = within_deadline("the next leader", next_leads).await.unwrap();
    assert_eq!(both, (true, false));
    drop(b.create("/x", b"", CreateMode::Ephemeral).await);
}
