//! Nodes that another process deletes, in virtual time: how soon they are created again.

use std::time::Duration;

use docent_protocol::CreateMode;
use docent_recipes::{
    barriers::DistributedDoubleBarrier,
    locks::InterProcessMutex,
    nodes::{PersistentNode, PersistentTtlNode},
};
use docent_session::{Client, ErrorKind, retry::RetryNTimes};
use tokio::time::{Instant, sleep, timeout};

use crate::{World, options};

/// The number of deletions, and the sum of the nine pauses between them, of 0, 100 ms and so on to 5 s.
const DELETIONS: u32 = 10;
const PAUSES: Duration = Duration::from_millis(16_300);

/// Deletes the child that is not `ahead` again and again, as soon as it is there; returns how long that took. After each
/// deletion `ahead` is written, which wakes a waiter that watches it.
async fn delete_children(operator: &Client, parent: &str, ahead: Option<&str>) -> Duration {
    let start = Instant::now();
    for _ in 0..DELETIONS {
        let path = loop {
            let (children, mut watcher) = operator.get_children_and_watch(parent).await.unwrap();
            match children.iter().find(|&name| Some(name) != ahead) {
                Some(name) => break format!("{parent}/{name}"),
                None => drop(watcher.next().await),
            }
        };
        operator.delete(&path, None).await.unwrap();
        if let Some(ahead) = ahead {
            operator.set_data(&format!("{parent}/{ahead}"), b"", None).await.unwrap();
        }
    }
    start.elapsed()
}

// Case (Found in docent itself): a kept node, a member of a group and an instance of a service that
// another process deletes in a loop were created again 90 to 380 times a second.
#[tokio::test(start_paused = true)]
async fn a_kept_node_that_is_deleted_in_a_loop_is_created_with_growing_pauses() {
    let world = World::new().await;
    let (client, operator) = (world.client().await, world.client().await);
    operator.create("/kept", b"", CreateMode::Persistent).await.unwrap();
    let node = PersistentNode::start(&client, "/kept/n", CreateMode::Ephemeral, "x").unwrap();
    let took = delete_children(&operator, "/kept", None).await;
    assert!(took >= PAUSES, "{DELETIONS} nodes in {took:?}");
    let written = timeout(Duration::from_secs(6), node.written()).await;
    written.expect("the node is there after the last pause").unwrap();
    node.close().await.unwrap();
}

/// As long as its retry policy allows, a waiter takes another place in the queue.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_node_is_deleted_in_a_loop_queues_again_after_growing_pauses() {
    let world = World::new().await;
    let (client, operator) = (world.client().await, world.client().await);
    operator.create("/lock", b"", CreateMode::Persistent).await.unwrap();
    let ahead = "ahead-lock-0000000000";
    operator.create(&format!("/lock/{ahead}"), b"", CreateMode::Ephemeral).await.unwrap();
    let options = options().with_retry_policy(RetryNTimes::new(DELETIONS - 1, Duration::ZERO));
    let mutex = InterProcessMutex::with_options(&client, "/lock", options).unwrap();
    let deletions = delete_children(&operator, "/lock", Some(ahead));
    let (acquired, took) = tokio::join!(mutex.acquire(), deletions);
    assert_eq!(acquired.unwrap_err().kind(), ErrorKind::NoNode);
    assert!(took >= PAUSES, "{DELETIONS} nodes in {took:?}");
}

/// The child that keeps the node is written after half of its time to live. What a node contains that another client puts
/// in its place is not known.
#[tokio::test(start_paused = true)]
async fn a_node_with_a_time_to_live_is_touched_in_time_and_written_again() {
    let world = World::new().await;
    let (client, operator) = (world.client().await, world.client().await);
    let ttl = Duration::from_secs(10);
    let node = PersistentTtlNode::start(&client, "/kept", ttl, "x").unwrap();
    node.created().await.unwrap();
    node.written().await.unwrap();
    let mut replace = operator.transaction();
    replace.delete("/kept", None).create("/kept", b"other", CreateMode::Persistent);
    replace.commit().await.unwrap();
    sleep(ttl * 6 / 10).await;
    assert_eq!(&*operator.get_data("/kept").await.unwrap().data, b"x");
    assert!(operator.exists("/kept/touch").await.unwrap().is_some());
    node.close().await.unwrap();
}

// Case (Found in docent itself): a member of a double barrier whose node was deleted by hand waited
// for ever, and with it all others.
#[tokio::test(start_paused = true)]
async fn a_member_whose_node_is_deleted_enters_with_another_one() {
    let world = World::new().await;
    let (client, operator) = (world.client().await, world.client().await);
    operator.create("/barrier", b"", CreateMode::Persistent).await.unwrap();
    let member = |client: &Client| DistributedDoubleBarrier::new(client, "/barrier", 2).unwrap();
    let mut first = member(&client);
    let first = tokio::spawn(async move { first.enter().await.map(|()| first) });
    let took = timeout(Duration::from_secs(60), delete_children(&operator, "/barrier", None)).await;
    let took = took.expect("each deleted node is replaced");
    assert!(took >= PAUSES, "{DELETIONS} nodes in {took:?}");
    let mut second = member(&operator);
    timeout(Duration::from_secs(6), second.enter()).await.expect("both enter").unwrap();
    let mut first = first.await.unwrap().unwrap();
    let (left, also) = tokio::join!(first.leave(), second.leave());
    left.and(also).unwrap();
}

/// Each write wakes the kept node, which waits until the other client's node is deleted. These wake-ups must not delay
/// the takeover after the deletion.
// Case (Found in docent itself): a kept node that waited behind another client's node took over
// late if that one was written often, and its calls failed although the path was free.
#[tokio::test(start_paused = true)]
async fn a_node_that_another_client_writes_again_and_again_is_replaced_at_once() {
    let world = World::new().await;
    let (client, active) = (world.client().await, world.client().await);
    active.create("/n", b"active", CreateMode::Ephemeral).await.unwrap();
    let node = PersistentNode::start(&client, "/n", CreateMode::Ephemeral, "v1").unwrap();
    assert_eq!(node.created().await.unwrap_err().kind(), ErrorKind::NodeExists);
    for load in 0..30 {
        active.set_data("/n", format!("load={load}").as_bytes(), None).await.unwrap();
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let gone = Instant::now();
    active.delete("/n", None).await.unwrap();
    while active.exists("/n").await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(gone.elapsed() < Duration::from_millis(100), "{:?}", gone.elapsed());
    node.close().await.unwrap();
}
