//! What the end of a session does to locks: one that both sides know of, and one that the client gave up and the
//! server still has (N2, N3).

use std::time::Duration;

use docent::{
    Client, Config, ConnectionState, ErrorKind,
    protocol::OpCode,
    recipes::{
        Error,
        locks::{InterProcessMutex, InterProcessReadWriteLock, LockOptions, Owner},
    },
    session::retry::RetryNTimes,
};
use docent_testing::{
    TestingServer,
    fault::Fault,
    server,
    tap::{Record, TapClient},
};

use crate::{
    Stage, ms, no_retries, options,
    support::{DEADLINE, eventually, within_deadline},
};

on_both_servers! {
    a_waiter_in_a_namespace_queues_again_in_its_next_session
    a_release_that_the_end_of_the_session_overtakes_is_one
    a_late_clean_up_finds_its_node_in_the_namespace
    a_create_that_is_not_answered_in_time_leaves_no_node
}

/// A server that ends no session by itself, so that a client can give up one that the server keeps.
async fn kept() -> (Stage, TestingServer) {
    let config = server::Config {
        // Sessions end at multiples of it.
        tick_time: Duration::from_secs(3600),
        min_session_timeout: Some(ms(1000)),
        ..Default::default()
    };
    let server = TestingServer::start_with(config).await.unwrap();
    (Stage::on(server.connect_string(), None).await, server)
}

/// A client that gives up soon.
async fn impatient(stage: &Stage, label: &str) -> (Client, TapClient) {
    let tap = stage.tap.client(label).await.unwrap();
    let config = Config::new(&tap.connect_string()).unwrap().with_session_timeout(ms(2000));
    (Client::connect_with(config.with_connection_timeout(DEADLINE)).await.unwrap(), tap)
}

/// Keeps the client off until it has given its session up by its own clock.
async fn gives_up_its_session(client: &Client, tap: &TapClient) {
    tap.refuse().await.unwrap();
    tap.cut();
    has_given_up(client, tap).await;
}

/// As [`gives_up_its_session`], where its port is closed already and something else cuts its connection.
async fn has_given_up(client: &Client, tap: &TapClient) {
    let mut state = client.state();
    let lost = state.wait_for(|state| *state == Some(ConnectionState::Lost));
    within_deadline("the loss", lost).await.unwrap();
    tap.accept().await.unwrap();
}

fn mutex(stage: &Stage, client: &Client) -> InterProcessMutex {
    InterProcessMutex::with_options(client, &stage.path, options()).unwrap()
}

/// N2, CURATOR-604: Curator takes the old node for its own, and two can hold.
#[tokio::test]
async fn a_waiter_does_not_adopt_the_node_of_its_dying_session() {
    let (stage, server) = kept().await;
    let (a, _a) = stage.client("A").await;
    let (b, tap) = impatient(&stage, "B").await;
    let holder = mutex(&stage, &a).acquire().await.unwrap();
    let theirs = mutex(&stage, &b);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    let sent = |r: &Record| &*r.client == "B" && r.is_reply(OpCode::GetData);
    stage.tap.wait_for(DEADLINE, sent).await.unwrap();
    let old_session = b.session().unwrap().session_id();
    let old = mutex(&stage, &a).participants().await.unwrap().remove(1);
    gives_up_its_session(&b, &tap).await;
    assert!(server.session_ids().contains(&old_session), "the server still has it");
    let new = eventually("a place at the end of the queue", async || {
        let queue = mutex(&stage, &a).participants().await.unwrap();
        queue.get(1).filter(|node| **node != old).cloned()
    })
    .await;
    holder.release().await.unwrap();
    let guard = within_deadline("acquire", waiting).await.unwrap().unwrap();
    assert_eq!(guard.lock_path(), new);
    assert_eq!(guard.session_id(), b.session().unwrap().session_id());
    assert_ne!(guard.session_id(), old_session);
    assert!(a.exists(&old).await.unwrap().is_none(), "deleted, though its session goes on");
}

/// CURATOR-498, N3: the search after a lost reply finds the node of the dying session, which is no longer ours.
/// It is deleted where it is; Curator looks for it in the namespace of the namespace.
#[tokio::test]
async fn a_create_does_not_adopt_the_node_of_its_dying_session() {
    for namespace in [None, Some("apps")] {
        let (stage, server) = kept().await;
        let (a, tap) = impatient(&stage, "A").await;
        let options =
            namespace.map_or_else(options, |namespace| options().with_namespace(namespace));
        let mutex = InterProcessMutex::with_options(&a, "/locks", options).unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
        let before = stage.tap.len();
        let old_session = a.session().unwrap().session_id();
        stage.tap.inject(Fault::drop_reply(OpCode::Create2));
        tap.refuse().await.unwrap();
        let waiting = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.acquire().await }
        });
        let mut follow = stage.tap.follow_from(before);
        follow.until(DEADLINE, |r| r.is_reply(OpCode::Create2)).await.unwrap();
        has_given_up(&a, &tap).await;
        let guard = within_deadline("acquire", waiting).await.unwrap().unwrap();
        assert_ne!(guard.session_id(), old_session);
        // The other node is gone, though its session is not.
        assert!(server.session_ids().contains(&old_session));
        assert_eq!(mutex.participants().await.unwrap(), [guard.lock_path()]);
        let stat = a.exists(guard.lock_path()).await.unwrap().unwrap();
        assert_eq!(stat.ephemeral_owner, guard.session_id());
        // It was not adopted and given up again: there is one more create, of the same GUID; and the delete is of
        // the node where it is, and not left to whoever looks at the queue later.
        let sent = stage.tap.trace().since(before);
        let creates: Vec<_> = sent.iter().filter(|r| r.is_request(OpCode::Create2)).collect();
        assert_eq!(creates.len(), 2);
        assert_eq!(creates[0].path(), creates[1].path());
        let deletes: Vec<_> = sent.iter().filter(|r| r.is_request(OpCode::Delete)).collect();
        let old = format!("{}0000000001", creates[0].path().unwrap());
        assert_eq!(deletes.iter().map(|r| r.path().unwrap()).collect::<Vec<_>>(), [old]);
    }
}

/// A downgraded reader's node has no number of the server's, so in a new session it would be at the old one's path:
/// a delete of the old one that comes late must not hit it.
#[tokio::test]
async fn a_late_delete_of_the_dying_sessions_node_does_not_hit_the_new_one() {
    let (stage, _server) = kept().await;
    let (a, tap) = impatient(&stage, "A").await;
    // No pause: the background, which has one, is later than the new create.
    let at_once = LockOptions::default().with_retry_policy(RetryNTimes::new(50, Duration::ZERO));
    let lock = InterProcessReadWriteLock::with_options(&a, &stage.path, at_once).unwrap();
    let me = Owner::new();
    let _writing = lock.write_lock().acquire_as(&me).await.unwrap();
    let before = stage.tap.len();
    stage.tap.inject(Fault::drop_reply(OpCode::Create2));
    tap.refuse().await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read_lock().acquire_as(&me).await }
    });
    let mut follow = stage.tap.follow_from(before);
    let create = follow.until(DEADLINE, |r| r.is_request(OpCode::Create2)).await.unwrap();
    let old = create.path().unwrap().to_owned();
    follow.until(DEADLINE, |r| r.is_reply(OpCode::Create2)).await.unwrap();
    stage.tap.inject(Fault::drop_before(OpCode::Delete));
    has_given_up(&a, &tap).await;
    let made_anew = |r: &Record| {
        r.is_request(OpCode::Create2) && r.path().is_some_and(|path| path.contains("__READ__"))
    };
    let create = follow.until(DEADLINE, made_anew).await.unwrap();
    assert_ne!(create.path(), Some(&*old), "a second node at the path of the first");
    // The write node of the old session is still there, and stands for nobody.
    let children = stage.children(&stage.path, 2).await;
    let write_node = children.iter().find(|name| name.contains("__WRIT__")).unwrap();
    a.delete(&format!("{}/{write_node}", stage.path), None).await.unwrap();
    let guard = within_deadline("the reader", waiting).await.unwrap().unwrap();
    assert!(a.exists(guard.lock_path()).await.unwrap().is_some());
    guard.release().await.unwrap();
}

/// As `a_waiter_whose_session_is_killed_queues_again`, where every path has something in front.
async fn a_waiter_in_a_namespace_queues_again_in_its_next_session(stage: Stage) {
    let ((a, _a), (b, tap)) = (stage.client("A").await, stage.client("B").await);
    let namespace = stage.path.trim_start_matches('/');
    let mutex = |client| {
        let options = options().with_namespace(namespace);
        InterProcessMutex::with_options(client, "/queue", options).unwrap()
    };
    let (ours, theirs) = (mutex(&a), mutex(&b));
    let holder = ours.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    let sent = |r: &Record| &*r.client == "B" && r.is_reply(OpCode::GetData);
    stage.tap.wait_for(DEADLINE, sent).await.unwrap();
    let queue = ours.participants().await.unwrap();
    tap.kill_session(DEADLINE).await.unwrap();
    eventually("another node of B's", async || {
        let now = ours.participants().await.unwrap();
        (now.len() == 2 && now[1] != queue[1]).then_some(())
    })
    .await;
    holder.release().await.unwrap();
    let guard = within_deadline("acquire", waiting).await.unwrap().unwrap();
    assert_eq!(guard.session_id(), b.session().unwrap().session_id());
    guard.release().await.unwrap();
    stage.children(&format!("{}/queue", stage.path), 0).await;
}

/// The delete is lost with the connection, and the session ends before the next: the node is gone all the same.
async fn a_release_that_the_end_of_the_session_overtakes_is_one(stage: Stage) {
    let ((a, tap), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let guard = mutex(&stage, &a).acquire().await.unwrap();
    let before = stage.tap.len();
    stage.tap.inject(Fault::drop_before(OpCode::Delete));
    tap.refuse().await.unwrap();
    let releasing = tokio::spawn(guard.release());
    let mut follow = stage.tap.follow_from(before);
    follow.until(DEADLINE, |r| r.is_request(OpCode::Delete)).await.unwrap();
    tap.kill_session(DEADLINE).await.unwrap();
    tap.accept().await.unwrap();
    within_deadline("release", releasing).await.unwrap().unwrap();
    mutex(&stage, &b).acquire().await.unwrap().release().await.unwrap();
}

/// N3 of the other clean-up: that of a create that failed for good.
async fn a_late_clean_up_finds_its_node_in_the_namespace(stage: Stage) {
    let (a, _a) = stage.client("A").await;
    let options = no_retries().with_namespace(stage.path.trim_start_matches('/'));
    let mutex = InterProcessMutex::with_options(&a, "/queue", options).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    stage.tap.inject(Fault::drop_reply(OpCode::Create2));
    let error = mutex.acquire().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::ConnectionLoss));
    stage.children(&format!("{}/queue", stage.path), 0).await;
}

/// N9: the last error is another than ConnectionLoss, and whether there is a node is not known. Curator leaves it.
async fn a_create_that_is_not_answered_in_time_leaves_no_node(stage: Stage) {
    let tap = stage.tap.client("A").await.unwrap();
    let config = Config::new(&tap.connect_string())
        .unwrap()
        .with_session_timeout(Duration::from_secs(20))
        .with_request_timeout(ms(2000));
    let a = Client::connect_with(config).await.unwrap();
    let mutex = InterProcessMutex::with_options(&a, &stage.path, no_retries()).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    // Not answered, and the connection stays.
    stage.tap.inject(Fault::lose_reply(OpCode::Create2));
    let error = mutex.acquire().await.unwrap_err();
    assert!(matches!(error, Error::Session(_)), "{error}");
    assert_eq!(error.kind(), Some(ErrorKind::OperationTimeout), "{error}");
    stage.children(&stage.path, 0).await;
}
