//! Released nodes are deleted, also when the client's queue is full or the server refuses the first delete.

use docent::config::WhenFull;
use docent_protocol::ErrorCode;

use super::*;
use crate::support::ensemble::serving_without_majority;

/// A client with a limit of 8 pending requests.
async fn limited(fixture: &Fixture, when_full: WhenFull) -> (Client, TapClient) {
    let limits = |config: Config| {
        config.with_when_full(when_full).with_max_requests(8).with_session_timeout(DEADLINE)
    };
    fixture.client_with("A", limits).await
}

/// Sends more requests than the limit.
fn fill(client: &Client) -> Vec<docent::client::Response<docent::Node>> {
    (0..32).map(|_| client.get_data("/")).collect()
}

/// Advances the clock by a time in which a background task could send something.
async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::sleep(time).await;
    tokio::time::resume();
}

/// A full queue refuses requests, but accepts those of a clean-up.
// Case (Found in docent itself): a lock that was given back while the request queue was full kept
// its node for the session's life: guard, release, waiter, lease, dropped create.
// Case (Found in docent itself): no test held these rules: a queue that is full by the default
// limits refuses no clean-up; a create waits for the end of the connection that refused create2; a
// given-up GUID is searched for once more.
#[tokio::test]
async fn a_full_queue_refuses_no_clean_up() {
    for when_full in [WhenFull::Fail, WhenFull::Wait] {
        let fixture = Fixture::embedded().await;
        let (client, tap) = limited(&fixture, when_full).await;
        let at = |name: &str| format!("{}/{name}", fixture.path);
        let mutex =
            |name| InterProcessMutex::with_options(&client, &at(name), no_retries()).unwrap();
        let semaphore =
            InterProcessSemaphoreV2::with_options(&client, &at("semaphore"), 2, no_retries());
        let semaphore = semaphore.unwrap();
        let mutexes = ["dropped", "released", "awaited", "created"].map(mutex);
        // Create the parents.
        for mutex in &mutexes {
            mutex.acquire().await.unwrap().release().await.unwrap();
        }
        semaphore.acquire().await.unwrap().release().await.unwrap();
        let dropped = mutexes[0].acquire().await.unwrap();
        let released = mutexes[1].acquire().await.unwrap();
        let awaited = mutexes[2].acquire().await.unwrap();
        let lease = semaphore.acquire().await.unwrap();
        let other = fixture.observer().await;
        let held = InterProcessMutex::new(&other, &at("held")).unwrap();
        let held = held.acquire().await.unwrap();
        let waiter = spawn_acquire(&mutex("held"));
        fixture.wait_for_reply("A", OpCode::GetData).await;
        has_no_request(&client).await;

        tap.stall();
        let mut created = Box::pin(mutexes[3].acquire());
        poll_once(created.as_mut());
        let replies = fill(&client);
        drop((dropped, lease, created));
        poll_once(released.release());
        waiter.abort();
        let awaited = tokio::spawn(awaited.release());
        tokio::task::yield_now().await;
        tap.resume();
        within_deadline("release", awaited).await.unwrap().unwrap();
        let mut refused = 0;
        for reply in replies {
            if let Err(error) = within_deadline("a reply", reply).await {
                assert_eq!(error.kind(), ErrorKind::TooManyRequests);
                refused += 1;
            }
        }
        assert_eq!(refused > 0, when_full == WhenFull::Fail);
        held.release().await.unwrap();
        for name in ["dropped", "released", "awaited", "created", "held"] {
            fixture.children(&at(name), 0).await;
        }
        for name in ["semaphore/leases", "semaphore/locks"] {
            fixture.children(&at(name), 0).await;
        }
    }
}

/// An overloaded server (3.7 and later) refuses requests without executing them.
#[tokio::test]
async fn a_throttled_clean_up_is_repeated() {
    let fixture = Fixture::with(server::Config::default()).await;
    let (client, tap) = fixture.client("A").await;
    let (server, mutex) = (fixture.testing_server(), mutex_without_retries(&fixture, &client));
    mutex.acquire().await.unwrap().release().await.unwrap();

    // Dropped: the delete is refused.
    let guard = mutex.acquire().await.unwrap();
    server.throttle(3);
    drop(guard);
    wait_for_delete_after(&fixture, &client, 3).await;

    // Released: the caller receives the error, and a background task deletes the node.
    let guard = mutex.acquire().await.unwrap();
    server.throttle(2);
    let released = guard.release().await;
    assert!(released.is_err(), "without retries");
    wait_for_delete_after(&fixture, &client, 5).await;

    // The reply of its create is lost, and the search for the node is refused.
    tap.refuse().await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    let error = within_deadline("acquire", mutex.acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    server.throttle(4);
    tap.accept().await.unwrap();
    wait_for_delete_after(&fixture, &client, 9).await;
}

/// The write before the search was refused, so earlier creates may not be settled (ZOOKEEPER-1675).
// Case (Found in docent itself): no test held these rules: a search is repeated when the write
// before it was refused before the majority saw it; the timeout of a multi lock is counted by the
// clock of its locks' client; the participants and the path of a semaphore mutex, and what locks
// show.
#[tokio::test]
async fn a_search_behind_a_throttled_write_is_repeated() {
    let fixture = Fixture::with(server::Config::default()).await;
    let (client, tap) = fixture.client("A").await;
    let (server, mutex) = (fixture.testing_server(), mutex_without_retries(&fixture, &client));
    mutex.acquire().await.unwrap().release().await.unwrap();
    tap.refuse().await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    let error = within_deadline("acquire", mutex.acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    let (before, mut records) = (fixture.tap.len(), fixture.tap.subscribe());
    // Refuses the write, but not the listing after it.
    server.throttle(1);
    tap.accept().await.unwrap();
    records.until(DEADLINE, |record| record.is_reply(OpCode::Delete)).await.unwrap();
    fixture.children(&fixture.path, 0).await;
    let trace = fixture.tap.trace().since(before);
    let searched = [OpCode::Delete, OpCode::GetChildren2];
    let sent = trace.iter().filter_map(|r| r.op().filter(|op| r.is_request(*op)));
    let sent: Vec<_> = sent.filter(|op| searched.contains(op)).collect();
    assert_eq!(sent, [&searched[..], &searched, &[OpCode::Delete]].concat());
}

/// Waits for a successful delete after `throttled` refusals.
async fn wait_for_delete_after(fixture: &Fixture, client: &Client, throttled: usize) {
    let mut refusals = 0;
    let deleted = |record: &Record| {
        let What::Reply { op, err, .. } = &record.what else { return false };
        refusals += usize::from(*err == ErrorCode::ThrottledOp);
        refusals == throttled && *op == Some(OpCode::Delete) && err.is_ok()
    };
    fixture.tap.wait_for(DEADLINE, deleted).await.unwrap();
    fixture.children(&fixture.path, 0).await;
    has_no_request(client).await;
}

/// A server without a quorum is read-only; the session and its locks still exist when the quorum is back.
// Case (Found in docent itself): any error but a broken connection ended a clean-up: a read-only or
// overloaded server, an ACL.
#[tokio::test]
async fn a_clean_up_outlasts_a_read_only_server() {
    let config = server::Config {
        servers: 3,
        read_only_mode_enabled: true,
        // Since 3.7 a read-only server accepts no session of the quorum.
        version: server::Version::V3_6,
        ..server::Config::default()
    };
    let cluster = TestingCluster::start_with(config).await.unwrap();
    let config = Config::new(&cluster.connect_string()).unwrap().with_read_only(true);
    let client = config.with_session_timeout(ms(20_000)).connect().await.unwrap();
    let lock = InterProcessReadWriteLock::with_options(&client, "/lock", no_retries()).unwrap();
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, "/leases", 1, no_retries()).unwrap();
    let me = Owner::new();
    let writing = lock.write_lock().acquire_as(&me).await.unwrap();
    let reading = lock.read_lock().acquire_as(&me).await.unwrap();
    let mutex = InterProcessMutex::with_options(&client, "/mutex", no_retries()).unwrap();
    let multi = InterProcessMultiLock::from_locks(vec![Arc::new(mutex)]).acquire().await.unwrap();
    let lease = semaphore.acquire().await.unwrap();
    let session = session_id(&client);

    cluster.stop(1);
    cluster.stop(2);
    reaches(&client, ConnectionState::ReadOnly).await;
    drop((writing, lease));
    for guard in [reading, multi] {
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::NotReadOnly);
    }
    has_no_request(&client).await;
    // No retries while the server is read-only.
    let before = client.metrics().requests;
    skip(ms(700)).await;
    assert_eq!(client.metrics().requests, before);

    cluster.restart(1).await.unwrap();
    cluster.restart(2).await.unwrap();
    for path in ["/lock", "/mutex", "/leases/leases"] {
        eventually("an empty lock", async || {
            client.get_children(path).await.ok()?.is_empty().then_some(())
        })
        .await;
    }
    assert_eq!(session_id(&client), session, "in the same session");
}

/// A delete that an ACL forbids may be allowed later, by added credentials.
#[tokio::test]
async fn a_forbidden_delete_is_repeated_until_it_is_allowed() {
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    let guard = mutex_without_retries(&fixture, &client).acquire().await.unwrap();
    operator.set_acl(&fixture.path, acl::READ_ACL_UNSAFE, None).await.unwrap();
    let mut records = fixture.tap.subscribe();
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
    for _ in 0..3 {
        records.until(DEADLINE, request("A", OpCode::Delete)).await.unwrap();
    }
    // The background task does not outlive the client.
    client.close().await.unwrap();
    let sent = client.metrics().requests;
    skip(ms(60_000)).await;
    assert_eq!(client.metrics().requests, sent);
}

/// A clean-up keeps the client alive until it has succeeded, but not beyond the session, whose end deletes the node.
#[tokio::test]
async fn an_impossible_clean_up_keeps_no_client_beyond_its_session() {
    let fixture = Fixture::embedded().await;
    let session = |config: Config| config.with_session_timeout(ms(2000));
    let (client, tap) = fixture.client_with("A", session).await;
    let mutex = mutex_without_retries(&fixture, &client);
    let guard = mutex.acquire().await.unwrap();
    tap.refuse().await.unwrap();
    tap.cut();
    drop((guard, mutex));
    let lease = client.session().unwrap();
    let weak = client.downgrade();
    drop(client);
    until("the end of the session", async || lease.is_lost()).await;
    until("the end of the client", async || weak.upgrade().is_none()).await;
}

/// A read-only server refuses every clean-up: it keeps the client only while the session that owns the node may live.
// Case (Found in docent itself): a clean-up on a read-only server kept its client for ever.
#[tokio::test]
async fn a_clean_up_on_a_read_only_server_keeps_no_client_beyond_its_session() {
    // The guard is dropped in the last session of the quorum, or in the session of the read-only server. The last
    // handle of the client is dropped at once, or while the clean-up waits for another server.
    for (is_late, is_waiting) in [(false, false), (true, false), (true, true)] {
        let (cluster, config) = serving_without_majority().await;
        let client = config.connect().await.unwrap();
        let mutex = InterProcessMutex::with_options(&client, "/lock", no_retries()).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let lease = client.session().unwrap();
        cluster.stop(1);
        cluster.stop(2);
        let read_only = async |is_lost: bool| {
            until("a read-only server", async || {
                let is_read_only = client.state().get() == Some(ConnectionState::ReadOnly);
                is_read_only && lease.is_lost() == is_lost
            })
            .await;
        };
        read_only(is_late).await;
        drop((guard, mutex));
        has_no_request(&client).await;
        if is_waiting {
            skip(ms(300)).await;
        }
        let weak = client.downgrade();
        drop(client);
        until("the end of the client", async || weak.upgrade().is_none()).await;
        assert!(is_late || lease.is_lost(), "the node may exist until the session has ended");
    }
}

/// The read after a write to a revocable lock node fails: it is repeated only while the guard exists.
// Case (Found in docent itself): a revocable lock whose node could not be read kept its client for
// ever, also when guard and client had gone.
#[tokio::test]
async fn a_revocable_lock_keeps_no_client_beyond_its_guard() {
    let fixture = Fixture::embedded().await;
    let session = |config: Config| config.with_session_timeout(ms(2000));
    let (client, tap) = fixture.client_with("A", session).await;
    let other = fixture.observer().await;
    let mutex = mutex_without_retries(&fixture, &client);
    mutex.make_revocable(|| {});
    let guard = mutex.acquire().await.unwrap();
    fixture.tap.inject(Fault::drop_before(OpCode::GetData).times(u32::MAX));
    other.set_data(guard.path(), b"hello", None).await.unwrap();
    let mut records = fixture.tap.subscribe();
    records.until(DEADLINE, request("A", OpCode::GetData)).await.unwrap();
    tap.refuse().await.unwrap();
    tap.cut();
    let weak = client.downgrade();
    drop((guard, mutex, client));
    until("the end of the client", async || weak.upgrade().is_none()).await;
}
