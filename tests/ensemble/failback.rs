//! Clients and the best server: their preference, the return to a better server, and the redistribution after a rolling
//! restart.

use std::sync::atomic::AtomicUsize;
use tokio::task::JoinHandle;
use tracing::Level;

use super::*;
use crate::support::traced::Traced;

const FAILBACK: Duration = Duration::from_secs(1);

/// A client that prefers the server of this port.
fn prefers(cluster: &TestingCluster, port: u16) -> Config {
    settings_of(cluster)
        .with_server_preference(move |server| u64::from(server.host().port != port))
        .with_failback(FAILBACK)
}

/// A session that outlives any wait of a busy machine.
fn settings_of(cluster: &TestingCluster) -> Config {
    let config = Config::new(&cluster.connect_string()).unwrap();
    config.with_session_timeout(Duration::from_secs(60))
}

fn port_of(client: &Client) -> Option<u16> {
    client.server().map(|host| host.port)
}

/// Writes until stopped; no write may fail.
fn writes(client: &Client, path: &str) -> (Arc<AtomicBool>, JoinHandle<usize>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (client, path, stopped) = (client.clone(), path.to_owned(), Arc::clone(&stop));
    let writing = tokio::spawn(async move {
        let mut count = 0;
        while !stopped.load(Ordering::Relaxed) {
            let writes = (0..20).map(|_| client.set_data(&path, b"x", None));
            for write in writes.collect::<Vec<_>>() {
                write.await.unwrap();
                count += 1;
            }
        }
        count
    });
    (stop, writing)
}

#[tokio::test]
async fn a_client_returns_to_its_preferred_member_with_all_that_it_holds() {
    let cluster = TestingCluster::start(3).await.unwrap();
    let home = cluster.addr(1).unwrap().port();
    let client = prefers(&cluster, home).connect().await.unwrap();
    assert_eq!(port_of(&client), Some(home));
    let session = session_id(&client);
    let guard = InterProcessMutex::new(&client, "/lock").unwrap().acquire().await.unwrap();
    client.create("/watched", b"", CreateMode::Persistent).await.unwrap();
    client.create("/written", b"", CreateMode::Persistent).await.unwrap();

    cluster.stop(1);
    reaches(&client, ConnectionState::Reconnected).await;
    assert_ne!(port_of(&client), Some(home));
    let (_, mut watcher) = client.get_data_and_watch("/watched").await.unwrap();
    let (stop, writing) = writes(&client, "/written");
    let mut states = client.states();
    assert_eq!(states.next().await, Some(ConnectionState::Reconnected.into()));
    cluster.restart(1).await.unwrap();
    until("the return", async || port_of(&client) == Some(home)).await;
    stop.store(true, Ordering::Relaxed);
    assert!(writing.await.unwrap() > 0);
    client.set_data("/watched", b"1", None).await.unwrap();
    assert_eq!(&*within_deadline("the event", watcher.next()).await.unwrap().path, "/watched");
    assert!(guard.is_held());
    assert_eq!(session_id(&client), session);
    let metrics = client.metrics();
    assert_eq!((metrics.moves, metrics.failed_moves, metrics.sessions), (1, 0, 1));
    assert_eq!(metrics.server.map(|host| host.port), Some(home));
    client.close().await.unwrap();
    assert_eq!(states.next().await, None, "the move shows no state");
}

#[tokio::test]
async fn a_reconnect_on_request_keeps_the_session_and_all_requests() {
    let cluster = TestingCluster::start(3).await.unwrap();
    let config = Config::new(&cluster.connect_string()).unwrap();
    let client = config.connect().await.unwrap();
    let session = session_id(&client);
    client.create("/written", b"", CreateMode::Persistent).await.unwrap();
    let (stop, writing) = writes(&client, "/written");
    for connections in 2..6 {
        within_deadline("the reconnect", client.reconnect()).await.unwrap();
        assert_eq!(client.metrics().connections, connections);
    }
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    assert_eq!(session_id(&client), session);
    assert_eq!(client.state().get(), Some(ConnectionState::Connected));
    client.close().await.unwrap();
    let error = client.reconnect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

// Case (The right server, 4): the preference, a function of the application, panics.
#[tokio::test]
async fn a_preference_that_panics_is_named_once_and_the_client_goes_on() {
    let (errors, _guard) = Traced::start(Level::ERROR, "docent_session");
    let cluster = TestingCluster::start(3).await.unwrap();
    let (home, calls) = (cluster.addr(2).unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    // The three calls at the start rate the servers; the next call panics.
    let config = settings_of(&cluster).with_server_preference(move |server| {
        assert!(counted.fetch_add(1, Ordering::Relaxed) < 3, "no zone for {}", server.host());
        u64::from(server.host().port != home)
    });
    assert!(config.server_preference().is_some_and(|name| name.contains("{{closure}}")));
    let client = config.with_failback(FAILBACK).connect().await.unwrap();
    assert_eq!(port_of(&client), Some(home), "the order that it had");
    client.exists("/").await.unwrap();
    within_deadline("a reconnect", client.reconnect()).await.unwrap();
    assert_eq!(port_of(&client), Some(home));
    let reported = errors.take();
    let [error] = &reported[..] else { panic!("{} errors", reported.len()) };
    assert!(error.0["preference"].contains("a_preference_that_panics"), "{:?}", error.0);
    assert!(error.0["panic"].contains("no zone for 127.0.0.1:"), "{:?}", error.0);
    assert_eq!(calls.load(Ordering::Relaxed), 4, "not called again");
}

const CLIENTS: usize = 300;
const HOLDERS: usize = 30;

/// The time within which the clients are redistributed.
const WITHIN: Duration = Duration::from_secs(4);

/// A client that follows a node's data by its watches alone; some also hold a lock.
struct Follower {
    client: Client,
    session: i64,
    guard: Option<LockGuard>,
    seen: Arc<AtomicUsize>,
    following: JoinHandle<()>,
}

impl Follower {
    async fn start(config: Config, root: &str, number: usize) -> Self {
        let client = config.connect().await.unwrap();
        let session = session_id(&client);
        client.create(&format!("{root}/e-{number}"), b"", CreateMode::Ephemeral).await.unwrap();
        let guard = if number < HOLDERS {
            let mutex = InterProcessMutex::new(&client, &format!("{root}/l-{number}")).unwrap();
            Some(mutex.acquire().await.unwrap())
        } else {
            None
        };
        let seen = Arc::new(AtomicUsize::new(0));
        let following =
            tokio::spawn(follow(client.clone(), format!("{root}/data"), Arc::clone(&seen)));
        Self { client, session, guard, seen, following }
    }
}

/// Reads the node once, and then whenever an event reports a change.
async fn follow(client: Client, path: String, seen: Arc<AtomicUsize>) {
    loop {
        // A server that stops loses requests: failed reads are repeated, events cannot be.
        let Ok((node, mut watcher)) = client.get_data_and_watch(&path).await else {
            if client.ended().is_some() {
                return;
            }
            tokio::task::yield_now().await;
            continue;
        };
        seen.store(String::from_utf8_lossy(&node.data).parse().unwrap(), Ordering::Relaxed);
        watcher.next().await;
    }
}

/// The number of clients of each member, and by how many percent the largest exceeds the mean.
fn spread(clients: &[Follower], members: usize) -> (Vec<usize>, usize) {
    let mut counts = BTreeMap::new();
    for server in clients.iter().filter_map(|follower| follower.client.server()) {
        *counts.entry(server.port).or_insert(0) += 1;
    }
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.resize(members, 0);
    let most = counts.iter().max().copied().unwrap_or_default();
    let connected: usize = counts.iter().sum();
    (counts, (100 * members * most / connected.max(1)).saturating_sub(100))
}

async fn all_connected(clients: &[Follower]) {
    let all = async || clients.iter().all(|follower| follower.client.server().is_some());
    until("all clients", all).await;
}

/// Restarts the members one after the other while clients follow a node that is written to, and returns the clients.
async fn rolling_restart(ensemble: &mut RealEnsemble, failback: Option<Duration>) -> Vec<Follower> {
    let root = unique_path("failback");
    let config = Config::new(&ensemble.connect()).unwrap();
    let config = config.with_session_timeout(Duration::from_secs(60));
    let operator = config.clone().connect().await.unwrap();
    operator.ensure_path(&root, CreateMode::Persistent).await.unwrap();
    operator.create(&format!("{root}/data"), b"0", CreateMode::Persistent).await.unwrap();
    let config = config.with_failback(failback);
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(Follower::start(config.clone(), &root, number).await);
    }
    for member in 0..3 {
        ensemble.kill(member).await;
        all_connected(&clients).await;
        ensemble.start_again(member).await;
    }
    all_connected(&clients).await;
    let began_at = Instant::now();
    if failback.is_some() {
        // Writes continue meanwhile: their events must arrive even when clients move.
        let mut written = 1;
        let spread_evenly = async {
            loop {
                let data = written.to_string();
                if operator.set_data(&format!("{root}/data"), data.as_bytes(), None).await.is_ok() {
                    written += 1;
                }
                if spread(&clients, 3).1 <= 10 {
                    return;
                }
            }
        };
        // One second for the probes, and at most a third of the session timeout for a move.
        let bound = WITHIN + Duration::from_secs(1) + Duration::from_secs(20);
        tokio::time::timeout(bound, spread_evenly).await.expect("an even spread in time");
        println!("an even spread after {:?}, {written} writes", began_at.elapsed());
    }
    eventually("the last write", async || {
        operator.set_data(&format!("{root}/data"), b"1000000", None).await.ok()
    })
    .await;
    until("all events", async || {
        clients.iter().all(|follower| follower.seen.load(Ordering::Relaxed) == 1_000_000)
    })
    .await;
    operator.close().await.unwrap();
    clients
}

/// Checks that no session, hold or node was lost, and closes the clients.
async fn nothing_is_lost(clients: Vec<Follower>) {
    for follower in &clients {
        assert_eq!(session_id(&follower.client), follower.session);
        assert_eq!(follower.client.metrics().sessions, 1);
        assert!(follower.guard.as_ref().is_none_or(LockGuard::is_held));
    }
    for follower in clients {
        drop(follower.guard);
        follower.client.close().await.unwrap();
        within_deadline("the end", follower.following).await.unwrap();
    }
}

// Case (The right server, 2): after a rolling restart, one member has no clients, and another most of them.
#[tokio::test]
async fn clients_spread_again_after_a_rolling_restart_real() {
    let Some(mut ensemble) = RealEnsemble::start().await else { return };

    let clients = rolling_restart(&mut ensemble, None).await;
    let (counts, imbalance) = spread(&clients, 3);
    println!("without the setting: {counts:?}, {imbalance} % above the mean");
    // The member that was restarted last has no clients, so another one has at least half of them.
    assert!(imbalance >= 50, "{counts:?}");
    nothing_is_lost(clients).await;

    let clients = rolling_restart(&mut ensemble, Some(WITHIN)).await;
    let (counts, imbalance) = spread(&clients, 3);
    let moves: u64 = clients.iter().map(|follower| follower.client.metrics().moves).sum();
    let failed: u64 = clients.iter().map(|follower| follower.client.metrics().failed_moves).sum();
    println!("with it: {counts:?}, {imbalance} % above the mean; {moves} moves, {failed} failed");
    assert!(imbalance <= 10, "{counts:?}");
    nothing_is_lost(clients).await;
}
