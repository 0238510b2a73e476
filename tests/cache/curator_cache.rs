//! The cache on servers of all versions: what it holds, its events, its options. Tests ported from Curator's
//! `TestCuratorCache`, `TestCuratorCacheEdges`, `TestCuratorCacheEventOrdering` and `TestCuratorCacheWrappers` have the
//! Java name above them.

use docent::{CacheEvent, CacheOptions, Client, CreateMode, CuratorCache, ErrorKind, OpCode};
use docent_testing::server::Version;

use crate::{
    Fixture, count, expect, expect_all, list, lists, next, of_version, requests, short,
    support::{eventually, within_deadline},
};

on_both_servers! {
    a_tree_is_loaded_and_followed
    a_missing_root_is_followed
    a_single_node_is_held_without_its_children
    direct_children_are_held_without_theirs
    a_filter_leaves_out_nodes_and_what_is_below
    data_that_is_not_kept_is_in_the_events
    a_second_cache_starts_with_the_nodes_of_the_first
    a_slow_reader_receives_a_snapshot_and_delays_nothing
    a_snapshot_and_its_events_fit
    a_closed_cache_is_empty_and_its_watch_is_gone
    a_dropped_cache_removes_its_watch
    a_cache_of_an_invalid_path_is_refused
    a_kept_session_resyncs_by_identity
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
        a_missing_root_is_followed
        a_single_node_is_held_without_its_children
        direct_children_are_held_without_theirs
        a_filter_leaves_out_nodes_and_what_is_below
        a_closed_cache_is_empty
        a_kept_session_resyncs_by_identity
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

/// C1 of a missing root, `TestCuratorCacheWrappers.testNodeCache`.
async fn a_missing_root_is_followed(fixture: Fixture) {
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    let path = format!("{}/root", fixture.path);
    let (a, _tap) = fixture.client("A").await;
    let options = CacheOptions::default();
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect(&mut events, &path, &["initialized 0"]).await;
    assert!(cache.is_empty());
    for data in ["R", "R2"] {
        make(&observer, &path, data).await;
        expect(&mut events, &path, &[&format!("created  0 {data}")]).await;
        make(&observer, &format!("{path}/k"), "K").await;
        expect(&mut events, &path, &["created /k 0 K"]).await;
        observer.delete(&format!("{path}/k"), None).await.unwrap();
        observer.delete(&path, None).await.unwrap();
        expect(&mut events, &path, &["deleted /k 0 K", &format!("deleted  0 {data}")]).await;
        assert!(cache.is_empty());
    }
}

/// `TestCuratorCacheWrappers.testNodeCache`.
async fn a_single_node_is_held_without_its_children(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let before = fixture.tap.len();
    let options = CacheOptions::single_node();
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect(&mut events, &path, &["created  1 root", "initialized 1"]).await;
    make(&observer, &format!("{path}/n"), "N").await;
    set(&observer, &path, "two").await;
    expect(&mut events, &path, &["changed  2 two was 1 root"]).await;
    assert_eq!(cache.len(), 1);
    assert_eq!(count(&fixture, "A", before, OpCode::GetChildren2), 0);
}

/// C10: `TestCuratorCacheWrappers.testPathChildrenCache`, which Curator's wrapper passes with descendants.
async fn direct_children_are_held_without_theirs(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let options = CacheOptions::direct_children();
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect_all(&mut events, &path, &LOADED[..3], "initialized 3").await;
    set(&observer, &format!("{path}/b/c"), "C2").await;
    make(&observer, &format!("{path}/a/g"), "G").await;
    make(&observer, &format!("{path}/n"), "N").await;
    expect(&mut events, &path, &["created /n 0 N"]).await;
    assert_eq!(cache.children(&format!("{path}/a")).len(), 0);
}

async fn a_filter_leaves_out_nodes_and_what_is_below(fixture: Fixture) {
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

/// `TestCuratorCache.testUpdateWhenNotCachingData`.
async fn data_that_is_not_kept_is_in_the_events(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let options = CacheOptions::single_node().without_data();
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect(&mut events, &path, &["created  1 root", "initialized 1"]).await;
    set(&observer, &path, "two").await;
    expect(&mut events, &path, &["changed  2 two was 1 -"]).await;
    assert_eq!(cache.get(&path).unwrap().data(), None);
}

/// `TestCuratorCacheEdges.testReconnectConsistency`.
async fn a_second_cache_starts_with_the_nodes_of_the_first(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let first = CacheOptions::default().without_clear_on_close();
    let first = CuratorCache::start_with(&a, &path, first).unwrap();
    within_deadline("the load", first.initialized()).await.unwrap();
    within_deadline("the close", first.close()).await;
    assert_eq!(first.len(), 4);
    set(&observer, &format!("{path}/a"), "A2").await;
    observer.delete(&format!("{path}/b/c"), None).await.unwrap();
    make(&observer, &format!("{path}/d"), "D").await;
    let second = CacheOptions::default().with_initial_nodes(first.snapshot());
    let (_cache, mut events) = CuratorCache::start_with_events(&a, &path, second).unwrap();
    let wanted = ["changed /a 1 A2 was 0 A", "deleted /b/c 0 C", "created /d 0 D"];
    expect_all(&mut events, &path, &wanted, "initialized 4").await;
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

/// C7: Curator's cache leaves its watch on the server: each later change still crosses the wire.
async fn a_closed_cache_is_empty_and_its_watch_is_gone(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let cache = CuratorCache::start(&a, &path).unwrap();
    within_deadline("the load", cache.initialized()).await.unwrap();
    let before = fixture.tap.len();
    within_deadline("the close", cache.close()).await;
    assert!(cache.is_empty());
    assert_eq!(requests(&fixture, "A", before), [OpCode::RemoveWatches]);
    set(&observer, &path, "two").await;
    a.sync("/").await.unwrap();
    let trace = fixture.tap.trace().since(before);
    assert!(!trace.text().contains("EVENT"), "{}", trace.text());
}

async fn a_dropped_cache_removes_its_watch(fixture: Fixture) {
    let (_observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let cache = CuratorCache::start(&a, &path).unwrap();
    within_deadline("the load", cache.initialized()).await.unwrap();
    assert_eq!(a.metrics().watches, 1);
    drop(cache);
    eventually("no watch", async || (a.metrics().watches == 0).then_some(())).await;
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

/// C1: Curator's cache misses both changes for ever. C43: nor does it report the outage and its end.
async fn a_kept_session_resyncs_by_identity(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let (a, tap) = fixture.client("A").await;
    let options = CacheOptions::default();
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect_all(&mut events, &path, &LOADED, "initialized 4").await;
    tap.refuse().await.unwrap();
    tap.cut();
    expect(&mut events, &path, &["stale"]).await;
    assert!(cache.is_stale() && cache.is_initialized());
    swap(&observer, &path).await;
    tap.accept().await.unwrap();
    expect_all(&mut events, &path, &SWAPPED[1..], "resynced 4").await;
    assert!(!cache.is_stale());
    assert_eq!(list(&cache, &path), [" 1 root", "/a 0 A'", "/b 0 B", "/b/d 0 D"]);
}

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

/// The versions of the embedded server differ as real ones do.
#[tokio::test]
async fn servers_before_3_6_are_asked_for_a_persistent_watch_once_in_a_session() {
    let fixture = of_version(Version::V3_4).await;
    let (_observer, path) = populated(&fixture).await;
    let (a, tap) = fixture.client("A").await;
    let before = fixture.tap.len();
    let options = CacheOptions::default();
    let (_first, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect_all(&mut events, &path, &LOADED, "initialized 4").await;
    let options = CacheOptions::default();
    let (_second, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    expect_all(&mut events, &path, &LOADED, "initialized 4").await;
    tap.cut();
    expect(&mut events, &path, &["stale", "resynced 4"]).await;
    assert_eq!(count(&fixture, "A", before, OpCode::AddWatch), 1);
}
