//! Durations of acquires and pauses. The tests use tokio's paused clock, which advances only when all tasks are idle,
//! so the speed of the machine does not matter.

use docent::{LeaderSelector, locks::StrictMutex};
use tokio::time::{Instant, sleep};

use super::*;
use crate::support::in_process::{self, server_and_client};

/// Tolerance for replies, and for timers, which are up to a millisecond late.
const TOLERANCE: Duration = ms(50);

#[tokio::test(start_paused = true)]
async fn a_timed_acquire_returns_at_its_timeout() {
    let (_server, client) = server_and_client().await;
    let mutex = InterProcessMutex::with_options(&client, "/lock", options()).unwrap();
    let _held = mutex.acquire().await.unwrap();
    for wait in [0, 300, 10_000].map(ms) {
        let began = Instant::now();
        assert!(mutex.acquire_timeout(wait).await.unwrap().is_none());
        let took = began.elapsed();
        assert!(took >= wait && took < wait + TOLERANCE, "{took:?} of {wait:?}");
    }
}

/// N8: in Curator, the acquire takes as long as the retries, and fails.
// Case (Found in docent itself): a timed acquire returned `None`, "busy", when no server had said
// anything.
#[tokio::test(start_paused = true)]
async fn a_timed_acquire_without_a_server_takes_at_most_one_second_more() {
    let (server, client) = server_and_client().await;
    let mutex = InterProcessMutex::with_options(&client, "/lock", options()).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    server.stop();
    let pair = InterProcessReadWriteLock::with_options(&client, "/pair", options()).unwrap();
    let semaphore = InterProcessSemaphoreV2::with_options(&client, "/one", 1, options()).unwrap();
    let strict = StrictMutex::with_options(&client, "/strict", options()).unwrap();
    let mut locks = each_lock(&client, "", &options());
    locks.push(("reader", Arc::new(pair.read_lock().clone())));
    locks.push(("strict", Arc::new(strict)));
    let is_unanswered = |what: &str, error: Error| {
        assert_eq!(error.kind(), ErrorKind::Unanswered, "{what}: {error}");
        assert!(error.to_string().contains("no session with in-process:2181; last: "), "{error}");
    };
    for wait in [0, 300, 10_000].map(ms) {
        let began = Instant::now();
        is_unanswered("mutex", mutex.acquire_timeout(wait).await.unwrap_err());
        let took = began.elapsed();
        assert!(took < wait + ms(1000) + TOLERANCE, "{took:?} of {wait:?}");
        for (what, lock) in &locks {
            is_unanswered(what, lock.acquire_timeout(wait).await.unwrap_err());
            is_unanswered(what, lock.acquire_as_timeout(&Owner::new(), wait).await.unwrap_err());
        }
        is_unanswered("lease", semaphore.acquire_timeout(wait).await.unwrap_err());
        let many = semaphore.acquire_many_timeout(1, wait).await;
        is_unanswered("leases", many.unwrap_err());
    }
    // A second acquire of the owner also waits for a server.
    let owner = Owner::new();
    let (first, second) =
        tokio::join!(mutex.acquire_as(&owner), mutex.acquire_as_timeout(&owner, ms(300)));
    assert!(first.is_err());
    is_unanswered("owner", second.unwrap_err());
}

/// A connection alone is not a reply. A waiter that saw another holder before the outage times out instead.
#[tokio::test(start_paused = true)]
async fn a_timed_acquire_at_a_silent_server_is_unanswered() {
    let (server, client) = server_and_client().await;
    let mutex = InterProcessMutex::with_options(&client, "/lock", options()).unwrap();
    let rival = InterProcessMutex::with_options(&client, "/lock", options()).unwrap();
    let owner = Owner::new();
    let guard = mutex.acquire_as(&owner).await.unwrap();
    // With a connection, an acquire behind another one of its owner times out, too.
    let other = Owner::new();
    let (first, second) = tokio::join!(
        rival.acquire_as_timeout(&other, ms(300)),
        rival.acquire_as_timeout(&other, ms(100)),
    );
    assert!(first.unwrap().is_none() && second.unwrap().is_none());
    let waiting = async { rival.acquire_timeout(ms(3000)).await };
    let stall = async {
        sleep(ms(100)).await;
        server.stall();
        let unheard = rival.acquire_timeout(ms(300)).await.unwrap_err();
        assert_eq!(unheard.kind(), ErrorKind::Unanswered, "{unheard}");
        assert!(unheard.to_string().contains("no reply yet"), "{unheard}");
        let again = mutex.acquire_as_timeout(&owner, ms(300)).await.unwrap();
        assert!(again.is_some(), "sends nothing");
    };
    let (waited, ()) = tokio::join!(waiting, stall);
    assert!(waited.unwrap().is_none(), "behind the holder");
    drop(guard);
}

/// Another process deletes each node of a recipe: the next one is created after a pause.
// Case (Found in docent itself): a lock, a lease and a term whose node a process deletes in a loop
// were created as fast as the network is.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_deleted_in_a_loop_are_created_with_pauses() {
    let (_server, client) = server_and_client().await;
    let mutex = InterProcessMutex::with_options(&client, "/mutex", options()).unwrap();
    let semaphore = InterProcessSemaphoreV2::with_options(&client, "/one", 1, options()).unwrap();
    let one = InterProcessSemaphoreMutex::with_options(&client, "/only", options()).unwrap();
    let locks: [(&str, &dyn InterProcessLock); 2] = [("mutex", &mutex), ("semaphore mutex", &one)];
    // No pause, then 100, 200, 400 and 800 ms.
    let (losses, pauses) = (6, ms(1500));
    let check = |what: &str, took: Duration| {
        assert!(took >= pauses && took < pauses + 2 * TOLERANCE, "{what}: {took:?}");
    };
    let lose = async |guard: LockGuard| {
        let lost = guard.cancellation_token();
        client.delete(guard.path(), None).await.unwrap();
        lost.cancelled().await;
    };
    for (what, lock) in locks {
        let began = Instant::now();
        for _ in 0..losses {
            lose(lock.acquire().await.unwrap()).await;
        }
        check(what, began.elapsed());
        let began = Instant::now();
        let free = lock.acquire_timeout(Duration::ZERO).await.unwrap();
        assert!(free.is_some() && began.elapsed() < TOLERANCE, "{what}: no pause in a timed one");
    }
    let began = Instant::now();
    for _ in 0..losses {
        lose(semaphore.acquire().await.unwrap()).await;
    }
    check("semaphore", began.elapsed());
    let selector = LeaderSelector::with_options(&client, "/selector", "A", options()).unwrap();
    let (began, mut terms) = (Instant::now(), 0);
    let ended = selector.run_requeued(|leadership: docent::Leadership| {
        terms += 1;
        let (client, is_last) = (client.clone(), terms == losses);
        async move {
            if is_last {
                return std::ops::ControlFlow::Break(());
            }
            let lost = leadership.cancellation_token();
            client.delete(leadership.path(), None).await.unwrap();
            lost.cancelled().await;
            std::future::pending().await
        }
    });
    ended.await.unwrap();
    check("selector", began.elapsed());
}

/// A lease is lost by its deletion. The later drop of its guard is not another loss.
// Case (Found in docent itself): leases that one deletion took counted as many losses if their
// guards were dropped one after the other, and the next create waited for seconds.
#[tokio::test(start_paused = true)]
async fn leases_deleted_together_count_as_one_loss() {
    let (_server, client) = server_and_client().await;
    let semaphore = InterProcessSemaphoreV2::with_options(&client, "/eight", 8, options()).unwrap();
    let leases = semaphore.acquire_many(8).await.unwrap();
    let lost: Vec<_> = leases.iter().map(|lease| lease.cancellation_token()).collect();
    for lease in &leases {
        client.delete(lease.path(), None).await.unwrap();
    }
    for token in lost {
        token.cancelled().await;
    }
    for lease in leases {
        sleep(ms(500)).await;
        drop(lease);
    }
    let began = Instant::now();
    let _lease = semaphore.acquire().await.unwrap();
    assert!(began.elapsed() < TOLERANCE, "{:?}", began.elapsed());
}

/// A multi lock measures its timeout with the client's clock, too.
#[tokio::test(start_paused = true)]
async fn every_lock_has_the_clock_of_its_client() {
    let (_server, client) = server_and_client().await;
    for (kind, lock) in each_lock(&client, "", &options()) {
        let began = lock.clock().now();
        sleep(ms(60_000)).await;
        assert!(lock.clock().now() >= began + ms(60_000), "{kind}");
    }
}

/// N5, for leases.
#[tokio::test(start_paused = true)]
async fn the_timeout_of_acquire_many_covers_all_leases() {
    let (_server, client) = server_and_client().await;
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, "/semaphore", 2, options()).unwrap();
    let mut leases = semaphore.acquire_many(2).await.unwrap();
    let began = Instant::now();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_many_timeout(2, ms(3000)).await }
    });
    sleep(ms(2500)).await;
    leases.remove(0).release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_none());
    let took = began.elapsed();
    assert!(took >= ms(3000) && took < ms(3000) + TOLERANCE, "{took:?}");
    // The one lease that the call acquired was released.
    assert_eq!(semaphore.participants().await.unwrap().len(), 1);
}

/// N5, for the locks of a multi lock.
#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_multi_lock_covers_all_locks() {
    let (_server, client) = server_and_client().await;
    let part = |path| InterProcessMutex::with_options(&client, path, options()).unwrap();
    let first = part("/first").acquire().await.unwrap();
    let _second = part("/second").acquire().await.unwrap();
    let multi =
        InterProcessMultiLock::with_options(&client, &["/first", "/second"], &options()).unwrap();
    let began = Instant::now();
    let waiting = tokio::spawn(async move { multi.acquire_timeout(ms(3000)).await });
    sleep(ms(2500)).await;
    first.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_none());
    let took = began.elapsed();
    assert!(took >= ms(3000) && took < ms(3000) + TOLERANCE, "{took:?}");
}

/// The node of a waiter is deleted, and its policy pauses for longer than its timeout before it joins the queue again.
#[tokio::test(start_paused = true)]
async fn a_pause_of_a_timed_acquire_ends_with_its_grace() {
    let (_server, client) = server_and_client().await;
    let options = LockOptions::default().with_retry_policy(RetryNTimes::new(1, ms(600_000)));
    let mutex = InterProcessMutex::with_options(&client, "/lock", options).unwrap();
    let held = mutex.acquire().await.unwrap();
    let began = Instant::now();
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire_timeout(ms(3000)).await }
    });
    sleep(ms(1000)).await;
    let waiter = mutex.participants().await.unwrap().pop().unwrap();
    assert_ne!(waiter, held.path());
    client.delete(&waiter, None).await.unwrap();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_none());
    let took = began.elapsed();
    assert!(took < ms(4000) + TOLERANCE, "{took:?}");
}

/// The outage begins during the wait, so there are nodes and locks to release. A silent server delays a call longer
/// than one that refuses connections.
// Case (Found in docent itself): a timed acquire of several locks or leases gave them back one
// after the other in an outage, with all retries; of one lock, each thing that it gave back took a
// second more.
#[tokio::test(start_paused = true)]
async fn a_timed_acquire_ends_in_time_when_an_outage_begins_during_it() {
    const WAIT: Duration = ms(1000);
    for silent in [false, true] {
        let (server, client) = server_and_client().await;
        let locks = || each_lock(&client, "", &options());
        // The multi lock waits for its second part, and has to release the first one.
        let part = InterProcessSemaphoreMutex::with_options(&client, "/multi2", options()).unwrap();
        let semaphore =
            InterProcessSemaphoreV2::with_options(&client, "/four", 4, options()).unwrap();
        let mut held = semaphore.acquire_many(2).await.unwrap();
        held.push(part.acquire().await.unwrap());
        for (_, lock) in &locks()[..3] {
            held.push(lock.acquire().await.unwrap());
        }
        let began = Instant::now();
        let mut waiting = Vec::new();
        for (kind, lock) in locks() {
            let timed_out = async move { lock.acquire_timeout(WAIT).await.unwrap().is_none() };
            waiting.push((kind, tokio::spawn(timed_out)));
        }
        let leases =
            async move { semaphore.acquire_many_timeout(4, WAIT).await.unwrap().is_none() };
        waiting.push(("leases", tokio::spawn(leases)));
        sleep(WAIT / 2).await;
        if silent {
            server.stall();
        } else {
            server.stop();
        }
        for (kind, timed_out) in waiting {
            assert!(timed_out.await.unwrap(), "{kind}");
            let took = began.elapsed();
            assert!(took < WAIT + ms(1000) + TOLERANCE, "{kind}, silent: {silent}: {took:?}");
        }
    }
}

/// A timeout of `Duration::MAX` does not overflow, and is no limit.
// Case (Found in docent itself): `acquire_timeout(Duration::MAX)` of a multi lock panicked.
#[tokio::test(start_paused = true)]
async fn the_longest_timeout_never_elapses() {
    let (_server, client) = server_and_client().await;
    client.wait_until_connected(Duration::MAX).await.unwrap();
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, "/semaphore", 2, options()).unwrap();
    for (_, lock) in each_lock(&client, "", &options()) {
        let owner = Owner::new();
        let first = lock.acquire_timeout(Duration::MAX).await.unwrap().unwrap();
        let next = tokio::spawn({
            let lock = Arc::clone(&lock);
            async move { lock.acquire_as_timeout(&owner, Duration::MAX).await }
        });
        sleep(ms(60_000)).await;
        assert!(!next.is_finished());
        first.release().await.unwrap();
        next.await.unwrap().unwrap().unwrap().release().await.unwrap();
    }
    let leases = semaphore.acquire_many_timeout(2, Duration::MAX).await.unwrap().unwrap();
    assert_eq!(leases.len(), 2);
    // A policy with a pause of `Duration::MAX`.
    let options = LockOptions::default().with_retry_policy(RetryNTimes::new(3, Duration::MAX));
    let mutex = InterProcessMutex::with_options(&client, "/patient", options).unwrap();
    assert!(mutex.acquire_timeout(ms(10)).await.unwrap().is_some());
}

/// The read after a write to the lock node fails more often than the policy allows: the holder is still revocable.
// Case (Found in docent itself): a revocable holder was revocable no more after one read that the
// retry policy did not repeat.
#[tokio::test(start_paused = true)]
async fn a_holder_stays_revocable_when_its_reads_fail() {
    for outage in [false, true] {
        let (server, client) = server_and_client().await;
        let mutex = InterProcessMutex::with_options(&client, "/lock", no_retries()).unwrap();
        let (revoke, mut revocations) = tokio::sync::mpsc::unbounded_channel();
        mutex.make_revocable(move || revoke.send(()).unwrap());
        let guard = mutex.acquire().await.unwrap();
        let other = in_process::config(&server).connect().await.unwrap();
        let policy = RetryNTimes::new(100, ms(100));
        for round in 0..3 {
            // Not the revocation message, so the listener only renews the watch, which fails.
            let before = server.machine(|machine, _| machine.last_zxid());
            let write = other.set_data(guard.path(), b"other", None);
            // Runs between the write and the read after it. A spawned task is scheduled with the others; the test's own
            // future and `yield_now` would run only when they are idle.
            let (server, session) = (Arc::clone(&server), guard.session_id());
            let fail = std::future::poll_fn(move |cx| {
                if server.machine(|machine, _| machine.last_zxid()) == before {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if outage {
                    assert_eq!(server.cut_session(session), 1);
                } else {
                    server.throttle(3);
                }
                Poll::Ready(())
            });
            tokio::spawn(fail).await.unwrap();
            write.await.unwrap();
            sleep(ms(10_000)).await;
            Revoker::attempt_revoke(&other, &policy, guard.path()).await.unwrap();
            let revoked = tokio::time::timeout(ms(60_000), revocations.recv()).await;
            assert!(revoked.is_ok(), "round {round}, outage: {outage}: no longer revocable");
        }
        guard.release().await.unwrap();
        // The deletion of the node ends the listener and its watch.
        sleep(ms(10_000)).await;
        assert_eq!(pending_and_watches(&client), (0, 0));
    }
}

/// CURATOR-106: with a policy that does not pause, Curator's background would spin.
#[tokio::test(start_paused = true)]
async fn a_guaranteed_delete_pauses_between_two_attempts() {
    let (server, client) = server_and_client().await;
    let mutex = InterProcessMutex::with_options(&client, "/lock", no_retries()).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let path = guard.path().to_owned();
    // Refuses the next five requests, without delay.
    server.throttle(5);
    drop(guard);
    sleep(ms(1000)).await;
    let error = client.exists(&path).await.unwrap_err();
    // Four attempts within a second: pauses of 100, 200, 400 ms.
    assert_eq!(error.kind(), ErrorKind::ThrottledOp);
    sleep(ms(2000)).await;
    assert!(client.exists(&path).await.unwrap().is_none());
}

/// A missing parent has no children, so the search for the nodes of an abandoned create ends.
#[tokio::test(start_paused = true)]
async fn a_clean_up_below_a_missing_parent_ends() {
    let (_server, client) = server_and_client().await;
    let before = client.metrics().requests;
    let options = protected(CreateMode::Persistent);
    poll_once(create_protected(&client, "/missing/item", b"", options));
    sleep(ms(600_000)).await;
    assert_eq!(client.metrics().requests - before, 3, "create2, sync and getChildren2");
    assert_eq!(client.metrics().pending, 0);
}
