//! Source: `TestInterProcessMutex`, `TestLockInternals`, `TestLockACLs`.

use std::sync::{Arc, Mutex};

use docent::{
    Acl, CreateMode, ErrorKind,
    protocol::{OpCode, acl},
    recipes::{
        AclProvider, Error,
        locks::{InterProcessMutex, LockInternalsDriver, LockNode, LockOptions, Owner, Revoker},
    },
    session::retry::RetryNTimes,
};
use docent_testing::fault::Fault;
use tokio::sync::Notify;

use crate::{
    Stage, ms, no_retries, options,
    support::{DEADLINE, eventually, within_deadline},
};

on_both_servers! {
    three_levels_are_released_at_the_last
    another_owner_cannot_enter_between_two_levels
    a_namespace_is_made_and_kept_below
    a_revoked_holder_lets_the_next_one_in
    a_revocation_lasts_for_one_hold
    a_persistent_lock_outlives_its_session
    a_node_whose_listing_fails_is_deleted
    the_first_of_two_errors_is_told
    parents_get_the_providers_acl
    the_provider_is_asked_for_each_path
    without_containers_parents_stay
    guarded_writes_are_refused_once_the_node_is_gone
    a_holder_of_an_order_of_its_own
    a_pipelined_listing_leaves_with_its_create
    a_pipelined_create_that_is_lost_is_found
    a_node_of_an_earlier_session_is_not_taken_for_ours
}

fn mutex(stage: &Stage, client: &docent::Client) -> InterProcessMutex {
    InterProcessMutex::with_options(client, &stage.path, options()).unwrap()
}

/// testReentrant
async fn three_levels_are_released_at_the_last(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let (mutex, owner) = (mutex(&stage, &client), Owner::new());
    let mut levels = Vec::new();
    for _ in 0..3 {
        levels.push(mutex.acquire_as(&owner).await.unwrap());
    }
    while let Some(level) = levels.pop() {
        assert!(mutex.is_acquired_in_this_process());
        stage.children(&stage.path, 1).await;
        level.release().await.unwrap();
    }
    assert!(!mutex.is_acquired_in_this_process());
    stage.children(&stage.path, 0).await;
}

/// testReentrant2Threads
async fn another_owner_cannot_enter_between_two_levels(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let mutex = mutex(&stage, &client);
    let (one, other) = (Owner::new(), Owner::new());
    let outer = mutex.acquire_as(&one).await.unwrap();
    let inner = mutex.acquire_as(&one).await.unwrap();
    inner.release().await.unwrap();
    assert!(mutex.acquire_as_timeout(&other, ms(50)).await.unwrap().is_none());
    outer.release().await.unwrap();
    mutex.acquire_as(&other).await.unwrap().release().await.unwrap();
}

/// testWithNamespace
async fn a_namespace_is_made_and_kept_below(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let namespace = stage.path.trim_start_matches('/');
    let options = options().with_namespace(namespace);
    let mutex = InterProcessMutex::with_options(&client, "/foo/bar", options).unwrap();
    let guard = mutex.acquire_timeout(DEADLINE).await.unwrap().unwrap();
    assert!(guard.lock_path().starts_with(&format!("{}/foo/bar/_c_", stage.path)));
    assert_eq!(mutex.participants().await.unwrap(), [guard.lock_path()]);
    guard.release().await.unwrap();
    let bad = LockOptions::default().with_namespace("a//b");
    let error = InterProcessMutex::with_options(&client, "/x", bad).unwrap_err();
    assert!(matches!(error, Error::InvalidPath(_)), "{error}");
}

/// testRevoking
async fn a_revoked_holder_lets_the_next_one_in(stage: Stage) {
    let ((a, _a), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let (first, second) = (mutex(&stage, &a), mutex(&stage, &b));
    let asked = Arc::new(Notify::new());
    let tell = Arc::clone(&asked);
    first.make_revocable(move || tell.notify_one());
    let guard = first.acquire().await.unwrap();
    assert_eq!(a.get_data(guard.lock_path()).await.unwrap().data, "");
    let waiting = tokio::spawn({
        let second = second.clone();
        async move { second.acquire().await }
    });
    stage.children(&stage.path, 2).await;
    // Other data are no revocation.
    b.set_data(guard.lock_path(), b"hello", None).await.unwrap();
    let policy = RetryNTimes::new(1, ms(100));
    let holder = second.participants().await.unwrap().remove(0);
    assert_eq!(holder, guard.lock_path());
    Revoker::attempt_revoke(&b, &policy, &holder).await.unwrap();
    within_deadline("the listener", asked.notified()).await;
    assert!(guard.is_held(), "a revocation is a request");
    guard.release().await.unwrap();
    within_deadline("the second", waiting).await.unwrap().unwrap().release().await.unwrap();
    // A node that has gone is no error.
    Revoker::attempt_revoke(&b, &policy, &holder).await.unwrap();
}

/// curator-locks 1.8: a release ends it.
async fn a_revocation_lasts_for_one_hold(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let mutex = InterProcessMutex::with_options(
        &client,
        &stage.path,
        options().with_default_data("somebody"),
    )
    .unwrap();
    mutex.make_revocable(|| panic!("nobody has asked"));
    mutex.acquire().await.unwrap().release().await.unwrap();
    let guard = mutex.acquire().await.unwrap();
    assert_eq!(client.get_data(guard.lock_path()).await.unwrap().data, "somebody");
    guard.release().await.unwrap();
    eventually("no watch left", async || (client.load().1 == 0).then_some(())).await;
}

#[derive(Debug)]
struct Persistent;

impl LockInternalsDriver for Persistent {
    fn creates_the_lock(&self, lock_name: &str) -> LockNode {
        LockNode { name: lock_name.to_owned(), mode: CreateMode::PersistentSequential }
    }
}

/// testPersistentLock
async fn a_persistent_lock_outlives_its_session(stage: Stage) {
    let (client, tap) = stage.client("A").await;
    let mutex =
        InterProcessMutex::with_driver(&client, &stage.path, options(), Persistent).unwrap();
    let guard = mutex.acquire().await.unwrap();
    assert!(mutex.is_acquired_in_this_process());
    tap.kill_session(DEADLINE).await.unwrap();
    within_deadline("lost", guard.lost()).await;
    stage.children(&stage.path, 1).await;
    guard.release().await.unwrap();
    assert!(!mutex.is_acquired_in_this_process());
    stage.children(&stage.path, 0).await;
}

/// testNodeDeletedCleanlyWithFaults
async fn a_node_whose_listing_fails_is_deleted(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    mutex(&stage, &client).acquire().await.unwrap().release().await.unwrap();
    let mutex = InterProcessMutex::with_options(&client, &stage.path, no_retries()).unwrap();
    stage.tap.inject(Fault::drop_before(OpCode::GetChildren2));
    let error = mutex.acquire().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::ConnectionLoss));
    stage.children(&stage.path, 0).await;
}

/// testAttemptLockFailedException
async fn the_first_of_two_errors_is_told(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let mutex = InterProcessMutex::with_options(&client, &stage.path, no_retries()).unwrap();
    let holder = mutex.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await }
    });
    let children = stage.children(&stage.path, 2).await;
    let ours = children.iter().max_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    let own = format!("{}/{}", stage.path, ours.unwrap());
    stage.tap.wait_for(DEADLINE, |r| r.is_reply(OpCode::GetData)).await.unwrap();
    client.delete(&own, None).await.unwrap();
    // Its delete of the missing node fails too, by the connection.
    stage.tap.inject(Fault::drop_before(OpCode::Delete).below(&own));
    holder.release().await.unwrap();
    let error = within_deadline("the waiter", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoNode), "{error}");
    assert!(error.to_string().contains("sequential path not found"), "{error}");
}

#[derive(Debug, Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl AclProvider for Asked {
    fn acl_for_path(&self, path: &str) -> Option<&[Acl<'_>]> {
        self.0.lock().unwrap().push(path.to_owned());
        path.ends_with("/mine").then_some(acl::CREATOR_ALL_ACL)
    }
}

/// testLockACLs
async fn parents_get_the_providers_acl(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    client.add_auth("digest", b"me:secret").await.unwrap();
    let path = format!("{}/mine", stage.path);
    let options = options().with_acl_provider(Asked::default());
    let mutex = InterProcessMutex::with_options(&client, &path, options).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let others = stage.observer().await;
    let error = others.get_children(&path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
    assert!(others.get_data(guard.lock_path()).await.is_ok(), "the lock node is for everybody");
    guard.release().await.unwrap();
}

/// testACLsCreatingParents
async fn the_provider_is_asked_for_each_path(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let asked = Asked::default();
    let path = format!("{}/x/y", stage.path);
    let options = options().with_acl_provider(asked.clone());
    let mutex = InterProcessMutex::with_options(&client, &path, options).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let asked = asked.0.lock().unwrap().clone();
    for wanted in [&stage.path, &format!("{}/x", stage.path), &path] {
        assert!(asked.contains(wanted), "{wanted}: {asked:?}");
    }
}

/// testOverrideCreateParentContainers, scene 34
async fn without_containers_parents_stay(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let options = options().without_container_parents();
    let mutex = InterProcessMutex::with_options(&client, &stage.path, options).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    // What a container's Stat has and an ordinary node's has not.
    let stat = client.exists(&stage.path).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, 0);
}

/// The server refuses what is late, without a fencing token.
async fn guarded_writes_are_refused_once_the_node_is_gone(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let mutex = mutex(&stage, &client);
    let guard = mutex.acquire().await.unwrap();
    let job = format!("{}-job", stage.path);
    client.create(&job, b"", CreateMode::Persistent).await.unwrap();
    guard.guarded().unwrap().set_data(&job, b"1", None).commit().await.unwrap();
    // Somebody takes the lock away, which we do not notice.
    stage.observer().await.delete(guard.lock_path(), None).await.unwrap();
    assert!(guard.is_held());
    let error = guard.guarded().unwrap().set_data(&job, b"2", None).commit().await.unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::NoNode, Some(0)));
    assert_eq!(client.get_data(&job).await.unwrap().data, "1");
    client.close().await.unwrap();
    assert!(matches!(guard.guarded().map(drop), Err(Error::LockLost { .. })));
}

/// Last come, first served.
#[derive(Debug)]
struct Youngest;

impl LockInternalsDriver for Youngest {
    fn sorted<'a>(
        &self,
        children: &[&'a str],
        lock_name: &str,
    ) -> Vec<docent::recipes::locks::standard_lock_internals_driver::Contender<'a>> {
        use docent::recipes::locks::standard_lock_internals_driver::sorted_contenders;
        let mut all = sorted_contenders(children.iter().copied(), lock_name);
        // The holder stays the holder.
        if let Some(waiters) = all.get_mut(1..) {
            waiters.reverse();
        }
        all
    }
}

async fn a_holder_of_an_order_of_its_own(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let mutex = InterProcessMutex::with_driver(&client, &stage.path, options(), Youngest).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await }
    });
    stage.children(&stage.path, 2).await;
    let order = mutex.participants().await.unwrap();
    assert_eq!((order.len(), order[0].as_str()), (2, guard.lock_path()));
    guard.release().await.unwrap();
    within_deadline("the waiter", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// Two round trips a cycle: the listing does not wait for the create's reply.
async fn a_pipelined_listing_leaves_with_its_create(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let options = options().with_pipelined_listing();
    let mutex = InterProcessMutex::with_options(&client, &stage.path, options).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let before = stage.tap.len();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let ops: Vec<_> = stage
        .tap
        .trace()
        .since(before)
        .iter()
        .filter_map(|record| {
            [OpCode::Create2, OpCode::GetChildren2, OpCode::Delete].into_iter().find_map(|op| {
                let request = record.is_request(op).then_some("->");
                let reply = record.is_reply(op).then_some("<-");
                request.or(reply).map(|arrow| format!("{arrow} {op:?}"))
            })
        })
        .collect();
    assert_eq!(
        ops,
        [
            "-> Create2",
            "-> GetChildren2",
            "<- Create2",
            "<- GetChildren2",
            "-> Delete",
            "<- Delete"
        ]
    );
}

async fn a_pipelined_create_that_is_lost_is_found(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let options = options().with_pipelined_listing();
    let mutex = InterProcessMutex::with_options(&client, &stage.path, options).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    for fault in [Fault::drop_reply(OpCode::Create2), Fault::drop_before(OpCode::Create2)] {
        stage.tap.inject(fault);
        let guard = mutex.acquire().await.unwrap();
        assert_eq!(mutex.participants().await.unwrap(), [guard.lock_path()]);
        guard.release().await.unwrap();
    }
    stage.children(&stage.path, 0).await;
}

/// CURATOR-498, twice in a row: a create is sent in two sessions, and neither reply arrives.
async fn a_node_of_an_earlier_session_is_not_taken_for_ours(stage: Stage) {
    let (client, tap) = stage.client("A").await;
    let mutex = mutex(&stage, &client);
    mutex.acquire().await.unwrap().release().await.unwrap();
    stage.tap.inject(Fault::drop_before(OpCode::Create2));
    stage.tap.inject(Fault::lose_reply(OpCode::GetChildren));
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await }
    });
    stage.tap.wait_for(DEADLINE, |r| r.is_request(OpCode::GetChildren)).await.unwrap();
    // The search hangs; now the session is replaced, and the next reply is lost as well.
    stage.tap.inject(Fault::drop_reply(OpCode::Create2));
    tap.kill_session(DEADLINE).await.unwrap();
    let guard = within_deadline("acquire", waiting).await.unwrap().unwrap();
    let stat = client.exists(guard.lock_path()).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, guard.session_id());
    assert_eq!(mutex.participants().await.unwrap(), [guard.lock_path()]);
    guard.release().await.unwrap();
    stage.children(&stage.path, 0).await;
}

/// The counter of a node's children ends: a server goes no further than 2147483647, or wraps, and two could hold.
#[tokio::test]
async fn at_the_end_of_the_servers_numbers_everybody_is_told() {
    let server = docent_testing::TestingServer::start().await.unwrap();
    let stage = Stage::on(server.connect_string(), None).await;
    let (a, _a) = stage.client("A").await;
    let mutex = mutex(&stage, &a);
    mutex.acquire().await.unwrap().release().await.unwrap();
    assert!(server.set_sequence_counter(&stage.path, i32::MAX - 1));
    let last = mutex.acquire().await.unwrap();
    assert!(last.lock_path().ends_with("lock-2147483646"));
    for _ in 0..2 {
        let error = within_deadline("an error", mutex.acquire()).await.unwrap_err();
        assert!(matches!(error, Error::SequenceExhausted { .. }), "{error}");
    }
    last.release().await.unwrap();
    let error = within_deadline("an error", mutex.acquire()).await.unwrap_err();
    assert!(matches!(error, Error::SequenceExhausted { .. }), "{error}");
    stage.children(&stage.path, 0).await;
}
