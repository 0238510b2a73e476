//! Lost replies, limits, refusals: the faults that leave Curator's cache incomplete.

use docent::Config;
use docent_testing::fault::Fault;

use super::*;
use crate::support::{DEADLINE, fixture::request, in_process, pending_and_watches};

on_both_servers! {
    a_lost_read_is_repeated_before_the_cache_is_initialized
    the_reads_in_flight_are_limited
    a_limit_of_the_client_delays_the_load
    a_node_is_reported_after_its_parent
    the_first_load_includes_the_reads_that_an_event_has_caused
    a_listing_over_the_packet_limit_is_reported_once
    fifty_caches_leave_no_watch
}

const CHILDREN: usize = 40;

/// A node with children `n00`, `n01`, ...
async fn populated(fixture: &Fixture) -> (Client, String) {
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    let path = fixture.path.clone();
    for n in 0..CHILDREN {
        let child = format!("{path}/n{n:02}");
        observer.create(&child, b"", CreateMode::Persistent).await.unwrap();
    }
    (observer, path)
}

/// C2.
// Case (Found in docent itself): a cache cut off between a listing and the reads of the listed
// children never read them: the parent counted as listed.
async fn a_lost_read_is_repeated_before_the_cache_is_initialized(fixture: Fixture) {
    let (_observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    fixture.tap.inject(Fault::drop_reply(OpCode::GetData).of("A").nth(CHILDREN as u32 / 2));
    let cache = CuratorCache::start(&a, &path).unwrap();
    initialized(&cache).await;
    assert_eq!((cache.len(), cache.failures().len()), (CHILDREN + 1, 0));
}

/// C4: Curator sends a read for each child at once, and after a reconnect for each node.
async fn the_reads_in_flight_are_limited(fixture: Fixture) {
    let (_observer, path) = populated(&fixture).await;
    let (a, tap) = fixture.client("A").await;
    let before = fixture.tap.len();
    let options = CacheOptions::default().with_max_reads(3);
    let (_cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    while !matches!(next(&mut events).await, CacheEvent::Initialized { .. }) {}
    tap.cut();
    while !matches!(next(&mut events).await, CacheEvent::Resynced { .. }) {}
    let (mut in_flight, mut most) = (0_i64, 0);
    for record in fixture.tap.trace().since(before).iter().filter(|r| &*r.client == "A") {
        for op in [OpCode::GetData, OpCode::GetChildren2] {
            in_flight += i64::from(record.is_request(op)) - i64::from(record.is_reply(op));
        }
        most = most.max(in_flight);
    }
    assert_eq!(most, 3);
    // The second round reads each node once, and lists no children.
    assert_eq!(fixture.requests(before, OpCode::GetData), 2 * (CHILDREN + 1));
    assert_eq!(fixture.requests(before, OpCode::GetChildren2), CHILDREN + 1);
}

async fn a_limit_of_the_client_delays_the_load(fixture: Fixture) {
    let (_observer, path) = populated(&fixture).await;
    let limit = |config: Config| config.with_max_requests(4);
    let (a, _tap) = fixture.client_with("A", limit).await;
    let cache = CuratorCache::start(&a, &path).unwrap();
    initialized(&cache).await;
    assert_eq!((cache.len(), cache.failures().len()), (CHILDREN + 1, 0));
}

/// C5: Curator repeats the listing four times, each time the client loses its connection, and the cache stays empty.
async fn a_listing_over_the_packet_limit_is_reported_once(fixture: Fixture) {
    let (observer, path) = populated(&fixture).await;
    let limit = |config: Config| config.with_max_reply_bytes(220);
    let (a, tap) = fixture.client_with("A", limit).await;
    let options = CacheOptions::default();
    let (cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    let wanted = ["created  0 ", "failed  ReplyTooLarge", "initialized 1"];
    expect(&mut events, &path, &wanted).await;
    assert_eq!(cache.failures()[0].1.kind(), ErrorKind::ReplyTooLarge);
    // New children become known by events.
    observer.create(&format!("{path}/x"), b"X", CreateMode::Persistent).await.unwrap();
    expect(&mut events, &path, &["created /x 0 X"]).await;
    observer.set_data(&path, b"two", None).await.unwrap();
    expect(&mut events, &path, &["changed  1 two was 0 "]).await;
    tap.cut();
    expect(&mut events, &path, &["stale", "resynced 2"]).await;
    assert_eq!(cache.failures().len(), 1);
}

/// The nodes `a`, `a/b`, `a/b/c` and `a/b/c/d`.
async fn nested(fixture: &Fixture) -> (Client, String) {
    let (observer, path) = (fixture.observer().await, fixture.path.clone());
    observer.ensure_path(&format!("{path}/a/b/c/d"), CreateMode::Persistent).await.unwrap();
    (observer, path)
}

/// An event arrives for a node whose parent has not been read.
// Case (Found in docent itself): a cache reported a node before its parent, when an event came
// before the parent was read.
async fn a_node_is_reported_after_its_parent(fixture: Fixture) {
    let (observer, path) = nested(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    fixture.tap.inject(Fault::delay_reply(OpCode::GetData, ms(500)).of("A"));
    let mut records = fixture.tap.subscribe();
    let (_cache, mut events) =
        CuratorCache::start_with_events(&a, &path, CacheOptions::default()).unwrap();
    records.until(DEADLINE, request("A", OpCode::GetData)).await.unwrap();
    observer.set_data(&format!("{path}/a/b"), b"x", None).await.unwrap();
    let wanted = ["created  0 ", "created /a 0 ", "created /a/b 1 x", "created /a/b/c 0 "];
    expect(&mut events, &path, &wanted).await;
    expect(&mut events, &path, &["created /a/b/c/d 0 ", "initialized 5"]).await;
}

/// An event arrives for a node whose parent is being read: its descendants still belong to the first load.
// Case (Found in docent itself): a cache was initialized before the nodes below one that an event
// had made known were read.
async fn the_first_load_includes_the_reads_that_an_event_has_caused(fixture: Fixture) {
    let (observer, path) = nested(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    fixture.tap.inject(Fault::delay_reply(OpCode::GetData, ms(500)).of("A").nth(2));
    let mut records = fixture.tap.subscribe();
    let cache = CuratorCache::start(&a, &path).unwrap();
    for _ in ["the first read", "the second"] {
        records.until(DEADLINE, request("A", OpCode::GetData)).await.unwrap();
    }
    observer.set_data(&format!("{path}/a/b"), b"x", None).await.unwrap();
    initialized(&cache).await;
    assert_eq!(list(&cache, &path).len(), 5, "{:?}", list(&cache, &path));
}

/// C8: in Curator, each closed cache leaves a listener at the client.
async fn fifty_caches_leave_no_watch(fixture: Fixture) {
    let (_observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let start = || CuratorCache::start_with(&a, &path, CacheOptions::single_node()).unwrap();
    let caches: Vec<_> = (0..50).map(|_| start()).collect();
    for cache in &caches {
        initialized(cache).await;
    }
    for cache in &caches {
        within_deadline("the close", cache.close()).await;
    }
    assert_eq!(pending_and_watches(&a), (0, 0));
}

/// Since 3.9, events carry the zxid of the change: a change that a read has already shown is not read again (D35).
#[tokio::test]
async fn changes_that_were_read_already_cause_no_read() {
    let fixture = Fixture::embedded().await;
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let before = fixture.tap.len();
    // The write comes after the watch is set and before the read reaches the server.
    fixture.tap.inject(Fault::delay_request(OpCode::GetData, DEADLINE).of("A"));
    let options = CacheOptions::single_node();
    let (_cache, mut events) = CuratorCache::start_with_events(&a, &path, options).unwrap();
    fixture.tap.wait_for(DEADLINE, request("A", OpCode::GetData)).await.unwrap();
    fixture.wait_for_reply("A", OpCode::AddWatch).await;
    observer.set_data(&path, b"two", None).await.unwrap();
    fixture.tap.end_delays();
    expect_all(&mut events, &path, &["created  1 two"], "initialized 1").await;
    a.sync("/").await.unwrap();
    let wanted = [OpCode::AddWatch, OpCode::GetData, OpCode::Sync];
    assert_eq!(fixture.sent("A", before), wanted);
}

// Case (Caches): an overloaded server delays the cache.
#[tokio::test]
async fn throttled_reads_are_repeated() {
    let fixture = Fixture::embedded().await;
    let (observer, path) = populated(&fixture).await;
    let (a, _tap) = fixture.client("A").await;
    let cache = CuratorCache::start(&a, &path).unwrap();
    initialized(&cache).await;
    let (mut events, before) = (cache.events(), fixture.tap.len());
    fixture.tap.inject(Fault::delay_request(OpCode::GetData, DEADLINE).of("A"));
    observer.set_data(&path, b"two", None).await.unwrap();
    let mut records = fixture.tap.subscribe_from(before);
    records.until(DEADLINE, request("A", OpCode::GetData)).await.unwrap();
    // The delayed read, and the next one.
    fixture.testing_server().throttle(2);
    fixture.tap.end_delays();
    expect(&mut events, &path, &["changed  1 two was 0 "]).await;
    assert_eq!(fixture.sent("A", before), [OpCode::GetData; 3]);
}

/// A change that was reported before the connection was lost is read before the cache counts as resynced.
// Case (Found in docent itself): a cache with one-shot watches was reported as resynced, and was
// not stale, before it had repeated a read that an event had caused and the connection had lost.
#[tokio::test]
async fn one_shot_watches_resync_with_the_reads_that_were_lost() {
    let fixture = Fixture::of_version(Version::V3_4).await;
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    let (a, _tap) = fixture.client("A").await;
    let root = fixture.path.clone();
    let child = format!("{root}/child");
    observer.create(&child, b"1", CreateMode::Persistent).await.unwrap();
    let (cache, mut events) =
        CuratorCache::start_with_events(&a, &root, CacheOptions::default()).unwrap();
    expect(&mut events, &root, &["created  0 ", "created /child 0 1", "initialized 2"]).await;
    fixture.tap.inject(Fault::drop_before(OpCode::GetData).of("A").below(&child));
    observer.set_data(&child, b"2", None).await.unwrap();
    let wanted = ["stale", "changed /child 1 2 was 0 1", "resynced 2"];
    expect(&mut events, &root, &wanted).await;
    drop(cache);
}

/// In virtual time. The nodes are a chain, so one read is in flight at a time, and it is refused each time.
// Case (Found in docent itself): the pauses before a cache repeated failed reads did not grow: an
// overloaded server was asked ten times a second.
#[tokio::test(start_paused = true)]
async fn reads_are_repeated_with_growing_pauses() {
    let server = Arc::new(TestingServer::start().await.unwrap());
    let client = in_process::client(&server).await;
    let mut path = String::new();
    for _ in 0..40 {
        path += "/n";
        client.create(&path, b"", CreateMode::Persistent).await.unwrap();
    }
    let cache = CuratorCache::start(&client, "/n").unwrap();
    while cache.len() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(cache.len() < 40);
    server.throttle(7);
    let start = tokio::time::Instant::now();
    while cache.len() < 20 {
        tokio::time::advance(ms(10)).await;
    }
    // Reads have succeeded since, so the next pause is a short one.
    server.throttle(1);
    initialized(&cache).await;
    assert_eq!(cache.len(), 40);
    // 100 ms, doubled each time up to 5 s, and 100 ms.
    assert!((ms(10_000)..ms(13_000)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

/// In virtual time. The limit is in bytes: the same number of children fits once their names are shorter.
// Case (Found in docent itself): a cache whose listing was once over the reply limit was not
// complete when the listing fit again, unless the data of the node was written; with one-shot
// watches, data over the limit was never read again.
#[tokio::test(start_paused = true)]
async fn a_cache_is_complete_once_a_listing_over_the_limit_fits() {
    for version in [Version::V3_4, Version::V3_9] {
        let config = server::Config { version, ..Default::default() };
        let server = Arc::new(TestingServer::start_with(config).await.unwrap());
        let observer = in_process::client(&server).await;
        let config = in_process::config(&server).with_max_reply_bytes(220);
        let a = config.connect().await.unwrap();
        let long = |n: usize| format!("/root/{n:0>40}");
        observer.create("/root", b"", CreateMode::Persistent).await.unwrap();
        for n in 0..6 {
            observer.create(&long(n), b"", CreateMode::Persistent).await.unwrap();
        }
        let cache = CuratorCache::start(&a, "/root").unwrap();
        initialized(&cache).await;
        let before = a.metrics().requests;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!((cache.len(), cache.failures().len()), (1, 1), "{version}");
        // The node is read with growing pauses; its children are listed again only if they have changed.
        assert!((10..20).contains(&(a.metrics().requests - before)), "{version}");
        for n in 0..6 {
            observer.delete(&long(n), None).await.unwrap();
            observer.create(&format!("/root/{n}"), b"", CreateMode::Persistent).await.unwrap();
        }
        // Unknown children and data over the limit have no one-shot watches: the cache reads once a minute.
        let limit = Duration::from_secs(if version == Version::V3_4 { 60 } else { 2 });
        let lists = async |len: usize, failures: usize| {
            let arrived = async {
                while (cache.len(), cache.failures().len()) != (len, failures) {
                    tokio::time::sleep(ms(10)).await;
                }
            };
            let arrived = tokio::time::timeout(limit, arrived).await;
            arrived.unwrap_or_else(|_| panic!("{version}: {:?}", cache.failures()));
        };
        lists(7, 0).await;
        observer.set_data("/root/0", &[0; 300], None).await.unwrap();
        lists(7, 1).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        observer.set_data("/root/0", b"small", None).await.unwrap();
        lists(7, 0).await;
        assert_eq!(cache.get("/root/0").unwrap().data().unwrap(), "small", "{version}");
    }
}

/// A server that sends the events of a recursive watch with the path of the watch (ClickHouse #115475): the cache
/// notices it, and uses one-shot watches for the rest of the session.
#[tokio::test(start_paused = true)]
async fn events_with_the_path_of_the_watch_are_noticed_once_in_a_session() {
    let config = server::Config { version: Version::Keeper26, ..Default::default() };
    let server = Arc::new(TestingServer::start_with(config).await.unwrap());
    let writer = in_process::client(&server).await;
    let make = async |path: &str, data: &str| {
        writer.create(path, data.as_bytes(), CreateMode::Persistent).await.unwrap();
    };
    make("/r", "root").await;
    make("/r/rec", "A").await;
    make("/r/rec2", "B").await;
    let client = in_process::client(&server).await;
    let options = CacheOptions::default();
    let (cache, mut events) = CuratorCache::start_with_events(&client, "/r", options).unwrap();
    let wanted = ["created  0 root", "created /rec 0 A", "created /rec2 0 B"];
    expect_all(&mut events, "/r", &wanted, "initialized 3").await;
    // A deletion, reported as that of the root: the cache keeps the tree.
    writer.delete("/r/rec", None).await.unwrap();
    expect_all(&mut events, "/r", &["stale", "deleted /rec 0 A"], "resynced 2").await;
    // From here on, one-shot watches.
    assert!(client.session().is_some_and(|lease| lease.lacks(OpCode::AddWatch)));
    make("/r/n", "N").await;
    expect(&mut events, "/r", &["created /n 0 N"]).await;
    writer.set_data("/r/n", b"N2", None).await.unwrap();
    expect(&mut events, "/r", &["changed /n 1 N2 was 0 N"]).await;
    assert_eq!(list(&cache, "/r"), [" 0 root", "/n 1 N2", "/rec2 0 B"]);
    let second = CuratorCache::start(&client, "/r").unwrap();
    second.initialized().await.unwrap();
    assert_eq!(second.len(), 3);
    writer.delete("/r/n", None).await.unwrap();
    until("both", async || cache.len() == 2 && second.len() == 2).await;
}
