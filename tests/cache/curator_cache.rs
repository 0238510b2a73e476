//! The cache on servers of all versions: what it holds, its events, its options. Tests ported from Curator's
//! `TestCuratorCache`, `TestCuratorCacheEdges`, `TestCuratorCacheEventOrdering` and `TestCuratorCacheWrappers` have the
//! Java name above them.

use docent::{CacheEvent, CacheOptions, Client, CreateMode, CuratorCache, ErrorKind};

use crate::{
    Fixture, expect, expect_all, list, lists, next, short,
    support::{has_watches, within_deadline},
};

on_both_servers! {
    a_tree_is_loaded_and_followed
    a_filter_leaves_out_nodes_and_their_descendants
    a_slow_reader_receives_a_snapshot_and_delays_nothing
    a_snapshot_and_its_events_fit
    a_dropped_cache_removes_its_watch
    a_cache_of_an_invalid_path_is_refused
    a_new_session_resyncs_by_identity
    own_writes_become_events
}

mod versions {
    use docent_testing::server::Version;

    macro_rules! in_all_versions {
        ($($test:ident)*) => {
            $(
                mod $test {
                    #[tokio::test]
                    async fn v3_4() {
                        super::super::$test(crate::of_version(super::Version::V3_4).await).await;
                    }
                    #[tokio::test]
                    async fn v3_6() {
                        super::super::$test(crate::of_version(super::Version::V3_6).await).await;
                    }
                    #[tokio::test]
                    async fn v3_8() {
                        super::super::$test(crate::of_version(super::Version::V3_8).await).await;
                    }
                }
            )*
        };
    }

    in_all_versions! {
        a_tree_is_loaded_and_followed
        a_filter_leaves_out_nodes_and_their_descendants
        a_closed_cache_is_empty
        a_new_session_resyncs_by_identity
        own_writes_become_events
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

/// `TestCuratorCacheEventOrdering.testEventOrdering`, `TestCuratorCacheWrappers.testTreeCache`.
async fn a_tree_is_loaded_and_followed(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let options = CacheOptions::default();
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect_all(&mut events, &path, &LOADED, "initialized 4").await;
    assert!(cache.is_initialized() && !cache.is_stale() && cache.failures().is_empty());
    assert_eq!(list(&cache, &path), [" 1 root", "/a 0 A", "/b 0 B", "/b/c 0 C"]);
    assert_eq!(cache.children(&path).len(), 2);
    assert!(cache.get(&format!("{path}/x")).is_none());
    set(&observer, &format!("{path}/b/c"), "C2").await;
    expect(&mut events, &path, &["changed /b/c 1 C2 was 0 C"]).await;
    make(&observer, &format!("{path}/n"), "N").await;
    expect(&mut events, &path, &["created /n 0 N"]).await;
    make(&observer, &format!("{path}/n/k"), "K").await;
    expect(&mut events, &path, &["created /n/k 0 K"]).await;
    observer.delete(&format!("{path}/b/c"), None).await.unwrap();
    expect(&mut events, &path, &["deleted /b/c 1 C2"]).await;
    lists(&cache, &path, &[" 1 root", "/a 0 A", "/b 0 B", "/n 0 N", "/n/k 0 K"]).await;
}

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

/// C4: nothing bounds the events of Curator's cache, and one slow listener delays all others of the client.
async fn a_slow_reader_receives_a_snapshot_and_delays_nothing(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let options = CacheOptions::default().with_max_events(4);
    let (cache, mut slow) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    within_deadline("the load", cache.initialized()).await.unwrap();
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
    within_deadline("the load", cache.initialized()).await.unwrap();
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

/// `TestCuratorCache.testClearOnClose`.
async fn a_closed_cache_is_empty(fixture: Fixture) {
    let (_observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let options = CacheOptions::default();
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    within_deadline("the load", cache.initialized()).await.unwrap();
    within_deadline("the close", cache.close()).await;
    assert!(cache.is_empty());
    assert_eq!(cache.initialized().await.unwrap_err().kind(), ErrorKind::Closed);
    expect_all(&mut events, &path, &LOADED, "initialized 4").await;
    assert!(within_deadline("the end", events.next()).await.is_none());
    assert!(cache.events().next().await.is_none());
}

async fn a_dropped_cache_removes_its_watch(fixture: Fixture) {
    let (_observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let cache = CuratorCache::start(&a, &path).unwrap();
    within_deadline("the load", cache.initialized()).await.unwrap();
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

/// Changes that leave `version` and `cversion` as they were: C1.
async fn swap(observer: &Client, path: &str) {
    let at = |below: &str| format!("{path}/{below}");
    // The same version, other data.
    observer.delete(&at("a"), None).await.unwrap();
    make(observer, &at("a"), "A'").await;
    // The same cversion, another child.
    observer.delete(&at("b/c"), None).await.unwrap();
    observer.delete(&at("b"), None).await.unwrap();
    make(observer, &at("b"), "B").await;
    make(observer, &at("b/d"), "D").await;
}

const SWAPPED: [&str; 7] = [
    "stale",
    "deleted /a 0 A",
    "created /a 0 A'",
    "deleted /b/c 0 C",
    "deleted /b 0 B",
    "created /b 0 B",
    "created /b/d 0 D",
];

/// `TestCuratorCacheEdges.testServerLoss`.
async fn a_new_session_resyncs_by_identity(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, tap) = fixture.client("A").await;
    let options = CacheOptions::default();
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect_all(&mut events, &path, &LOADED, "initialized 4").await;
    tap.refuse().await.unwrap();
    tap.kill_session(crate::support::DEADLINE).await.unwrap();
    swap(&observer, &path).await;
    tap.accept().await.unwrap();
    expect_all(&mut events, &path, &SWAPPED, "resynced 4").await;
    assert_eq!(list(&cache, &path), [" 1 root", "/a 0 A'", "/b 0 B", "/b/d 0 D"]);
    // The new watch works.
    set(&observer, &path, "two").await;
    expect(&mut events, &path, &["changed  2 two was 1 root"]).await;
}

/// The event of an own write comes before its reply.
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
