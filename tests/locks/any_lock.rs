//! What holds for every exclusive lock. Source: `TestInterProcessMutexBase`.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use docent::{
    Client,
    recipes::locks::{
        InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessSemaphoreMutex,
    },
};

use crate::{Stage, ms, options, support::DEADLINE, support::within_deadline};

on_both_servers! {
    a_guard_holds_inside_its_scope_and_frees_behind_it
    a_killed_session_frees_the_lock_for_the_next
    exactly_one_of_two_clients_holds
    ten_tasks_that_share_an_object_are_never_two_inside
    an_empty_lock_path_is_reaped
    a_lock_goes_through_a_broken_connection
}

/// One of each kind, at paths of their own below the stage's.
fn each_kind(stage: &Stage, client: &Client) -> Vec<(String, Arc<dyn InterProcessLock>)> {
    let at = |name: &str| format!("{}/{name}", stage.path);
    let mutex = InterProcessMutex::with_options(client, &at("mutex"), options()).unwrap();
    let semmutex =
        InterProcessSemaphoreMutex::with_options(client, &at("semmutex"), options()).unwrap();
    let one = InterProcessMutex::with_options(client, &at("multi1"), options()).unwrap();
    let two = InterProcessSemaphoreMutex::with_options(client, &at("multi2"), options()).unwrap();
    let multi = InterProcessMultiLock::of(vec![Arc::new(one), Arc::new(two)]);
    vec![
        ("mutex".into(), Arc::new(mutex)),
        ("semmutex".into(), Arc::new(semmutex)),
        ("multi".into(), Arc::new(multi)),
    ]
}

/// testLocker
async fn a_guard_holds_inside_its_scope_and_frees_behind_it(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    for (kind, lock) in each_kind(&stage, &client) {
        {
            let guard = lock.acquire_timeout(DEADLINE).await.unwrap().expect(&kind);
            assert!(guard.is_held() && lock.is_acquired_in_this_process(), "{kind}");
        }
        assert!(!lock.is_acquired_in_this_process(), "{kind}");
        let again = lock.acquire_timeout(DEADLINE).await.unwrap().expect(&kind);
        again.release().await.unwrap();
    }
}

/// testKilledSession
async fn a_killed_session_frees_the_lock_for_the_next(stage: Stage) {
    let (client, tap) = stage.client("A").await;
    for (kind, lock) in each_kind(&stage, &client) {
        let guard = lock.acquire().await.unwrap();
        tap.kill_session(DEADLINE).await.unwrap();
        within_deadline("lost", guard.lost()).await;
        assert!(!lock.is_acquired_in_this_process(), "{kind}");
        let again = within_deadline("acquire", lock.acquire()).await.unwrap();
        assert!(again.is_held() && !guard.is_held(), "{kind}");
        again.release().await.unwrap();
        guard.release().await.unwrap();
    }
}

/// test2Clients
async fn exactly_one_of_two_clients_holds(stage: Stage) {
    let ((a, _a), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let pairs = each_kind(&stage, &a).into_iter().zip(each_kind(&stage, &b));
    for ((kind, first), (_, second)) in pairs {
        let guard = first.acquire().await.unwrap();
        assert!(second.acquire_timeout(ms(100)).await.unwrap().is_none(), "{kind}");
        let (second, second_guard) = {
            let waiting = Arc::clone(&second);
            let waiting = tokio::spawn(async move { waiting.acquire().await });
            guard.release().await.unwrap();
            (second, within_deadline(&kind, waiting).await.unwrap().unwrap())
        };
        assert!(second.is_acquired_in_this_process() && !first.is_acquired_in_this_process());
        second_guard.release().await.unwrap();
    }
}

/// testReentrantSingleLock, without the re-entrancy that only one kind has.
async fn ten_tasks_that_share_an_object_are_never_two_inside(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    for (kind, lock) in each_kind(&stage, &client) {
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
            assert_eq!(within_deadline(&kind, task).await.unwrap(), 0, "{kind}");
        }
    }
}

/// testContainerCleanup
async fn an_empty_lock_path_is_reaped(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    for (_, lock) in each_kind(&stage, &client) {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    stage.children(&stage.path, 0).await;
}

/// testWaitingProcessKilledServer, with the connection in the server's place: holder and waiter go through it.
async fn a_lock_goes_through_a_broken_connection(stage: Stage) {
    let (client, tap) = stage.client("A").await;
    for (kind, lock) in each_kind(&stage, &client) {
        let guard = lock.acquire().await.unwrap();
        let waiting = Arc::clone(&lock);
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        tokio::task::yield_now().await;
        tap.cut();
        guard.release().await.unwrap();
        let guard = within_deadline(&kind, waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
}
