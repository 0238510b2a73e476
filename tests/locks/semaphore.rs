//! The semaphore. Source: `TestInterProcessSemaphore`; N1 and N6 in `docs/CURATOR.md`.

use super::*;

on_both_servers! {
    a_waiter_wakes_when_the_count_is_raised
    acquired_leases_stay_when_the_count_is_lowered
    a_closed_client_acquires_no_lease
    a_quantity_of_0_is_refused
    only_the_first_waiter_watches_the_leases
    waiters_whose_mutex_node_is_deleted_do_not_wait_for_each_other
    a_waiter_makes_room_for_a_lease_node_behind_its_own
    a_waiter_whose_lease_node_is_deleted_is_granted_no_lease
}

/// A semaphore whose number of leases is a shared count.
async fn counted(
    fixture: &Fixture,
    client: &Client,
    count: i32,
) -> (InterProcessSemaphoreV2, SharedCount) {
    let path = format!("{}/count", fixture.path);
    let count = SharedCount::start_with(client, &path, count, &options()).await.unwrap();
    let semaphore =
        InterProcessSemaphoreV2::with_count_and_options(client, &fixture.path, &count, options());
    (semaphore.unwrap(), count)
}

/// testThreadedLeaseIncrease, CURATOR-75
async fn a_waiter_wakes_when_the_count_is_raised(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let (semaphore, count) = counted(&fixture, &client, 1).await;
    let first = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    fixture.leases(2).await;
    assert!(!waiting.is_finished());
    count.set_count(2).await.unwrap();
    let second = within_deadline("the second", waiting).await.unwrap().unwrap();
    assert!(first.is_held() && second.is_held());
}

async fn acquired_leases_stay_when_the_count_is_lowered(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let (semaphore, count) = counted(&fixture, &client, 2).await;
    let mut leases = semaphore.acquire_many(2).await.unwrap();
    count.set_count(1).await.unwrap();
    assert!(leases.iter().all(|lease| lease.is_held()));
    leases.pop().unwrap().release().await.unwrap();
    assert!(semaphore.acquire_timeout(ms(2_000)).await.unwrap().is_none());
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

/// Curator throws an IllegalArgumentException.
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
    // A number of leases that memory could not hold waits without allocating for them.
    assert!(semaphore.acquire_many_timeout(usize::MAX, ms(5_000)).await.unwrap().is_none());
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
    until("the lease node behind", async || {
        let now = client.get_children(&leases).await.unwrap();
        now.iter().any(|name| !before.iter().any(|known| *known == name))
    })
    .await;
    held.release().await.unwrap();
    within_deadline("the first waiter", waiting).await.unwrap().unwrap();
    within_deadline("the waiter behind", behind).await.unwrap().unwrap();
}

// Case (Found in docent itself): as before, but the waiter whose mutex node was deleted created its lease node late, behind that
// of the next one, which had the mutex. Both waited for each other for ever (seed 19046 of the simulator).
async fn a_waiter_makes_room_for_a_lease_node_behind_its_own(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let held = semaphore(&fixture, &b, 1).acquire().await.unwrap();
    let leases = format!("{}/leases", fixture.path);
    fixture.tap.inject(Fault::delay_request(OpCode::Create2, DEADLINE).of("A").below(&leases));
    let acquire = |client: &Client| {
        let semaphore = semaphore(&fixture, client, 1);
        tokio::spawn(async move { semaphore.acquire().await?.release().await })
    };
    let late = acquire(&a);
    let nodes = fixture.locks(1).await;
    b.delete(&format!("{}/locks/{}", fixture.path, nodes[0]), None).await.unwrap();
    let next = acquire(&b);
    fixture.leases(2).await;
    fixture.tap.end_delays();
    fixture.leases(3).await;
    held.release().await.unwrap();
    within_deadline("the waiter that came late", late).await.unwrap().unwrap();
    within_deadline("the waiter with the mutex", next).await.unwrap().unwrap();
}

/// The only node that is left is that of the holder, and one lease is allowed.
async fn a_waiter_whose_lease_node_is_deleted_is_granted_no_lease(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let semaphore = semaphore(&fixture, &client, 1);
    let held = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    let is_waiter = |name: &&String| !held.path().ends_with(&***name);
    let nodes = fixture.leases(2).await;
    let deleted = nodes.iter().find(is_waiter).unwrap();
    client.delete(&format!("{}/leases/{deleted}", fixture.path), None).await.unwrap();
    let another = eventually("another lease node, or a lease", async || {
        let nodes = client.get_children(&format!("{}/leases", fixture.path)).await.unwrap();
        let another = nodes.len() == 2 && nodes.iter().all(|name| name != deleted);
        (another || waiting.is_finished()).then_some(another)
    });
    assert!(another.await, "a lease without a node");
    held.release().await.unwrap();
    let lease = within_deadline("the lease", waiting).await.unwrap().unwrap();
    assert!(client.exists(lease.path()).await.unwrap().is_some());
}
