//! ClickHouse Keeper, as its issues describe it: the gaps in `docs/KEEPER.md`, each tested with the client, locks or a
//! cache.

use docent::{CuratorCache, InterProcessMutex};

use super::*;

const KEEPERS: [Version; 4] =
    [Version::Keeper24, Version::Keeper26_1, Version::Keeper26, Version::Keeper26_6];

/// `None` between two sessions.
fn session_id(client: &Client) -> Option<i64> {
    client.session().map(|lease| lease.session_id())
}

/// A lost connection is a lost session (ClickHouse#116690): the server grants another one, and docent reports the loss.
#[tokio::test]
async fn a_session_that_a_keeper_replaces_is_lost() {
    for version in KEEPERS {
        let fixture = Fixture::of_version(version).await;
        let (client, tap) = fixture.client("A").await;
        let before = session_id(&client);
        let lease = client.session().unwrap();
        client.create("/mine", b"", CreateMode::Ephemeral).await.unwrap();
        tap.cut();
        until("another session", async || session_id(&client) != before).await;
        assert!(lease.is_lost(), "{version}");
        let node = eventually("the node", async || client.exists("/mine").await.ok()).await;
        let owner = node.map(|stat| stat.ephemeral_owner);
        assert_ne!(owner, session_id(&client), "{version}");
    }
}

/// An unknown operation costs the connection, and so the session, without a reply. Two such losses prove that the
/// operation is missing; later sessions keep this result.
// Case (Found in docent itself): no lock could be acquired on a ClickHouse Keeper without create2:
// each try cost the session, and what it had shown.
#[tokio::test]
async fn a_lock_is_acquired_on_a_keeper_without_create2() {
    let fixture = Fixture::of_version(Version::Keeper24).await;
    let (client, _tap) = fixture.client("A").await;
    let mutex = InterProcessMutex::new(&client, "/locks/a").unwrap();
    let guard = within_deadline("acquire", mutex.acquire()).await.unwrap();
    guard.fencing_token().await.unwrap();
    let (session, sessions) = (session_id(&client), client.metrics().sessions);
    assert_eq!(sessions, 3, "two were lost with create2");
    // A waiter that times out.
    let other = InterProcessMutex::new(&client, "/locks/a").unwrap();
    assert!(other.acquire_timeout(Duration::from_millis(50)).await.unwrap().is_none());
    guard.release().await.unwrap();
    other.acquire().await.unwrap().release().await.unwrap();
    // A dropped watcher leaves its watch on the server, at no cost.
    drop(client.exists_and_watch("/none").await.unwrap());
    client.exists("/").await.unwrap();
    assert_eq!((session_id(&client), client.metrics().sessions), (session, sessions));
    let creates = fixture.tap.trace();
    let count = |op| creates.iter().filter(|record| record.is_request(op)).count();
    assert_eq!((count(OpCode::Create2), count(OpCode::RemoveWatches)), (2, 0));
}

/// ClickHouse#108908.
#[tokio::test]
async fn the_parents_of_a_lock_are_containers_on_a_keeper_that_has_them() {
    let fixture = Fixture::of_version(Version::Keeper26_6).await;
    let (client, _tap) = fixture.client("A").await;
    let mutex = InterProcessMutex::new(&client, "/locks/a").unwrap();
    let guard = within_deadline("acquire", mutex.acquire()).await.unwrap();
    let trace = fixture.tap.trace().text();
    for parent in ["/locks", "/locks/a"] {
        assert!(trace.contains(&format!("createContainer(19) {parent} ")), "{trace}");
    }
    assert_eq!(trace.matches("createContainer OK").count(), 2, "{trace}");
    guard.release().await.unwrap();
    assert_eq!(client.metrics().sessions, 1);
}

/// The cache uses one-shot watches: on a Keeper without addWatch (ClickHouse#55594), and where events have the path of
/// the watch (ClickHouse#115475). The deletion of a child does not change `pzxid` (ClickHouse#115457).
#[tokio::test]
async fn a_cache_follows_the_nodes_of_a_keeper() {
    for version in KEEPERS {
        let fixture = Fixture::of_version(version).await;
        let (client, tap) = fixture.client("A").await;
        let writer = fixture.observer().await;
        for path in ["/r", "/r/a", "/r/a/b"] {
            writer.create(path, b"1", CreateMode::Persistent).await.unwrap();
        }
        let cache = CuratorCache::start(&client, "/r").unwrap();
        within_deadline("the cache", cache.initialized()).await.unwrap();
        let nodes = async |count: usize| {
            until(&format!("{count} nodes on {version}"), async || cache.snapshot().len() == count)
                .await;
        };
        nodes(3).await;
        writer.set_data("/r/a", b"2", None).await.unwrap();
        let changed = || cache.get("/r/a").and_then(|node| node.data().cloned());
        until("the change", async || changed().as_deref() == Some(b"2")).await;
        writer.delete("/r/a/b", None).await.unwrap();
        nodes(2).await;
        writer.create("/r/c", b"", CreateMode::Persistent).await.unwrap();
        nodes(3).await;
        // A lost connection means a new session, in which the cache reads everything again.
        tap.stall();
        writer.delete("/r/c", None).await.unwrap();
        tap.cut();
        tap.resume();
        nodes(2).await;
        cache.close().await;
    }
}

/// Only the loss of the connection shows that the operation is unknown, so its outcome is unknown. The second loss
/// proves that the operation is missing.
#[tokio::test]
async fn an_operation_that_a_keeper_does_not_know_is_a_lost_connection() {
    for version in KEEPERS {
        let fixture = Fixture::of_version(version).await;
        let (client, _tap) = fixture.client("A").await;
        let lost = (ErrorKind::ConnectionLoss, Outcome::Unknown);
        let ttl = Ttl::from_duration(Duration::from_secs(9)).unwrap();
        for unknown in ["whoAmI", "createTTL", "addWatch"] {
            if unknown == "addWatch" && version != Version::Keeper24 {
                continue;
            }
            let call = async || match unknown {
                "whoAmI" => client.who_am_i().await.map(drop),
                "createTTL" => {
                    let mode = CreateMode::PersistentWithTtl(ttl);
                    client.create("/ttl", b"", mode).await.map(drop)
                }
                _ => client.add_watch("/a", AddWatchMode::Persistent).await.map(drop),
            };
            for _ in 0..2 {
                let error = within_deadline(unknown, call()).await.unwrap_err();
                assert_eq!((error.kind(), error.outcome()), lost, "{version}: {error}");
                eventually("a connection", async || client.exists("/").await.ok()).await;
            }
            let session = session_id(&client);
            let error = within_deadline(unknown, call()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unimplemented, "{version}: {error}");
            client.exists("/").await.unwrap();
            assert_eq!(session_id(&client), session, "{version}: {unknown}");
        }
    }
}

/// A Keeper resumes no session: a client that would return to a better server checks this first, and stays.
#[tokio::test]
async fn a_client_of_a_keeper_is_never_moved() {
    for version in KEEPERS {
        let config = server::Config { servers: 3, version, ..Default::default() };
        let cluster = TestingCluster::start_with(config).await.unwrap();
        let config = Config::new(&cluster.connect_string()).unwrap();
        let client = config.connect().await.unwrap();
        let (session, server) = (session_id(&client), client.server());
        for _ in 0..2 {
            let error = within_deadline("a refusal", client.reconnect()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unimplemented, "{version}");
            assert_eq!(error.outcome(), Outcome::NotApplied);
            assert!(error.to_string().contains("ClickHouse Keeper"), "{error}");
        }
        client.exists("/").await.unwrap();
        assert_eq!((session_id(&client), client.server()), (session, server), "{version}");
        assert_eq!(client.metrics().connections, 1, "{version}");
    }
}

/// A Keeper does not know the SASL operation (ClickHouse#59489).
#[tokio::test]
async fn a_keeper_does_not_reply_to_sasl() {
    for version in KEEPERS {
        let config = server::Config { version, ..Default::default() };
        let server = TestingServer::start_with(config).await.unwrap();
        let config = Config::new(&server.connect_string())
            .map(|config| config.with_sasl("bob", "bobpw"))
            .unwrap()
            .with_connection_timeout(Duration::from_secs(3));
        let error = within_deadline("the error", config.connect()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionLoss, "{version}: {error}");
        assert!(error.to_string().contains("no reply to SASL"), "{version}: {error}");
    }
}

/// A follower does not report reads to its leader, only pings and writes (ClickHouse#111102). A client that reads more
/// often than it would ping sends no pings: its session expires, and the next one begins at once.
#[tokio::test]
async fn a_session_that_only_reads_expires_on_a_follower_of_a_keeper() {
    let tick_time = Duration::from_millis(200);
    let config =
        server::Config { version: Version::Keeper26, servers: 3, tick_time, ..Default::default() };
    let cluster = TestingCluster::start_with(config).await.unwrap();
    let leader = eventually("a leader", async || cluster.leader()).await;
    let follower = cluster.addr((leader + 1) % 3).unwrap();
    let config = Config::new(&follower.to_string()).unwrap();
    let config = config.with_session_timeout(Duration::from_secs(2));
    let client = within_deadline("a client", config.connect()).await.unwrap();
    let lease = client.session().unwrap();
    until("the end of the session", async || {
        let _ = client.exists("/").await;
        lease.is_lost()
    })
    .await;
    eventually("another session", async || client.exists("/").await.ok()).await;
}
