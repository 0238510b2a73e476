//! Caches that begin with nodes of an earlier one: of a wider cache, or of a server that is ahead.

use docent_testing::TestingCluster;

use super::*;
use crate::support::ensemble::{client_of, leader_and_follower};

async fn create(client: &Client, paths: &[&str], data: &[u8]) {
    for path in paths {
        client.create(path, data, CreateMode::Persistent).await.unwrap();
    }
}

async fn snapshot(client: &Client, path: &str) -> Vec<CachedNode> {
    let cache = CuratorCache::start(client, path).unwrap();
    initialized(&cache).await;
    cache.snapshot()
}

/// A cache never updates nodes outside its tree, so it must not begin with them.
// Case (Found in docent itself): initial nodes that a cache does not hold (deeper ones, other
// paths, those that its filter rejects) were shown for ever, and never updated.
#[tokio::test]
async fn initial_nodes_that_the_cache_does_not_hold_are_left_out() {
    let fixture = Fixture::embedded().await;
    let client = fixture.observer().await;
    let paths =
        ["/all", "/all/root", "/all/root/a", "/all/root/a/deep", "/all/root/b.tmp", "/all/x"];
    create(&client, &paths, b"1").await;
    let nodes = snapshot(&client, "/all").await;
    let options = CacheOptions::direct_children().with_filter(|path| !path.ends_with(".tmp"));
    let options = options.with_initial_nodes(nodes);
    let (cache, mut events) =
        CuratorCache::start_with_events(&client, "/all/root", options).unwrap();
    assert_eq!(list(&cache, "/all/root"), [" 0 1", "/a 0 1"]);
    initialized(&cache).await;
    assert_eq!(list(&cache, "/all/root"), [" 0 1", "/a 0 1"]);
    let first = within_deadline("an event", events.next()).await;
    assert!(matches!(first, Some(CacheEvent::Initialized { len: 2 })), "{first:?}");
}

/// A cache with data reads the data that its initial nodes lack.
// Case (Found in docent itself): a cache with data that began with nodes of one without data had
// none of unchanged nodes.
#[tokio::test]
async fn data_that_initial_nodes_do_not_have_are_added() {
    let fixture = Fixture::embedded().await;
    let client = fixture.observer().await;
    create(&client, &["/c", "/c/d"], b"1").await;
    let without = CacheOptions::default().without_data();
    let without = CuratorCache::start_with(&client, "/c", without).unwrap();
    initialized(&without).await;
    let nodes = without.snapshot();
    assert!(nodes.iter().all(|node| node.data().is_none()));
    let options = CacheOptions::default().with_initial_nodes(nodes);
    let cache = CuratorCache::start_with(&client, "/c", options).unwrap();
    initialized(&cache).await;
    assert_eq!(list(&cache, "/c"), [" 0 1", "/d 0 1"]);
}

/// An ensemble that was restored from a backup is behind the nodes that an earlier cache has read.
// Case (Found in docent itself): a cache whose nodes were newer than the server's (initial nodes,
// or nodes of an earlier session, when the ensemble was restored from a backup) read and listed
// them in a loop, 2,400 times a second each, was never initialized, and kept showing them.
#[tokio::test]
async fn nodes_of_an_ensemble_that_was_restored_are_replaced() {
    let before = Fixture::embedded().await;
    let client = before.observer().await;
    create(&client, &["/r", "/r/same", "/r/gone", "/r/gone/below"], b"old").await;
    for _ in 0..50 {
        client.set_data("/r/same", b"written", None).await.unwrap();
    }
    client.delete_recursive("/r/gone").await.unwrap();
    create(&client, &["/r/gone", "/r/later"], b"new").await;
    let nodes = snapshot(&client, "/r").await;

    let restored = Fixture::embedded().await;
    let (client, _tap) = restored.client("A").await;
    create(&client, &["/r", "/r/same", "/r/gone", "/r/gone/below"], b"old").await;
    let since = restored.tap.len();
    let options = CacheOptions::default().with_initial_nodes(nodes);
    let cache = CuratorCache::start_with(&client, "/r", options).unwrap();
    initialized(&cache).await;
    let wanted = [" 0 old", "/gone 0 old", "/gone/below 0 old", "/same 0 old"];
    assert_eq!(list(&cache, "/r"), wanted);
    // The cache does not read in a loop until the server is ahead, which it never is.
    let reads = [OpCode::GetData, OpCode::GetChildren2, OpCode::Multi]
        .map(|op| restored.requests(since, op));
    assert!(reads.iter().sum::<usize>() < 30, "{reads:?}");
    client.set_data("/r/same", b"2", None).await.unwrap();
    eventually("the change", async || {
        cache.get("/r/same").filter(|node| node.stat().version == 1).map(drop)
    })
    .await;
}

/// A lagging server does not bring old nodes back, and is not read in a loop.
#[tokio::test]
async fn a_server_behind_the_initial_nodes_is_waited_for() {
    let cluster = TestingCluster::start(3).await.unwrap();
    let (leader, lagging) = leader_and_follower(&cluster);
    let fixture = Fixture::of_member(&cluster, lagging).await;
    let writer = client_of(&cluster, leader).await;
    create(&writer, &["/r", "/r/a", "/r/b"], b"old").await;
    let (client, _tap) = fixture.client("A").await;
    client.sync("/r").await.unwrap();
    cluster.set_lag(lagging, true);
    writer.set_data("/r/a", b"new", None).await.unwrap();
    writer.delete("/r/b", None).await.unwrap();
    create(&writer, &["/r/b"], b"new").await;
    let nodes = snapshot(&writer, "/r").await;

    let since = fixture.tap.len();
    let options = CacheOptions::default().with_initial_nodes(nodes);
    let (cache, mut events) = CuratorCache::start_with_events(&client, "/r", options).unwrap();
    until("the write", async || fixture.requests(since, OpCode::Multi) > 0).await;
    let wanted = [" 0 old", "/a 1 new", "/b 0 new"];
    assert_eq!(list(&cache, "/r"), wanted);
    assert!(!cache.is_initialized());
    cluster.set_lag(lagging, false);
    initialized(&cache).await;
    assert_eq!(list(&cache, "/r"), wanted);
    let first = within_deadline("an event", events.next()).await;
    assert!(matches!(first, Some(CacheEvent::Initialized { len: 3 })), "{first:?}");
    let reads = fixture.requests(since, OpCode::GetData);
    assert!(reads < 30, "{reads}");
}

/// tokio's channel panics at a capacity that is too large; the cache must not.
// Case (Found in docent itself): `CacheOptions::with_max_events` with a very large number panicked
// at the start of the cache.
#[tokio::test]
async fn the_largest_number_of_events_is_no_panic() {
    let fixture = Fixture::embedded().await;
    let client = fixture.observer().await;
    for events in [0, usize::MAX / 2, usize::MAX] {
        let options = CacheOptions::single_node().with_max_events(events);
        let cache = CuratorCache::start_with(&client, "/", options).unwrap();
        initialized(&cache).await;
        within_deadline("the close", cache.close()).await;
    }
}
