//! Kept nodes.

use docent::{ErrorKind, GroupMember, NodeEvent, PersistentTtlNode};

use super::*;

/// A's node, watched.
async fn kept(scenario: &Scenario, a: &Client, mode: CreateMode) -> PersistentNode {
    let node = scenario.node(a, "n", mode);
    within_deadline("the node", node.created()).await.unwrap();
    // Two of the parents, and the watch.
    scenario.replies("A", OpCode::Exists, 3).await;
    Scenario::settled(a).await;
    node
}

async fn children(scenario: &Scenario, client: &Client, count: usize) {
    let (children, _) = client.get_children_with_stat(&scenario.root).await.unwrap();
    assert_eq!(children.len(), count, "{children:?}");
}

/// L19: in Curator, each reconnect creates and writes.
#[tokio::test]
async fn r28_a_node_is_cut() {
    let scenario = Scenario::start("R28-pnode-cut").await;
    let (a, ta) = scenario.client("A").await;
    let _node = kept(&scenario, &a, CreateMode::Ephemeral).await;
    ta.cut();
    scenario.replies("A", OpCode::Exists, 4).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> create2(15) /r28/n
         A -> exists(3) /r28/n watch=true
         A -> setData(5) /r28/n
         A -> exists(3) /r28/n watch=true",
        "A -> exists(3) /r28/n watch=true",
    )]);
}

/// L20: in Curator, the node of the dead session is adopted, and missing when the server expires that session.
#[tokio::test]
async fn r30_a_node_of_the_dead_session() {
    let title = "R30-pnode-client-expiry-adopts-dying-node";
    let scenario = Scenario::start_without_expiry(title).await;
    let (a, ta) = scenario.client("A").await;
    let _node = kept(&scenario, &a, CreateMode::Ephemeral).await;
    give_up_session(&a, &ta).await;
    scenario.replies("A", OpCode::Exists, 5).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> setData(5) /r30/n
         A -> exists(3) /r30/n watch=true
         A -> create2(15) /r30/n",
        "A -> multi(14) [delete(2) /r30/n v=0; create(1) /r30/n data=\"v1\" acl=31:world:anyone flags=1]",
    )]);
}

/// L14: in Curator, two nodes, one of which stays.
#[tokio::test]
async fn r32_the_reply_of_a_sequential_create_is_lost() {
    let scenario = Scenario::start("R32-pnode-sequential-create-reply-lost").await;
    let ((a, _ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    o.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
    let node = scenario.node(&a, "n-", CreateMode::PersistentSequential);
    within_deadline("the node", node.created()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 1).await;
    Scenario::settled(&a).await;
    children(&scenario, &o, 1).await;
    node.close().await.unwrap();
    a.close().await.unwrap();
    o.close().await.unwrap();
    scenario.assert_differs(&[
        (
            "A -> create2(15) /r32/_c_G1-n-
             A -> exists(3) /r32/_c_G1-n-0000000001 watch=true
             A -> getChildren(8)",
            "A -> getChildren(8) /r32 watch=false",
        ),
        ("A -> checkWatches(17)", ""),
    ]);
}

/// L21: in Curator, the node has the older data in the end, for ever.
#[tokio::test]
async fn r33_a_lost_write_and_a_newer_one() {
    let scenario = Scenario::start("R33-pnode-older-set-overtakes-newer").await;
    let (a, _ta) = scenario.client("A").await;
    let options = NodeOptions::default().with_lock_options(Scenario::lock_options());
    let path = format!("{}/n", scenario.root);
    let node = PersistentNode::start_with(&a, &path, CreateMode::Ephemeral, "v0", options).unwrap();
    within_deadline("the node", node.created()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 3).await;
    Scenario::settled(&a).await;
    scenario.tap.inject(Fault::drop_before(OpCode::SetData).of("A"));
    node.set_data("v1");
    within_deadline("v1", node.written()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 4).await;
    Scenario::settled(&a).await;
    node.set_data("v2");
    within_deadline("v2", node.written()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 5).await;
    Scenario::settled(&a).await;
    assert_eq!(a.get_data(&path).await.unwrap().data, "v2");
    assert_eq!(a.get_data(&path).await.unwrap().data, "v2");
    a.close().await.unwrap();
    scenario.assert_differs(&[
        ("A -> create2(15) /r33/n data=\"v1\"", "A -> delete(2) /r33/n v=2147483647"),
        (
            "A -> getData(4) /r33/n
             A -> setData(5) /r33/n data=\"v1\"
             A -> exists(3) /r33/n watch=true",
            "A -> getData(4) /r33/n watch=false",
        ),
    ]);
}

/// L16: in Curator, B overwrites A's node, and deletes it in the end.
#[tokio::test]
async fn r34_two_nodes_at_one_path() {
    let scenario = Scenario::start("R34-pnode-same-path-twice").await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let start = |client: &Client, data: &'static str| {
        let options = NodeOptions::default().with_lock_options(Scenario::lock_options());
        let path = format!("{}/n", scenario.root);
        PersistentNode::start_with(client, &path, CreateMode::Ephemeral, data, options).unwrap()
    };
    let first = start(&a, "vA");
    within_deadline("the node", first.created()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 3).await;
    Scenario::settled(&a).await;
    let second = start(&b, "vB");
    let conflict = within_deadline("the conflict", second.created()).await.unwrap_err();
    assert_eq!(conflict.kind(), ErrorKind::NodeExists);
    second.close().await.unwrap();
    Scenario::settled(&b).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_differs(&[
        (
            "A -> exists(3) /r34/n watch=true
             A -> exists(3) /r34/n watch=true
             A -> create2(15) /r34/n data=\"vA\"",
            "",
        ),
        (
            "B -> setData(5) /r34/n
             B -> exists(3) /r34/n watch=true
             B -> delete(2) /r34/n",
            "",
        ),
    ]);
}

/// L17: in Curator, the data can never be set.
#[tokio::test]
async fn r35_a_missing_parent() {
    let scenario = Scenario::start("R35-pnode-without-parents").await;
    let ((a, ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    let options = NodeOptions::default().with_lock_options(Scenario::lock_options());
    let (path, mode) = (format!("{}/n", scenario.root), CreateMode::Ephemeral);
    let options = options.without_parents();
    let node = PersistentNode::start_with(&a, &path, mode, "v1", options).unwrap();
    let missing = within_deadline("the error", node.created()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NoNode);
    o.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    children(&scenario, &o, 0).await;
    ta.cut();
    scenario.replies("A", OpCode::Exists, 1).await;
    Scenario::settled(&a).await;
    node.set_data("v2");
    within_deadline("v2", node.written()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 2).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    o.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> exists(3) /r35/n watch=true",
        "A -> exists(3) /r35/n watch=true
         A -> setData(5) /r35/n data=\"v2\" v=-1
         A -> exists(3) /r35/n watch=true",
    )]);
}

fn ttl_node(scenario: &Scenario, client: &Client, ttl: u64) -> PersistentTtlNode {
    let options = NodeOptions::default().with_lock_options(Scenario::lock_options());
    let path = format!("{}/n", scenario.root);
    PersistentTtlNode::start_with(client, &path, ms(ttl), "v1", options).unwrap()
}

#[tokio::test]
async fn r36_a_node_with_a_time_to_live() {
    let scenario = Scenario::start("R36-ttlnode").await;
    let (a, _ta) = scenario.client("A").await;
    let node = ttl_node(&scenario, &a, 3000);
    let path = within_deadline("the node", node.created()).await.unwrap();
    scenario.replies("A", OpCode::SetData, 2).await;
    Scenario::settled(&a).await;
    node.set_data("v2");
    within_deadline("v2", node.written()).await.unwrap();
    // Two of the parents, and two of the watch.
    scenario.replies("A", OpCode::Exists, 4).await;
    Scenario::settled(&a).await;
    node.close().await.unwrap();
    let (children, _) = a.get_children_with_stat(&path).await.unwrap();
    assert_eq!(children.to_vec(), ["touch"]);
    a.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test]
async fn r47_a_node_with_a_time_to_live_is_removed_after_its_close() {
    let config = server::Config { container_check_interval: ms(700), ..Default::default() };
    let title = "R47-ttlnode-reaped-after-close";
    let scenario = Scenario::start_on(title, config, Duration::from_secs(20)).await;
    let ((a, _ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    let node = ttl_node(&scenario, &a, 2000);
    within_deadline("the node", node.created()).await.unwrap();
    scenario.replies("A", OpCode::SetData, 4).await;
    Scenario::settled(&a).await;
    node.close().await.unwrap();
    let watcher = Client::connect(&scenario.server.connect_string()).await.unwrap();
    eventually("the end of node, child and container", async || {
        watcher.exists(&scenario.root).await.unwrap().is_none().then_some(())
    })
    .await;
    let (children, _) = o.get_children_with_stat("/").await.unwrap();
    assert_eq!(children.to_vec(), ["zookeeper"]);
    a.close().await.unwrap();
    o.close().await.unwrap();
    scenario.assert_equal();
}

/// Curator keeps a cache of the group; these requests are not compared.
#[tokio::test]
async fn r37_two_members_of_a_group() {
    let scenario = Scenario::start("R37-group-two-members").await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let group = format!("{}/g", scenario.root);
    let join = |client: &Client, id: &str, data: &'static str| {
        GroupMember::join_with(client, &group, id, data, Scenario::lock_options()).unwrap()
    };
    let first = join(&a, "idA", "pA");
    within_deadline("A joins", first.joined()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 4).await;
    Scenario::settled(&a).await;
    let second = join(&b, "idB", "pB");
    within_deadline("B joins", second.joined()).await.unwrap();
    scenario.replies("B", OpCode::Exists, 1).await;
    Scenario::settled(&b).await;
    assert_eq!(first.current_members().await.unwrap().len(), 2);
    second.set_this_data("pB2");
    scenario.replies("B", OpCode::Exists, 2).await;
    Scenario::settled(&b).await;
    assert_eq!(first.current_members().await.unwrap()["idB"], "pB2");
    second.leave().await.unwrap();
    assert_eq!(first.current_members().await.unwrap().len(), 1);
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_equal_without(&["addWatch", "getData", "getChildren2", "checkWatches"]);
}

/// L14: in Curator, three nodes, two of which stay. Sequential nodes of docent are always protected.
#[tokio::test]
async fn r39_the_reply_of_an_unprotected_sequential_create_is_lost() {
    let title = "R39-pnode-unprotected-sequential-create-reply-lost";
    let scenario = Scenario::start(title).await;
    let ((a, _ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    o.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
    let node = scenario.node(&a, "n-", CreateMode::EphemeralSequential);
    within_deadline("the node", node.created()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 1).await;
    Scenario::settled(&a).await;
    children(&scenario, &o, 1).await;
    a.close().await.unwrap();
    o.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> create2(15) /r39/n-
         A -> connect sid=prev
         A -> create2(15) /r39/n-
         A -> exists(3) /r39/n-0000000001 watch=true
         A -> create2(15) /r39/n-
         A -> exists(3) /r39/n-0000000002 watch=true",
        "A -> create2(15) /r39/_c_G1-n- data=\"v1\" acl=31:world:anyone flags=3
         A -> connect sid=prev
         A -> getChildren(8) /r39 watch=false
         A -> exists(3) /r39/_c_G1-n-0000000000 watch=true",
    )]);
}

/// L16: in Curator, the close deletes the node of another client.
#[tokio::test]
async fn r41_a_close_before_the_conflict_is_known() {
    let scenario = Scenario::start("R41-pnode-deletes-what-it-never-made").await;
    let ((a, _ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    o.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    let path = format!("{}/n", scenario.root);
    o.create(&path, b"other", CreateMode::Persistent).await.unwrap();
    scenario.tap.inject(Fault::delay_reply(OpCode::Create2, DEADLINE).of("A"));
    let node = scenario.node(&a, "n", CreateMode::Ephemeral);
    let is_refused = |r: &Record| &*r.client == "A" && r.is_reply(OpCode::Create2);
    scenario.tap.wait_for(DEADLINE, is_refused).await.unwrap();
    let closing = node.close();
    scenario.tap.end_delays();
    within_deadline("the close", closing).await.unwrap();
    children(&scenario, &o, 1).await;
    a.close().await.unwrap();
    o.close().await.unwrap();
    scenario.assert_differs(&[("A -> delete(2) /r41/n", "")]);
}

/// L15: in Curator, some 2,000 creates in a second.
#[tokio::test]
async fn r46_a_parent_that_can_have_no_children() {
    let scenario = Scenario::start("R46-pnode-hot-loop").await;
    let ((o, _to), (a, _ta)) = (scenario.client("O").await, scenario.client("A").await);
    o.create(&scenario.root, b"", CreateMode::Ephemeral).await.unwrap();
    let node = scenario.node(&a, "n", CreateMode::Persistent);
    let refused = within_deadline("the error", node.created()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoChildrenForEphemerals);
    node.close().await.unwrap();
    o.close().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> create2(15) /r46/n
         A -> create2(15) /r46/n
         A -> create2(15) /r46/n",
        "A -> create2(15) /r46/n data=\"v1\" acl=31:world:anyone flags=0",
    )]);
}

/// L16: in Curator, the node of another client that has taken the place in the outage is deleted.
#[tokio::test]
async fn r51_a_node_closes_during_an_outage() {
    let scenario = Scenario::start("R51-pnode-closed-during-an-outage").await;
    let ((a, ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    let node = kept(&scenario, &a, CreateMode::Persistent).await;
    ta.refuse().await.unwrap();
    ta.cut();
    is_suspended(&a).await;
    let closing = tokio::spawn(node.close());
    tokio::task::yield_now().await;
    ta.accept().await.unwrap();
    let _ = within_deadline("the close", closing).await.unwrap();
    let watcher = Client::connect(&scenario.server.connect_string()).await.unwrap();
    eventually("the delete", async || {
        let path = format!("{}/n", scenario.root);
        watcher.exists(&path).await.unwrap().is_none().then_some(())
    })
    .await;
    Scenario::settled(&a).await;
    children(&scenario, &o, 0).await;
    a.close().await.unwrap();
    o.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> delete(2) /r51/n v=-1",
        "A -> delete(2) /r51/n v=2147483647
         A -> exists(3) /r51/n watch=false
         A -> delete(2) /r51/n v=0",
    )]);
}

/// L14: in Curator, two nodes, although no frame was lost.
#[tokio::test]
async fn r53_a_sequential_node_starts_during_an_outage() {
    let title = "R53-pnode-sequential-started-during-an-outage";
    let scenario = Scenario::start(title).await;
    let (o, _to) = scenario.client("O").await;
    o.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    let (a, ta) = scenario.client("A").await;
    ta.refuse().await.unwrap();
    ta.cut();
    is_suspended(&a).await;
    let node = scenario.node(&a, "n-", CreateMode::PersistentSequential);
    ta.accept().await.unwrap();
    within_deadline("the node", node.created()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 1).await;
    Scenario::settled(&a).await;
    children(&scenario, &o, 1).await;
    node.close().await.unwrap();
    children(&scenario, &o, 0).await;
    o.close().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> create2(15) /r53/_c_G1-n-
             A -> create2(15) /r53/_c_G1-n-
             A -> exists(3) /r53/_c_G1-n-0000000000 watch=true
             A -> exists(3) /r53/_c_G1-n-0000000001 watch=true
             A -> delete(2) /r53/_c_G1-n-0000000001 v=-1
             A -> checkWatches(17)",
        "A -> create2(15) /r53/_c_G1-n- data=\"v1\" acl=31:world:anyone flags=2
             A -> exists(3) /r53/_c_G1-n-0000000000 watch=true
             A -> delete(2) /r53/_c_G1-n-0000000000 v=-1",
    )]);
}

#[tokio::test]
async fn r26_the_life_of_a_kept_node() {
    let scenario = Scenario::start("R26-pnode-life").await;
    let (a, _ta) = scenario.client("A").await;
    let node = scenario.node(&a, "x/n", CreateMode::Ephemeral);
    within_deadline("the node", node.created()).await.unwrap();
    // Two of the parents, and the watch.
    scenario.replies("A", OpCode::Exists, 4).await;
    Scenario::settled(&a).await;
    node.set_data("v2");
    scenario.replies("A", OpCode::Exists, 5).await;
    Scenario::settled(&a).await;
    node.close().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test]
async fn r27_a_kept_node_is_deleted_and_overwritten() {
    let scenario = Scenario::start("R27-pnode-deleted-and-overwritten-by-other").await;
    let ((a, _ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    let node = scenario.node(&a, "n", CreateMode::Ephemeral);
    let path = within_deadline("the node", node.created()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 3).await;
    Scenario::settled(&a).await;
    o.delete(&path, None).await.unwrap();
    scenario.replies("A", OpCode::Exists, 4).await;
    Scenario::settled(&a).await;
    o.set_data(&path, b"other", None).await.unwrap();
    scenario.replies("A", OpCode::Exists, 5).await;
    Scenario::settled(&a).await;
    node.close().await.unwrap();
    a.close().await.unwrap();
    o.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test]
async fn r29_the_session_of_a_kept_node_is_killed() {
    let scenario = Scenario::start("R29-pnode-session-killed").await;
    let (a, ta) = scenario.client("A").await;
    let node = scenario.node(&a, "n", CreateMode::Ephemeral);
    within_deadline("the node", node.created()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 3).await;
    Scenario::settled(&a).await;
    ta.kill_session(DEADLINE).await.unwrap();
    scenario.replies("A", OpCode::Exists, 4).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test]
async fn r31_a_protected_sequential_node() {
    let scenario = Scenario::start("R31-pnode-protected-sequential").await;
    let ((a, ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    let node = scenario.node(&a, "n-", CreateMode::EphemeralSequential);
    let mut events = node.events();
    let path = within_deadline("the node", node.created()).await.unwrap();
    scenario.replies("A", OpCode::Exists, 3).await;
    Scenario::settled(&a).await;
    o.delete(&path, None).await.unwrap();
    scenario.replies("A", OpCode::Exists, 4).await;
    Scenario::settled(&a).await;
    ta.kill_session(DEADLINE).await.unwrap();
    scenario.replies("A", OpCode::Exists, 5).await;
    Scenario::settled(&a).await;
    node.close().await.unwrap();
    a.close().await.unwrap();
    o.close().await.unwrap();
    let mut created = 0;
    while let Some(event) = within_deadline("an event", events.next()).await {
        created +=
            usize::from(matches!(event, NodeEvent::Created { path: again, .. } if again == path));
    }
    assert!(created >= 2, "{created}");
    scenario.assert_equal();
}
