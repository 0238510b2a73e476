//! Locks and guards, from several threads.

use docent::{
    LockOptions,
    blocking::{
        InterProcessMultiLock, InterProcessReadWriteLock, InterProcessSemaphoreMutex, LockGuard,
        StrictMutex,
    },
};
use std::sync::Arc;

use super::*;

blocking_on_both_servers! {
    a_guard_is_released_and_dropped_on_other_threads
    a_lost_lock_wakes_the_thread_that_waits_for_it
    every_lock_is_acquired_and_released
    a_strict_hold_is_renewed_while_only_its_guard_is_left
}

// Case (Programs without async): a guard is released or dropped on another thread.
fn a_guard_is_released_and_dropped_on_other_threads(server: Server) {
    fn is_send<T: Send + Sync + 'static>() {}
    is_send::<LockGuard>();
    is_send::<InterProcessMutex>();
    let client = server.client();
    let mutex = InterProcessMutex::new(&client, &server.path("mutex")).unwrap();
    let other = InterProcessMutex::new(&server.client(), mutex.path()).unwrap();
    for drops in [false, true] {
        let guard = mutex.acquire().unwrap();
        assert!(mutex.is_acquired_in_this_process());
        assert!(other.acquire_timeout(SHORT).unwrap().is_none());
        thread::spawn(move || if drops { drop(guard) } else { guard.release().unwrap() })
            .join()
            .unwrap();
        let guard = other.acquire_timeout(DEADLINE).unwrap().expect("the released lock");
        guard.release().unwrap();
    }
    // The client of a guard may be dropped before it.
    let guard = other.acquire().unwrap();
    drop((other, client));
    assert!(guard.is_held());
    drop(guard);
    mutex.acquire_timeout(DEADLINE).unwrap().expect("the dropped lock").release().unwrap();
}

fn a_lost_lock_wakes_the_thread_that_waits_for_it(server: Server) {
    let client = server.client();
    let mutex = InterProcessMutex::new(&client, &server.path("mutex")).unwrap();
    let guard = Arc::new(mutex.acquire().unwrap());
    assert!(!guard.lost_timeout(SHORT).unwrap());
    let token = guard.cancellation_token();
    let waiting = thread::spawn({
        let guard = Arc::clone(&guard);
        move || guard.lost()
    });
    let path = server.path("written");
    let write = || {
        wait(async || guard.guarded()?.create(&path, b"", CreateMode::Persistent).commit().await)
    };
    write().unwrap();
    server.client().delete(guard.path(), None).unwrap();
    waiting.join().unwrap().unwrap();
    assert!(guard.lost_timeout(DEADLINE).unwrap() && !guard.is_held());
    until_blocking("the token", || token.is_cancelled());
    assert_eq!(write().unwrap_err().kind(), docent::ErrorKind::LockLost);
}

/// One thread holds the lock while another one waits for it with a timeout.
fn every_lock_is_acquired_and_released(server: Server) {
    type Acquire = Box<dyn Fn(Option<Duration>) -> Result<Option<LockGuard>, Error>>;
    macro_rules! acquire {
        ($lock:expr) => {{
            let lock = $lock.unwrap();
            Box::new(move |limit| match limit {
                Some(limit) => lock.acquire_timeout(limit),
                None => lock.acquire().map(Some),
            })
        }};
    }
    let client = server.client();
    let path = |name| server.path(name);
    let lock = InterProcessReadWriteLock::new(&client, &path("read-write")).unwrap();
    let (one, two) = (path("one"), path("two"));
    let options = LockOptions::default;
    let locks: Vec<Acquire> = vec![
        acquire!(InterProcessMutex::with_options(&client, &path("mutex"), options())),
        acquire!(InterProcessSemaphoreMutex::new(&client, &path("semaphore-mutex"))),
        acquire!(StrictMutex::new(&client, &path("strict"))),
        acquire!(InterProcessSemaphoreV2::new(&client, &path("semaphore"), 1)),
        acquire!(InterProcessMultiLock::new(&client, &[&one, &two])),
        acquire!(Ok::<_, Error>(lock.write_lock())),
    ];
    for (number, acquire) in locks.iter().enumerate() {
        let guard = acquire(None).unwrap().unwrap();
        assert!(guard.is_held(), "{number}");
        assert!(acquire(Some(SHORT)).unwrap().is_none(), "{number}");
        guard.release().unwrap();
        drop(acquire(Some(DEADLINE)).unwrap().expect("the released lock"));
        acquire(Some(DEADLINE)).unwrap().expect("the dropped lock").release().unwrap();
    }
    let readers = [lock.read_lock().acquire().unwrap(), lock.read_lock().acquire().unwrap()];
    assert!(lock.write_lock().acquire_timeout(SHORT).unwrap().is_none());
    drop(readers);
}

// Case (Programs without async): the connection breaks while threads wait.
#[test]
fn threads_that_wait_survive_a_broken_connection() {
    let server = Server::embedded();
    let client = server.client();
    let holder = InterProcessMutex::new(&server.client(), &server.path("mutex")).unwrap();
    let guard = holder.acquire().unwrap();
    let mut watcher = client.add_watch(&server.fixture.path, AddWatchMode::Persistent).unwrap();
    let mutex = InterProcessMutex::new(&client, holder.path()).unwrap();
    let waiting = thread::spawn(move || mutex.acquire());
    until_blocking("the waiter", || wait(|| holder.participants()).unwrap().len() == 2);
    assert!(server.server().cut_connections() >= 2);
    assert!(watcher.any(|event| event.unwrap().is_resync()));
    guard.release().unwrap();
    let guard = waiting.join().unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().unwrap();
}

/// The guard keeps its client's thread running, and so the renewals.
// Case (Strict mutexes): the blocking API: renewals after the last handle of the client is dropped.
fn a_strict_hold_is_renewed_while_only_its_guard_is_left(server: Server) {
    let path = server.path("strict");
    let config = server.config().with_session_timeout(Duration::from_secs(6));
    let guard = {
        let client = Client::connect_with(config).unwrap();
        StrictMutex::new(&client, &path).unwrap().acquire().unwrap()
    };
    let first = guard.proven_until();
    until_blocking("two renewals", || guard.proven_until() > first + Duration::from_secs(3));
    assert!(guard.is_held());
    // Dropped on another thread: the next holder need not wait until the claim expires.
    thread::spawn(move || drop(guard)).join().unwrap();
    let start = std::time::Instant::now();
    let rival = StrictMutex::new(&server.client(), &path).unwrap();
    rival.acquire_timeout(DEADLINE).unwrap().expect("the dropped lock").release().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
