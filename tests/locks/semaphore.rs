//! Source: `TestInterProcessSemaphore`; N1, N6.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use docent::{
    Client, ErrorKind,
    protocol::OpCode,
    recipes::{locks::InterProcessSemaphoreV2, shared::SharedCount},
};
use docent_testing::fault::Fault;

use crate::{
    Stage, ms, no_retries, options,
    support::{DEADLINE, within_deadline},
};

on_both_servers! {
    a_lease_is_had_again_once_it_is_returned
    one_more_than_there_are_waits_for_a_return
    leases_are_released_in_chunks
    leases_are_released_one_at_a_time
    there_are_never_more_than_there_may_be
    a_waiter_wakes_when_the_count_is_raised
    leases_that_are_out_stay_out_when_the_count_is_lowered
    a_closed_client_returns_its_leases
    a_closed_client_gets_none
    a_semaphore_is_usable_after_an_outage
    a_lease_that_vanishes_under_its_waiter_is_put_down_again
    a_dropped_waiter_leaves_neither_lease_nor_lock
    participants_are_the_leases
    a_quantity_is_all_or_nothing
    a_lease_create_that_is_lost_twice_leaves_one_lease
    a_waiter_whose_session_is_killed_gets_its_lease_in_the_next
    the_first_in_the_queue_alone_watches_the_leases
    the_lease_has_the_data
}

fn semaphore(stage: &Stage, client: &Client, leases: usize) -> InterProcessSemaphoreV2 {
    InterProcessSemaphoreV2::with_options(client, &stage.path, leases, options()).unwrap()
}

impl Stage {
    async fn leases(&self, count: usize) -> Vec<String> {
        self.children(&format!("{}/leases", self.path), count).await
    }

    async fn locks(&self, count: usize) -> Vec<String> {
        self.children(&format!("{}/locks", self.path), count).await
    }
}

/// testSimple
async fn a_lease_is_had_again_once_it_is_returned(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore = semaphore(&stage, &client, 1);
    let lease = semaphore.acquire_timeout(DEADLINE).await.unwrap().unwrap();
    assert!(lease.is_held() && lease.fencing_token().await.unwrap() > 0);
    assert!(semaphore.acquire_timeout(ms(100)).await.unwrap().is_none());
    lease.release().await.unwrap();
    semaphore.acquire_timeout(DEADLINE).await.unwrap().unwrap().release().await.unwrap();
    stage.leases(0).await;
    stage.locks(0).await;
}

/// testSimple2
async fn one_more_than_there_are_waits_for_a_return(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore = semaphore(&stage, &client, 3);
    let mut leases = semaphore.acquire_many(3).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    stage.leases(4).await;
    leases.pop().unwrap().release().await.unwrap();
    let fourth = within_deadline("the fourth", waiting).await.unwrap().unwrap();
    drop((leases, fourth));
    stage.leases(0).await;
}

/// testReleaseInChunks
async fn leases_are_released_in_chunks(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore = semaphore(&stage, &client, 11);
    let mut leases = semaphore.acquire_many(11).await.unwrap();
    for chunk in [1, 2, 3, 5] {
        let waiting = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire_many(chunk).await }
        });
        stage.locks(1).await;
        for lease in leases.drain(..chunk) {
            lease.release().await.unwrap();
        }
        leases.extend(within_deadline("a chunk", waiting).await.unwrap().unwrap());
    }
    assert_eq!(leases.len(), 11);
}

/// testRelease1AtATime
async fn leases_are_released_one_at_a_time(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let out = Arc::<AtomicUsize>::default();
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let (semaphore, out) = (semaphore(&stage, &client, 5), out.clone());
            tokio::spawn(async move {
                let lease = semaphore.acquire().await.unwrap();
                let now = out.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::task::yield_now().await;
                out.fetch_sub(1, Ordering::SeqCst);
                lease.release().await.unwrap();
                now
            })
        })
        .collect();
    for task in tasks {
        assert!(within_deadline("a client", task).await.unwrap() <= 5);
    }
    stage.leases(0).await;
}

/// testThreads, testMaxPerSession
async fn there_are_never_more_than_there_may_be(stage: Stage) {
    let out = Arc::<AtomicUsize>::default();
    let mut tasks = Vec::new();
    // Two who want two of three could wait for each other for ever.
    for (number, quantity) in [1, 2, 1, 1].into_iter().enumerate() {
        let (client, tap) = stage.client(&format!("C{number}")).await;
        let (semaphore, out) = (semaphore(&stage, &client, 3), out.clone());
        tasks.push(tokio::spawn(async move {
            for round in 0..8 {
                let leases = semaphore.acquire_many(quantity).await.unwrap();
                let now = out.fetch_add(quantity, Ordering::SeqCst) + quantity;
                assert!(now <= 3, "{now} leases are out");
                if round % 4 == 2 {
                    tap.cut();
                }
                tokio::task::yield_now().await;
                out.fetch_sub(quantity, Ordering::SeqCst);
                drop(leases);
            }
        }));
    }
    for task in tasks {
        within_deadline("a client", task).await.unwrap();
    }
    stage.leases(0).await;
    stage.locks(0).await;
}

/// testThreadedLeaseIncrease, CURATOR-75
async fn a_waiter_wakes_when_the_count_is_raised(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let count =
        SharedCount::start_with(&client, &format!("{}/count", stage.path), 1, &options()).await;
    let count = count.unwrap();
    let semaphore =
        InterProcessSemaphoreV2::with_count_and_options(&client, &stage.path, &count, options())
            .unwrap();
    let first = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    stage.leases(2).await;
    assert!(!waiting.is_finished());
    count.set_count(2).await.unwrap();
    let second = within_deadline("the second", waiting).await.unwrap().unwrap();
    assert!(first.is_held() && second.is_held());
}

async fn leases_that_are_out_stay_out_when_the_count_is_lowered(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let count =
        SharedCount::start_with(&client, &format!("{}/count", stage.path), 2, &options()).await;
    let count = count.unwrap();
    let semaphore =
        InterProcessSemaphoreV2::with_count_and_options(&client, &stage.path, &count, options())
            .unwrap();
    let mut leases = semaphore.acquire_many(2).await.unwrap();
    count.set_count(1).await.unwrap();
    assert!(leases.iter().all(|lease| lease.is_held()));
    leases.pop().unwrap().release().await.unwrap();
    assert!(semaphore.acquire_timeout(ms(100)).await.unwrap().is_none());
    leases.pop().unwrap().release().await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

/// testClientClose
async fn a_closed_client_returns_its_leases(stage: Stage) {
    let ((a, _a), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let leases = semaphore(&stage, &a, 2).acquire_many(2).await.unwrap();
    let theirs = semaphore(&stage, &b, 2);
    let waiting = tokio::spawn(async move { theirs.acquire_many(2).await });
    stage.leases(3).await;
    a.close().await.unwrap();
    let got = within_deadline("the other", waiting).await.unwrap().unwrap();
    assert!(got.iter().all(|lease| lease.is_held()));
    assert!(!leases.iter().any(|lease| lease.is_held()));
}

/// N6: Curator fails with a NullPointerException.
async fn a_closed_client_gets_none(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore = semaphore(&stage, &client, 1);
    client.close().await.unwrap();
    assert_eq!(semaphore.acquire().await.unwrap_err().kind(), Some(ErrorKind::Closed));
    let error = semaphore.acquire_timeout(ms(10)).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed));
}

/// testAcquireAfterLostServer, CURATOR-335
async fn a_semaphore_is_usable_after_an_outage(stage: Stage) {
    let (client, tap) = stage.client("A").await;
    let semaphore = InterProcessSemaphoreV2::with_options(&client, &stage.path, 1, no_retries());
    let semaphore = semaphore.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    tap.refuse().await.unwrap();
    tap.cut();
    let _ = semaphore.acquire_timeout(ms(200)).await;
    tap.accept().await.unwrap();
    client.wait_until_connected(DEADLINE).await.unwrap();
    let lease = within_deadline("a lease", async {
        loop {
            if let Ok(Some(lease)) = semaphore.acquire_timeout(ms(1000)).await {
                return lease;
            }
        }
    })
    .await;
    lease.release().await.unwrap();
    stage.leases(0).await;
    stage.locks(0).await;
}

/// testNoOrphanedNodes, CURATOR-48
async fn a_lease_that_vanishes_under_its_waiter_is_put_down_again(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore = semaphore(&stage, &client, 1);
    let lease = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    let held = lease.lock_path().rsplit('/').next().unwrap().to_owned();
    let leases = stage.leases(2).await;
    let theirs = leases.iter().find(|name| **name != held).unwrap();
    client.delete(&format!("{}/leases/{theirs}", stage.path), None).await.unwrap();
    let leases = crate::support::eventually("another lease", async || {
        let now = semaphore.participants().await.unwrap();
        (now.len() == 2 && !now[1].ends_with(theirs.as_str())).then_some(now)
    })
    .await;
    assert_eq!(leases[0], lease.lock_path());
    lease.release().await.unwrap();
    within_deadline("the waiter", waiting).await.unwrap().unwrap().release().await.unwrap();
    stage.leases(0).await;
    stage.locks(0).await;
}

/// testInterruptAcquire, CURATOR-462, scene 36
async fn a_dropped_waiter_leaves_neither_lease_nor_lock(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore = semaphore(&stage, &client, 1);
    let lease = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    stage.leases(2).await;
    stage.locks(1).await;
    waiting.abort();
    stage.leases(1).await;
    stage.locks(0).await;
    assert!(lease.is_held());
}

/// testGetParticipantNodes
async fn participants_are_the_leases(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore = semaphore(&stage, &client, 3);
    assert_eq!(semaphore.participants().await.unwrap(), [""; 0]);
    let leases = semaphore.acquire_many(3).await.unwrap();
    let paths: Vec<_> = leases.iter().map(|lease| lease.lock_path().to_owned()).collect();
    assert_eq!(semaphore.participants().await.unwrap(), paths);
}

async fn a_quantity_is_all_or_nothing(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore = semaphore(&stage, &client, 3);
    let two = semaphore.acquire_many(2).await.unwrap();
    assert!(semaphore.acquire_many_timeout(2, ms(200)).await.unwrap().is_none());
    stage.leases(2).await;
    drop(two);
    assert_eq!(semaphore.acquire_many_timeout(3, DEADLINE).await.unwrap().unwrap().len(), 3);
}

/// N1, scene 47: with Curator, a lease is lost for the session's life.
async fn a_lease_create_that_is_lost_twice_leaves_one_lease(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore = semaphore(&stage, &client, 1);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let leases = format!("{}/leases", stage.path);
    stage.tap.inject(Fault::drop_before(OpCode::Create2).below(&leases));
    stage.tap.inject(Fault::drop_reply(OpCode::Create2).below(&leases).nth(2));
    let lease = semaphore.acquire().await.unwrap();
    assert_eq!(semaphore.participants().await.unwrap(), [lease.lock_path()]);
    lease.release().await.unwrap();
    stage.leases(0).await;
    stage.locks(0).await;
}

async fn a_waiter_whose_session_is_killed_gets_its_lease_in_the_next(stage: Stage) {
    let ((a, _a), (b, tap)) = (stage.client("A").await, stage.client("B").await);
    let lease = semaphore(&stage, &a, 1).acquire().await.unwrap();
    let theirs = semaphore(&stage, &b, 1);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    stage.leases(2).await;
    tap.kill_session(DEADLINE).await.unwrap();
    stage.leases(2).await;
    lease.release().await.unwrap();
    let got = within_deadline("the waiter", waiting).await.unwrap().unwrap();
    assert_eq!(got.session_id(), b.session().unwrap().session_id());
    got.release().await.unwrap();
    stage.leases(0).await;
    stage.locks(0).await;
}

async fn the_first_in_the_queue_alone_watches_the_leases(stage: Stage) {
    let ((a, _a), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let lease = semaphore(&stage, &a, 1).acquire().await.unwrap();
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let theirs = semaphore(&stage, &b, 1);
            tokio::spawn(async move { theirs.acquire().await })
        })
        .collect();
    stage.locks(5).await;
    stage.leases(2).await;
    for waiter in waiting {
        waiter.abort();
    }
    drop(lease);
    stage.locks(0).await;
    stage.leases(0).await;
}

/// `setNodeData`
async fn the_lease_has_the_data(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let options = options().with_data("lease").with_default_data("lock");
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, &stage.path, 1, options).unwrap();
    let lease = semaphore.acquire().await.unwrap();
    assert_eq!(client.get_data(lease.lock_path()).await.unwrap().data, "lease");
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    let locks = stage.locks(1).await;
    let lock = format!("{}/locks/{}", stage.path, locks[0]);
    assert_eq!(client.get_data(&lock).await.unwrap().data, "lock");
    waiting.abort();
}
