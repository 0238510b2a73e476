//! Source: `TestInterProcessMultiMutex`; N5.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use docent::{
    CreateMode, ErrorKind,
    protocol::OpCode,
    recipes::{
        Error,
        locks::{
            InterProcessLock, InterProcessMultiLock, InterProcessMutex, LockFuture, LockGuard,
        },
    },
};
use docent_testing::fault::Fault;

use crate::{Stage, ms, no_retries, options, support::within_deadline};

on_both_servers! {
    all_are_released_though_one_release_fails
    a_lock_that_fails_gives_the_earlier_ones_back
    nothing_is_tried_behind_a_failure
    a_lost_part_is_the_loss_of_all
    a_dropped_acquire_gives_all_back
    guarded_writes_need_every_part
}

fn paths(stage: &Stage) -> [String; 3] {
    ["a", "b", "c"].map(|name| format!("{}/{name}", stage.path))
}

/// testSomeReleasesFail
async fn all_are_released_though_one_release_fails(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let paths = paths(&stage);
    let names: Vec<&str> = paths.iter().map(String::as_str).collect();
    let lock = InterProcessMultiLock::with_options(&client, &names, &no_retries()).unwrap();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.lock_paths().count(), 3);
    stage.tap.inject(Fault::drop_before(OpCode::Delete).below(&paths[1]));
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::ConnectionLoss), "{error}");
    for path in &paths {
        stage.children(path, 0).await;
    }
}

/// What was done to a lock.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Fails {
    log: Log,
    /// Out of time, or an error.
    with: Option<Error>,
}

impl InterProcessLock for Fails {
    fn acquire(&self) -> LockFuture<'_, LockGuard> {
        self.log.0.lock().unwrap().push("fails".into());
        let error = self.with.clone().unwrap();
        Box::pin(async { Err(error) })
    }

    fn acquire_timeout(&self, _wait: Duration) -> LockFuture<'_, Option<LockGuard>> {
        self.log.0.lock().unwrap().push("fails".into());
        let result = self.with.clone().map_or(Ok(None), Err);
        Box::pin(async { result })
    }

    fn is_acquired_in_this_process(&self) -> bool {
        false
    }
}

/// testSomeLocksFailToLock
async fn a_lock_that_fails_gives_the_earlier_ones_back(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let path = &paths(&stage)[0];
    let good = InterProcessMutex::with_options(&client, path, options()).unwrap();
    let bad = Fails { log: Log::default(), with: None };
    let lock = InterProcessMultiLock::of(vec![Arc::new(good.clone()), Arc::new(bad)]);
    assert!(lock.acquire_timeout(ms(500)).await.unwrap().is_none());
    assert!(!good.is_acquired_in_this_process() && !lock.is_acquired_in_this_process());
    stage.children(path, 0).await;
}

/// N5: Curator goes on, and keeps the last error.
async fn nothing_is_tried_behind_a_failure(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let paths = paths(&stage);
    let mutex =
        |path: &str| Arc::new(InterProcessMutex::with_options(&client, path, options()).unwrap());
    let log = Log::default();
    let with = Error::LockLost { path: "b".into() };
    let bad = Fails { log: log.clone(), with: Some(with.clone()) };
    let behind = Fails { log: log.clone(), with: Some(Error::LockLost { path: "c".into() }) };
    let lock = InterProcessMultiLock::of(vec![mutex(&paths[0]), Arc::new(bad), Arc::new(behind)]);
    assert_eq!(lock.acquire().await.unwrap_err(), with);
    assert_eq!(log.0.lock().unwrap().len(), 1);
    stage.children(&paths[0], 0).await;
}

async fn a_lost_part_is_the_loss_of_all(stage: Stage) {
    let ((a, tap), (b, _b)) = (stage.client("A").await, stage.client("B").await);
    let paths = paths(&stage);
    let mutex = |client: &docent::Client, path: &str| {
        Arc::new(InterProcessMutex::with_options(client, path, options()).unwrap())
    };
    let lock = InterProcessMultiLock::of(vec![mutex(&b, &paths[0]), mutex(&a, &paths[1])]);
    let guard = lock.acquire().await.unwrap();
    let token = guard.cancellation_token();
    assert!(guard.is_held() && guard.fencing_token().await.unwrap() > 0);
    tap.kill_session(crate::support::DEADLINE).await.unwrap();
    within_deadline("lost", guard.lost()).await;
    within_deadline("the token", token.cancelled()).await;
    assert!(!guard.is_held());
    guard.release().await.unwrap();
    stage.children(&paths[0], 0).await;
}

async fn a_dropped_acquire_gives_all_back(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let paths = paths(&stage);
    let names: Vec<&str> = paths.iter().map(String::as_str).collect();
    let held = InterProcessMutex::with_options(&client, names[2], options()).unwrap();
    let _held = held.acquire().await.unwrap();
    let lock = InterProcessMultiLock::with_options(&client, &names, &options()).unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    stage.children(names[2], 2).await;
    waiting.abort();
    for (path, left) in [(names[0], 0), (names[1], 0), (names[2], 1)] {
        stage.children(path, left).await;
    }
}

/// The server checks each lock node, and says which one is gone.
async fn guarded_writes_need_every_part(stage: Stage) {
    let (client, _tap) = stage.client("A").await;
    let paths = paths(&stage);
    let names: Vec<&str> = paths.iter().map(String::as_str).collect();
    let lock = InterProcessMultiLock::with_options(&client, &names, &options()).unwrap();
    let guard = lock.acquire().await.unwrap();
    let job = format!("{}/job", stage.path);
    client.create(&job, b"", CreateMode::Persistent).await.unwrap();
    guard.guarded().unwrap().set_data(&job, b"1", None).commit().await.unwrap();
    let last = guard.lock_paths().nth(2).unwrap();
    stage.observer().await.delete(last, None).await.unwrap();
    let error = guard.guarded().unwrap().set_data(&job, b"2", None).commit().await.unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::NoNode, Some(2)));
    assert_eq!(client.get_data(&job).await.unwrap().data, "1");
}
