//! The parts of Curator's framework that its locks use: clean-ups, retries, parents, closing clients.
//!
//! Source: `TestFrameworkEdges`, `TestFailedDeleteManager`, `TestCreate`, `TestThreadLocalRetryLoop`,
//! `TestFramework`, `TestCleanState`.

use docent::locks::LockNode;

use super::*;

on_both_servers! {
    a_guaranteed_delete_continues_in_the_next_session
    forbidden_ancestors_are_not_requested
    closing_a_client_completes_every_acquire
    no_lock_leaves_a_watch_behind
}

/// Creates lock nodes that outlive their session.
#[derive(Debug)]
struct Persistent;

impl LockInternalsDriver for Persistent {
    fn creates_the_lock(&self, lock_name: &str) -> LockNode {
        LockNode { name: lock_name.to_owned(), mode: CreateMode::PersistentSequential }
    }
}

/// TestFailedDeleteManager: testBasic, testLostSession, testWithNamespaceAndLostSession.
async fn a_guaranteed_delete_continues_in_the_next_session(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let namespace = fixture.path.trim_start_matches('/');
    let plain = format!("{}/queue", fixture.path);
    for (path, options) in
        [(&*plain, no_retries()), ("/queue", no_retries().with_namespace(namespace))]
    {
        let mutex = InterProcessMutex::with_driver(&a, path, options, Persistent).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let before = fixture.tap.len();
        fixture.tap.inject(Fault::drop_before(OpCode::Delete));
        tap.refuse().await.unwrap();
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
        assert_eq!(fixture.children(&plain, 1).await.len(), 1, "not deleted yet");
        tap.kill_session(DEADLINE).await.unwrap();
        tap.accept().await.unwrap();
        fixture.children(&plain, 0).await;
        let mut records = fixture.tap.subscribe_from(before);
        records.until(DEADLINE, |r| r.is_reply(OpCode::Delete)).await.unwrap();
    }
}

/// testForbiddenAncestors, CURATOR-715: parents are searched upward, so no request is sent for those above an existing
/// one.
async fn forbidden_ancestors_are_not_requested(fixture: Fixture) {
    let owner = fixture.observer().await;
    owner.add_auth("digest", b"owner:secret").await.unwrap();
    let forbidden = [Acl::new(Perms::ALL, "auth", "")];
    let options = CreateOptions::new(CreateMode::Persistent).with_acl(&forbidden);
    owner.create(&parent(&fixture.path), b"", options).await.unwrap();
    owner.create(&fixture.path, b"", CreateMode::Persistent).await.unwrap();
    let (a, _a) = fixture.client("A").await;
    let path = format!("{}/x/lock", fixture.path);
    let mutex = InterProcessMutex::with_options(&a, &path, self::options()).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let is_parent = |r: &Record| r.path() == Some(&*parent(&fixture.path));
    assert!(!fixture.tap.trace().of("A").iter().any(is_parent), "a request for the ancestor");
    let error = a.get_children(&parent(&fixture.path)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
}

fn parent(path: &str) -> String {
    path.rsplit_once('/').unwrap().0.to_owned()
}

/// testCreatingParentsWithConcurrentClose and similar tests: a client that is closed after any number of polls
/// completes the acquire, and the end of its session deletes its nodes.
async fn closing_a_client_completes_every_acquire(fixture: Fixture) {
    for polls in 1.. {
        let (client, _tap) = fixture.client(&format!("C{polls}")).await;
        let path = format!("{}/{polls}", fixture.path);
        let mutex = InterProcessMutex::with_options(&client, &path, options()).unwrap();
        let mut acquire = pin!(mutex.acquire());
        let early = poll_at_most(polls, acquire.as_mut()).await;
        let closing = client.close();
        let finished = early.is_some();
        match early {
            Some(result) => assert!(!close_with(closing, result.unwrap()).await.is_held()),
            None => {
                let (result, closed) =
                    tokio::join!(within_deadline("the acquire", acquire), closing);
                closed.unwrap();
                // An acquire that completed before the close is a hold that the close has ended.
                match result {
                    Ok(guard) => assert!(!guard.is_held()),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
                }
            }
        }
        fixture.children(&path, 0).await;
        if finished {
            assert!(polls > 3, "only {polls} polls");
            return;
        }
    }
}

/// Waits for a close while `guard` is alive.
async fn close_with<T>(closing: impl Future<Output = Result<(), docent::Error>>, guard: T) -> T {
    within_deadline("close", closing).await.unwrap();
    guard
}

/// TestCleanState, which runs after each test of Curator: no watch is left in the client.
async fn no_lock_leaves_a_watch_behind(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    let revocable = format!("{}/revocable", fixture.path);
    let revocable = InterProcessMutex::with_options(&a, &revocable, options()).unwrap();
    revocable.make_revocable(|| {});
    let readers = format!("{}/readers", fixture.path);
    let pair = InterProcessReadWriteLock::with_options(&a, &readers, options()).unwrap();
    let mut locks = each_lock(&a, &fixture.path, &options());
    locks.push(("revocable", Arc::new(revocable)));
    locks.push(("reader", Arc::new(pair.read_lock().clone())));
    for (_, lock) in locks {
        let guard = lock.acquire().await.unwrap();
        // A waiter, a cancelled acquire, and one that times out.
        let [waits, cancelled] = [(); 2].map(|()| {
            let lock = Arc::clone(&lock);
            tokio::spawn(async move { lock.acquire().await })
        });
        let timed = lock.acquire_timeout(ms(2_000)).await.unwrap();
        cancelled.abort();
        guard.release().await.unwrap();
        drop(timed);
        if let Ok(guard) = cancelled.await {
            guard.unwrap().release().await.unwrap();
        }
        let guard = within_deadline("the waiter", waits).await.unwrap().unwrap();
        guard.release().await.unwrap();
        has_watches(&a, 0).await;
    }
}
