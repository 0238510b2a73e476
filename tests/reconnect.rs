//! Many at once: clients that come back together, watches that are set again together. On the embedded
//! server, and the watches on a real one too.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy knows test functions, but not the helpers that only they call"
)]

mod support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use docent::session::{Client, Clock, Config, Connecting, Host, Transport};
use docent::{ConnectionState, CreateMode, EventType, Watcher};
use docent_testing::TestingServer;
use support::{eventually, real::RealServer, within_deadline};

/// Connections in memory, since a process may have too few sockets for this; counted.
#[derive(Debug, Clone)]
struct InMemory {
    server: Arc<TestingServer>,
    attempts: Arc<AtomicUsize>,
}

impl Transport for InMemory {
    fn connect<'a>(&'a self, _host: &'a Host, _within: Duration) -> Connecting<'a> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match self.server.connect() {
                Some(stream) => Ok(Box::new(stream) as _),
                None => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
            }
        })
    }
}

async fn until(client: &Client, wanted: ConnectionState) {
    let mut state = client.state();
    within_deadline("a state", state.wait_for(|state| *state == Some(wanted))).await.unwrap();
}

/// reliability case 32: all come back with their sessions, and ask in moderation while nobody answers.
#[tokio::test]
async fn a_thousand_clients_come_back_without_a_stampede() {
    const CLIENTS: usize = 1000;
    let server = Arc::new(TestingServer::start().await.unwrap());
    let mut clients = Vec::new();
    for seed in 0..CLIENTS {
        let transport =
            InMemory { server: Arc::clone(&server), attempts: Arc::new(AtomicUsize::new(0)) };
        let config = Config::new("embedded").unwrap().with_seed(seed as u64);
        clients.push((Client::start_on(config, Clock::system(), transport.clone()), transport));
    }
    for (client, _) in &clients {
        until(client, ConnectionState::Connected).await;
    }
    let sessions: Vec<_> =
        clients.iter().map(|(client, _)| client.session().unwrap().session_id()).collect();

    let begin = Instant::now();
    server.stop();
    for (client, transport) in &clients {
        until(client, ConnectionState::Suspended).await;
        // Down for as long as it takes each of them to have tried, and to have been refused, a few times.
        eventually("some attempts", async || {
            (transport.attempts.load(Ordering::Relaxed) >= 4).then_some(())
        })
        .await;
    }
    // Half of 0.1, 0.2, 0.4, … s up to 5 s lie between two attempts at least, and three are made at once.
    let down = begin.elapsed();
    let most = 12 + (down.as_millis() / 2500) as usize;
    for (_, transport) in &clients {
        let attempts = transport.attempts.load(Ordering::Relaxed);
        assert!(attempts <= most, "{attempts} attempts in {down:?}");
    }

    server.restart().await.unwrap();
    for ((client, _), session) in clients.iter().zip(sessions) {
        until(client, ConnectionState::Reconnected).await;
        assert_eq!(client.session().unwrap().session_id(), session);
    }
}

/// As many as a large cache has.
const WATCHES: usize = 50_000;

/// One-shot watches of nodes that are not there, and what becomes of a few of them after `restart`.
async fn watches_survive(connect: &str, restart: impl AsyncFnOnce()) {
    let config = Config::new(connect).unwrap().with_session_timeout(Duration::from_secs(40));
    let client = within_deadline("a client", Client::connect_with(config)).await.unwrap();
    let path = |number: usize| format!("/a-node-with-a-name-of-some-length-{number:06}");
    let reads: Vec<_> = (0..WATCHES).map(|n| client.exists_and_watch(&path(n))).collect();
    let mut watchers: Vec<Watcher> = Vec::new();
    for read in reads {
        watchers.push(within_deadline("a watch", read).await.unwrap().1);
    }
    let session = client.session().unwrap().session_id();
    let mut states = client.states();
    restart().await;
    within_deadline("a new connection", async {
        while states.next().await != Some(ConnectionState::Reconnected) {}
    })
    .await;
    assert_eq!(client.session().unwrap().session_id(), session);
    // Their own server was told of each: the first, the last, and those where one batch follows another.
    for number in (0..WATCHES).step_by(997).chain([WATCHES - 1]) {
        client.create(&path(number), b"", CreateMode::Ephemeral).await.unwrap();
        let event = within_deadline("an event", watchers[number].changed()).await;
        assert_eq!(event.event_type, EventType::NodeCreated, "{number}");
    }
    assert!(watchers[1].try_changed().is_none());
    client.close().await.unwrap();
}

/// reliability case 15: 2.3 MB of paths, and a server closes at a request over 1 MB.
#[tokio::test]
async fn fifty_thousand_watches_are_set_again() {
    let server = TestingServer::start().await.unwrap();
    watches_survive(&server.connect_string(), async || {
        server.cut_connections();
    })
    .await;
}

#[tokio::test]
async fn fifty_thousand_watches_are_set_again_on_a_restarted_server() {
    let Some(mut server) = RealServer::start().await else { return };
    let connect = server.connect();
    watches_survive(&connect, async || server.restart().await).await;
}
