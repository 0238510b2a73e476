//! Rules that hold for every exclusive lock. Source: `TestInterProcessMutexBase`.

use super::*;

on_both_servers! {
    an_empty_lock_path_is_reaped
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
