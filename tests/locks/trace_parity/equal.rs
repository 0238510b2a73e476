//! Scenarios without faults.

use docent::{
    EventType, WatcherType,
    protocol::OpCode,
    recipes::locks::{InterProcessMutex, LockGuard, Revoker},
};
use tokio::task::JoinHandle;

use super::{Scenario, TIMEOUT, is_event, policy};
use crate::support::peer::Outcome;

pub(crate) async fn scenario_01_missing_parents(scenario: Scenario) {
    let [a] = scenario.peers(["A"]).await;
    let handle = format!("{}/x/y", a.handle);
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    // Re-entrant.
    a.acquire_at(&handle).await;
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    a.release_at(&handle).await;
    scenario.close([a]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_02_contended(scenario: Scenario) {
    let [a, b, c] = scenario.peers(["A", "B", "C"]).await;
    a.acquire().await;
    let second = b.send_acquire();
    scenario.wait_for_waiter("B").await;
    let third = c.send_acquire();
    scenario.wait_for_waiter("C").await;
    a.release().await;
    second.reply().await.ok();
    b.release().await;
    third.reply().await.ok();
    c.release().await;
    scenario.close([a, b, c]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_03_timeouts(scenario: Scenario) {
    let [a, b] = scenario.peers(["A", "B"]).await;
    a.acquire().await;
    for wait in [&TIMEOUT.as_millis().to_string(), "0", "-5"] {
        let reply = b.peer.ask(format!("acquire {} {wait}", b.handle)).await;
        assert_eq!(reply.outcome, Outcome::TimedOut);
    }
    a.release().await;
    scenario.wait_for(|record| is_event(record, EventType::NodeDeleted)).await;
    b.peer.ask(format!("acquire {} 0", b.handle)).await.ok();
    b.release().await;
    scenario.close([a, b]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_04_two_owners_of_one_object(scenario: Scenario) {
    let (a, _a) = scenario.client("A").await;
    let mutex = scenario.mutex(&a);
    let guard = mutex.acquire().await.unwrap();
    let waiting = spawn_acquire(&mutex);
    scenario.wait_until_settled(&a, 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_equal();
}

/// Starts an acquire of another owner through the same object.
fn spawn_acquire(mutex: &InterProcessMutex) -> JoinHandle<LockGuard> {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.acquire().await.unwrap() })
}

pub(crate) async fn scenario_13_a_revocation(scenario: Scenario) {
    let [a] = scenario.peers(["A"]).await;
    let (b, _b) = scenario.client("B").await;
    a.peer.ask(format!("revocable {}", a.handle)).await.ok();
    a.acquire().await;
    let (children, _) = b.get_children_with_stat(&scenario.root).await.unwrap();
    let node = format!("{}/{}", scenario.root, children.iter().next().unwrap());
    b.set_data(&node, b"hello", None).await.unwrap();
    scenario.wait_for_reply("A", 2, OpCode::GetData).await;
    Revoker::attempt_revoke(&b, &policy(), &node).await.unwrap();
    a.peer.event(&format!("revoke {}", a.handle)).await;
    a.release().await;
    a.acquire().await;
    a.release().await;
    scenario.close([a]).await;
    b.close().await.unwrap();
    scenario.assert_equal();
}

pub(crate) async fn scenario_14_a_downgrade(scenario: Scenario) {
    let [a, b] = scenario.peers(["A", "B"]).await;
    let (read, write) = (format!("read:{}", scenario.root), format!("write:{}", scenario.root));
    a.acquire_at(&write).await;
    let waiting = b.peer.send(format!("acquire {read}"));
    scenario.wait_for_waiter("B").await;
    a.acquire_at(&read).await;
    a.release_at(&write).await;
    waiting.reply().await.ok();
    b.release_at(&read).await;
    a.release_at(&read).await;
    scenario.close([a, b]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_16_a_semaphore(mut scenario: Scenario) {
    let ((a, _a), (b, _b)) = (scenario.client("A").await, scenario.client("B").await);
    let (ours, theirs) = (scenario.semaphore(&a, 2), scenario.semaphore(&b, 2));
    let mut leases = ours.acquire_many(2).await.unwrap();
    assert!(theirs.acquire_timeout(TIMEOUT).await.unwrap().is_none());
    let waiting = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.acquire().await }
    });
    // Two listings of the mutex's queue, and three of the leases.
    scenario.wait_for_reply("B", 5, OpCode::GetChildren2).await;
    leases.remove(0).release().await.unwrap();
    let lease = waiting.await.unwrap().unwrap();
    leases.remove(0).release().await.unwrap();
    scenario
        .wait_for_nth(3, |record| {
            &*record.client == "B" && is_event(record, EventType::NodeChildrenChanged)
        })
        .await;
    assert!(theirs.acquire_many_timeout(2, TIMEOUT).await.unwrap().is_none());
    lease.release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    // Of two timeouts in the recording, one was faster than its own event, and sent checkWatches.
    scenario.replace_lines(
        "B -> checkWatches(17) /s16/leases type=3
         B -> delete(2) /s16/locks/_c_G11-lock-0000000005 v=-1
         B <- checkWatches NOWATCHER",
        "B -> delete(2) /s16/locks/_c_G11-lock-0000000005 v=-1",
    );
    scenario.assert_equal();
}

pub(crate) async fn scenario_30_the_data_of_a_revocable_lock(scenario: Scenario) {
    let a = scenario.peer_with("A", 3, &[("LOCK_PEER_LOCK_DATA", "DATA")]).await;
    let handle = format!("write:{}", scenario.root);
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    a.peer.ask(format!("revocable {handle}")).await.ok();
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    scenario.close([a]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_34_no_containers(scenario: Scenario) {
    let env = [("LOCK_PEER_DATA", "127.0.0.1"), ("LOCK_PEER_OPTIONS", "no-containers")];
    let a = scenario.peer_with("A", 3, &env).await;
    let handle = format!("{}/z", a.handle);
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    scenario.close([a]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_40_an_upgrade(scenario: Scenario) {
    let [a] = scenario.peers(["A"]).await;
    let (read, write) = (format!("read:{}", scenario.root), format!("write:{}", scenario.root));
    a.acquire_at(&read).await;
    let reply = a.peer.ask(format!("acquire {write} {}", TIMEOUT.as_millis())).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    a.release_at(&read).await;
    scenario.close([a]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_41_an_abandoned_watch(scenario: Scenario) {
    let [a, b] = scenario.peers(["A", "B"]).await;
    a.acquire().await;
    let reply = b.peer.ask(format!("acquire {} {}", b.handle, TIMEOUT.as_millis())).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    a.release().await;
    scenario.wait_for(|record| is_event(record, EventType::NodeDeleted)).await;
    scenario.close([a, b]).await;
    scenario.assert_equal();
}

/// Two waiters watch the first node, and its release wakes both; the trace does not show which one lists first.
pub(crate) async fn scenario_45_three_owners_of_one_object(scenario: Scenario) {
    let (a, _a) = scenario.client("A").await;
    let mutex = scenario.mutex(&a);
    let first = mutex.acquire().await.unwrap();
    let second = spawn_acquire(&mutex);
    scenario.wait_until_settled(&a, 1).await;
    let third = spawn_acquire(&mutex);
    scenario.wait_until_settled(&a, 2).await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    // The third watches the second by now.
    scenario.wait_for_reply("A", 3, OpCode::GetData).await;
    scenario.wait_until_settled(&a, 1).await;
    second.release().await.unwrap();
    third.await.unwrap().release().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_equal();
}

/// N11: checkWatches removes the watch from the client, and the server keeps it.
pub(crate) async fn scenario_46_check_watches(mut scenario: Scenario) {
    let (a, _a) = scenario.client("A").await;
    let path = &scenario.root;
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
    // The recording shows empty data in setData as `<empty>`.
    scenario.expected = scenario.expected.replace("data=\"\"", "data=<empty>");
    scenario.expected = scenario.expected.replace("/s46-x", &format!("{path}-x"));
    scenario.assert_equal();
}

/// Curator's `IllegalMonitorStateException` and "Not acquired". Without a guard nothing can be released; the lock peer
/// reports that, and sends nothing.
pub(crate) async fn scenario_51_a_release_without_the_lock(mut scenario: Scenario) {
    let [a] = scenario.peers(["A"]).await;
    a.acquire().await;
    let other = format!("{}#other", a.handle);
    assert_eq!(a.peer.ask(format!("release {other}")).await.error_kind(), "NotOwner");
    a.release().await;
    assert_eq!(a.peer.ask(format!("release {}", a.handle)).await.error_kind(), "NotOwner");

    // A semaphore mutex has no owner, so it can be released from any thread.
    let handle = format!("semmutex:{}b", scenario.root);
    assert_eq!(a.peer.ask(format!("release {handle}")).await.error_kind(), "NotOwner");
    a.acquire_at(&handle).await;
    let reply = a.peer.ask(format!("acquire {handle} {}", TIMEOUT.as_millis())).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    a.release_at(&handle).await;
    scenario.close([a]).await;
    // The second path of the trace is the second one here.
    let second = format!("{}b", scenario.root);
    scenario.expected = scenario.expected.replace("/s51b", &second);
    scenario.assert_equal();
}
