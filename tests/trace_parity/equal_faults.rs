//! Scenes in which requests, replies and nodes are lost, and Curator makes no mistake.

use std::{
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use docent::protocol::OpCode;
use docent_testing::fault::Fault;

use super::Scene;

pub(crate) async fn scene_05_the_reply_of_a_create_is_lost(scene: Scene) {
    let [a] = scene.actors(["A"]).await;
    a.acquire().await;
    a.release().await;
    scene.tap.inject(Fault::drop_reply(OpCode::Create2));
    a.acquire().await;
    a.release().await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_08_a_create_fails_for_good(scene: Scene) {
    let a = scene.actor_with("A", 0, &[]).await;
    a.acquire().await;
    a.release().await;
    scene.tap.inject(Fault::drop_reply(OpCode::Create2));
    assert_eq!(a.queues().reply().await.error_kind(), "ConnectionLoss");
    scene.answered("A", 2, OpCode::Delete).await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_10_our_node_is_deleted_while_waiting(mut scene: Scene) {
    let [a, b] = scene.actors(["A", "B"]).await;
    a.acquire().await;
    let waiting = b.queues();
    scene.waits("B").await;
    // In the recording the operator used A's connection; here, one of its own.
    scene.cut("B <- getData OK", "# A releases");
    scene.operator_deletes_the_youngest().await;
    a.release().await;
    waiting.reply().await.ok();
    b.release().await;
    scene.close([a, b]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_11_our_node_is_gone_and_no_retries(mut scene: Scene) {
    let [a] = scene.actors(["A"]).await;
    let b = scene.actor_with("B", 0, &[]).await;
    a.acquire().await;
    let waiting = b.queues();
    scene.waits("B").await;
    // As in scene 10.
    scene.cut("B <- getData OK", "A -> delete(2) /s11/_c_G1");
    scene.operator_deletes_the_youngest().await;
    a.release().await;
    assert_eq!(waiting.reply().await.error_kind(), "NoNode");
    scene.close([a, b]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_17_deletes_are_lost(scene: Scene) {
    let a = scene.actor_with("A", 1, &[]).await;
    a.acquire().await;
    scene.tap.inject(Fault::drop_before(OpCode::Delete).times(4));
    let reply = a.peer.ask(format!("release {}", a.handle)).await;
    assert_eq!(reply.error_kind(), "ConnectionLoss");
    scene.answered("A", 1, OpCode::Delete).await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_24_the_parent_vanishes_before_the_second_create(scene: Scene) {
    let [a] = scene.actors(["A"]).await;
    let (o, _o) = scene.client("O").await;
    // Held back until it has seen that the parent is gone.
    let delay = Duration::from_secs(2);
    scene.tap.inject(Fault::delay_request(OpCode::Create2, delay).of("A").nth(2));
    let waiting = a.queues();
    scene.seen(|record| record.is_reply(OpCode::CreateContainer)).await;
    o.delete(&scene.root, None).await.unwrap();
    waiting.reply().await.ok();
    a.release().await;
    scene.close([a]).await;
    o.close().await.unwrap();
    scene.assert_equal();
}

pub(crate) async fn scene_26_the_reply_of_a_container_is_lost(scene: Scene) {
    let [a] = scene.actors(["A"]).await;
    let handle = format!("{}/q", a.handle);
    scene.tap.inject(Fault::drop_reply(OpCode::CreateContainer));
    a.acquire_at(&handle).await;
    a.release_at(&handle).await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_29_the_search_is_lost_too(scene: Scene) {
    let a = scene.actor_with("A", 1, &[]).await;
    a.acquire().await;
    a.release().await;
    scene.tap.inject(Fault::drop_reply(OpCode::Create2));
    scene.tap.inject(Fault::drop_before(OpCode::GetChildren));
    assert_eq!(a.queues().reply().await.error_kind(), "ConnectionLoss");
    scene.answered("A", 2, OpCode::Delete).await;
    scene.close([a]).await;
    scene.assert_equal();
}

/// CURATOR-106: there, the background spins.
pub(crate) async fn scene_57_deletes_are_lost_without_retries(scene: Scene) {
    let a = scene.actor_with("A", 0, &[]).await;
    a.acquire().await;
    scene.tap.inject(Fault::drop_before(OpCode::Delete).times(2));
    let reply = a.peer.ask(format!("release {}", a.handle)).await;
    assert_eq!(reply.error_kind(), "ConnectionLoss");
    scene.answered("A", 1, OpCode::Delete).await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_58_given_up_during_the_create(scene: Scene) {
    let (a, _a) = scene.client("A").await;
    let mutex = scene.mutex(&a);
    mutex.acquire().await.unwrap().release().await.unwrap();
    {
        let mut acquire = pin!(mutex.acquire());
        assert!(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    scene.answered("A", 2, OpCode::Delete).await;
    a.close().await.unwrap();
    scene.assert_equal();
}
