//! Many clients that reconnect at once, and many watches that are set again at once. On the embedded server; the
//! watches also on a real one.

use docent_testing::tap::Tap;

use super::*;
use crate::support::{LONG_SESSION, in_process::InProcess};

/// All clients keep their sessions, and make few attempts while the server is down.
// Case (Failure cases, 32): a thousand clients at once.
#[tokio::test]
async fn a_thousand_clients_come_back_without_a_stampede() {
    const CLIENTS: usize = 1000;
    let server = Arc::new(TestingServer::start().await.unwrap());
    let mut clients = Vec::new();
    for seed in 0..CLIENTS {
        // In memory, since a process may not have enough sockets.
        let config = Config::new("embedded").unwrap().with_seed(seed as u64);
        let config = config.with_transport(InProcess(Arc::clone(&server)));
        clients.push(config.start().unwrap());
    }
    for client in &clients {
        reaches(client, ConnectionState::Connected).await;
    }
    let sessions: Vec<_> = clients.iter().map(session_id).collect();

    let begin = Instant::now();
    server.stop();
    for client in &clients {
        reaches(client, ConnectionState::Suspended).await;
        // Down until each client has been refused a few times.
        until("some attempts", async || client.metrics().attempts >= 4).await;
    }
    // At least half of 0.1, 0.2, 0.4, … s up to 5 s passes between two attempts, and three are made at once.
    let down = begin.elapsed();
    let most = 12 + (down.as_millis() / 2500) as u64;
    for client in &clients {
        let attempts = client.metrics().attempts;
        assert!(attempts <= most, "{attempts} attempts in {down:?}");
    }

    server.restart().await.unwrap();
    for (client, session) in clients.iter().zip(sessions) {
        reaches(client, ConnectionState::Reconnected).await;
        assert_eq!(session_id(client), session);
    }
}

/// As many watches as a large cache has.
const WATCHES: usize = 50_000;

/// Sets one-shot watches on missing nodes, calls `restart`, and checks the events of a few of them.
async fn watches_survive(connect: &str, restart: impl AsyncFnOnce()) {
    let config = Config::new(connect).unwrap().with_session_timeout(LONG_SESSION);
    let client = within_deadline("a client", config.connect()).await.unwrap();
    let path = |number: usize| format!("/a-node-with-a-name-of-some-length-{number:06}");
    let reads: Vec<_> = (0..WATCHES).map(|n| client.exists_and_watch(&path(n))).collect();
    let mut watchers: Vec<Watcher> = Vec::new();
    for read in reads {
        watchers.push(within_deadline("a watch", read).await.unwrap().1);
    }
    let session = session_id(&client);
    let mut states = client.states();
    restart().await;
    passes(&mut states, ConnectionState::Reconnected).await;
    assert_eq!(session_id(&client), session);
    // The server has the watches again; checked for the first, the last and some between them.
    for number in (0..WATCHES).step_by(997).chain([WATCHES - 1]) {
        client.create(&path(number), b"", CreateMode::Ephemeral).await.unwrap();
        let event = within_deadline("an event", watchers[number].next()).await.unwrap();
        assert_eq!(event.event_type, EventType::NodeCreated, "{number}");
    }
    assert!(watchers[1].try_next().is_none());
    client.close().await.unwrap();
}

/// The paths take 2.3 MB; a server closes the connection on a request over 1 MB (`jute.maxbuffer`).
// Case (Failure cases, 15): fifty thousand watches at a reconnect.
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

/// Repeats a call that an overloaded server refuses.
async fn unthrottled<R>(mut call: impl AsyncFnMut() -> Result<R, Error>) -> R {
    loop {
        match within_deadline("a reply", call()).await {
            Ok(reply) => return reply,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// A server that answers most requests with ThrottledOp refuses the watches of a new connection too. No watch is lost.
#[tokio::test]
async fn watches_survive_reconnects_to_an_overloaded_server() {
    const NODES: usize = 20;
    let properties = [
        ("zookeeper.request_throttle_max_requests", "1"),
        ("zookeeper.throttled_op_wait_time", "1"),
    ];
    let Some(server) = RealServer::start_with(settings(&[], &properties)).await else { return };
    let tap = Tap::start(&server.connect()).await.unwrap();
    let connection = tap.client("A").await.unwrap();
    let config = Config::new(&connection.connect_string()).unwrap();
    let config = config.with_session_timeout(LONG_SESSION);
    let client = within_deadline("a client", config.connect()).await.unwrap();
    let other = Client::connect(&server.connect()).await.unwrap();
    let path = |number: usize| format!("/throttled-{number}");
    let (mut persistent, mut once) = (Vec::new(), Vec::new());
    for number in 0..NODES {
        unthrottled(async || {
            let created = other.create(&path(number), b"", CreateMode::Persistent);
            // The node may exist: the reply to an earlier create may be lost.
            created.allow(ErrorKind::NodeExists).await
        })
        .await;
        let mode = AddWatchMode::Persistent;
        persistent.push(unthrottled(async || client.add_watch(&path(number), mode).await).await);
        let child = format!("{}/child", path(number));
        once.push(unthrottled(async || client.exists_and_watch(&child).await).await.1);
    }

    let mut throttled = 0;
    for _ in 0..5 {
        let mut states = client.states();
        connection.cut();
        let reads: Vec<_> = (0..2000).map(|number| other.exists(&path(number % NODES))).collect();
        passes(&mut states, ConnectionState::Reconnected).await;
        for read in reads {
            throttled += usize::from(within_deadline("a reply", read).await.is_err());
        }
    }
    assert!(throttled > 0, "the server has throttled nothing");

    for number in 0..NODES {
        let child = format!("{}/child", path(number));
        unthrottled(async || other.set_data(&path(number), b"new", None).await).await;
        unthrottled(async || {
            let created = other.create(&child, b"", CreateMode::Persistent);
            created.allow(ErrorKind::NodeExists).await
        })
        .await;
        let event = within_deadline("an event", once[number].next()).await.unwrap();
        assert_eq!(event.event_type, EventType::NodeCreated, "{number}: {event:?}");
        // A resync stands for the missed events; the reader reads again after it.
        loop {
            let event = within_deadline("an event", persistent[number].next()).await.unwrap();
            assert!(!event.is_end(), "{number}: {event:?}");
            let read = async || client.get_data(&path(number)).await;
            if event.event_type == EventType::NodeDataChanged
                || (event.is_resync() && unthrottled(read).await.data == "new")
            {
                break;
            }
        }
    }
    // A server throttles neither closeSession nor the handshake (`Request.isThrottlable`).
    client.close().await.unwrap();
    other.close().await.unwrap();
}
