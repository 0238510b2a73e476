//! Latches whose nodes, requests, connections or sessions are lost. Ln: the defects of Curator in `docs/CURATOR.md`.

use docent::{
    Client, ConnectionState, ConnectionStateErrorPolicy, CreateMode, ErrorKind, LeaderLatch,
    LeaderOptions, LeadershipChange, LeadershipChanges, OpCode, Perms, acl,
};
use docent_testing::{
    fault::Fault,
    tap::{Record, TapClient},
};

use crate::{
    Fixture, ms, options, requests,
    support::{
        DEADLINE, eventually,
        given_up_session::{give_up_session, short_session, without_expiry},
        within_deadline,
    },
};

on_both_servers! {
    a_leader_whose_node_is_deleted_learns_of_it_and_queues_again
    a_waiter_whose_node_is_deleted_queues_again
    a_lost_create_request_makes_one_node
    a_lost_create_reply_makes_one_node
    a_close_while_listing_creates_nothing
    a_close_while_creating_deletes_the_node
    a_lost_claim_keeps_the_place
    requests_lost_with_the_connection_are_repeated_once
    a_refused_create_is_an_error_where_somebody_waits
    a_node_ahead_that_is_written_breaks_no_chain
    a_slow_listener_hides_no_loss
    a_cut_ends_a_leadership_by_the_standard_policy_only
    a_waiter_that_is_cut_keeps_its_place
    a_killed_session_costs_the_place_and_the_latch_queues_again
    a_close_during_an_outage_says_so_and_the_node_goes_later
    a_close_ends_the_pause_of_a_create
    a_listener_hears_of_the_loss_during_the_pause_of_a_retry
    a_latch_started_during_an_outage_makes_one_node
    a_removed_path_is_created_again
    an_idle_leader_sends_nothing
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

async fn next(changes: &mut LeadershipChanges) -> Option<LeadershipChange> {
    within_deadline("a change", changes.next()).await
}

/// L1, CURATOR-171: in Curator, A leads on beside B until its next reconnect.
async fn a_leader_whose_node_is_deleted_learns_of_it_and_queues_again(fixture: Fixture) {
    let ([(_a, _ta), (b, _tb)], [first, second]) = two(&fixture).await;
    let leadership = leads(&first).await;
    let mut changes = first.changes();
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::Leader(_))));
    let before = fixture.tap.len();
    b.delete(leadership.path(), None).await.unwrap();
    within_deadline("the loss", leadership.lost()).await;
    assert!(!leadership.is_held());
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::NotLeader)));
    leads(&second).await;
    fixture.children(&fixture.path, 2).await;
    eventually("A waits behind B", async || {
        let sent = requests(&fixture, "A", before);
        (sent == [OpCode::Create2, OpCode::GetChildren2, OpCode::GetData]).then_some(())
    })
    .await;
    second.close().await.unwrap();
    assert!(leads(&first).await.epoch() == 2);
}

async fn a_waiter_whose_node_is_deleted_queues_again(fixture: Fixture) {
    let ([(a, _ta), (_b, _tb)], [first, second]) = two(&fixture).await;
    let old = second.our_path().unwrap();
    a.delete(&old, None).await.unwrap();
    first.close().await.unwrap();
    let leadership = leads(&second).await;
    assert_ne!(leadership.path(), old);
    fixture.children(&fixture.path, 1).await;
}

/// L2: in Curator, the reconnect makes a second node, and the retry of the first create deletes the one it leads on.
async fn a_lost_create_request_makes_one_node(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    fixture.tap.inject(Fault::drop_before(OpCode::Create2));
    let before = fixture.tap.len();
    let latch = latch(&fixture, &a, "a");
    leads(&latch).await;
    use OpCode::{Create2, GetChildren, GetChildren2, GetData, Sync};
    let wanted = [Create2, Sync, GetChildren, Create2, GetChildren2, GetData];
    assert_eq!(requests(&fixture, "A", before), wanted);
    let trace = fixture.tap.trace().since(before);
    let paths: Vec<_> = trace.iter().filter(|r| r.is_request(Create2)).map(Record::path).collect();
    assert_eq!(paths[0], paths[1], "the same GUID");
    fixture.children(&fixture.path, 1).await;
}

/// L3: in Curator, the latch waits behind its own forgotten node.
async fn a_lost_create_reply_makes_one_node(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    let before = fixture.tap.len();
    let latch = latch(&fixture, &a, "a");
    let leadership = leads(&latch).await;
    use OpCode::{Create2, GetChildren, GetChildren2, GetData, Sync};
    let wanted = [Create2, Sync, GetChildren, GetChildren2, GetData];
    assert_eq!(requests(&fixture, "A", before), wanted);
    let stat = a.exists(leadership.path()).await.unwrap().unwrap();
    assert_eq!(leadership.fencing_token().await.unwrap(), stat.czxid);
    fixture.children(&fixture.path, 1).await;
}

/// L4, CURATOR-3: in Curator, a listing that is answered after the close makes a node again.
async fn a_close_while_listing_creates_nothing(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    fixture.tap.inject(Fault::delay_reply(OpCode::GetChildren2, DEADLINE).of("A"));
    let before = fixture.tap.len();
    let latch = latch(&fixture, &a, "a");
    let is_listed = |r: &Record| &*r.client == "A" && r.is_reply(OpCode::GetChildren2);
    fixture.tap.wait_for(DEADLINE, is_listed).await.unwrap();
    let closing = latch.close();
    let deletes = |r: &Record| &*r.client == "A" && r.is_request(OpCode::Delete);
    fixture.tap.wait_for(DEADLINE, deletes).await.unwrap();
    fixture.tap.end_delays();
    within_deadline("the close", closing).await.unwrap();
    // Answered behind everything that the latch may have sent.
    a.sync("/").await.unwrap();
    use OpCode::{Create2, Delete, GetChildren2, Sync};
    assert_eq!(requests(&fixture, "A", before), [Create2, GetChildren2, Delete, Sync]);
    fixture.children(&fixture.path, 0).await;
}

/// `TestLeaderLatch.testCreateDeleteRace`.
async fn a_close_while_creating_deletes_the_node(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    fixture.tap.inject(Fault::delay_reply(OpCode::Create2, DEADLINE).of("A"));
    let before = fixture.tap.len();
    let latch = latch(&fixture, &a, "a");
    let is_created = |r: &Record| &*r.client == "A" && r.is_reply(OpCode::Create2);
    fixture.tap.wait_for(DEADLINE, is_created).await.unwrap();
    let closing = latch.close();
    fixture.tap.end_delays();
    within_deadline("the close", closing).await.unwrap();
    assert_eq!(requests(&fixture, "A", before), [OpCode::Create2, OpCode::Delete]);
    fixture.children(&fixture.path, 0).await;
}

/// L6: in Curator, the place is given up.
async fn a_lost_claim_keeps_the_place(fixture: Fixture) {
    let (a, _ta) = fixture.client("A").await;
    fixture.create_path(&a).await;
    fixture.tap.inject(Fault::drop_reply(OpCode::GetData).of("A"));
    let no_retries =
        docent::LockOptions::default().with_retry_policy(docent::retry::RetryNTimes::new(0, ms(0)));
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", no_retries).unwrap();
    let leadership = leads(&latch).await;
    assert!(leadership.path().ends_with("0000000000"), "{}", leadership.path());
    fixture.children(&fixture.path, 1).await;
}

/// L24, CURATOR-644: in Curator, the retry and the reconnect do the same.
async fn requests_lost_with_the_connection_are_repeated_once(fixture: Fixture) {
    use OpCode::{Create2, GetChildren2, GetData};
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    for (lost, wanted) in [
        (GetChildren2, vec![Create2, GetChildren2, GetChildren2, GetData]),
        (GetData, vec![Create2, GetChildren2, GetData, GetChildren2, GetData]),
    ] {
        fixture.tap.inject(Fault::drop_reply(lost).of("A"));
        let before = fixture.tap.len();
        let latch = latch(&fixture, &a, "a");
        leads(&latch).await;
        a.sync("/").await.unwrap();
        let mut sent = requests(&fixture, "A", before);
        assert_eq!(sent.pop(), Some(OpCode::Sync));
        assert_eq!(sent, wanted);
        latch.close().await.unwrap();
    }
}

/// L8, CURATOR-15: in Curator, the wait never ends.
async fn a_refused_create_is_an_error_where_somebody_waits(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let only_read = [docent::Acl { perms: Perms::READ, id: acl::OPEN_ACL_UNSAFE[0].id }];
    a.set_acl(&fixture.path, &only_read, None).await.unwrap();
    let before = fixture.tap.len();
    let latch = latch(&fixture, &a, "a");
    let mut changes = latch.changes();
    let error = within_deadline("the refusal", latch.leadership()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
    assert!(error.path().is_some_and(|path| path.starts_with(&fixture.path)), "{error}");
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::Failed(_))));
    assert!(next(&mut changes).await.is_none());
    assert_eq!(requests(&fixture, "A", before), [OpCode::Create2]);
    latch.close().await.unwrap();
}

/// L9: in Curator, the write uses the watch up, and no participant leads after A.
async fn a_node_ahead_that_is_written_breaks_no_chain(fixture: Fixture) {
    let ([(a, _ta), (b, _tb)], [first, second]) = two(&fixture).await;
    let before = fixture.tap.len();
    a.set_data(leads(&first).await.path(), b"x", None).await.unwrap();
    eventually("B watches again", async || {
        let sent = requests(&fixture, "B", before);
        let again = sent == [OpCode::GetChildren2, OpCode::GetData];
        (again && b.metrics().watches == 1).then_some(())
    })
    .await;
    // The leader leads on.
    assert!(leads(&first).await.epoch() == 1);
    first.close().await.unwrap();
    leads(&second).await;
}

/// L10: in Curator, a listener runs under the latch's monitor on the event thread.
async fn a_slow_listener_hides_no_loss(fixture: Fixture) {
    let ([(a, ta), _b], [first, second]) = two(&fixture).await;
    let leadership = leads(&first).await;
    let mut changes = first.changes();
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::Leader(_))));
    // This listener does not look until the end.
    ta.kill_session(DEADLINE).await.unwrap();
    leads(&second).await;
    within_deadline("the loss", leadership.lost()).await;
    eventually("another node of A's", async || {
        first.our_path().filter(|path| path != leadership.path())
    })
    .await;
    assert!(a.session().is_some() && first.current_leadership().is_none());
    assert!(matches!(next(&mut changes).await, Some(LeadershipChange::NotLeader)));
}

/// `TestLeaderLatch.testErrorPolicies`.
async fn a_cut_ends_a_leadership_by_the_standard_policy_only(fixture: Fixture) {
    for policy in [ConnectionStateErrorPolicy::Standard, ConnectionStateErrorPolicy::Session] {
        let (a, tap) = fixture.client("A").await;
        let options = options().with_error_policy(policy);
        let latch = LeaderLatch::start_with(&a, &fixture.path, "a", options).unwrap();
        let leadership = leads(&latch).await;
        let token = leadership.fencing_token().await.unwrap();
        let before = fixture.tap.len();
        tap.cut();
        let mut state = a.state();
        let reconnected = state.wait_for(|state| *state == Some(ConnectionState::Reconnected));
        within_deadline("the reconnect", reconnected).await.unwrap();
        eventually("the listing and the claim", async || {
            let sent = requests(&fixture, "A", before);
            sent.ends_with(&[OpCode::GetChildren2, OpCode::GetData]).then_some(())
        })
        .await;
        let is_standard = policy == ConnectionStateErrorPolicy::Standard;
        assert_eq!(leadership.is_held(), !is_standard, "{policy:?}");
        let now = leads(&latch).await;
        assert_eq!(now.epoch(), if is_standard { 2 } else { 1 });
        assert_eq!(now.fencing_token().await.unwrap(), token, "the same node");
        latch.close().await.unwrap();
        a.close().await.unwrap();
    }
}

async fn a_waiter_that_is_cut_keeps_its_place(fixture: Fixture) {
    let (_a, [first, second]) = {
        let ([a, b], latches) = two(&fixture).await;
        let path = latches[1].our_path();
        let before = fixture.tap.len();
        b.1.cut();
        eventually("the listing and the watch", async || {
            let sent = requests(&fixture, "B", before);
            sent.ends_with(&[OpCode::GetChildren2, OpCode::GetData]).then_some(())
        })
        .await;
        assert_eq!(latches[1].our_path(), path);
        ((a, b), latches)
    };
    first.close().await.unwrap();
    leads(&second).await;
}

/// `TestLeaderLatch.testSessionInterruptionDoNotCauseBrainSplit`.
async fn a_killed_session_costs_the_place_and_the_latch_queues_again(fixture: Fixture) {
    let ([(_a, ta), _b], [first, second]) = two(&fixture).await;
    let leadership = leads(&first).await;
    ta.kill_session(DEADLINE).await.unwrap();
    leads(&second).await;
    within_deadline("the loss", leadership.lost()).await;
    fixture.children(&fixture.path, 2).await;
    second.close().await.unwrap();
    let again = leads(&first).await;
    assert_ne!(again.session_id(), leadership.session_id());
    assert!(again.fencing_token().await.unwrap() > leadership.fencing_token().await.unwrap());
}

async fn a_close_during_an_outage_says_so_and_the_node_goes_later(fixture: Fixture) {
    let ([(a, ta), _b], [first, second]) = two(&fixture).await;
    ta.refuse().await.unwrap();
    ta.cut();
    let mut state = a.state();
    let suspended = state.wait_for(|state| *state == Some(ConnectionState::Suspended));
    within_deadline("the cut", suspended).await.unwrap();
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
async fn a_close_ends_the_pause_of_a_create(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
    let before = fixture.tap.len();
    let latch = LeaderLatch::start_with(&a, &fixture.path, "a", rare_retries()).unwrap();
    fixture.children(&fixture.path, 1).await;
    let mut state = a.state();
    let reconnected = state.wait_for(|state| *state == Some(ConnectionState::Reconnected));
    within_deadline("the reconnect", reconnected).await.unwrap();
    let error = within_deadline("the close", latch.close()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OperationTimeout, "the node may be there: {error}");
    fixture.children(&fixture.path, 0).await;
    let creates = requests(&fixture, "A", before).into_iter().filter(|op| *op == OpCode::Create2);
    assert_eq!(creates.count(), 1);
}

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

/// As R52: in Curator, one or two.
async fn a_latch_started_during_an_outage_makes_one_node(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    tap.refuse().await.unwrap();
    tap.cut();
    let mut state = a.state();
    let suspended = state.wait_for(|state| *state == Some(ConnectionState::Suspended));
    within_deadline("the cut", suspended).await.unwrap();
    let before = fixture.tap.len();
    let latch = latch(&fixture, &a, "a");
    tap.accept().await.unwrap();
    leads(&latch).await;
    use OpCode::{Create2, GetChildren2, GetData};
    let mut sent = requests(&fixture, "A", before);
    sent.retain(|op| [Create2, GetChildren2, GetData].contains(op));
    assert_eq!(sent, [Create2, GetChildren2, GetData]);
}

/// `TestLeaderLatch.testGetChildrenHitsNoNode`, CURATOR-724.
async fn a_removed_path_is_created_again(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let latch = latch(&fixture, &a, "a");
    let leadership = leads(&latch).await;
    observer.delete_recursive(&fixture.path).await.unwrap();
    within_deadline("the loss", leadership.lost()).await;
    let again = leads(&latch).await;
    assert!(again.epoch() > leadership.epoch());
    assert!(a.exists(again.path()).await.unwrap().is_some());
}

async fn an_idle_leader_sends_nothing(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let latch = latch(&fixture, &a, "a");
    leads(&latch).await;
    let before = fixture.tap.len();
    // Two pings: two thirds of the session timeout.
    let pings = |r: &Record| r.is_request(OpCode::Ping);
    let mut records = fixture.tap.subscribe_from(before);
    for _ in 0..2 {
        records.until(DEADLINE, pings).await.unwrap();
    }
    assert_eq!(requests(&fixture, "A", before), []);
}

/// L7, the rest of CURATOR-696: in Curator, the waiter adopts its dying node and is out of the queue unnoticed.
#[tokio::test]
async fn a_waiter_in_its_next_session_takes_a_new_place_at_once() {
    let (fixture, server) = without_expiry().await;
    let (a, _a) = fixture.client("A").await;
    let first = latch(&fixture, &a, "a");
    leads(&first).await;
    let (b, tap) = short_session(&fixture, "B").await;
    let second = latch(&fixture, &b, "b");
    eventually("B watches", async || (b.metrics().watches == 1).then_some(())).await;
    let old = second.our_path().unwrap();
    let old_session = b.session().unwrap().session_id();
    let before = fixture.tap.len();
    give_up_session(&b, &tap).await;
    let new =
        eventually("another node of B's", async || second.our_path().filter(|path| *path != old))
            .await;
    assert!(server.session_ids().contains(&old_session), "the server still has it");
    assert!(a.exists(&old).await.unwrap().is_none(), "deleted although its session is alive");
    eventually("D C L W", async || {
        use OpCode::{Create2, Delete, GetChildren2, GetData};
        let sent = requests(&fixture, "B", before);
        sent.ends_with(&[Delete, Create2, GetChildren2, GetData]).then_some(())
    })
    .await;
    first.close().await.unwrap();
    let leadership = leads(&second).await;
    assert_eq!(leadership.path(), new);
    assert_eq!(leadership.session_id(), b.session().unwrap().session_id());
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

/// CURATOR-696: the client has given its session up, and its node is still the first.
#[tokio::test]
async fn a_leader_in_its_next_session_does_not_claim_its_dying_node() {
    let (fixture, server) = without_expiry().await;
    let (a, tap) = short_session(&fixture, "A").await;
    let first = latch(&fixture, &a, "a");
    let leadership = leads(&first).await;
    let (b, _b) = fixture.client("B").await;
    let second = latch(&fixture, &b, "b");
    eventually("B watches", async || (b.metrics().watches == 1).then_some(())).await;
    give_up_session(&a, &tap).await;
    assert!(!leadership.is_held());
    assert!(server.session_ids().contains(&leadership.session_id()), "the server still has it");
    leads(&second).await;
    second.close().await.unwrap();
    assert_ne!(leads(&first).await.session_id(), leadership.session_id());
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
    eventually("B watches", async || (b.metrics().watches == 1).then_some(())).await;
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
