//! The cache on servers of all versions: its contents, its events, its options. Tests ported from Curator's
//! `TestCuratorCache`, `TestCuratorCacheEdges`, `TestCuratorCacheEventOrdering` and `TestCuratorCacheWrappers` have the
//! Java name above them.

use super::*;

on_both_servers! {
    a_filter_leaves_out_nodes_and_their_descendants
    a_slow_reader_receives_a_snapshot_and_delays_nothing
    a_snapshot_and_its_events_fit
    a_dropped_cache_removes_its_watch
    a_cache_of_an_invalid_path_is_refused
    own_writes_become_events
}

/// Servers before 3.6 have one-shot watches only, and those before 3.9 events without a zxid.
#[tokio::test]
async fn older_servers_have_the_same_events() {
    for version in [Version::V3_4, Version::V3_6, Version::V3_8] {
        a_filter_leaves_out_nodes_and_their_descendants(Fixture::of_version(version).await).await;
        own_writes_become_events(Fixture::of_version(version).await).await;
    }
}

async fn make(client: &Client, path: &str, data: &str) {
    client.create(path, data.as_bytes(), CreateMode::Persistent).await.unwrap();
}

async fn set(client: &Client, path: &str, data: &str) {
    client.set_data(path, data.as_bytes(), None).await.unwrap();
}

/// `/` root, `/a` A, `/b` B, `/b/c` C below the path of the fixture.
async fn populated(fixture: &Fixture) -> (Client, String) {
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    let path = fixture.path.clone();
    set(&observer, &path, "root").await;
    for (below, data) in [("a", "A"), ("b", "B"), ("b/c", "C")] {
        make(&observer, &format!("{path}/{below}"), data).await;
    }
    (observer, path)
}

const LOADED: [&str; 4] =
    ["created  1 root", "created /a 0 A", "created /b 0 B", "created /b/c 0 C"];

async fn a_filter_leaves_out_nodes_and_their_descendants(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let options = CacheOptions::default().with_filter(|path| !path.ends_with("/b"));
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect_all(&mut events, &path, &LOADED[..2], "initialized 2").await;
    set(&observer, &format!("{path}/b"), "B2").await;
    make(&observer, &format!("{path}/b/d"), "D").await;
    make(&observer, &format!("{path}/a/b"), "B").await;
    make(&observer, &format!("{path}/a/c"), "C").await;
    expect(&mut events, &path, &["created /a/c 0 C"]).await;
    assert_eq!(cache.len(), 3);
}

/// C4: Curator's cache has no limit for its events, and one slow listener delays all others of the client.
async fn a_slow_reader_receives_a_snapshot_and_delays_nothing(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let options = CacheOptions::default().with_max_events(4);
    let (cache, mut slow) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    initialized(&cache).await;
    let mut fast = cache.events();
    for n in 0..20 {
        make(&observer, &format!("{path}/a/n{n:02}"), "").await;
        expect(&mut fast, &path, &[&format!("created /a/n{n:02} 0 ")]).await;
    }
    let CacheEvent::Lagged { nodes, initialized: true, stale: false, .. } = next(&mut slow).await
    else {
        panic!("not lagged");
    };
    assert_eq!(nodes.len(), 24);
    set(&observer, &path, "two").await;
    expect(&mut slow, &path, &["changed  2 two was 1 root"]).await;
}

// Case (Caches): a snapshot and the events after it leave no gap.
async fn a_snapshot_and_its_events_fit(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let cache = CuratorCache::start(&a, &path).unwrap();
    initialized(&cache).await;
    for n in 0..20 {
        drop(observer.set_data(&path, n.to_string().as_bytes(), None));
    }
    let mut version = 0;
    while version < 21 {
        let (nodes, mut events) = cache.snapshot_and_events();
        version = nodes[0].stat().version;
        if version < 21 {
            let CacheEvent::Changed { old, new } = next(&mut events).await else { panic!() };
            assert_eq!(old.stat().version, version);
            assert!(new.stat().version > version);
        }
    }
}

async fn a_dropped_cache_removes_its_watch(fixture: Fixture) {
    let (_observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let cache = CuratorCache::start(&a, &path).unwrap();
    initialized(&cache).await;
    assert_eq!(a.metrics().watches, 1);
    drop(cache);
    has_watches(&a, 0).await;
}

async fn a_cache_of_an_invalid_path_is_refused(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    for path in ["", "a", "/a/", "/a//b"] {
        let refused = CuratorCache::start(&a, path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidPath, "{path}");
    }
}

/// The event of a client's own write comes before the reply.
// Case (Caches): the event of an own write.
async fn own_writes_become_events(fixture: Fixture) {
    let (_observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let options = CacheOptions::direct_children();
    let (_cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect_all(&mut events, &path, &LOADED[..3], "initialized 3").await;
    make(&a, &format!("{path}/n"), "N").await;
    set(&a, &path, "two").await;
    let mut seen = [short(&next(&mut events).await, &path), short(&next(&mut events).await, &path)];
    seen.sort_unstable();
    assert_eq!(seen, ["changed  2 two was 1 root", "created /n 0 N"]);
}
