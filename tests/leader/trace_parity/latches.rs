//! Latches: the scenarios in which docent differs from Curator by design, and those with slow or half-open connections.

use super::*;

/// L1: in Curator, A does not hear of it, and leads on until it reconnects.
#[tokio::test]
async fn r03_the_leaders_node_is_deleted() {
    let scenario = Scenario::start("R03-latch-leader-node-deleted-by-other").await;
    let ([(a, _ta), (b, _tb)], [first, second]) = scenario.two().await;
    let (o, _to) = scenario.client("O").await;
    o.delete(&first.our_path().unwrap(), None).await.unwrap();
    leads(&second).await;
    scenario.watches("A", 2).await;
    Scenario::settled(&a).await;
    assert!(first.current_leadership().is_none());
    for client in [a, b, o] {
        client.close().await.unwrap();
    }
    scenario.assert_differs(&[(
        "A -> connect sid=prev
         A -> getChildren2(12) /r03
         A -> delete(2) /r03/_c_G1-latch-0000000000",
        "",
    )]);
}

/// L24: two waits on one predecessor, which both look.
#[tokio::test]
async fn r07_a_waiter_is_cut() {
    let scenario = Scenario::start("R07-latch-waiter-cut").await;
    let ([(a, _ta), (b, tb)], [first, second]) = scenario.two().await;
    tb.cut();
    scenario.watches("B", 2).await;
    Scenario::settled(&b).await;
    first.close().await.unwrap();
    leads(&second).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_differs(&[(
        "B -> getChildren2(12) /r07
         B -> getChildren2(12) /r07
         B -> getData(4) /r07/_c_G2-latch-0000000001
         B -> getData(4) /r07/_c_G2-latch-0000000001",
        "B -> getChildren2(12) /r07 watch=false
         B -> getData(4) /r07/_c_G2-latch-0000000001 watch=false",
    )]);
}

/// L7: in Curator, B keeps the node of its dead session, and is out of the queue when the server deletes it.
#[tokio::test]
async fn r10_a_waiter_gives_its_session_up() {
    let title = "R10-latch-waiter-expires-in-client-only";
    let scenario = Scenario::start_without_expiry(title).await;
    let ([(a, _ta), (b, tb)], [first, second]) = scenario.two().await;
    give_up_session(&b, &tb).await;
    scenario.watches("B", 2).await;
    Scenario::settled(&b).await;
    first.close().await.unwrap();
    leads(&second).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_differs(&[(
        "B -> getChildren2(12) /r10
         B -> getData(4) /r10/_c_G1-latch-0000000000 watch=true
         B -> getChildren2(12) /r10
         B -> getData(4) /r10/_c_G1-latch-0000000000 watch=false
         B -> getData(4) /r10/_c_G2-latch-0000000001 watch=false
         B -> getChildren2(12) /r10
         B -> getData(4) /r10/_c_G1-latch-0000000000 watch=false
         B -> getChildren2(12) /r10
         B -> delete(2) /r10/_c_G2-latch-0000000001 v=-1
         B -> create2(15) /r10/_c_G3-latch-",
        "B -> delete(2) /r10/_c_G2-latch-0000000001 v=-1
         B -> create2(15) /r10/_c_G3-latch- data=\"idB\" acl=31:world:anyone flags=3
         B -> getChildren2(12) /r10 watch=false
         B -> getData(4) /r10/_c_G1-latch-0000000000 watch=true",
    )]);
}

/// The operator, who has created the path, and A.
async fn with_path(scenario: &Scenario) -> (Client, Client, TapClient) {
    let (o, _) = scenario.client("O").await;
    o.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    let (a, tap) = scenario.client("A").await;
    (o, a, tap)
}

async fn one_child(scenario: &Scenario, client: &Client) {
    let (children, _) = client.get_children_with_stat(&scenario.root).await.unwrap();
    assert_eq!(children.len(), 1, "{children:?}");
}

/// L3: in Curator, the reconnect makes a second node, which waits for the first one.
#[tokio::test]
async fn r11_the_reply_of_a_create_is_lost() {
    let scenario = Scenario::start("R11-latch-create-reply-lost").await;
    let (o, a, _ta) = with_path(&scenario).await;
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
    let latch = scenario.latch(&a, "idA");
    leads(&latch).await;
    one_child(&scenario, &o).await;
    one_child(&scenario, &o).await;
    o.close().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> getChildren2(12) /r11
         A -> create2(15) /r11/_c_G2-latch-
         A -> getChildren2(12) /r11
         A -> getData(4) /r11/_c_G1-latch-0000000000 watch=true
         A -> getChildren(8) /r11
         A -> delete(2) /r11/_c_G2-latch-0000000001",
        "A -> getChildren(8) /r11 watch=false",
    )]);
}

/// A's create does not arrive; then A leads, and B waits behind it.
async fn lost_create(scenario: Scenario) {
    let number = &scenario.expected_root.clone();
    let (o, a, _ta) = with_path(&scenario).await;
    let (b, _tb) = scenario.client("B").await;
    scenario.tap.inject(Fault::drop_before(OpCode::Create2).of("A"));
    let first = scenario.latch(&a, "idA");
    let leadership = leads(&first).await;
    let second = scenario.latch(&b, "idB");
    scenario.watches("B", 1).await;
    Scenario::settled(&b).await;
    assert!(leadership.is_held() && second.current_leadership().is_none());
    for client in [o, b, a] {
        client.close().await.unwrap();
    }
    let in_curator = format!(
        "A -> getChildren2(12) {number}
         A -> create2(15) {number}/_c_G2-latch-
         A -> getChildren2(12) {number}
         A -> getData(4) {number}/_c_G2-latch-0000000000 watch=false
         A -> getChildren(8) {number}
         A -> create2(15) {number}/_c_G1-latch-
         A -> delete(2) {number}/_c_G2-latch-0000000000
         A -> getChildren2(12) {number}
         A -> getData(4) {number}/_c_G3-latch-0000000001 watch=true"
    );
    let ours = format!(
        "A -> getChildren(8) {number} watch=false
         A -> create2(15) {number}/_c_G1-latch- data=\"idA\" acl=31:world:anyone flags=3
         A -> getChildren2(12) {number} watch=false
         A -> getData(4) {number}/_c_G1-latch-0000000000 watch=false"
    );
    let b_in_curator = format!(
        "B -> getData(4) {number}/_c_G2-latch-0000000000 watch=true
         B -> getChildren2(12) {number}
         B -> getData(4) {number}/_c_G3-latch-0000000001 watch=false"
    );
    let b_ours = format!("B -> getData(4) {number}/_c_G1-latch-0000000000 watch=true");
    let mut scenario = scenario;
    if number == "/r12" {
        scenario.replace_requests("O -> getChildren2(12) /r12", "");
    }
    scenario.assert_differs(&[(&in_curator, &ours), (&b_in_curator, &b_ours)]);
}

/// L2: in Curator, the retry of the create deletes the node that leads.
#[tokio::test]
async fn r12_the_request_of_a_create_is_lost() {
    lost_create(Scenario::start("R12-latch-create-request-lost-late-retry-dethrones").await).await;
}

/// L2: in Curator, A and B lead until A has the reply to its listing. docent sends no such listing.
#[tokio::test]
async fn r38_a_slow_listing_after_a_lost_create() {
    lost_create(Scenario::start("R38-latch-two-leaders-after-lost-create").await).await;
}

/// L24.
#[tokio::test]
async fn r13_the_reply_of_a_listing_is_lost() {
    let scenario = Scenario::start("R13-latch-listing-reply-lost").await;
    let (o, a, _ta) = with_path(&scenario).await;
    scenario.tap.inject(Fault::drop_reply(OpCode::GetChildren2).of("A"));
    let latch = scenario.latch(&a, "idA");
    leads(&latch).await;
    one_child(&scenario, &o).await;
    o.close().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> getChildren2(12) /r13
         A -> getChildren2(12) /r13
         A -> getData(4) /r13/_c_G1-latch-0000000000
         A -> getData(4) /r13/_c_G1-latch-0000000000",
        "A -> getChildren2(12) /r13 watch=false
         A -> getData(4) /r13/_c_G1-latch-0000000000 watch=false",
    )]);
}

/// L24.
#[tokio::test]
async fn r14_the_reply_of_a_claim_is_lost() {
    let scenario = Scenario::start("R14-latch-claim-reply-lost-retries").await;
    let (o, a, _ta) = with_path(&scenario).await;
    scenario.tap.inject(Fault::drop_reply(OpCode::GetData).of("A"));
    let latch = scenario.latch(&a, "idA");
    leads(&latch).await;
    one_child(&scenario, &o).await;
    o.close().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> connect sid=prev
         A -> getData(4) /r14/_c_G1-latch-0000000000",
        "A -> connect sid=prev",
    )]);
}

/// L6: in Curator, A gives its place up, and B leads.
#[tokio::test]
async fn r15_the_reply_of_a_claim_is_lost_without_retries() {
    let scenario = Scenario::start("R15-latch-claim-reply-lost-no-retries").await;
    let (o, a, _ta) = with_path(&scenario).await;
    let (b, _tb) = scenario.client("B").await;
    scenario.tap.inject(Fault::delay_reply(OpCode::GetChildren2, DEADLINE).of("A"));
    scenario.tap.inject(Fault::drop_reply(OpCode::GetData).of("A"));
    let no_retries = Scenario::lock_options().with_retry_policy(RetryNTimes::new(0, ms(0)));
    let first = LeaderLatch::start_with(&a, &scenario.root, "idA", no_retries).unwrap();
    let is_listed = |r: &Record| &*r.client == "A" && r.is_reply(OpCode::GetChildren2);
    scenario.tap.wait_for(DEADLINE, is_listed).await.unwrap();
    let second = scenario.latch(&b, "idB");
    scenario.watches("B", 1).await;
    Scenario::settled(&b).await;
    scenario.tap.end_delays();
    leads(&first).await;
    assert!(second.current_leadership().is_none());
    for client in [o, b, a] {
        client.close().await.unwrap();
    }
    scenario.assert_differs(&[
        (
            "A -> delete(2) /r15/_c_G1-latch-0000000000
             A -> create2(15) /r15/_c_G3-latch-
             A -> getChildren2(12) /r15
             A -> getChildren2(12) /r15
             A -> getData(4) /r15/_c_G2-latch-0000000001 watch=true
             A -> getData(4) /r15/_c_G2-latch-0000000001 watch=true",
            "A -> getChildren2(12) /r15 watch=false
             A -> getData(4) /r15/_c_G1-latch-0000000000 watch=false",
        ),
        (
            "B -> getData(4) /r15/_c_G1-latch-0000000000 watch=true
             B -> getChildren2(12) /r15
             B -> getData(4) /r15/_c_G2-latch-0000000001",
            "B -> getData(4) /r15/_c_G1-latch-0000000000 watch=true",
        ),
    ]);
}

/// L24.
#[tokio::test]
async fn r17_the_reply_of_a_watch_is_lost() {
    let scenario = Scenario::start("R17-latch-watch-reply-lost").await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let first = scenario.latch(&a, "idA");
    leads(&first).await;
    scenario.tap.inject(Fault::drop_reply(OpCode::GetData).of("B"));
    let second = scenario.latch(&b, "idB");
    scenario.watches("B", 2).await;
    Scenario::settled(&b).await;
    first.close().await.unwrap();
    leads(&second).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_differs(&[(
        "B -> getData(4) /r17/_c_G1-latch-0000000000 watch=true
         B -> getData(4) /r17/_c_G1-latch-0000000000 watch=true
         B -> getChildren2(12) /r17
         B -> getChildren2(12) /r17
         B -> getData(4) /r17/_c_G2-latch-0000000001
         B -> getData(4) /r17/_c_G2-latch-0000000001",
        "B -> getData(4) /r17/_c_G1-latch-0000000000 watch=true
         B -> getChildren2(12) /r17 watch=false
         B -> getData(4) /r17/_c_G2-latch-0000000001 watch=false",
    )]);
}

/// L4: in Curator, the listing makes a node after the close.
#[tokio::test]
async fn r18_a_latch_closes_while_listing() {
    let scenario = Scenario::start("R18-latch-closed-while-listing").await;
    let ([(a, _ta), (b, _tb)], [first, second]) = scenario.two().await;
    let (c, _tc) = scenario.client("C").await;
    scenario.tap.inject(Fault::delay_reply(OpCode::GetChildren2, DEADLINE).of("C"));
    let third = scenario.latch(&c, "idC");
    let is_listed = |r: &Record| &*r.client == "C" && r.is_reply(OpCode::GetChildren2);
    scenario.tap.wait_for(DEADLINE, is_listed).await.unwrap();
    let closing = third.close();
    let deletes = |r: &Record| &*r.client == "C" && r.is_request(OpCode::Delete);
    scenario.tap.wait_for(DEADLINE, deletes).await.unwrap();
    scenario.tap.end_delays();
    within_deadline("the close", closing).await.unwrap();
    assert_eq!(first.participants().await.unwrap().len(), 2);
    a.close().await.unwrap();
    leads(&second).await;
    b.close().await.unwrap();
    c.close().await.unwrap();
    scenario.assert_differs(&[(
        "C -> create2(15) /r18/_c_G4-latch-
         C -> delete(2) /r18/_c_G4-latch-0000000003",
        "",
    )]);
}

/// L1: in Curator, A notices it when it reconnects.
#[tokio::test]
async fn r20_the_path_is_removed() {
    let scenario = Scenario::start("R20-latch-path-removed").await;
    let ((a, _ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    let latch = scenario.latch(&a, "idA");
    let leadership = leads(&latch).await;
    // Sent together: A's next create comes behind both.
    let deletes = (o.delete(leadership.path(), None), o.delete(&scenario.root, None));
    deletes.0.await.unwrap();
    deletes.1.await.unwrap();
    within_deadline("the loss", leadership.lost()).await;
    leads(&latch).await;
    one_child(&scenario, &o).await;
    a.close().await.unwrap();
    o.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> connect sid=prev
         A -> getChildren2(12) /r20
         A -> delete(2) /r20/_c_G1-latch-0000000000",
        "",
    )]);
}

/// L10: in Curator, A answers that it leads until its listener returns. The requests are Curator's.
#[tokio::test]
async fn r42_a_slow_listener_hides_no_loss() {
    let scenario = Scenario::start("R42-latch-slow-listener-hides-the-loss").await;
    let ([(a, ta), (b, _tb)], [first, second]) = scenario.two().await;
    let mut changes = first.changes();
    let change = within_deadline("a change", changes.next()).await;
    let Some(docent::LeadershipChange::Leader(leadership)) = change else { panic!("{change:?}") };
    // The listener is not polled any more.
    ta.kill_session(DEADLINE).await.unwrap();
    leads(&second).await;
    within_deadline("the loss", leadership.lost()).await;
    assert!(first.current_leadership().is_none());
    scenario.watches("A", 2).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_equal();
}

/// L9: in Curator, the write uses B's watch up, and no participant leads after A.
#[tokio::test]
async fn r48_a_predecessor_is_written() {
    let scenario = Scenario::start("R48-latch-predecessor-written-by-other").await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let (o, _to) = scenario.client("O").await;
    let first = scenario.latch(&a, "idA");
    leads(&first).await;
    let second = scenario.latch(&b, "idB");
    scenario.watches("B", 1).await;
    Scenario::settled(&b).await;
    // A watches its node as well (L1).
    o.set_data(&first.our_path().unwrap(), b"idA2", None).await.unwrap();
    scenario.watches("B", 2).await;
    scenario.watches("A", 2).await;
    Scenario::settled(&a).await;
    Scenario::settled(&b).await;
    first.close().await.unwrap();
    leads(&second).await;
    for client in [a, b, o] {
        client.close().await.unwrap();
    }
    scenario.assert_differs(&[
        (
            "A -> delete(2) /r48/_c_G1-latch-0000000000",
            "A -> getChildren2(12) /r48 watch=false
             A -> getData(4) /r48/_c_G1-latch-0000000000 watch=false
             A -> delete(2) /r48/_c_G1-latch-0000000000 v=-1",
        ),
        (
            "B -> getData(4) /r48/_c_G1-latch-0000000000 watch=true
             B -> getChildren2(12) /r48
             B -> getData(4) /r48/_c_G2-latch-0000000001
             B -> connect sid=prev",
            "B -> getData(4) /r48/_c_G1-latch-0000000000 watch=true
             B -> getChildren2(12) /r48 watch=false
             B -> getData(4) /r48/_c_G1-latch-0000000000 watch=true",
        ),
    ]);
}

/// L25: in Curator, the foreign child is waited for, and named as the leader.
#[tokio::test]
async fn r49_a_foreign_child() {
    let scenario = Scenario::start("R49-latch-foreign-child-blocks").await;
    let (o, a, _ta) = with_path(&scenario).await;
    let foreign = format!("{}/0", scenario.root);
    o.create(&foreign, b"other", CreateMode::Persistent).await.unwrap();
    let latch = scenario.latch(&a, "idA");
    leads(&latch).await;
    assert_eq!(latch.leader().await.unwrap().unwrap().id, "idA");
    o.delete(&foreign, None).await.unwrap();
    a.close().await.unwrap();
    o.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> getData(4) /r49/0 watch=true
         A -> getChildren2(12) /r49
         A -> getData(4) /r49/0 watch=false",
        "A -> getData(4) /r49/_c_G1-latch-0000000001 watch=false",
    )]);
}

/// A's connection delivers nothing, and is not closed. Returns when B leads and A has a new session.
async fn half_open(title: &str, policy: ConnectionStateErrorPolicy) {
    let config = server::Config { tick_time: ms(500), ..Default::default() };
    let scenario = Scenario::start_on(title, config, Duration::from_secs(4)).await;
    let ((a, ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let options = Scenario::options().with_error_policy(policy);
    let first = LeaderLatch::start_with(&a, &scenario.root, "idA", options).unwrap();
    let leadership = leads(&first).await;
    let second = scenario.latch(&b, "idB");
    scenario.watches("B", 1).await;
    ta.refuse().await.unwrap();
    ta.stall();
    let next = leads(&second).await;
    assert!(!leadership.is_held() && next.is_held());
    let mut state = a.state();
    let lost = state.wait_for(|state| *state == Some(ConnectionState::Lost));
    within_deadline("the loss", lost).await.unwrap();
    ta.resume();
    ta.accept().await.unwrap();
    scenario.watches("A", 2).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r54_a_half_open_connection_standard_policy() {
    let title = "R54-latch-half-open-standard-policy";
    half_open(title, ConnectionStateErrorPolicy::Standard).await;
}

/// L23: in Curator, A leads beside B. The requests are Curator's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r55_a_half_open_connection_session_policy() {
    let title = "R55-latch-half-open-session-policy";
    half_open(title, ConnectionStateErrorPolicy::Session).await;
}
