//! Rules of every exclusive lock. Source: `TestInterProcessMutexBase`.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use docent::{
    Acl, ErrorKind, Perms, acl,
    locks::{
        InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
        InterProcessSemaphoreMutex, InterProcessSemaphoreV2,
    },
};

use crate::{
    Fixture, options,
    support::{acquiring, each_lock::each_lock, eventually, within_deadline},
};

on_both_servers! {
    tasks_that_share_an_object_exclude_each_other
    an_empty_lock_path_is_reaped
}

/// testReentrantSingleLock, without re-entrancy, which only one kind has.
async fn tasks_that_share_an_object_exclude_each_other(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    for (kind, lock) in each_lock(&client, &fixture.path, &options()) {
        let inside = Arc::new(AtomicUsize::new(0));
        let tasks = (0..10).map(|_| {
            let (lock, inside) = (Arc::clone(&lock), Arc::clone(&inside));
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let others = inside.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
                others
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            assert_eq!(within_deadline(kind, task).await.unwrap(), 0, "{kind}");
        }
    }
}

/// testContainerCleanup
async fn an_empty_lock_path_is_reaped(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    for (_, lock) in each_lock(&client, &fixture.path, &options()) {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    fixture.children(&fixture.path, 0).await;
}

#[tokio::test]
async fn a_lock_is_shown_with_its_path() {
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    let path = &*fixture.path;
    let multi = InterProcessMultiLock::new(&client, &[path, "/other"]).unwrap();
    assert_eq!(format!("{multi:?}"), "InterProcessMultiLock { locks: 2, .. }");
    for (shown, name) in [
        (format!("{:?}", InterProcessMutex::new(&client, path)), "InterProcessMutex"),
        (
            format!("{:?}", InterProcessReadWriteLock::new(&client, path)),
            "InterProcessReadWriteLock",
        ),
        (
            format!("{:?}", InterProcessSemaphoreMutex::new(&client, path)),
            "InterProcessSemaphoreMutex",
        ),
        (
            format!("{:?}", InterProcessSemaphoreV2::new(&client, path, 2)),
            "InterProcessSemaphoreV2",
        ),
    ] {
        assert_eq!(shown, format!("Ok({name} {{ path: {path:?}, .. }})"));
    }
}

#[tokio::test]
async fn the_participants_of_a_semaphore_mutex_are_the_holder_and_the_first_waiter() {
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    let lock = InterProcessSemaphoreMutex::with_options(&client, &fixture.path, options()).unwrap();
    assert!(lock.participants().await.unwrap().is_empty());
    let first = lock.acquire().await.unwrap();
    assert_eq!(lock.participants().await.unwrap(), [first.path()]);
    let waiting = acquiring(&lock);
    let both = eventually("the waiter", async || {
        lock.participants().await.ok().filter(|participants| participants.len() == 2)
    })
    .await;
    assert_eq!(both[0], first.path());
    first.release().await.unwrap();
    let second = within_deadline("acquire", waiting).await.unwrap().unwrap();
    assert_eq!(lock.participants().await.unwrap(), [second.path()]);
    assert_eq!(both[1], second.path());
    second.release().await.unwrap();
    assert!(lock.participants().await.unwrap().is_empty());
    // A listing that is refused is an error, not an empty list.
    let leases = format!("{}/leases", fixture.path);
    let no_read = [Acl { perms: Perms::ADMIN, id: acl::OPEN_ACL_UNSAFE[0].id }];
    client.set_acl(&leases, &no_read, None).await.unwrap();
    assert_eq!(lock.participants().await.unwrap_err().kind(), ErrorKind::NoAuth);
}
