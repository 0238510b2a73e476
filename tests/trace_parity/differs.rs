//! Scenes in which docent differs from Curator by design: in these places, and in no other.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use docent::{
    CreateMode,
    protocol::OpCode,
    recipes::{
        Error,
        locks::{
            InterProcessLock, InterProcessMultiLock, InterProcessMutex, LockFuture, LockGuard,
        },
    },
};
use docent_testing::fault::Fault;

use super::{A_WHILE, Scene, options};
use crate::support::{peer::Outcome, within_deadline};

/// A create whose request is lost, and whose next reply is, too.
fn lose_a_create_twice(scene: &Scene, below: &str) {
    scene.tap.inject(Fault::drop_before(OpCode::Create2).below(below));
    scene.tap.inject(Fault::drop_reply(OpCode::Create2).below(below).nth(2));
}

/// N1: Curator does not search again, loses its node, and fails with a NullPointerException.
pub(crate) async fn scene_07_a_create_is_lost_twice(scene: Scene) {
    let [a] = scene.actors(["A"]).await;
    a.acquire().await;
    a.release().await;
    lose_a_create_twice(&scene, &scene.root);
    a.acquire().await;
    a.release().await;
    scene.close([a]).await;
    scene.assert_differs(&[(
        "A -> getChildren2(12) /s07 watch=false
         A <- getChildren2 OK children=[_c_G2-lock-0000000001]
         A -> getChildren2(12) /s07 watch=false
         A <- getChildren2 OK children=[_c_G2-lock-0000000001]",
        "A -> getChildren(8) /s07 watch=false
         A <- getChildren OK children=[_c_G2-lock-0000000001]
         A -> getChildren2(12) /s07 watch=false
         A <- getChildren2 OK children=[_c_G2-lock-0000000001]
         A -> delete(2) /s07/_c_G2-lock-0000000001 v=-1
         A <- delete OK",
    )]);
}

/// Curator deletes twice, for its interrupt is told twice (CURATOR-375).
pub(crate) async fn scene_12_a_waiter_gives_up(scene: Scene) {
    let ((a, _a), (b, _b)) = (scene.client("A").await, scene.client("B").await);
    let holder = scene.mutex(&a).acquire().await.unwrap();
    let theirs = scene.mutex(&b);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    scene.waits("B").await;
    scene.settled(&b, 1).await;
    waiting.abort();
    scene.answered("B", 1, OpCode::Delete).await;
    holder.release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    scene.assert_differs(&[(
        "B -> delete(2) /s12/_c_G2-lock-0000000001 v=-1
         B -> delete(2) /s12/_c_G2-lock-0000000001 v=-1
         B <- delete OK
         B <- delete NONODE",
        "B -> delete(2) /s12/_c_G2-lock-0000000001 v=-1
         B <- delete OK",
    )]);
}

/// N3: Curator deletes the old session's node below `/ns/ns`, where it is not.
pub(crate) async fn scene_19_a_node_of_another_session_in_a_namespace(mut scene: Scene) {
    let operator = scene.operator().await;
    for path in ["/ns", "/ns/par"] {
        operator.create(path, b"", CreateMode::Persistent).await.unwrap();
    }
    let (a, tap) = scene.client_with("A", Duration::from_secs(2)).await;
    let options = options().with_namespace("ns");
    let mutex = InterProcessMutex::with_options(&a, "/par", options).unwrap();
    scene.tap.inject(Fault::drop_reply(OpCode::Create2));
    tap.refuse().await.unwrap();
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    scene.answered("A", 1, OpCode::Create2).await;
    scene.has_given_up(&a, &tap).await;
    let old_session = scene.embedded.as_ref().unwrap().session_ids();
    let guard = within_deadline("acquire", waiting).await.unwrap().unwrap();
    assert!(guard.lock_path().ends_with("0000000001") && guard.is_held());
    assert!(old_session.iter().any(|id| *id != guard.session_id()), "the server has it still");
    guard.release().await.unwrap();
    a.close().await.unwrap();
    // The recording is of a create alone, and its program made the parents itself.
    scene.expected = scene.expected.replace("-x-", "-lock-");
    scene.instead_of(
        "A <- exists NONODE
         A -> createContainer(19) /ns data=<empty> acl=31:world:anyone flags=4
         A <- createContainer OK path=/ns +stat
         A -> create2(15) /ns/par data=\"10.0.0.1\" acl=31:world:anyone flags=0
         A <- create2 OK path=/ns/par +stat",
        "A <- exists OK",
    );
    scene.instead_of(
        "A -> closeSession(-11)",
        "A -> getChildren2(12) /ns/par watch=false
         A <- getChildren2 OK children=[_c_G1-lock-0000000001]
         A -> delete(2) /ns/par/_c_G1-lock-0000000001 v=-1
         A <- delete OK
         A -> closeSession(-11)",
    );
    scene.assert_differs(&[
        (
            "A -> delete(2) /ns/ns/par/_c_G1-lock-0000000000 v=-1",
            "A -> delete(2) /ns/par/_c_G1-lock-0000000000 v=-1",
        ),
        ("A <- delete NONODE", "A <- delete OK"),
    ]);
}

/// A lock that writes down when it is asked for.
struct Logged {
    name: &'static str,
    log: Arc<Mutex<Vec<&'static str>>>,
    /// `None`: it fails.
    lock: Option<InterProcessMutex>,
}

impl InterProcessLock for Logged {
    fn acquire(&self) -> LockFuture<'_, LockGuard> {
        self.log.lock().unwrap().push(self.name);
        match &self.lock {
            Some(lock) => InterProcessLock::acquire(lock),
            None => Box::pin(async { Err(Error::LockLost { path: "bad b".into() }) }),
        }
    }

    fn acquire_timeout(&self, _wait: Duration) -> LockFuture<'_, Option<LockGuard>> {
        Box::pin(async { Ok(None) })
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.lock.as_ref().is_some_and(InterProcessMutex::is_acquired_in_this_process)
    }
}

/// N5: Curator goes on to `c` when `b` has failed. There is nothing of it on the wire: the recording's locks were
/// no real ones.
pub(crate) async fn scene_20_a_multi_lock(scene: Scene) {
    let (_a, _tap) = scene.client("A").await;
    let operator = scene.operator().await;
    let log = Arc::default();
    let lock = |name, at: Option<&str>| {
        let path = |at| format!("{}/{at}", scene.root);
        let lock = at.map(|at| InterProcessMutex::new(&operator, &path(at)).unwrap());
        Arc::new(Logged { name, log: Arc::clone(&log), lock })
    };
    let (first, last) = (lock("acquire a", Some("a")), lock("acquire c", Some("c")));
    let locks: Vec<Arc<dyn InterProcessLock>> =
        vec![first.clone(), lock("acquire b", None), last.clone()];
    let error = InterProcessMultiLock::of(locks).acquire().await.unwrap_err();
    assert!(error.to_string().contains("bad b"), "{error}");
    assert_eq!(*log.lock().unwrap(), ["acquire a", "acquire b"]);
    assert!(!first.is_acquired_in_this_process() && !last.is_acquired_in_this_process());
    let comments = scene.expected.lines().filter_map(|line| line.split_once("# "));
    let comments: Vec<_> = comments.skip(1).map(|(_, comment)| comment).take(4).collect();
    assert_eq!(comments, ["acquire a", "acquire b", "acquire c", "release c"], "Curator");
}

/// N2: Curator takes the old session's node for its own. It goes well in this scene, for that session lives on.
pub(crate) async fn scene_22_the_session_ends_while_waiting(scene: Scene) {
    let (a, _a) = scene.client("A").await;
    let (b, tap) = scene.client_with("B", Duration::from_secs(2)).await;
    let holder = scene.mutex(&a).acquire().await.unwrap();
    let theirs = scene.mutex(&b);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    scene.waits("B").await;
    scene.gives_up_its_session(&b, &tap).await;
    scene.answered("B", 3, OpCode::GetData).await;
    holder.release().await.unwrap();
    within_deadline("acquire", waiting).await.unwrap().unwrap().release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    scene.assert_differs(&[(
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

/// A dropped future cannot wait for its delete, so it asks about its watch before it knows of the event.
pub(crate) async fn scene_36_a_waiter_for_a_lease_gives_up(scene: Scene) {
    let ((a, _a), (b, _b)) = (scene.client("A").await, scene.client("B").await);
    let lease = scene.semaphore(&a, 1).acquire().await.unwrap();
    let theirs = scene.semaphore(&b, 1);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    scene.answered("B", 2, OpCode::GetChildren2).await;
    scene.settled(&b, 1).await;
    waiting.abort();
    scene.answered("B", 2, OpCode::Delete).await;
    for child in ["leases", "locks"] {
        a.get_children2(&format!("{}/{child}", scene.root)).await.unwrap();
    }
    lease.release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    scene.assert_differs(&[(
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

/// N1 again: the node that Curator has lost keeps everybody out.
pub(crate) async fn scene_38_a_create_is_lost_twice_and_somebody_waits(scene: Scene) {
    let [a, b] = scene.actors(["A", "B"]).await;
    a.acquire().await;
    a.release().await;
    lose_a_create_twice(&scene, &scene.root);
    a.acquire().await;
    let reply = b.peer.ask(format!("acquire {} {}", b.handle, A_WHILE.as_millis())).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    assert!(a.peer.held(&a.handle).await);
    a.release().await;
    scene.close([a, b]).await;
    scene.assert_differs(&[
        (
            "A -> getChildren2(12) /s38 watch=false
             A <- getChildren2 OK children=[_c_G2-lock-0000000001]",
            "A -> getChildren(8) /s38 watch=false
             A <- getChildren OK children=[_c_G2-lock-0000000001]
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

/// N1 of a lease, which Curator loses for the session's life.
pub(crate) async fn scene_47_the_create_of_a_lease_is_lost_twice(scene: Scene) {
    let (a, _a) = scene.client("A").await;
    let semaphore = scene.semaphore(&a, 1);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    lose_a_create_twice(&scene, &format!("{}/leases", scene.root));
    semaphore.acquire().await.unwrap().release().await.unwrap();
    a.close().await.unwrap();
    scene.assert_differs(&[(
        "A -> delete(2) /s47/locks/_c_G3-lock-0000000001 v=-1
         A <- delete OK
         A -> getChildren2(12) /s47/leases watch=false
         A <- getChildren2 OK children=[_c_G4-lease-0000000001]",
        "A -> getChildren(8) /s47/leases watch=false
         A <- getChildren OK children=[_c_G4-lease-0000000001]
         A -> getChildren2(12) /s47/leases watch=true
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

/// N7: a child called `0` keeps Curator out for ever.
pub(crate) async fn scene_48_foreign_children(mut scene: Scene) {
    let operator = scene.operator().await;
    let path = scene.root.clone();
    operator.create(&path, b"", CreateMode::Persistent).await.unwrap();
    for name in ["0", "zzz"] {
        let path = format!("{path}/{name}");
        operator.create(&path, b"10.0.0.1", CreateMode::Persistent).await.unwrap();
    }
    let (a, _a) = scene.client("A").await;
    let mutex = scene.mutex(&a);
    mutex.acquire_timeout(A_WHILE).await.unwrap().unwrap().release().await.unwrap();
    operator.delete(&format!("{path}/0"), None).await.unwrap();
    let guard = mutex.acquire().await.unwrap();
    assert_eq!(mutex.participants().await.unwrap(), [guard.lock_path()], "and not /zzz");
    guard.release().await.unwrap();
    a.close().await.unwrap();
    scene.expected_root = "/s48b".into();
    // Here, another made the foreign children.
    scene.cut("A <- connected", "A -> create2(15) /s48b/_c_G1-lock-");
    scene.assert_differs(&[(
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

/// N8: Curator takes four seconds for its 100 ms, and fails. Its create was never sent; here it waits in the
/// session's queue, and the clean-up behind it.
pub(crate) async fn scene_50_a_timed_acquire_without_a_connection(scene: Scene) {
    let [b] = scene.actors(["B"]).await;
    b.acquire().await;
    b.release().await;
    b.tap.refuse().await.unwrap();
    b.tap.cut();
    b.peer.event("state SUSPENDED").await;
    let reply = b.peer.ask(format!("acquire {} 100", b.handle)).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    b.tap.accept().await.unwrap();
    scene.answered("B", 2, OpCode::Delete).await;
    scene.close([b]).await;
    scene.assert_differs(&[(
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

/// N2, CURATOR-604: Curator's B gets the lock by the node of its old session; that goes, and C gets it as well.
pub(crate) async fn scene_53_two_holders_after_an_expiry(scene: Scene) {
    let ((a, _a), (c, _c)) = (scene.client("A").await, scene.client("C").await);
    let (b, tap) = scene.client_with("B", Duration::from_secs(2)).await;
    let holder = scene.mutex(&a).acquire().await.unwrap();
    let acquire = |client| {
        let mutex = scene.mutex(client);
        tokio::spawn(async move { mutex.acquire().await })
    };
    let second = acquire(&b);
    scene.waits("B").await;
    let third = acquire(&c);
    scene.waits("C").await;
    scene.gives_up_its_session(&b, &tap).await;
    // B has left its place, and queues behind C.
    scene.answered("B", 3, OpCode::GetData).await;
    scene.answered("C", 2, OpCode::GetData).await;
    holder.release().await.unwrap();
    let c_holds = within_deadline("C", third).await.unwrap().unwrap();
    assert!(c_holds.is_held() && !second.is_finished());
    c_holds.release().await.unwrap();
    within_deadline("B", second).await.unwrap().unwrap().release().await.unwrap();
    for client in [a, c, b] {
        client.close().await.unwrap();
    }
    scene.assert_differs(&[
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

/// N10: Curator takes `/`, creates its node there, and cannot find it.
pub(crate) async fn scene_55_the_root(mut scene: Scene) {
    let (a, _a) = scene.client("A").await;
    let error = InterProcessMutex::with_options(&a, "/", options()).unwrap_err();
    assert!(matches!(error, Error::InvalidPath(_)), "{error}");
    a.close().await.unwrap();
    assert!(scene.compare_with(&scene.expected).is_err());
    scene.cut("A <- connected", "# ---- closing");
    scene.assert_equal();
}
