//! The semaphore. Source: `TestInterProcessSemaphore`; N1 and N6 in `docs/CURATOR.md`.

use docent::{
    Client, ErrorKind, OpCode,
    locks::{InterProcessSemaphoreV2, LockGuard},
    shared::SharedCount,
};
use docent_testing::fault::{Action, Fault};

use crate::{
    Fixture, ms, options,
    support::{DEADLINE, eventually, within_deadline},
};

on_both_servers! {
    a_waiter_wakes_when_the_count_is_raised
    acquired_leases_stay_when_the_count_is_lowered
    a_closed_client_acquires_no_lease
    a_waiters_deleted_lease_node_is_created_again
    waiters_whose_mutex_node_is_deleted_do_not_wait_for_each_other
    a_quantity_of_0_is_refused
    children_that_are_no_lease_nodes_are_no_leases
    leases_lost_during_acquire_many_are_acquired_again
    a_lease_lost_during_the_release_of_its_mutex_is_acquired_again
    a_waiter_whose_session_is_killed_acquires_its_lease_in_the_next
    only_the_first_waiter_watches_the_leases
    the_lease_has_the_data
}

fn semaphore(fixture: &Fixture, client: &Client, leases: usize) -> InterProcessSemaphoreV2 {
    InterProcessSemaphoreV2::with_options(client, &fixture.path, leases, options()).unwrap()
}

/// testThreadedLeaseIncrease, CURATOR-75
async fn a_waiter_wakes_when_the_count_is_raised(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let count =
        SharedCount::start_with(&client, &format!("{}/count", fixture.path), 1, &options()).await;
    let count = count.unwrap();
    let semaphore =
        InterProcessSemaphoreV2::with_count_and_options(&client, &fixture.path, &count, options())
            .unwrap();
    let first = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    fixture.leases(2).await;
    assert!(!waiting.is_finished());
    count.set_count(2).await.unwrap();
    let second = within_deadline("the second", waiting).await.unwrap().unwrap();
    assert!(first.is_held() && second.is_held());
}

async fn acquired_leases_stay_when_the_count_is_lowered(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let count =
        SharedCount::start_with(&client, &format!("{}/count", fixture.path), 2, &options()).await;
    let count = count.unwrap();
    let semaphore =
        InterProcessSemaphoreV2::with_count_and_options(&client, &fixture.path, &count, options())
            .unwrap();
    let mut leases = semaphore.acquire_many(2).await.unwrap();
    count.set_count(1).await.unwrap();
    assert!(leases.iter().all(|lease| lease.is_held()));
    leases.pop().unwrap().release().await.unwrap();
    assert!(semaphore.acquire_timeout(ms(100)).await.unwrap().is_none());
    leases.pop().unwrap().release().await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

/// N6: Curator fails with a NullPointerException.
async fn a_closed_client_acquires_no_lease(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let semaphore = semaphore(&fixture, &client, 1);
    client.close().await.unwrap();
    assert_eq!(semaphore.acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    let error = semaphore.acquire_timeout(ms(10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

/// testNoOrphanedNodes, CURATOR-48
async fn a_waiters_deleted_lease_node_is_created_again(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let semaphore = semaphore(&fixture, &client, 1);
    let lease = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    let held = lease.path().rsplit('/').next().unwrap().to_owned();
    let leases = fixture.leases(2).await;
    let theirs = leases.iter().find(|name| **name != held).unwrap();
    client.delete(&format!("{}/leases/{theirs}", fixture.path), None).await.unwrap();
    let leases = crate::support::eventually("another lease", async || {
        let now = semaphore.participants().await.unwrap();
        (now.len() == 2 && !now[1].ends_with(theirs.as_str())).then_some(now)
    })
    .await;
    assert_eq!(leases[0], lease.path());
    lease.release().await.unwrap();
    within_deadline("the waiter", waiting).await.unwrap().unwrap().release().await.unwrap();
    fixture.leases(0).await;
    fixture.locks(0).await;
}

// Case (Found in docent itself): another client deleted the node by which a waiter of a semaphore held its mutex. The next
// waiter created its lease node too, and both waited for each other for ever, as in Curator.
async fn waiters_whose_mutex_node_is_deleted_do_not_wait_for_each_other(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let semaphore = semaphore(&fixture, &client, 1);
    let held = semaphore.acquire().await.unwrap();
    let acquire = || {
        let semaphore = semaphore.clone();
        tokio::spawn(async move { semaphore.acquire().await?.release().await })
    };
    let waiting = acquire();
    let before = fixture.leases(2).await;
    let (leases, locks) = (format!("{}/leases", fixture.path), format!("{}/locks", fixture.path));
    let nodes = client.get_children(&locks).await.unwrap();
    client.delete(&format!("{locks}/{}", nodes.iter().next().unwrap()), None).await.unwrap();
    let behind = acquire();
    eventually("the lease node behind", async || {
        let now = client.get_children(&leases).await.unwrap();
        now.iter().any(|name| !before.iter().any(|known| *known == name)).then_some(())
    })
    .await;
    held.release().await.unwrap();
    within_deadline("the first waiter", waiting).await.unwrap().unwrap();
    within_deadline("the waiter behind", behind).await.unwrap().unwrap();
}

/// Not `Unanswered`: the first lease was acquired, so a server has replied within the wait.
// Case (Found in docent itself): a timed acquire of several leases that had acquired one said that
// no server had answered.
#[tokio::test]
async fn a_timed_acquire_of_two_leases_that_acquires_one_times_out() {
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    let semaphore = semaphore(&fixture, &client, 2);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    // The lock node and the node of the first lease, then the lock node of the second one.
    fixture.tap.inject(Fault::lose_reply(OpCode::Create2).nth(3));
    assert!(semaphore.acquire_many_timeout(2, ms(1000)).await.unwrap().is_none());
}

async fn a_waiter_whose_session_is_killed_acquires_its_lease_in_the_next(fixture: Fixture) {
    let ((a, _a), (b, tap)) = (fixture.client("A").await, fixture.client("B").await);
    let lease = semaphore(&fixture, &a, 1).acquire().await.unwrap();
    let theirs = semaphore(&fixture, &b, 1);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    fixture.leases(2).await;
    tap.kill_session(DEADLINE).await.unwrap();
    fixture.leases(2).await;
    lease.release().await.unwrap();
    let lease = within_deadline("the waiter", waiting).await.unwrap().unwrap();
    assert_eq!(lease.session_id(), b.session().unwrap().session_id());
    lease.release().await.unwrap();
    fixture.leases(0).await;
    fixture.locks(0).await;
}

async fn only_the_first_waiter_watches_the_leases(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let lease = semaphore(&fixture, &a, 1).acquire().await.unwrap();
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let theirs = semaphore(&fixture, &b, 1);
            tokio::spawn(async move { theirs.acquire().await })
        })
        .collect();
    fixture.locks(5).await;
    fixture.leases(2).await;
    for waiter in waiting {
        waiter.abort();
    }
    drop(lease);
    fixture.locks(0).await;
    fixture.leases(0).await;
}

/// `setNodeData`
async fn the_lease_has_the_data(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let options = options().with_data("lease").with_default_data("lock");
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, &fixture.path, 1, options).unwrap();
    let lease = semaphore.acquire().await.unwrap();
    assert_eq!(client.get_data(lease.path()).await.unwrap().data, "lease");
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    let locks = fixture.locks(1).await;
    let lock = format!("{}/locks/{}", fixture.path, locks[0]);
    assert_eq!(client.get_data(&lock).await.unwrap().data, "lock");
    waiting.abort();
}

/// The session ends during the wait for the second lease: the first is lost, and acquired again.
async fn leases_lost_during_acquire_many_are_acquired_again(fixture: Fixture) {
    let ((a, tap), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    for timed in [false, true] {
        let theirs = semaphore(&fixture, &b, 2).acquire().await.unwrap();
        let ours = semaphore(&fixture, &a, 2);
        let waiting = tokio::spawn(async move {
            if timed {
                ours.acquire_many_timeout(2, DEADLINE).await.map(Option::unwrap)
            } else {
                ours.acquire_many(2).await
            }
        });
        fixture.leases(3).await;
        let first = a.session().unwrap();
        tap.kill_session(DEADLINE).await.unwrap();
        eventually("the loss", async || first.is_lost().then_some(())).await;
        theirs.release().await.unwrap();
        let leases = within_deadline("both", waiting).await.unwrap().unwrap();
        assert!(leases.iter().all(LockGuard::is_held), "a lease of a session that has ended");
        assert_eq!(leases.len(), 2);
        drop(leases);
        fixture.leases(0).await;
    }
}

/// The lease is acquired before its mutex is released, and the session ends during that release.
async fn a_lease_lost_during_the_release_of_its_mutex_is_acquired_again(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    for timed in [false, true] {
        let ours = semaphore(&fixture, &a, 1);
        fixture
            .tap
            .inject(Fault::new(Action::LoseReply, Some(OpCode::Delete)).below(&fixture.path));
        let waiting = tokio::spawn(async move {
            if timed {
                ours.acquire_timeout(DEADLINE).await.map(Option::unwrap)
            } else {
                ours.acquire().await
            }
        });
        // The mutex is deleted, and the reply is lost.
        fixture.leases(1).await;
        fixture.locks(0).await;
        tap.kill_session(DEADLINE).await.unwrap();
        let lease = within_deadline("a lease", waiting).await.unwrap().unwrap();
        assert!(lease.is_held(), "a lease of a session that has ended");
        lease.release().await.unwrap();
    }
}

/// Curator: IllegalArgumentException.
// Case (Found in docent itself): 0 leases were acquired at once, and so was a multi lock of no
// locks; a number of leases that no memory can hold panicked.
// Case (Found in docent itself): a semaphore with 0 leases was accepted, and each acquire waited
// for ever.
async fn a_quantity_of_0_is_refused(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let semaphore = semaphore(&fixture, &client, 1);
    let before = fixture.tap.len();
    let refused = ErrorKind::BadArguments;
    assert_eq!(semaphore.acquire_many(0).await.unwrap_err().kind(), refused);
    assert_eq!(semaphore.acquire_many_timeout(0, ms(10)).await.unwrap_err().kind(), refused);
    assert_eq!(fixture.tap.len(), before, "nothing was sent");
    let none = InterProcessSemaphoreV2::new(&client, &fixture.path, 0).unwrap_err();
    assert_eq!(none.kind(), refused);
    // A quantity larger than the memory waits without allocating for it.
    assert!(semaphore.acquire_many_timeout(usize::MAX, ms(10)).await.unwrap().is_none());
}

/// N7: names that contain that of a lease, or have no number.
// Case (Found in docent itself): a foreign child whose name contains that of a lock node counted as
// one: `release-x` was a lease, `block-0000000000` a contender.
async fn children_that_are_no_lease_nodes_are_no_leases(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let semaphore = semaphore(&fixture, &client, 1);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let observer = fixture.observer().await;
    for name in ["release-x", "lease-", "lease-x", "release-0000000000", "x-release-0000000001"] {
        let path = format!("{}/leases/{name}", fixture.path);
        observer.create(&path, b"", docent::CreateMode::Ephemeral).await.unwrap();
    }
    let lease = semaphore.acquire_timeout(DEADLINE).await.unwrap().expect("the only lease");
    assert_eq!(semaphore.participants().await.unwrap(), [lease.path()]);
    // A lease that another client created without protection counts.
    let unprotected = format!("{}/leases/lease-0000009999", fixture.path);
    lease.release().await.unwrap();
    observer.create(&unprotected, b"", docent::CreateMode::Ephemeral).await.unwrap();
    assert!(semaphore.acquire_timeout(ms(50)).await.unwrap().is_none());
    assert_eq!(semaphore.participants().await.unwrap(), [unprotected]);
    observer.close().await.unwrap();
}
