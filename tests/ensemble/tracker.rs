//! The ensemble tracker: a client that follows the members of its ensemble.

use docent::{Acl, EnsembleTracker, OpCode, Perms, config::Host, ensemble::EnsembleConfig};
use docent_testing::{TestingServer, fault::Fault, tap::TapClient};

use super::*;
use crate::{
    reconfig::{OBSERVER, joining, leaving, real, super_user, text},
    support::{
        DEADLINE,
        ensemble::{address, addresses, changeable, configured, servers},
        has_watches,
    },
};

async fn cluster(servers: usize) -> TestingCluster {
    TestingCluster::start_with(changeable(servers)).await.unwrap()
}

async fn connect(connect: &str) -> Client {
    let config = Config::new(connect).unwrap().with_session_timeout(Duration::from_secs(20));
    config.with_connection_timeout(DEADLINE).connect().await.unwrap()
}

/// A client of one server, and its tracker with a configuration.
async fn tracked(connect_string: &str) -> (Client, EnsembleTracker) {
    let client = connect(connect_string).await;
    let tracker = EnsembleTracker::new(&client);
    configured(&tracker, 1).await;
    (client, tracker)
}

async fn admin(cluster: &TestingCluster, member: usize) -> Client {
    let client = connect(&address(cluster, member)).await;
    client.add_auth("digest", b"super:test").await.unwrap();
    client
}

#[tokio::test]
async fn one_server_is_enough_to_find_the_others() {
    let cluster = cluster(3).await;
    let client = connect(&address(&cluster, 0)).await;
    assert_eq!(servers(&client).len(), 1);
    let tracker = EnsembleTracker::new(&client);
    let config = configured(&tracker, 1).await;
    assert_eq!(config.servers.len(), 3);
    assert_eq!(servers(&client), addresses(&cluster, &[0, 1, 2]));

    cluster.stop(0);
    let session = session_id(&client);
    eventually("the session at another member", async || {
        client.exists("/").await.ok().map(drop).filter(|()| client.server().is_some())
    })
    .await;
    assert_eq!(session_id(&client), session);
}

#[tokio::test]
async fn a_client_without_a_tracker_reads_no_configuration() {
    let server = TestingServer::start_with(changeable(1)).await.unwrap();
    let tap = server.tap().await.unwrap();
    let a = tap.client("A").await.unwrap();
    let client = connect(&a.connect_string()).await;
    client.exists("/").await.unwrap();
    assert!(!tap.trace().text().contains("/zookeeper/config"), "{}", tap.trace().text());
    assert_eq!(servers(&client).len(), 1);
}

/// The tracker's server is removed from the ensemble: the client moves away, and no request is lost.
#[tokio::test]
async fn a_client_leaves_a_server_that_leaves_the_ensemble() {
    let cluster = cluster(3).await;
    let leader = cluster.leader().unwrap();
    let follower = (leader + 1) % 3;
    let (client, tracker) = tracked(&address(&cluster, follower)).await;
    let admin = admin(&cluster, leader).await;
    let line = |config: &docent::Node, member: usize| {
        let start = format!("server.{}=", member + 1);
        text(config).lines().find(|line| line.starts_with(&start)).unwrap().to_owned()
    };
    let before = admin.get_config().await.unwrap();
    let removed = admin.reconfig(leaving(&(follower + 1).to_string()), None).await.unwrap();
    configured(&tracker, removed.stat.mzxid).await;
    let others: Vec<_> = (0..3).filter(|member| *member != follower).collect();
    assert_eq!(servers(&client), addresses(&cluster, &others));
    let gone = address(&cluster, follower);
    eventually("another server", async || {
        client.server().filter(|server| server.to_string() != gone).map(drop)
    })
    .await;

    let back = line(&before, follower);
    let added = admin.reconfig(joining(&back), None).await.unwrap();
    configured(&tracker, added.stat.mzxid).await;
    assert_eq!(servers(&client), addresses(&cluster, &[0, 1, 2]));
}

/// C35, and invalid configurations: they change nothing, and the next valid one is applied.
// Case (Ensembles that change): a configuration that is empty, invalid, or without addresses
// changes nothing.
#[tokio::test]
async fn only_a_newer_configuration_with_addresses_counts() {
    let cluster = cluster(3).await;
    let client = connect(&cluster.connect_string()).await;
    let tracker = EnsembleTracker::new(&client);
    let version = configured(&tracker, 1).await.version;
    let all = addresses(&cluster, &[0, 1, 2]);
    let admin = admin(&cluster, 0).await;
    let node = "/zookeeper/config";
    let older = format!("server.1=a:1:2;9\nversion={:x}", version - 1);
    let equal = format!("server.1=a:1:2;9\nversion={version:x}");
    let newer = |servers: &str| format!("{servers}\nversion={:x}", version + 1);
    for (number, data) in [
        older,
        equal,
        "bogus".to_owned(),
        String::new(),
        newer("server.1=a:1"),
        newer("server.1=a:1:2"),
        newer("server.1=0.0.0.0:1:2;0.0.0.0:3"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut events = client.get_config_and_watch().await.unwrap().1;
        admin.set_data(node, data.as_bytes(), None).await.unwrap();
        within_deadline("the event", events.next()).await;
        // The tracker has queued its read behind the same event; these replies follow its reply.
        for _ in 0..3 {
            client.sync("/").await.unwrap();
            assert_eq!(servers(&client), all, "{number}: {data}");
        }
        assert_eq!(configured(&tracker, 1).await.version, version, "{number}: {data}");
    }
    let next = newer(&format!("server.1=a:1:2;{}", all.first().unwrap()));
    admin.set_data(node, next.as_bytes(), None).await.unwrap();
    configured(&tracker, version + 1).await;
    assert_eq!(servers(&client), [all.first().unwrap().clone()].into());
}

/// A member that is cut off has an older configuration. A client that lost its session gets a read-only one there: it
/// keeps the newest configuration.
#[tokio::test]
async fn a_server_that_lags_brings_no_older_configuration_back() {
    let config = server::Config {
        tick_time: Duration::from_millis(100),
        local_sessions_enabled: true,
        local_sessions_upgrading_enabled: true,
        ..changeable(3)
    };
    let cluster = TestingCluster::start_with(config).await.unwrap();
    let leader = cluster.leader().unwrap();
    let lagging = (leader + 1) % 3;
    let tap = Tap::start(&address(&cluster, leader)).await.unwrap();
    let a = tap.client("A").await.unwrap();
    let config = Config::new(&a.connect_string()).unwrap().with_read_only(true);
    let config = config.with_session_timeout(Duration::from_secs(2));
    let client = config.connect().await.unwrap();
    let tracker = kept_at(&client, &a);
    configured(&tracker, 1).await;
    cluster.isolate(lagging);
    let admin = admin(&cluster, leader).await;
    let added = admin.reconfig(joining(OBSERVER), None).await.unwrap();
    let newest = configured(&tracker, added.stat.mzxid).await;
    assert_eq!(newest.servers.len(), 4);

    let read_only = async || cluster.role(lagging) == server::Role::ReadOnly;
    until("a member that can only be read", read_only).await;
    let since = tap.len();
    tap.set_upstream(&address(&cluster, lagging));
    a.cut();
    reaches(&client, ConnectionState::ReadOnly).await;
    until("the read of the tracker", async || {
        let trace = tap.trace().since(since);
        trace.iter().any(|record| record.is_reply(OpCode::GetData))
    })
    .await;
    let older: EnsembleConfig = text(&client.get_config().await.unwrap()).parse().unwrap();
    assert!(older.version < newest.version, "{older:?}");
    assert_eq!(*tracker.config().get().unwrap(), newest);
}

/// A tracker that keeps the client at the address of its tap.
fn kept_at(client: &Client, tap: &TapClient) -> EnsembleTracker {
    let addr = tap.addr();
    EnsembleTracker::with_hosts(client, move |config| {
        let host = Host { name: addr.ip().to_string(), port: addr.port() };
        config.servers.iter().take(1).map(|_| host.clone()).collect()
    })
}

/// C34.
#[tokio::test]
async fn addresses_of_proxies_are_kept_by_a_function() {
    let cluster = cluster(3).await;
    let tap = Tap::start(&address(&cluster, 0)).await.unwrap();
    let a = tap.client("A").await.unwrap();
    let client = connect(&a.connect_string()).await;
    let tracker = kept_at(&client, &a);
    configured(&tracker, 1).await;
    assert_eq!(servers(&client), [a.connect_string()].into());
    drop(tracker);
    // An empty list changes nothing.
    let none = EnsembleTracker::with_hosts(&client, |_| Vec::new());
    client.sync("/").await.unwrap();
    drop(none);
    assert_eq!(servers(&client), [a.connect_string()].into());
}

// Case (Found in docent itself): a function that panicked ended the tracker, and nothing said so.
#[tokio::test]
async fn a_tracker_outlives_a_panic_of_its_function() {
    let cluster = cluster(3).await;
    let leader = cluster.leader().unwrap();
    let client = connect(&address(&cluster, leader)).await;
    let has_panicked = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&has_panicked);
    let tracker = EnsembleTracker::with_hosts(&client, move |config| {
        assert!(panics.swap(true, Ordering::SeqCst), "the first configuration");
        config.client_hosts()
    });
    until("the panic", async || has_panicked.load(Ordering::SeqCst)).await;
    let admin = admin(&cluster, leader).await;
    let added = admin.reconfig(joining(OBSERVER), None).await.unwrap();
    configured(&tracker, added.stat.mzxid).await;
}

/// A read that is refused for a while is repeated on the same connection.
// Case (Ensembles that change): a server refuses the read of the configuration for a while.
#[tokio::test]
async fn a_throttled_read_is_repeated() {
    let server = TestingServer::start_with(changeable(1)).await.unwrap();
    let client = connect(&server.connect_string()).await;
    server.throttle(3);
    let tracker = EnsembleTracker::new(&client);
    configured(&tracker, 1).await;
}

/// A client whose queue is full refuses the read without sending it.
// Case (Found in docent itself): an ensemble tracker whose read was refused by a full queue of the
// client, or by the ACL of the node, had no watch and followed nothing until the next connection.
#[tokio::test]
async fn a_read_that_a_full_queue_refuses_is_repeated() {
    let server = TestingServer::start_with(changeable(1)).await.unwrap();
    let config = Config::new(&server.connect_string()).unwrap().with_max_requests(1);
    let client = config.with_connection_timeout(DEADLINE).connect().await.unwrap();
    server.stall();
    let first = client.exists("/");
    let tracker = EnsembleTracker::new(&client);
    until("a refusal", async || client.metrics().refused > 0).await;
    server.resume();
    first.await.unwrap();
    configured(&tracker, 1).await;
}

/// A read that the ACL refuses leaves no watch, and no event reports a change of the ACL.
#[tokio::test]
async fn a_configuration_that_was_hidden_is_read_later() {
    let cluster = cluster(3).await;
    let client = connect(&address(&cluster, 0)).await;
    let admin = admin(&cluster, 1).await;
    let node = "/zookeeper/config";
    let hidden = [Acl::new(Perms::WRITE, "world", "anyone")];
    admin.set_acl(node, &hidden, None).await.unwrap();
    client.sync("/").await.unwrap();
    let tap = Tap::start(&address(&cluster, 0)).await.unwrap();
    let a = tap.client("A").await.unwrap();
    let other = connect(&a.connect_string()).await;
    let tracker = kept_at(&other, &a);
    until("a refusal", async || tap.trace().iter().any(|record| record.is_reply(OpCode::GetData)))
        .await;
    assert!(tracker.config().get().is_none());
    admin.set_acl(node, docent::acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    configured(&tracker, 1).await;
}

// Case (Ensembles that change): a dropped tracker leaves no watch.
#[tokio::test]
async fn a_dropped_tracker_leaves_no_watch_and_the_last_servers() {
    let cluster = cluster(3).await;
    let (client, tracker) = tracked(&address(&cluster, 0)).await;
    has_watches(&client, 1).await;
    let mut config = tracker.config();
    tracker.close();
    has_watches(&client, 0).await;
    config.get();
    assert!(within_deadline("the end", config.next()).await.is_none());
    assert_eq!(servers(&client), addresses(&cluster, &[0, 1, 2]));
    for member in 0..3 {
        let addr = address(&cluster, member);
        eventually("no watch at the servers", async || {
            let words = crate::support::real::four_letter_word(&addr, "wchp").await;
            words.ok().filter(|words| words.trim().is_empty())
        })
        .await;
    }
}

/// A tracker keeps no session open, and ends with its client.
#[tokio::test]
async fn a_tracker_ends_with_its_client() {
    let server = TestingServer::start_with(changeable(1)).await.unwrap();
    for closes in [true, false] {
        let (client, tracker) = tracked(&server.connect_string()).await;
        if closes {
            client.close().await.unwrap();
            assert_eq!(client.ended(), Some(ErrorKind::Closed));
        }
        drop(client);
        let mut config = tracker.config();
        config.get();
        assert!(within_deadline("the end", config.next()).await.is_none());
        until("no session", async || server.session_ids().is_empty()).await;
    }
}

/// The next connection repeats a read whose reply was lost.
#[tokio::test]
async fn a_lost_reply_is_followed_by_the_read_of_the_next_connection() {
    let server = TestingServer::start_with(changeable(1)).await.unwrap();
    let tap = server.tap().await.unwrap();
    let a = tap.client("A").await.unwrap();
    tap.inject(Fault::drop_reply(OpCode::GetData));
    let client = connect(&a.connect_string()).await;
    let tracker = kept_at(&client, &a);
    configured(&tracker, 1).await;
    let text = tap.trace().text();
    assert_eq!(text.matches(" -> getData(4) /zookeeper/config").count(), 2, "{text}");
}

/// The same on a real ensemble, whose configuration is given the first member's address by a reconfiguration.
#[tokio::test]
async fn a_real_ensemble_is_followed() {
    let Some(ensemble) = real(1).await else { return };
    let admin = super_user(&ensemble, 0).await;
    let client = ensemble.client_of(0).await;
    let tracker = EnsembleTracker::new(&client);
    let before = admin.get_config().await.unwrap();
    let first = text(&before).lines().next().unwrap().to_owned();
    let member = format!("{first};{}", ensemble.connect_to(0));
    let changed = admin.reconfig(joining(&member), None).await.unwrap();
    let config = configured(&tracker, changed.stat.mzxid).await;
    assert_eq!(config.version, changed.stat.mzxid);
    assert_eq!(servers(&client), [ensemble.connect_to(0)].into());
    let added = admin.reconfig(joining("server.9=localhost:1:2:observer;3"), None).await.unwrap();
    let config = configured(&tracker, added.stat.mzxid).await;
    assert!(config.servers.iter().any(|server| server.id == 9 && server.is_observer));
    assert_eq!(servers(&client), [ensemble.connect_to(0), "localhost:3".to_owned()].into());
}
