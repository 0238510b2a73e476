//! Locks and guards, from several threads.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use docent::{
    AddWatchMode, CreateMode, ErrorKind, LockOptions, Owner,
    blocking::{
        Client, Held,
        locks::{
            InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
            InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockGuard, Revoker, StrictMutex,
        },
        shared::SharedCount,
    },
    retry::RetryOneTime,
};

use crate::{
    server::Server,
    support::{DEADLINE, eventually_blocking},
};

blocking_on_both_servers! {
    threads_of_several_clients_hold_a_mutex_one_after_the_other
    a_guard_is_released_and_dropped_on_other_threads
    a_lost_lock_wakes_the_thread_that_waits_for_it
    an_owner_enters_again
    readers_share_and_a_writer_waits
    a_semaphore_has_its_leases
    a_multi_lock_holds_locks_of_two_clients_or_none
    a_holder_releases_on_request
    strict_holds_follow_each_other_and_are_renewed
}

const SHORT: Duration = Duration::from_millis(50);

fn threads_of_several_clients_hold_a_mutex_one_after_the_other(server: Server) {
    let (inside, holds) = (AtomicU32::new(0), AtomicU32::new(0));
    let path = server.path("mutex");
    let clients = [server.client(), server.client()];
    thread::scope(|scope| {
        for thread in 0..6 {
            let mutex = InterProcessMutex::new(&clients[thread % 2], &path).unwrap();
            let (inside, holds) = (&inside, &holds);
            scope.spawn(move || {
                let mut last = 0;
                for _ in 0..5 {
                    let guard = mutex.acquire().unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two threads hold the lock");
                    let token = guard.fencing_token().unwrap();
                    assert!(guard.is_held() && token > last, "{token} after {last}");
                    last = token;
                    holds.fetch_add(1, SeqCst);
                    inside.fetch_sub(1, SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(holds.load(SeqCst), 30);
}

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
    assert!(other.acquire().unwrap().release_timeout(DEADLINE).unwrap());
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
    server.client().delete(guard.lock_path(), None).unwrap();
    waiting.join().unwrap().unwrap();
    assert!(!guard.is_held());
    eventually_blocking("the token", || token.is_cancelled().then_some(()));
    let held: &dyn Held = &*guard;
    assert!(held.lost_timeout(DEADLINE).unwrap() && !held.is_held());
    assert_eq!(held.guarded().unwrap_err().kind(), ErrorKind::LockLost);

    // A write under a lock that the server knows to be lost is not applied.
    let guard = mutex.acquire().unwrap();
    let path = server.path("written");
    guard.guarded().unwrap().create(&path, b"", CreateMode::Persistent).commit().unwrap();
    server.client().delete(guard.lock_path(), None).unwrap();
    let refused = guard.guarded().unwrap().set_data(&path, b"late", None).commit().unwrap_err();
    assert_eq!((refused.kind(), refused.index()), (ErrorKind::NoNode, Some(0)));
    guard.release().unwrap();
}

fn an_owner_enters_again(server: Server) {
    let client = server.client();
    let mutex = InterProcessMutex::with_options(
        &client,
        &server.path("mutex"),
        LockOptions::default().with_data("me"),
    )
    .unwrap();
    let owner = Owner::new();
    let outer = mutex.acquire_as(&owner).unwrap();
    assert_eq!(client.get_data(outer.lock_path()).unwrap().data, "me");
    let inner = mutex.acquire_as_timeout(&owner, Duration::ZERO).unwrap().expect("the same owner");
    assert_eq!(inner.lock_path(), outer.lock_path());
    assert_eq!(mutex.participants().unwrap(), [outer.lock_path()]);
    outer.release().unwrap();
    assert!(inner.is_held() && mutex.is_owned_by(&owner));
    inner.release().unwrap();
    assert!(!mutex.is_owned_by(&owner));
    let semaphore = InterProcessSemaphoreMutex::new(&client, &server.path("semaphore")).unwrap();
    let guard = semaphore.acquire().unwrap();
    assert!(InterProcessLock::acquire_as_timeout(&semaphore, &owner, SHORT).unwrap().is_none());
    guard.release().unwrap();
}

fn readers_share_and_a_writer_waits(server: Server) {
    let client = server.client();
    let lock = InterProcessReadWriteLock::new(&client, &server.path("lock")).unwrap();
    let readers = [lock.read_lock().acquire().unwrap(), lock.read_lock().acquire().unwrap()];
    assert!(lock.write_lock().acquire_timeout(SHORT).unwrap().is_none());
    let writing = thread::spawn({
        let lock = lock.clone();
        move || lock.write_lock().acquire().unwrap().release()
    });
    for reader in readers {
        reader.release().unwrap();
    }
    writing.join().unwrap().unwrap();
}

fn a_semaphore_has_its_leases(server: Server) {
    let client = server.client();
    let semaphore = InterProcessSemaphoreV2::new(&client, &server.path("semaphore"), 3).unwrap();
    let mut leases = semaphore.acquire_many(2).unwrap();
    leases.push(semaphore.acquire().unwrap());
    assert!(semaphore.acquire_timeout(SHORT).unwrap().is_none());
    assert!(semaphore.acquire_many_timeout(2, SHORT).unwrap().is_none());
    drop(leases);
    let leases = semaphore.acquire_many_timeout(3, DEADLINE).unwrap().expect("the returned leases");
    assert_eq!((leases.len(), semaphore.participants().unwrap().len()), (3, 3));

    let count = SharedCount::start(&client, &server.path("count"), 1).unwrap();
    let counted =
        InterProcessSemaphoreV2::with_count(&client, &server.path("counted"), &count).unwrap();
    let one = counted.acquire().unwrap();
    assert!(counted.acquire_timeout(SHORT).unwrap().is_none());
    count.set_count(2).unwrap();
    let two = counted.acquire_timeout(DEADLINE).unwrap().expect("a second lease");
    drop((one, two));
}

fn a_multi_lock_holds_locks_of_two_clients_or_none(server: Server) {
    let (here, there) = (server.client(), server.client());
    let one = Arc::new(InterProcessMutex::new(&here, &server.path("one")).unwrap());
    let two = Arc::new(InterProcessSemaphoreMutex::new(&there, &server.path("two")).unwrap());
    let both =
        InterProcessMultiLock::from_locks(vec![Arc::clone(&one) as _, Arc::clone(&two) as _]);
    let guard = both.acquire().unwrap();
    assert_eq!(guard.lock_paths().count(), 2);
    assert!(both.is_acquired_in_this_process());
    guard.release().unwrap();
    let busy = two.acquire().unwrap();
    assert!(both.acquire_timeout(SHORT).unwrap().is_none());
    one.acquire_timeout(DEADLINE).unwrap().expect("released").release().unwrap();
    busy.release().unwrap();
    let none = InterProcessMultiLock::from_locks(Vec::new());
    assert_eq!(none.acquire().unwrap_err().kind(), ErrorKind::BadArguments);
    let paths = [&*server.path("one"), &*server.path("two")];
    both.acquire_as(&Owner::new()).unwrap().release().unwrap();
    InterProcessMultiLock::new(&here, &paths).unwrap().acquire().unwrap().release().unwrap();
}

fn a_holder_releases_on_request(server: Server) {
    let client = server.client();
    let mutex = InterProcessMutex::new(&client, &server.path("mutex")).unwrap();
    let (asked, requests) = mpsc::channel();
    mutex.make_revocable(move || asked.send(()).unwrap());
    let guard = mutex.acquire().unwrap();
    let policy = RetryOneTime { sleep_between_retry: SHORT };
    Revoker::attempt_revoke(&server.client(), &policy, guard.lock_path()).unwrap();
    requests.recv_timeout(DEADLINE).unwrap();
    guard.release().unwrap();
}

#[test]
fn threads_that_wait_survive_a_broken_connection() {
    let server = Server::embedded();
    let client = server.client();
    let holder = InterProcessMutex::new(&server.client(), &server.path("mutex")).unwrap();
    let guard = holder.acquire().unwrap();
    let mut watcher = client.add_watch(&server.fixture.path, AddWatchMode::Persistent).unwrap();
    let mutex = InterProcessMutex::new(&client, holder.path()).unwrap();
    let waiting = thread::spawn(move || mutex.acquire());
    eventually_blocking("the waiter", || (holder.participants().unwrap().len() == 2).then_some(()));
    assert!(server.server().cut_connections() >= 2);
    assert!(watcher.any(|event| event.unwrap().is_resync()));
    guard.release().unwrap();
    let guard = waiting.join().unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().unwrap();
}

fn strict_holds_follow_each_other_and_are_renewed(server: Server) {
    let path = server.path("strict");
    let config = server.config().with_session_timeout(Duration::from_secs(6));
    let clients = [Client::connect_with(config.clone()).unwrap(), server.client()];
    let (inside, last) = (AtomicU32::new(0), Mutex::new(0));
    thread::scope(|scope| {
        for thread in 0..4 {
            let mutex = StrictMutex::new(&clients[thread % 2], &path).unwrap();
            let (inside, last) = (&inside, &last);
            scope.spawn(move || {
                for _ in 0..4 {
                    let guard = mutex.acquire().unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two threads hold the lock");
                    let token = guard.fencing_token().unwrap();
                    let before = std::mem::replace(&mut *last.lock().unwrap(), token);
                    assert!(token > before, "{token} after {before}");
                    inside.fetch_sub(1, SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    let [client, other] = clients;
    let rival = StrictMutex::new(&other, &path).unwrap();
    let mutex = StrictMutex::new(&client, &path).unwrap();
    let guard = mutex.acquire_timeout(Duration::ZERO).unwrap().expect("released");
    assert!(mutex.is_acquired_in_this_process() && !rival.is_acquired_in_this_process());
    assert!(rival.acquire_timeout(SHORT).unwrap().is_none());
    let first = guard.proven_until();
    assert!(client.now() < first);
    // A client is used by the guard, and so by its renewals, after all other handles are dropped.
    let clock = client.now();
    drop((mutex, client));
    let waited = std::time::Instant::now();
    eventually_blocking("two renewals", || {
        (guard.proven_until() > first + Duration::from_secs(3)).then_some(())
    });
    assert!(guard.is_held() && clock + waited.elapsed() < guard.proven_until());
    // Dropped on another thread: the next holder does not wait for its claim.
    thread::spawn(move || drop(guard)).join().unwrap();
    let start = std::time::Instant::now();
    let guard = rival.acquire_timeout(DEADLINE).unwrap().expect("the dropped lock");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    guard.release().unwrap();
    // Through the trait, and where a node of another lock is.
    let client = server.client();
    let as_any: &dyn InterProcessLock = &rival;
    as_any.acquire().unwrap().release().unwrap();
    let plain = InterProcessMutex::new(&client, &path).unwrap().acquire().unwrap();
    assert_eq!(rival.acquire().unwrap_err().kind(), ErrorKind::ForeignNode);
    plain.release().unwrap();
    rival.acquire().unwrap().release().unwrap();
}
