//! What Curator's framework does under its locks: clean-ups, retries, parents, ends of clients.
//!
//! Source: `TestFrameworkEdges`, `TestFailedDeleteManager`, `TestCreate`, `TestThreadLocalRetryLoop`,
//! `TestFramework`, `TestCleanState`.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use docent::{
    Acl, CreateMode, ErrorKind, Perms,
    protocol::OpCode,
    recipes::locks::{
        InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
        InterProcessSemaphoreMutex, LockInternalsDriver, LockNode, LockOptions,
    },
    session::retry::{RetryNTimes, RetryPolicy, Verdict},
};
use docent_testing::fault::Fault;
use docent_testing::tap::Record;

use crate::{
    Stage, ms, no_retries, options,
    support::{DEADLINE, eventually, within_deadline},
};

on_both_servers! {
    a_clean_up_goes_on_when_its_search_is_lost
    a_guaranteed_delete_goes_on_in_the_next_session
    a_release_of_a_node_that_is_gone_asks_once
    ancestors_that_nobody_may_touch_do_not_matter
    a_policy_of_n_retries_is_asked_n_plus_one_times
    a_client_that_closes_answers_every_acquire
    no_lock_leaves_a_watch_behind
}

/// testProtectedCreateNodeDeletion, with and without a namespace: the first search of the clean-up fails.
async fn a_clean_up_goes_on_when_its_search_is_lost(stage: Stage) {
    let (a, _a) = stage.client("A").await;
    let namespace = stage.path.trim_start_matches('/');
    let plain = format!("{}/queue", stage.path);
    for (path, options) in
        [(&*plain, no_retries()), ("/queue", no_retries().with_namespace(namespace))]
    {
        let mutex = InterProcessMutex::with_options(&a, path, options).unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
        stage.tap.inject(Fault::drop_reply(OpCode::Create2));
        stage.tap.inject(Fault::drop_before(OpCode::GetChildren2));
        let before = stage.tap.len();
        let error = mutex.acquire().await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::ConnectionLoss));
        stage.children(&plain, 0).await;
        let searches = stage.tap.trace().since(before);
        let searches = searches.iter().filter(|r| r.is_request(OpCode::GetChildren2)).count();
        assert_eq!(searches, 2, "one that was lost, and one more");
    }
}

/// A lock node that no session's end removes.
#[derive(Debug)]
struct Persistent;

impl LockInternalsDriver for Persistent {
    fn creates_the_lock(&self, lock_name: &str) -> LockNode {
        LockNode { name: lock_name.to_owned(), mode: CreateMode::PersistentSequential }
    }
}

/// TestFailedDeleteManager: testBasic, testLostSession, testWithNamespaceAndLostSession.
async fn a_guaranteed_delete_goes_on_in_the_next_session(stage: Stage) {
    let (a, tap) = stage.client("A").await;
    let namespace = stage.path.trim_start_matches('/');
    let plain = format!("{}/queue", stage.path);
    for (path, options) in
        [(&*plain, no_retries()), ("/queue", no_retries().with_namespace(namespace))]
    {
        let mutex = InterProcessMutex::with_driver(&a, path, options, Persistent).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let before = stage.tap.len();
        stage.tap.inject(Fault::drop_before(OpCode::Delete));
        tap.refuse().await.unwrap();
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::ConnectionLoss));
        assert_eq!(stage.children(&plain, 1).await.len(), 1, "still there");
        tap.kill_session(DEADLINE).await.unwrap();
        tap.accept().await.unwrap();
        stage.children(&plain, 0).await;
        let mut follow = stage.tap.follow_from(before);
        follow.until(DEADLINE, |r| r.is_reply(OpCode::Delete)).await.unwrap();
    }
}

/// testGuaranteedDeleteOnNonExistentNodeInForeground, CURATOR-42: NoNode is a success, and not tried again.
async fn a_release_of_a_node_that_is_gone_asks_once(stage: Stage) {
    let (a, _a) = stage.client("A").await;
    let mutex = InterProcessMutex::with_options(&a, &stage.path, options()).unwrap();
    let guard = mutex.acquire().await.unwrap();
    stage.observer().await.delete(guard.lock_path(), None).await.unwrap();
    guard.release().await.unwrap();
    // And in the background.
    let guard = mutex.acquire().await.unwrap();
    stage.observer().await.delete(guard.lock_path(), None).await.unwrap();
    drop(guard);
    eventually("no request left", async || (a.load().0 == 0).then_some(())).await;
    // Another cycle: what is tried again in the background would be by now, or come with it.
    mutex.acquire().await.unwrap().release().await.unwrap();
    let deletes = stage.tap.trace().iter().filter(|r| r.is_request(OpCode::Delete)).count();
    assert_eq!(deletes, 3);
}

/// testForbiddenAncestors, CURATOR-715: parents are looked for upward, so those above one that exists are left alone.
async fn ancestors_that_nobody_may_touch_do_not_matter(stage: Stage) {
    let owner = stage.observer().await;
    owner.add_auth("digest", b"owner:secret").await.unwrap();
    let forbidden = [Acl::new(Perms::ALL, "auth", "")];
    owner
        .create_with_acl(&parent(&stage.path), b"", CreateMode::Persistent, &forbidden)
        .await
        .unwrap();
    owner.create(&stage.path, b"", CreateMode::Persistent).await.unwrap();
    let (a, _a) = stage.client("A").await;
    let path = format!("{}/x/lock", stage.path);
    let mutex = InterProcessMutex::with_options(&a, &path, options()).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let asked = |r: &Record| r.path() == Some(&*parent(&stage.path));
    assert!(!stage.tap.trace().of("A").iter().any(asked), "it was not asked for");
    let error = a.get_children(&parent(&stage.path)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
}

fn parent(path: &str) -> String {
    path.rsplit_once('/').unwrap().0.to_owned()
}

/// How often it was asked.
#[derive(Debug, Clone)]
struct Counted(Arc<AtomicUsize>, RetryNTimes);

impl RetryPolicy for Counted {
    fn allow_retry(&self, retry_count: u32, elapsed: Duration) -> Verdict {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.allow_retry(retry_count, elapsed)
    }
}

/// TestThreadLocalRetryLoop, TestRetryLoop: N retries are N + 1 attempts, however loops are nested.
async fn a_policy_of_n_retries_is_asked_n_plus_one_times(stage: Stage) {
    let (a, _a) = stage.client("A").await;
    let mutex = InterProcessMutex::with_options(&a, &stage.path, options()).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let policy = Counted(Arc::clone(&asked), RetryNTimes::new(3, ms(1)));
    let options = LockOptions::default().with_retry_policy(policy);
    let mutex = InterProcessMutex::with_options(&a, &stage.path, options).unwrap();
    let before = stage.tap.len();
    stage.tap.inject(Fault::drop_before(OpCode::Create2).times(4));
    let error = mutex.acquire().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::ConnectionLoss));
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    let creates = stage.tap.trace().since(before);
    assert_eq!(creates.iter().filter(|r| r.is_request(OpCode::Create2)).count(), 4);
}

/// testCreatingParentsWithConcurrentClose and its kin: closed at every poll, the client answers who waits, and its
/// nodes go with its session.
async fn a_client_that_closes_answers_every_acquire(stage: Stage) {
    for polls in 1.. {
        let (client, _tap) = stage.client(&format!("C{polls}")).await;
        let path = format!("{}/{polls}", stage.path);
        let mutex = InterProcessMutex::with_options(&client, &path, options()).unwrap();
        let mut acquire = pin!(mutex.acquire());
        let mut left = polls;
        let early = std::future::poll_fn(|cx| {
            left -= 1;
            match acquire.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        let closing = client.close();
        let finished = early.is_some();
        match early {
            Some(result) => assert!(!within(closing, result.unwrap()).await.is_held()),
            None => {
                let (result, closed) =
                    tokio::join!(within_deadline("the acquire", acquire), closing);
                closed.unwrap();
                // What was answered before the close is a hold, which the close has ended.
                match result {
                    Ok(guard) => assert!(!guard.is_held()),
                    Err(error) => assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}"),
                }
            }
        }
        stage.children(&path, 0).await;
        if finished {
            assert!(polls > 3, "only {polls} polls");
            return;
        }
    }
}

/// Waits for a close, with a guard in hand.
async fn within<T>(closing: impl Future<Output = Result<(), docent::Error>>, hand: T) -> T {
    within_deadline("close", closing).await.unwrap();
    hand
}

/// TestCleanState: after each test there, no watch is left in the client.
async fn no_lock_leaves_a_watch_behind(stage: Stage) {
    let (a, _a) = stage.client("A").await;
    let at = |name: &str| format!("{}/{name}", stage.path);
    let mutex = |name| InterProcessMutex::with_options(&a, &at(name), options()).unwrap();
    let semaphore =
        |name: &str| InterProcessSemaphoreMutex::with_options(&a, &at(name), options()).unwrap();
    let pair = InterProcessReadWriteLock::with_options(&a, &at("pair"), options()).unwrap();
    let revocable = mutex("revocable");
    revocable.make_revocable(|| {});
    let multi: Vec<Arc<dyn InterProcessLock>> =
        vec![Arc::new(mutex("multi1")), Arc::new(semaphore("multi2"))];
    let locks: Vec<Arc<dyn InterProcessLock>> = vec![
        Arc::new(mutex("mutex")),
        Arc::new(revocable),
        Arc::new(semaphore("semaphore")),
        Arc::new(pair.read_lock().clone()),
        Arc::new(pair.write_lock().clone()),
        Arc::new(InterProcessMultiLock::of(multi)),
    ];
    for lock in locks {
        let guard = lock.acquire().await.unwrap();
        // One that waits, one that gives up, and one whose time is up.
        let [waits, gives_up] = [(); 2].map(|()| {
            let lock = Arc::clone(&lock);
            tokio::spawn(async move { lock.acquire().await })
        });
        let timed = lock.acquire_timeout(ms(50)).await.unwrap();
        gives_up.abort();
        guard.release().await.unwrap();
        drop(timed);
        if let Ok(guard) = gives_up.await {
            guard.unwrap().release().await.unwrap();
        }
        let guard = within_deadline("the waiter", waits).await.unwrap().unwrap();
        guard.release().await.unwrap();
        eventually("no request and no watch", async || (a.load() == (0, 0)).then_some(())).await;
    }
}
