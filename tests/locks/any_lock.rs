//! Rules that hold for every exclusive lock. Source: `TestInterProcessMutexBase`.

use super::*;

#[tokio::test]
async fn a_lock_is_shown_with_its_path() {
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    let path = &*fixture.path;
    let multi = InterProcessMultiLock::new(&client, &[path, "/other"]).unwrap();
    assert_eq!(format!("{multi:?}"), "InterProcessMultiLock { locks: 2, .. }");
    let locks: [&dyn std::fmt::Debug; 4] = [
        &InterProcessMutex::new(&client, path),
        &InterProcessReadWriteLock::new(&client, path),
        &InterProcessSemaphoreMutex::new(&client, path),
        &InterProcessSemaphoreV2::new(&client, path, 2),
    ];
    let names = ["Mutex", "ReadWriteLock", "SemaphoreMutex", "SemaphoreV2"];
    for (lock, name) in locks.into_iter().zip(names) {
        assert_eq!(format!("{lock:?}"), format!("Ok(InterProcess{name} {{ path: {path:?}, .. }})"));
    }
}
