//! Scenarios in which docent differs from Curator by design, in these lines only.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use docent::{
    CreateMode, Error, ErrorKind,
    protocol::OpCode,
    recipes::locks::{
        InterProcessLock, InterProcessMultiLock, InterProcessMutex, LockFuture, LockGuard,
    },
};
use docent_testing::fault::Fault;

use super::{Scenario, TIMEOUT, options};
use crate::support::{
    given_up_session::{give_up_session, wait_until_given_up},
    peer::Outcome,
    within_deadline,
};

/// Loses the request of a create, and the reply to its retry.
fn lose_a_create_twice(scenario: &Scenario, below: &str) {
    scenario.tap.inject(Fault::drop_before(OpCode::Create2).below(below));
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2).below(below).nth(2));
}

/// N1: Curator does not search again, loses its node, and fails with a NullPointerException.
pub(crate) async fn scenario_07_a_create_is_lost_twice(scenario: Scenario) {
    let [a] = scenario.peers(["A"]).await;
    a.acquire().await;
    a.release().await;
    lose_a_create_twice(&scenario, &scenario.root);
    a.acquire().await;
    a.release().await;
    scenario.close([a]).await;
    scenario.with_synced_searches().assert_differs(&[(
        "A -> getChildren2(12) /s07 watch=false
         A <- getChildren2 OK children=[_c_G2-lock-0000000001]
         A -> getChildren2(12) /s07 watch=false
         A <- getChildren2 OK children=[_c_G2-lock-0000000001]",
        "A -> getChildren(8) /s07 watch=false
         A <- getChildren OK children=[_c_G2-lock-0000000001]
         A -> getChildren2(12) /s07 watch=false
         A <- getChildren2 OK children=[_c_G2-lock-0000000001]
         # The second create may still be ordered and not committed.
         A -> getChildren2(12) /s07 watch=false
         A <- getChildren2 OK children=[_c_G2-lock-0000000001]
         A -> delete(2) /s07/_c_G2-lock-0000000001 v=-1
         A <- delete OK",
    )]);
}

/// Curator deletes twice, because it handles the interrupt twice (CURATOR-375).
pub(crate) async fn scenario_12_a_waiter_is_cancelled(scenario: Scenario) {
    let ((a, _a), (b, _b)) = (scenario.client("A").await, scenario.client("B").await);
    let holder = scenario.mutex(&a).acquire().await.unwrap();
    let theirs = scenario.mutex(&b);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    scenario.wait_for_waiter("B").await;
    scenario.wait_until_settled(&b, 1).await;
    waiting.abort();
    scenario.wait_for_reply("B", 1, OpCode::Delete).await;
    holder.release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_differs(&[(
        "B -> delete(2) /s12/_c_G2-lock-0000000001 v=-1
         B -> delete(2) /s12/_c_G2-lock-0000000001 v=-1
         B <- delete OK
         B <- delete NONODE",
        "B -> delete(2) /s12/_c_G2-lock-0000000001 v=-1
         B <- delete OK",
    )]);
}

/// N3: Curator sends the delete of the old session's node for a path below `/ns/ns`.
pub(crate) async fn scenario_19_a_node_of_another_session_in_a_namespace(mut scenario: Scenario) {
    let operator = scenario.operator().await;
    for path in ["/ns", "/ns/par"] {
        operator.create(path, b"", CreateMode::Persistent).await.unwrap();
    }
    let (a, tap) = scenario.client_with("A", Duration::from_secs(6)).await;
    let options = options().with_namespace("ns");
    let mutex = InterProcessMutex::with_options(&a, "/par", options).unwrap();
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2));
    tap.refuse().await.unwrap();
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    scenario.wait_for_reply("A", 1, OpCode::Create2).await;
    wait_until_given_up(&a, &tap).await;
    let old_session = scenario.embedded.as_ref().unwrap().session_ids();
    let guard = within_deadline("acquire", waiting).await.unwrap().unwrap();
    assert!(guard.lock_path().ends_with("0000000001") && guard.is_held());
    assert!(old_session.iter().any(|id| *id != guard.session_id()), "the server still has it");
    guard.release().await.unwrap();
    a.close().await.unwrap();
    // The recording contains only a create, and its program created the parents itself.
    scenario.expected = scenario.expected.replace("-x-", "-lock-");
    scenario.replace_lines(
        "A <- exists NONODE
         A -> createContainer(19) /ns data=<empty> acl=31:world:anyone flags=4
         A <- createContainer OK path=/ns +stat
         A -> create2(15) /ns/par data=\"10.0.0.1\" acl=31:world:anyone flags=0
         A <- create2 OK path=/ns/par +stat",
        "A <- exists OK",
    );
    scenario.replace_lines(
        "A -> closeSession(-11)",
        "A -> getChildren2(12) /ns/par watch=false
         A <- getChildren2 OK children=[_c_G2-lock-0000000001]
         A -> delete(2) /ns/par/_c_G2-lock-0000000001 v=-1
         A <- delete OK
         A -> closeSession(-11)",
    );
    scenario.with_synced_searches().assert_differs(&[
        (
            "A -> delete(2) /ns/ns/par/_c_G1-lock-0000000000 v=-1",
            "A -> delete(2) /ns/par/_c_G1-lock-0000000000 v=-1",
        ),
        (
            "A -> create2(15) /ns/par/_c_G1-lock- data=\"10.0.0.1\" acl=31:world:anyone flags=3
             A <- delete NONODE
             A <- create2 OK path=/ns/par/_c_G1-lock-0000000001 +stat",
            "A -> getChildren2(12) /ns/par watch=false
             A -> create2(15) /ns/par/_c_G2-lock- data=\"10.0.0.1\" acl=31:world:anyone flags=3
             A <- delete OK
             A <- getChildren2 OK children=[]
             A <- create2 OK path=/ns/par/_c_G2-lock-0000000001 +stat",
        ),
    ]);
}

/// A lock that logs its acquires.
struct Logged {
    name: &'static str,
    log: Arc<Mutex<Vec<&'static str>>>,
    /// `None` for a lock that fails.
    lock: Option<InterProcessMutex>,
}

impl InterProcessLock for Logged {
    fn acquire(&self) -> LockFuture<'_, LockGuard> {
        self.log.lock().unwrap().push(self.name);
        match &self.lock {
            Some(lock) => InterProcessLock::acquire(lock),
            None => Box::pin(async {
                Err(Error::new(ErrorKind::LockLost, docent::Outcome::NotApplied).with_path("bad b"))
            }),
        }
    }

    fn acquire_timeout(&self, _wait: Duration) -> LockFuture<'_, Option<LockGuard>> {
        Box::pin(async { Ok(None) })
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.lock.as_ref().is_some_and(InterProcessMutex::is_acquired_in_this_process)
    }
}

/// N5: Curator continues with `c` after `b` has failed. The recording has no frames, because its locks were mocks.
pub(crate) async fn scenario_20_a_multi_lock(scenario: Scenario) {
    let (_a, _tap) = scenario.client("A").await;
    let operator = scenario.operator().await;
    let log = Arc::default();
    let lock = |name, at: Option<&str>| {
        let path = |at| format!("{}/{at}", scenario.root);
        let lock = at.map(|at| InterProcessMutex::new(&operator, &path(at)).unwrap());
        Arc::new(Logged { name, log: Arc::clone(&log), lock })
    };
    let (first, last) = (lock("acquire a", Some("a")), lock("acquire c", Some("c")));
    let locks: Vec<Arc<dyn InterProcessLock>> =
        vec![first.clone(), lock("acquire b", None), last.clone()];
    let error = InterProcessMultiLock::from_locks(locks).acquire().await.unwrap_err();
    assert!(error.to_string().contains("bad b"), "{error}");
    assert_eq!(*log.lock().unwrap(), ["acquire a", "acquire b"]);
    assert!(!first.is_acquired_in_this_process() && !last.is_acquired_in_this_process());
    let comments = scenario.expected.lines().filter_map(|line| line.split_once("# "));
    let comments: Vec<_> = comments.skip(1).map(|(_, comment)| comment).take(4).collect();
    assert_eq!(comments, ["acquire a", "acquire b", "acquire c", "release c"], "Curator");
}

/// N2: Curator adopts the old session's node. In this scenario that has no effect, because the session stays alive.
pub(crate) async fn scenario_22_the_session_ends_while_waiting(scenario: Scenario) {
    let (a, _a) = scenario.client("A").await;
    let (b, tap) = scenario.client_with("B", Duration::from_secs(6)).await;
    let holder = scenario.mutex(&a).acquire().await.unwrap();
    let theirs = scenario.mutex(&b);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    scenario.wait_for_waiter("B").await;
    give_up_session(&b, &tap).await;
    scenario.wait_for_reply("B", 3, OpCode::GetData).await;
    holder.release().await.unwrap();
    within_deadline("acquire", waiting).await.unwrap().unwrap().release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_differs(&[(
        "B <- getData OK data=\"10.0.0.1\"
         A -> delete(2) /s22/_c_G1-lock-0000000000 v=-1
         B <- EVENT NodeDeleted /s22/_c_G1-lock-0000000000
         B -> getChildren2(12) /s22 watch=false
         A <- delete OK
         B <- getChildren2 OK children=[_c_G2-lock-0000000001]
         B -> delete(2) /s22/_c_G2-lock-0000000001 v=-1
         B <- delete OK",
        "B <- getData OK data=\"10.0.0.1\"
         B -> delete(2) /s22/_c_G2-lock-0000000001 v=-1
         B <- delete OK
         B -> create2(15) /s22/_c_G3-lock- data=\"10.0.0.1\" acl=31:world:anyone flags=3
         B <- create2 OK path=/s22/_c_G3-lock-0000000002 +stat
         B -> getChildren2(12) /s22 watch=false
         B <- getChildren2 OK children=[_c_G1-lock-0000000000, _c_G3-lock-0000000002]
         B -> getData(4) /s22/_c_G1-lock-0000000000 watch=true
         B <- getData OK data=\"10.0.0.1\"
         A -> delete(2) /s22/_c_G1-lock-0000000000 v=-1
         B <- EVENT NodeDeleted /s22/_c_G1-lock-0000000000
         A <- delete OK
         B -> getChildren2(12) /s22 watch=false
         B <- getChildren2 OK children=[_c_G3-lock-0000000002]
         B -> delete(2) /s22/_c_G3-lock-0000000002 v=-1
         B <- delete OK",
    )]);
}

/// A dropped future cannot wait for its delete, so it sends checkWatches before it receives the event.
pub(crate) async fn scenario_36_a_waiter_for_a_lease_is_cancelled(scenario: Scenario) {
    let ((a, _a), (b, _b)) = (scenario.client("A").await, scenario.client("B").await);
    let lease = scenario.semaphore(&a, 1).acquire().await.unwrap();
    let theirs = scenario.semaphore(&b, 1);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    scenario.wait_for_reply("B", 2, OpCode::GetChildren2).await;
    scenario.wait_until_settled(&b, 1).await;
    waiting.abort();
    scenario.wait_for_reply("B", 2, OpCode::Delete).await;
    for child in ["leases", "locks"] {
        a.get_children_with_stat(&format!("{}/{child}", scenario.root)).await.unwrap();
    }
    lease.release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_differs(&[(
        "B -> delete(2) /s36/leases/_c_G4-lease-0000000001 v=-1
         B <- EVENT NodeChildrenChanged /s36/leases
         B <- delete OK",
        "B -> delete(2) /s36/leases/_c_G4-lease-0000000001 v=-1
         B -> checkWatches(17) /s36/leases type=3
         B <- EVENT NodeChildrenChanged /s36/leases
         B <- delete OK
         B <- checkWatches NOWATCHER",
    )]);
}

/// N1: the node that Curator has lost blocks all contenders.
pub(crate) async fn scenario_38_a_create_is_lost_twice_before_a_waiter(scenario: Scenario) {
    let [a, b] = scenario.peers(["A", "B"]).await;
    a.acquire().await;
    a.release().await;
    lose_a_create_twice(&scenario, &scenario.root);
    a.acquire().await;
    // The search in the background does not show the node of B.
    scenario.wait_for_reply("A", 3, OpCode::GetChildren2).await;
    let reply = b.peer.ask(format!("acquire {} {}", b.handle, TIMEOUT.as_millis())).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    assert!(a.peer.held(&a.handle).await);
    a.release().await;
    scenario.close([a, b]).await;
    scenario.with_synced_searches().assert_differs(&[
        (
            "A -> getChildren2(12) /s38 watch=false
             A <- getChildren2 OK children=[_c_G2-lock-0000000001]",
            "A -> getChildren(8) /s38 watch=false
             A <- getChildren OK children=[_c_G2-lock-0000000001]
             A -> getChildren2(12) /s38 watch=false
             A <- getChildren2 OK children=[_c_G2-lock-0000000001]
             # The second create may still be ordered and not committed.
             A -> getChildren2(12) /s38 watch=false
             A <- getChildren2 OK children=[_c_G2-lock-0000000001]",
        ),
        (
            "A -> closeSession(-11)",
            "A -> delete(2) /s38/_c_G2-lock-0000000001 v=-1
             A <- delete OK
             A -> closeSession(-11)",
        ),
    ]);
}

/// N1 for a lease, which Curator loses until the session ends.
pub(crate) async fn scenario_47_the_create_of_a_lease_is_lost_twice(scenario: Scenario) {
    let (a, _a) = scenario.client("A").await;
    let semaphore = scenario.semaphore(&a, 1);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    lose_a_create_twice(&scenario, &format!("{}/leases", scenario.root));
    semaphore.acquire().await.unwrap().release().await.unwrap();
    a.close().await.unwrap();
    scenario.with_synced_searches().assert_differs(&[(
        "A -> delete(2) /s47/locks/_c_G3-lock-0000000001 v=-1
         A <- delete OK
         A -> getChildren2(12) /s47/leases watch=false
         A <- getChildren2 OK children=[_c_G4-lease-0000000001]",
        "A -> getChildren(8) /s47/leases watch=false
         A <- getChildren OK children=[_c_G4-lease-0000000001]
         A -> getChildren2(12) /s47/leases watch=true
         A <- getChildren2 OK children=[_c_G4-lease-0000000001]
         # The second create may still be ordered and not committed.
         A -> getChildren2(12) /s47/leases watch=false
         A <- getChildren2 OK children=[_c_G4-lease-0000000001]
         A -> checkWatches(17) /s47/leases type=3
         A -> delete(2) /s47/locks/_c_G3-lock-0000000001 v=-1
         A <- checkWatches OK
         A <- delete OK
         A -> delete(2) /s47/leases/_c_G4-lease-0000000001 v=-1
         A <- EVENT NodeChildrenChanged /s47/leases
         A <- delete OK",
    )]);
}

/// N7: a child called `0` blocks Curator for ever.
pub(crate) async fn scenario_48_foreign_children(mut scenario: Scenario) {
    let operator = scenario.operator().await;
    let path = scenario.root.clone();
    operator.create(&path, b"", CreateMode::Persistent).await.unwrap();
    for name in ["0", "zzz"] {
        let path = format!("{path}/{name}");
        operator.create(&path, b"10.0.0.1", CreateMode::Persistent).await.unwrap();
    }
    let (a, _a) = scenario.client("A").await;
    let mutex = scenario.mutex(&a);
    mutex.acquire_timeout(TIMEOUT).await.unwrap().unwrap().release().await.unwrap();
    operator.delete(&format!("{path}/0"), None).await.unwrap();
    let guard = mutex.acquire().await.unwrap();
    assert_eq!(mutex.participants().await.unwrap(), [guard.lock_path()], "without /zzz");
    guard.release().await.unwrap();
    a.close().await.unwrap();
    scenario.expected_root = "/s48b".into();
    // Here another client has created the foreign children.
    scenario.cut_lines("A <- connected", "A -> create2(15) /s48b/_c_G1-lock-");
    scenario.assert_differs(&[(
        "A -> getData(4) /s48b/0 watch=true
         A <- getData OK data=\"10.0.0.1\"
         A -> getChildren2(12) /s48b watch=false
         A <- getChildren2 OK children=[0, _c_G1-lock-0000000002, zzz]
         A -> getData(4) /s48b/0 watch=true
         A <- getData OK data=\"10.0.0.1\"
         A -> delete(2) /s48b/_c_G1-lock-0000000002 v=-1
         A <- delete OK
         A -> delete(2) /s48b/0 v=-1
         A <- EVENT NodeDeleted /s48b/0
         A <- delete OK",
        "A -> delete(2) /s48b/_c_G1-lock-0000000002 v=-1
         A <- delete OK",
    )]);
}

/// N8: Curator's acquire with a timeout of 100 ms takes four seconds, and fails. Its create was never sent; here it is
/// in the session's queue, with the clean-up behind it.
pub(crate) async fn scenario_50_a_timed_acquire_without_a_connection(scenario: Scenario) {
    let [b] = scenario.peers(["B"]).await;
    b.acquire().await;
    b.release().await;
    b.tap.refuse().await.unwrap();
    b.tap.cut();
    b.peer.event("state SUSPENDED").await;
    let reply = b.peer.ask(format!("acquire {} 100", b.handle)).await;
    assert_eq!(reply.error_kind(), "Unanswered");
    b.tap.accept().await.unwrap();
    scenario.wait_for_deleted("B", 2).await;
    scenario.close([b]).await;
    scenario.with_synced_searches().assert_differs(&[(
        "B -> getChildren2(12) /s50 watch=false
         B <- getChildren2 NONODE",
        "B -> create2(15) /s50/_c_G2-lock- data=\"10.0.0.1\" acl=31:world:anyone flags=3
         B -> getChildren2(12) /s50 watch=false
         B <- create2 OK path=/s50/_c_G2-lock-0000000001 +stat
         B <- getChildren2 OK children=[_c_G2-lock-0000000001]
         B -> delete(2) /s50/_c_G2-lock-0000000001 v=-1
         B <- delete OK",
    )]);
}

/// N2, CURATOR-604: in Curator, B acquires the lock with the node of its old session; when that expires, C acquires it
/// as well.
pub(crate) async fn scenario_53_two_holders_after_an_expiry(scenario: Scenario) {
    let ((a, _a), (c, _c)) = (scenario.client("A").await, scenario.client("C").await);
    let (b, tap) = scenario.client_with("B", Duration::from_secs(6)).await;
    let holder = scenario.mutex(&a).acquire().await.unwrap();
    let acquire = |client| {
        let mutex = scenario.mutex(client);
        tokio::spawn(async move { mutex.acquire().await })
    };
    let second = acquire(&b);
    scenario.wait_for_waiter("B").await;
    let third = acquire(&c);
    scenario.wait_for_waiter("C").await;
    give_up_session(&b, &tap).await;
    // B has left the queue, and joined it behind C.
    scenario.wait_for_reply("B", 3, OpCode::GetData).await;
    scenario.wait_for_reply("C", 2, OpCode::GetData).await;
    holder.release().await.unwrap();
    let c_holds = within_deadline("C", third).await.unwrap().unwrap();
    assert!(c_holds.is_held() && !second.is_finished());
    c_holds.release().await.unwrap();
    within_deadline("B", second).await.unwrap().unwrap().release().await.unwrap();
    for client in [a, c, b] {
        client.close().await.unwrap();
    }
    scenario.assert_differs(&[
        (
            "A -> delete(2) /s53/_c_G1-lock-0000000000 v=-1
             B <- EVENT NodeDeleted /s53/_c_G1-lock-0000000000
             A <- delete OK
             B -> getChildren2(12) /s53 watch=false
             B <- getChildren2 OK children=[_c_G3-lock-0000000002, _c_G2-lock-0000000001]
             C <- EVENT NodeDeleted /s53/_c_G2-lock-0000000001
             C -> getChildren2(12) /s53 watch=false
             C <- getChildren2 OK children=[_c_G3-lock-0000000002]
             C -> delete(2) /s53/_c_G3-lock-0000000002 v=-1
             C <- delete OK
             B -> delete(2) /s53/_c_G2-lock-0000000001 v=-1
             B <- delete NONODE",
            "B -> delete(2) /s53/_c_G2-lock-0000000001 v=-1
             C <- EVENT NodeDeleted /s53/_c_G2-lock-0000000001
             B <- delete OK
             C -> getChildren2(12) /s53 watch=false
             C <- getChildren2 OK children=[_c_G3-lock-0000000002, _c_G1-lock-0000000000]
             C -> getData(4) /s53/_c_G1-lock-0000000000 watch=true
             C <- getData OK data=\"10.0.0.1\"
             B -> create2(15) /s53/_c_G4-lock- data=\"10.0.0.1\" acl=31:world:anyone flags=3
             B <- create2 OK path=/s53/_c_G4-lock-0000000003 +stat
             B -> getChildren2(12) /s53 watch=false
             B <- getChildren2 OK children=[_c_G1-lock-0000000000, _c_G3-lock-0000000002, _c_G4-lock-0000000003]
             B -> getData(4) /s53/_c_G3-lock-0000000002 watch=true
             B <- getData OK data=\"10.0.0.1\"
             A -> delete(2) /s53/_c_G1-lock-0000000000 v=-1
             B <- EVENT NodeDeleted /s53/_c_G1-lock-0000000000
             C <- EVENT NodeDeleted /s53/_c_G1-lock-0000000000
             A <- delete OK
             C -> getChildren2(12) /s53 watch=false
             C <- getChildren2 OK children=[_c_G3-lock-0000000002, _c_G4-lock-0000000003]
             C -> delete(2) /s53/_c_G3-lock-0000000002 v=-1
             B <- EVENT NodeDeleted /s53/_c_G3-lock-0000000002
             C <- delete OK
             B -> getChildren2(12) /s53 watch=false
             B <- getChildren2 OK children=[_c_G4-lock-0000000003]
             B -> delete(2) /s53/_c_G4-lock-0000000003 v=-1
             B <- delete OK",
        ),
    ]);
}

/// N10: Curator accepts `/`, creates its node there, and cannot find it.
pub(crate) async fn scenario_55_the_root(mut scenario: Scenario) {
    let (a, _a) = scenario.client("A").await;
    let error = InterProcessMutex::with_options(&a, "/", options()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidPath), "{error}");
    a.close().await.unwrap();
    assert!(scenario.compare_with(&scenario.expected).is_err());
    scenario.cut_lines("A <- connected", "# ---- closing");
    scenario.assert_equal();
}
