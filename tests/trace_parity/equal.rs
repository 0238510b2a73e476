//! Scenes without faults.

use docent::{
    EventType, WatcherType,
    protocol::OpCode,
    recipes::locks::{InterProcessMutex, LockGuard, Revoker},
};
use tokio::task::JoinHandle;

use super::{A_WHILE, Scene, is_event, policy};
use crate::support::peer::Outcome;

pub(crate) async fn scene_01_missing_parents(scene: Scene) {
    let [a] = scene.actors(["A"]).await;
    let handle = format!("{}/x/y", a.handle);
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    // And re-entrant.
    a.acquire_at(&handle).await;
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    a.release_at(&handle).await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_02_contended(scene: Scene) {
    let [a, b, c] = scene.actors(["A", "B", "C"]).await;
    a.acquire().await;
    let second = b.queues();
    scene.waits("B").await;
    let third = c.queues();
    scene.waits("C").await;
    a.release().await;
    second.reply().await.ok();
    b.release().await;
    third.reply().await.ok();
    c.release().await;
    scene.close([a, b, c]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_03_timeouts(scene: Scene) {
    let [a, b] = scene.actors(["A", "B"]).await;
    a.acquire().await;
    for wait in [&A_WHILE.as_millis().to_string(), "0", "-5"] {
        let reply = b.peer.ask(format!("acquire {} {wait}", b.handle)).await;
        assert_eq!(reply.outcome, Outcome::TimedOut);
    }
    a.release().await;
    scene.seen(|record| is_event(record, EventType::NodeDeleted)).await;
    b.peer.ask(format!("acquire {} 0", b.handle)).await.ok();
    b.release().await;
    scene.close([a, b]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_04_two_owners_of_one_object(scene: Scene) {
    let (a, _a) = scene.client("A").await;
    let mutex = scene.mutex(&a);
    let guard = mutex.acquire().await.unwrap();
    let waiting = queues(&mutex);
    scene.settled(&a, 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    a.close().await.unwrap();
    scene.assert_equal();
}

/// Another owner's acquire of the same object.
fn queues(mutex: &InterProcessMutex) -> JoinHandle<LockGuard> {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.acquire().await.unwrap() })
}

pub(crate) async fn scene_13_a_revocation(scene: Scene) {
    let [a] = scene.actors(["A"]).await;
    let (b, _b) = scene.client("B").await;
    a.peer.ask(format!("revocable {}", a.handle)).await.ok();
    a.acquire().await;
    let (children, _) = b.get_children2(&scene.root).await.unwrap();
    let node = format!("{}/{}", scene.root, children.iter().next().unwrap());
    b.set_data(&node, b"hello", None).await.unwrap();
    scene.answered("A", 2, OpCode::GetData).await;
    Revoker::attempt_revoke(&b, &policy(), &node).await.unwrap();
    a.peer.event(&format!("revoke {}", a.handle)).await;
    a.release().await;
    a.acquire().await;
    a.release().await;
    scene.close([a]).await;
    b.close().await.unwrap();
    scene.assert_equal();
}

pub(crate) async fn scene_14_a_downgrade(scene: Scene) {
    let [a, b] = scene.actors(["A", "B"]).await;
    let (read, write) = (format!("read:{}", scene.root), format!("write:{}", scene.root));
    a.acquire_at(&write).await;
    let waiting = b.peer.send(format!("acquire {read}"));
    scene.waits("B").await;
    a.acquire_at(&read).await;
    a.release_at(&write).await;
    waiting.reply().await.ok();
    b.release_at(&read).await;
    a.release_at(&read).await;
    scene.close([a, b]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_16_a_semaphore(mut scene: Scene) {
    let ((a, _a), (b, _b)) = (scene.client("A").await, scene.client("B").await);
    let (ours, theirs) = (scene.semaphore(&a, 2), scene.semaphore(&b, 2));
    let mut leases = ours.acquire_many(2).await.unwrap();
    assert!(theirs.acquire_timeout(A_WHILE).await.unwrap().is_none());
    let waiting = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.acquire().await }
    });
    // Two listings of the mutex's queue by now, and three of the leases.
    scene.answered("B", 5, OpCode::GetChildren2).await;
    leases.remove(0).release().await.unwrap();
    let lease = waiting.await.unwrap().unwrap();
    leases.remove(0).release().await.unwrap();
    scene
        .seen_nth(3, |record| {
            &*record.client == "B" && is_event(record, EventType::NodeChildrenChanged)
        })
        .await;
    assert!(theirs.acquire_many_timeout(2, A_WHILE).await.unwrap().is_none());
    lease.release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    // Of two time-outs in the recording, one was faster than its own event, and asked about the watch.
    scene.instead_of(
        "B -> checkWatches(17) /s16/leases type=3
         B -> delete(2) /s16/locks/_c_G11-lock-0000000005 v=-1
         B <- checkWatches NOWATCHER",
        "B -> delete(2) /s16/locks/_c_G11-lock-0000000005 v=-1",
    );
    scene.assert_equal();
}

pub(crate) async fn scene_30_the_data_of_a_revocable_lock(scene: Scene) {
    let a = scene.actor_with("A", 3, &[("LOCK_PEER_LOCK_DATA", "DATA")]).await;
    let handle = format!("write:{}", scene.root);
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    a.peer.ask(format!("revocable {handle}")).await.ok();
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_34_no_containers(scene: Scene) {
    let env = [("LOCK_PEER_DATA", "127.0.0.1"), ("LOCK_PEER_OPTIONS", "no-containers")];
    let a = scene.actor_with("A", 3, &env).await;
    let handle = format!("{}/z", a.handle);
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_40_an_upgrade(scene: Scene) {
    let [a] = scene.actors(["A"]).await;
    let (read, write) = (format!("read:{}", scene.root), format!("write:{}", scene.root));
    a.acquire_at(&read).await;
    let reply = a.peer.ask(format!("acquire {write} {}", A_WHILE.as_millis())).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    a.release_at(&read).await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_41_a_watch_that_nobody_waits_for(scene: Scene) {
    let [a, b] = scene.actors(["A", "B"]).await;
    a.acquire().await;
    let reply = b.peer.ask(format!("acquire {} {}", b.handle, A_WHILE.as_millis())).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    a.release().await;
    scene.seen(|record| is_event(record, EventType::NodeDeleted)).await;
    scene.close([a, b]).await;
    scene.assert_equal();
}

/// Two wait for the first, and are both woken when it goes; which one looks first does not show.
pub(crate) async fn scene_45_three_owners_of_one_object(scene: Scene) {
    let (a, _a) = scene.client("A").await;
    let mutex = scene.mutex(&a);
    let first = mutex.acquire().await.unwrap();
    let second = queues(&mutex);
    scene.settled(&a, 1).await;
    let third = queues(&mutex);
    scene.settled(&a, 2).await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    // The third watches the second by now.
    scene.answered("A", 3, OpCode::GetData).await;
    scene.settled(&a, 1).await;
    second.release().await.unwrap();
    third.await.unwrap().release().await.unwrap();
    a.close().await.unwrap();
    scene.assert_equal();
}

/// What N11 is about: asking about a watch takes it from the client, and the server keeps it.
pub(crate) async fn scene_46_a_watch_that_is_asked_about(mut scene: Scene) {
    let (a, _a) = scene.client("A").await;
    let path = &scene.root;
    a.create(path, b"", docent::CreateMode::Persistent).await.unwrap();
    let (_, watcher) = a.get_data_and_watch(path).await.unwrap();
    a.check_watches(path, WatcherType::Any).await.unwrap();
    watcher.forget();
    a.set_data(path, b"", None).await.unwrap();
    let error = a.check_watches(path, WatcherType::Any).await.unwrap_err();
    assert_eq!(error.kind(), docent::ErrorKind::NoWatcher);
    a.delete(path, None).await.unwrap();
    assert!(a.exists(&format!("{path}-x")).await.unwrap().is_none());
    a.close().await.unwrap();
    // The recording shows the data of its setData as nothing.
    scene.expected = scene.expected.replace("data=\"\"", "data=<empty>");
    scene.expected = scene.expected.replace("/s46-x", &format!("{path}-x"));
    scene.assert_equal();
}

/// Curator's `IllegalMonitorStateException` and "Not acquired". A guard cannot be released by who has none; a
/// lock peer says so, and nothing is sent.
pub(crate) async fn scene_51_a_release_by_who_does_not_hold(mut scene: Scene) {
    let [a] = scene.actors(["A"]).await;
    a.acquire().await;
    let other = format!("{}#other", a.handle);
    assert_eq!(a.peer.ask(format!("release {other}")).await.error_kind(), "NotOwner");
    a.release().await;
    assert_eq!(a.peer.ask(format!("release {}", a.handle)).await.error_kind(), "NotOwner");

    // Who gets a semaphore mutex is no thread, so anybody who has the guard may release it.
    let handle = format!("semmutex:{}b", scene.root);
    assert_eq!(a.peer.ask(format!("release {handle}")).await.error_kind(), "NotOwner");
    a.acquire_at(&handle).await;
    let reply = a.peer.ask(format!("acquire {handle} {}", A_WHILE.as_millis())).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    a.release_at(&handle).await;
    scene.close([a]).await;
    // The second path of the trace is the second one here.
    let second = format!("{}b", scene.root);
    scene.expected = scene.expected.replace("/s51b", &second);
    scene.assert_equal();
}
