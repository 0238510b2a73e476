//! Dropping a future or a guard anywhere leaves nothing behind.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use docent::{
    Client, Config,
    protocol::OpCode,
    recipes::{
        Error,
        locks::{
            InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
            InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockGuard, Owner,
        },
    },
};

use docent_testing::fault::Fault;

use crate::{
    Stage, options,
    support::{DEADLINE, eventually, within_deadline},
};

on_both_servers! {
    a_mutex_acquire_is_dropped_at_every_poll
    a_contended_mutex_acquire_is_dropped_at_every_poll
    a_revocable_acquire_is_dropped_at_every_poll
    a_semaphore_acquire_is_dropped_at_every_poll
    a_quantity_is_dropped_at_every_poll
    a_read_acquire_is_dropped_at_every_poll
    a_downgrade_is_dropped_at_every_poll
    a_multi_acquire_is_dropped_at_every_poll
    a_release_is_dropped_at_every_poll
    a_multi_release_is_dropped_at_every_poll
    a_waiter_of_every_lock_is_dropped_at_every_poll
    an_acquire_whose_create_is_lost_is_dropped_at_every_poll
    a_guard_is_dropped_outside_a_runtime_and_in_a_panic
}

/// Polls a future so often at most, each time when it was woken; `None` if it was not ready then.
async fn polled<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The next poll is the last: it comes whether or not there is news.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Every path below the stage's that must be empty in the end.
async fn settled(stage: &Stage, client: &Client, paths: &[&str]) {
    for path in paths {
        stage.children(path, 0).await;
    }
    eventually("no request and no watch left", async || (client.load().0 == 0).then_some(())).await;
}

/// Drops after 1, 2, 3 ... polls until an attempt runs to its end, and looks at what is left each time.
async fn at_every_poll<T>(
    stage: &Stage,
    client: &Client,
    paths: &[&str],
    mut attempt: impl AsyncFnMut(usize) -> Option<Result<T, Error>>,
) {
    for polls in 1.. {
        let ended = attempt(polls).await;
        let finished = ended.is_some();
        drop(ended.transpose().unwrap());
        settled(stage, client, paths).await;
        if finished {
            assert!(polls > 1, "there is nothing to drop");
            return;
        }
    }
}

async fn a_mutex_acquire_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let mutex = InterProcessMutex::with_options(&client, &stage.path, options()).unwrap();
    let owner = Owner::new();
    at_every_poll(&stage, &client, &[&stage.path], async |polls| {
        polled(polls, mutex.acquire_as(&owner)).await
    })
    .await;
}

/// With a waiter that is let in by and by, so that its whole way is taken.
async fn a_contended_mutex_acquire_is_dropped_at_every_poll(stage: Stage) {
    let ((a, _a), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let first = InterProcessMutex::with_options(&a, &stage.path, options()).unwrap();
    let second = InterProcessMutex::with_options(&b, &stage.path, options()).unwrap();
    at_every_poll(&stage, &b, &[&stage.path], async |polls| {
        let holder = first.acquire().await.unwrap();
        let waiting = second.clone();
        let waiter = tokio::spawn(async move { polled(polls, waiting.acquire()).await });
        // Released as soon as it waits, or is gone.
        eventually("a waiter or its end", async || {
            let queue = first.participants().await.unwrap().len();
            (queue == 2 || waiter.is_finished()).then_some(())
        })
        .await;
        holder.release().await.unwrap();
        within_deadline("the waiter", waiter).await.unwrap()
    })
    .await;
}

async fn a_revocable_acquire_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let mutex = InterProcessMutex::with_options(&client, &stage.path, options()).unwrap();
    at_every_poll(&stage, &client, &[&stage.path], async |polls| {
        mutex.make_revocable(|| {});
        polled(polls, mutex.acquire()).await
    })
    .await;
    eventually("no watch left", async || (client.load().1 == 0).then_some(())).await;
}

async fn a_semaphore_acquire_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, &stage.path, 1, options()).unwrap();
    let (locks, leases) = (format!("{}/locks", stage.path), format!("{}/leases", stage.path));
    at_every_poll(&stage, &client, &[&locks, &leases], async |polls| {
        polled(polls, semaphore.acquire()).await
    })
    .await;
}

async fn a_quantity_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, &stage.path, 2, options()).unwrap();
    let (locks, leases) = (format!("{}/locks", stage.path), format!("{}/leases", stage.path));
    at_every_poll(&stage, &client, &[&locks, &leases], async |polls| {
        polled(polls, semaphore.acquire_many(2)).await
    })
    .await;
}

async fn a_read_acquire_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let lock = InterProcessReadWriteLock::with_options(&client, &stage.path, options()).unwrap();
    at_every_poll(&stage, &client, &[&stage.path], async |polls| {
        polled(polls, lock.read_lock().acquire()).await
    })
    .await;
}

async fn a_downgrade_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let lock = InterProcessReadWriteLock::with_options(&client, &stage.path, options()).unwrap();
    let me = Owner::new();
    at_every_poll(&stage, &client, &[&stage.path], async |polls| {
        let _writing = lock.write_lock().acquire_as(&me).await.unwrap();
        polled(polls, lock.read_lock().acquire_as(&me)).await
    })
    .await;
}

fn multi(stage: &Stage, client: &Client) -> (InterProcessMultiLock, [String; 3]) {
    let (a, b) = (format!("{}/a", stage.path), format!("{}/b", stage.path));
    let one = InterProcessMutex::with_options(client, &a, options()).unwrap();
    let two = InterProcessSemaphoreMutex::with_options(client, &b, options()).unwrap();
    let lock =
        InterProcessMultiLock::of(vec![Arc::new(one) as Arc<dyn InterProcessLock>, Arc::new(two)]);
    (lock, [a, format!("{b}/locks"), format!("{b}/leases")])
}

async fn a_multi_acquire_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let (lock, paths) = multi(&stage, &client);
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    at_every_poll(&stage, &client, &paths, async |polls| polled(polls, lock.acquire()).await).await;
}

async fn a_release_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let mutex = InterProcessMutex::with_options(&client, &stage.path, options()).unwrap();
    // Not polled at all: the guard goes with the future.
    drop(mutex.acquire().await.unwrap().release());
    settled(&stage, &client, &[&stage.path]).await;
    at_every_poll(&stage, &client, &[&stage.path], async |polls| {
        let guard = mutex.acquire().await.unwrap();
        polled(polls, guard.release()).await
    })
    .await;
}

async fn a_multi_release_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let (lock, paths) = multi(&stage, &client);
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    at_every_poll(&stage, &client, &paths, async |polls| {
        let guard: LockGuard = lock.acquire().await.unwrap();
        polled(polls, guard.release()).await
    })
    .await;
}

async fn a_guard_is_dropped_outside_a_runtime_and_in_a_panic(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let (lock, paths) = multi(&stage, &client);
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let guard = lock.acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    settled(&stage, &client, &paths).await;
    let guard = lock.acquire().await.unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("as planned"));
    }));
    assert!(panicked.is_err());
    settled(&stage, &client, &paths).await;
}

/// Behind a holder that lets it in when it waits, or is gone: so its whole way is taken, with each kind of waiting.
async fn a_waiter_of_every_lock_is_dropped_at_every_poll(stage: Stage) {
    let ((a, _a), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let at = |name: &str| format!("{}/{name}", stage.path);
    let kinds = |client: &Client| -> Vec<Arc<dyn InterProcessLock>> {
        let pair = InterProcessReadWriteLock::with_options(client, &at("pair"), options()).unwrap();
        let semaphore =
            InterProcessSemaphoreMutex::with_options(client, &at("semaphore"), options()).unwrap();
        let one = InterProcessMutex::with_options(client, &at("one"), options()).unwrap();
        let multi: Vec<Arc<dyn InterProcessLock>> =
            vec![Arc::new(one), Arc::new(pair.read_lock().clone())];
        vec![
            Arc::new(semaphore),
            Arc::new(pair.read_lock().clone()),
            Arc::new(pair.write_lock().clone()),
            Arc::new(InterProcessMultiLock::of(multi)),
        ]
    };
    let pair = InterProcessReadWriteLock::with_options(&a, &at("pair"), options()).unwrap();
    let paths = [at("semaphore/locks"), at("semaphore/leases"), at("pair"), at("one")];
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let (mut holders, waiters) = (kinds(&a), kinds(&b));
    // Whatever waits for the pair waits for a writer.
    for reader in [1, 3] {
        holders[reader] = Arc::new(pair.write_lock().clone());
    }
    for (holder, waiter) in holders.iter().zip(waiters) {
        at_every_poll(&stage, &b, &paths, async |polls| {
            let held = holder.acquire().await.unwrap();
            let waiter = Arc::clone(&waiter);
            let waiter = tokio::spawn(async move { polled(polls, waiter.acquire()).await });
            // It waits with one watch and no request, unless it is gone.
            eventually("a waiter or its end", async || {
                (b.load() == (0, 1) || waiter.is_finished()).then_some(())
            })
            .await;
            held.release().await.unwrap();
            within_deadline("the waiter", waiter).await.unwrap()
        })
        .await;
    }
}

/// While it searches for its node, and creates another.
async fn an_acquire_whose_create_is_lost_is_dropped_at_every_poll(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let mutex = InterProcessMutex::with_options(&client, &stage.path, options()).unwrap();
    for fault in [Fault::drop_before(OpCode::Create2), Fault::drop_reply(OpCode::Create2)] {
        mutex.acquire().await.unwrap().release().await.unwrap();
        at_every_poll(&stage, &client, &[&stage.path], async |polls| {
            stage.tap.clear_faults();
            stage.tap.inject(fault.clone());
            let ended = polled(polls, mutex.acquire()).await;
            client.wait_until_connected(DEADLINE).await.unwrap();
            ended
        })
        .await;
        stage.tap.clear_faults();
    }
}

/// The runtime goes down under a guard: dropping it neither panics nor hangs, and the lock goes with the session.
#[test]
fn a_guard_outlives_its_runtime() {
    let others = tokio::runtime::Runtime::new().unwrap();
    let server = others.block_on(docent_testing::TestingServer::start()).unwrap();
    let client = async |session_ms: u64| {
        let config = Config::new(&server.connect_string()).unwrap();
        let config = config.with_session_timeout(std::time::Duration::from_millis(session_ms));
        Client::connect_with(config).await.unwrap()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (guard, other) = runtime.block_on(async {
        let client = client(2000).await;
        let mutex = InterProcessMutex::new(&client, "/lock").unwrap();
        let semaphore = InterProcessSemaphoreV2::new(&client, "/semaphore", 1).unwrap();
        // In the hands of a task that ends with the runtime.
        let in_a_task = InterProcessMutex::new(&client, "/task").unwrap().acquire().await.unwrap();
        tokio::spawn(async move {
            let _guard = in_a_task;
            std::future::pending::<()>().await;
        });
        (mutex.acquire().await.unwrap(), semaphore.acquire().await.unwrap())
    });
    drop(runtime);
    drop((guard, other));
    others.block_on(async {
        let client = client(20_000).await;
        for path in ["/lock", "/task"] {
            let mutex = InterProcessMutex::new(&client, path).unwrap();
            within_deadline(path, mutex.acquire()).await.unwrap().release().await.unwrap();
        }
        let semaphore = InterProcessSemaphoreV2::new(&client, "/semaphore", 1).unwrap();
        within_deadline("a lease", semaphore.acquire()).await.unwrap().release().await.unwrap();
    });
}
