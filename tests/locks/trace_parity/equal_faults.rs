//! Scenarios in which requests, replies and nodes are lost, and docent sends Curator's frames.

use std::{
    pin::pin,
    task::{Context, Waker},
};

use docent::protocol::OpCode;
use docent_testing::fault::Fault;

use super::Scenario;
use crate::support::DEADLINE;

pub(crate) async fn scenario_05_the_reply_of_a_create_is_lost(scenario: Scenario) {
    let [a] = scenario.peers(["A"]).await;
    a.acquire().await;
    a.release().await;
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2));
    a.acquire().await;
    a.release().await;
    scenario.close([a]).await;
    scenario.with_synced_searches().assert_equal();
}

pub(crate) async fn scenario_08_the_retries_of_a_create_are_exhausted(scenario: Scenario) {
    let a = scenario.peer_with("A", 0, &[]).await;
    a.acquire().await;
    a.release().await;
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2));
    assert_eq!(a.send_acquire().reply().await.error_kind(), "ConnectionLoss");
    scenario.wait_for_deleted("A", 2).await;
    scenario.close([a]).await;
    scenario.with_synced_searches().assert_equal();
}

pub(crate) async fn scenario_10_our_node_is_deleted_while_waiting(mut scenario: Scenario) {
    let [a, b] = scenario.peers(["A", "B"]).await;
    a.acquire().await;
    let waiting = b.send_acquire();
    scenario.wait_for_waiter("B").await;
    // In the recording the operator used A's connection; here it has its own.
    scenario.cut_lines("B <- getData OK", "# A releases");
    scenario.operator_deletes_the_youngest().await;
    a.release().await;
    waiting.reply().await.ok();
    b.release().await;
    scenario.close([a, b]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_11_our_node_is_gone_and_no_retries(mut scenario: Scenario) {
    let [a] = scenario.peers(["A"]).await;
    let b = scenario.peer_with("B", 0, &[]).await;
    a.acquire().await;
    let waiting = b.send_acquire();
    scenario.wait_for_waiter("B").await;
    // As in scenario 10.
    scenario.cut_lines("B <- getData OK", "A -> delete(2) /s11/_c_G1");
    scenario.operator_deletes_the_youngest().await;
    a.release().await;
    assert_eq!(waiting.reply().await.error_kind(), "NoNode");
    scenario.close([a, b]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_17_deletes_are_lost(scenario: Scenario) {
    a_release_loses_its_deletes(scenario, 1, 4).await;
}

/// A release under a policy with `retries`, of whose deletes the first `losses` are lost.
async fn a_release_loses_its_deletes(scenario: Scenario, retries: u32, losses: u32) {
    let a = scenario.peer_with("A", retries, &[]).await;
    a.acquire().await;
    scenario.tap.inject(Fault::drop_before(OpCode::Delete).times(losses));
    let reply = a.peer.ask(format!("release {}", a.handle)).await;
    assert_eq!(reply.error_kind(), "ConnectionLoss");
    scenario.wait_for_reply("A", 1, OpCode::Delete).await;
    scenario.close([a]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_24_the_parent_vanishes_before_the_second_create(scenario: Scenario) {
    let [a] = scenario.peers(["A"]).await;
    let (o, _o) = scenario.client("O").await;
    // Delayed until the parent is deleted.
    scenario.tap.inject(Fault::delay_request(OpCode::Create2, DEADLINE).of("A").nth(2));
    let waiting = a.send_acquire();
    scenario.wait_for_nth(2, |record| record.is_request(OpCode::Create2)).await;
    o.delete(&scenario.root, None).await.unwrap();
    scenario.tap.end_delays();
    waiting.reply().await.ok();
    a.release().await;
    scenario.close([a]).await;
    o.close().await.unwrap();
    scenario.assert_equal();
}

pub(crate) async fn scenario_26_the_reply_of_a_container_is_lost(scenario: Scenario) {
    let [a] = scenario.peers(["A"]).await;
    let handle = format!("{}/q", a.handle);
    scenario.tap.inject(Fault::drop_reply(OpCode::CreateContainer));
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    scenario.close([a]).await;
    scenario.with_synced_searches().assert_equal();
}

pub(crate) async fn scenario_29_the_search_is_lost_too(scenario: Scenario) {
    let a = scenario.peer_with("A", 1, &[]).await;
    a.acquire().await;
    a.release().await;
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2));
    scenario.tap.inject(Fault::drop_before(OpCode::GetChildren));
    assert_eq!(a.send_acquire().reply().await.error_kind(), "ConnectionLoss");
    scenario.wait_for_deleted("A", 2).await;
    scenario.close([a]).await;
    scenario.with_synced_searches().assert_equal();
}

/// CURATOR-106: in Curator, the background spins.
pub(crate) async fn scenario_57_deletes_are_lost_without_retries(scenario: Scenario) {
    a_release_loses_its_deletes(scenario, 0, 2).await;
}

pub(crate) async fn scenario_58_cancelled_during_the_create(scenario: Scenario) {
    let (a, _a) = scenario.client("A").await;
    let mutex = scenario.mutex(&a);
    mutex.acquire().await.unwrap().release().await.unwrap();
    {
        let mut acquire = pin!(mutex.acquire());
        assert!(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    scenario.wait_for_deleted("A", 2).await;
    a.close().await.unwrap();
    scenario.with_synced_searches().assert_equal();
}
