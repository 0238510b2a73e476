//! Dropping a future or a guard at any point leaves no node, watch or request behind.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

on_both_servers! {
    a_revocable_acquire_is_dropped_at_every_poll
    a_quantity_is_dropped_at_every_poll
    a_downgrade_is_dropped_at_every_poll
    a_release_of_every_lock_is_dropped_at_every_poll
    a_waiter_of_every_lock_is_dropped_at_every_poll
    an_acquire_whose_create_is_lost_is_dropped_at_every_poll
    a_guard_is_dropped_outside_a_runtime_and_in_a_panic
    a_program_that_returns_early_releases_its_lock
}

/// The paths below which the locks of [`each_lock`] have their nodes.
fn paths(fixture: &Fixture, kind: &str) -> Vec<String> {
    let names: &[&str] = match kind {
        "mutex" => &["mutex"],
        "semaphore mutex" => &["semaphore-mutex/locks", "semaphore-mutex/leases"],
        "multi" => &["multi1", "multi2/locks", "multi2/leases"],
        _ => &["pair"],
    };
    names.iter().map(|name| format!("{}/{name}", fixture.path)).collect()
}

/// Waits until these paths are empty and the client has no pending request.
async fn wait_until_settled(fixture: &Fixture, client: &Client, paths: &[String]) {
    for path in paths {
        fixture.children(path, 0).await;
    }
    has_no_request(client).await;
}

/// Drops an attempt after 1, 2, 3 ... polls, until one completes, and checks after each that nothing is left.
async fn at_every_poll<T>(
    fixture: &Fixture,
    client: &Client,
    paths: &[String],
    mut attempt: impl AsyncFnMut(usize) -> Option<Result<T, Error>>,
) {
    for polls in 1.. {
        let ended = attempt(polls).await;
        let finished = ended.is_some();
        drop(ended.transpose().unwrap());
        wait_until_settled(fixture, client, paths).await;
        if finished {
            assert!(polls > 1, "completed at the first poll");
            return;
        }
    }
}

async fn a_revocable_acquire_is_dropped_at_every_poll(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let mutex = mutex(&fixture, &client);
    at_every_poll(&fixture, &client, std::slice::from_ref(&fixture.path), async |polls| {
        mutex.make_revocable(|| {});
        poll_at_most(polls, mutex.acquire()).await
    })
    .await;
    has_watches(&client, 0).await;
}

async fn a_quantity_is_dropped_at_every_poll(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let semaphore = semaphore(&fixture, &client, 2);
    let paths = ["locks", "leases"].map(|name| format!("{}/{name}", fixture.path));
    at_every_poll(&fixture, &client, &paths, async |polls| {
        poll_at_most(polls, semaphore.acquire_many(2)).await
    })
    .await;
}

async fn a_downgrade_is_dropped_at_every_poll(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let lock = pair(&fixture, &client);
    let me = Owner::new();
    at_every_poll(&fixture, &client, std::slice::from_ref(&fixture.path), async |polls| {
        let _writing = lock.write_lock().acquire_as(&me).await.unwrap();
        poll_at_most(polls, lock.read_lock().acquire_as(&me)).await
    })
    .await;
}

async fn a_release_of_every_lock_is_dropped_at_every_poll(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    for (kind, lock) in each_lock(&client, &fixture.path, &options()) {
        let paths = paths(&fixture, kind);
        // The future is dropped before its first poll, and the guard with it.
        drop(lock.acquire().await.unwrap().release());
        wait_until_settled(&fixture, &client, &paths).await;
        at_every_poll(&fixture, &client, &paths, async |polls| {
            let guard = lock.acquire().await.unwrap();
            poll_at_most(polls, guard.release()).await
        })
        .await;
    }
}

async fn a_guard_is_dropped_outside_a_runtime_and_in_a_panic(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let (kind, lock) = each_lock(&client, &fixture.path, &options()).pop().unwrap();
    let paths = paths(&fixture, kind);
    let guard = lock.acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    wait_until_settled(&fixture, &client, &paths).await;
    let guard = lock.acquire().await.unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("as planned"));
    }));
    assert!(panicked.is_err());
    wait_until_settled(&fixture, &client, &paths).await;
}

/// The holder releases once the waiter waits or has ended, so all steps of an acquire are covered, for each kind of
/// wait.
async fn a_waiter_of_every_lock_is_dropped_at_every_poll(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let locks = |client: &Client| each_lock(client, &fixture.path, &options());
    let pair = format!("{}/pair", fixture.path);
    let pair = InterProcessReadWriteLock::with_options(&b, &pair, options()).unwrap();
    let (mut holders, mut waiters) = (locks(&a), locks(&b));
    holders.push(("writer", Arc::clone(&holders[2].1)));
    waiters.push(("reader", Arc::new(pair.read_lock().clone())));
    for ((kind, holder), (_, waiter)) in holders.iter().zip(waiters) {
        let paths = paths(&fixture, kind);
        at_every_poll(&fixture, &b, &paths, async |polls| {
            let held = holder.acquire().await.unwrap();
            let waiter = Arc::clone(&waiter);
            let waiter = tokio::spawn(async move { poll_at_most(polls, waiter.acquire()).await });
            // It waits with one watch and no request, unless it has ended.
            until("a waiter or its end", async || {
                pending_and_watches(&b) == (0, 1) || waiter.is_finished()
            })
            .await;
            held.release().await.unwrap();
            within_deadline("the waiter", waiter).await.unwrap()
        })
        .await;
    }
}

/// The acquire is dropped during the search for its node and during the second create.
async fn an_acquire_whose_create_is_lost_is_dropped_at_every_poll(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let mutex = mutex(&fixture, &client);
    for fault in [Fault::drop_before(OpCode::Create2), Fault::drop_reply(OpCode::Create2)] {
        mutex.acquire().await.unwrap().release().await.unwrap();
        at_every_poll(&fixture, &client, std::slice::from_ref(&fixture.path), async |polls| {
            fixture.tap.clear_faults();
            fixture.tap.inject(fault.clone());
            let ended = poll_at_most(polls, mutex.acquire()).await;
            client.wait_until_connected(DEADLINE).await.unwrap();
            ended
        })
        .await;
        fixture.tap.clear_faults();
    }
}

/// Like a `?` in `main`: guard, lock and client are dropped, and then the runtime; or a task owns them, and they are
/// dropped with the runtime.
async fn a_program_that_returns_early_releases_its_lock(fixture: Fixture) {
    for round in 0..20 {
        let (server, path) = (fixture.server.clone(), format!("{}/{round}", fixture.path));
        let lock_path = path.clone();
        let program = move || {
            let runtime = match round % 2 {
                0 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
                _ => tokio::runtime::Runtime::new(),
            };
            runtime.unwrap().block_on(async {
                let config = Config::new(&server).unwrap();
                let config = config.with_session_timeout(std::time::Duration::from_secs(60));
                let client = config.connect().await.unwrap();
                let mutex = InterProcessMutex::new(&client, &lock_path).unwrap();
                let guard = mutex.acquire().await.unwrap();
                if round % 4 < 2 {
                    tokio::spawn(async move {
                        let _held = (guard, mutex, client);
                        std::future::pending::<()>().await;
                    });
                }
            });
        };
        tokio::task::spawn_blocking(program).await.unwrap();
        let next = fixture.observer().await;
        let mutex = InterProcessMutex::with_options(&next, &path, options()).unwrap();
        // Shorter than the session would last.
        let timeout = next.session_timeout() / 2;
        let guard = mutex.acquire_timeout(timeout).await.unwrap();
        let guard = guard.unwrap_or_else(|| panic!("round {round}: not within {timeout:?}"));
        guard.release().await.unwrap();
        next.close().await.unwrap();
    }
}
