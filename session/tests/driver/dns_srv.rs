//! The servers of `dns-srv://name`, with SRV records that the test sets.

use docent_session::runtime::ServerLookup;
use std::{io, sync::atomic::AtomicBool};
use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::support::*;

/// What a lookup finds: names of servers, or an error; without either, it does not end.
type Found = Option<Result<&'static [&'static str], &'static str>>;

#[derive(Debug)]
struct Dns {
    dialer: Dialer,
    found: Arc<Mutex<Found>>,
    lookups: mpsc::UnboundedSender<()>,
}

impl Transport for Dns {
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
        self.dialer.connect(host, within)
    }

    fn lookup_servers<'a>(&'a self, name: &'a str) -> ServerLookup<'a> {
        assert_eq!(name, "zk.example");
        let found = *self.found.lock().unwrap();
        let _ = self.lookups.send(());
        Box::pin(async move {
            match found {
                Some(Ok(names)) => {
                    // A port of 0 marks "itself" as no server.
                    let port = |name: &str| u16::from(name != "itself");
                    let host = |name: &&str| Host { name: (*name).to_owned(), port: port(name) };
                    Ok(names.iter().map(host).collect())
                }
                Some(Err(text)) => Err(io::Error::other(text)),
                None => std::future::pending().await,
            }
        })
    }
}

struct World {
    net: Net,
    found: Arc<Mutex<Found>>,
    lookups: mpsc::UnboundedReceiver<()>,
}

impl World {
    fn new(found: Found) -> (Config, Self) {
        let ((dialer, net), (sender, lookups)) = (net(), mpsc::unbounded_channel());
        let found = Arc::new(Mutex::new(found));
        let dns = Dns { dialer, found: Arc::clone(&found), lookups: sender };
        let connect_string = "dns-srv://zk.example/app".parse().unwrap();
        let config = config().with_connect_string(connect_string).with_clock(Clock::tokio());
        (config.with_transport(dns), Self { net, found, lookups })
    }

    /// Sets what the next lookup finds, and waits for it.
    async fn next_lookup_finds(&mut self, found: Found) {
        *self.found.lock().unwrap() = found;
        while self.lookups.try_recv().is_ok() {}
        within_limit("a lookup", self.lookups.recv()).await.unwrap();
    }
}

/// The names of the servers that the client chooses from.
fn servers(client: &Client) -> Vec<String> {
    let mut names: Vec<_> = client.servers().into_iter().map(|host| host.name).collect();
    names.sort();
    names
}

/// The next connection, on which a server is asked for its status.
async fn asked(net: &mut Net) -> Conn {
    let mut conn = net.accept().await;
    assert_eq!(&conn.word().await, b"srvr");
    conn
}

/// Asserts that the client uses this connection.
async fn is_connected_by(client: &Client, conn: &mut Conn) {
    let read = client.get_data("/a");
    assert!(conn.answer_data(b"").await.contains("/app/a"));
    within_limit("an answer", read).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_servers_of_srv_records_are_connected_to() {
    for (found, text) in [
        (Some(Err("no DNS server")), "dns-srv://zk.example: no DNS server"),
        (Some(Ok(&[][..])), "dns-srv://zk.example: there are no SRV records"),
        (Some(Ok(&["itself"])), "dns-srv://zk.example: there are no SRV records"),
        (None, "no session with dns-srv://zk.example/app within 3s"),
    ] {
        let (config, _world) = World::new(found);
        let error = within_limit("an error", config.connect()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
        assert!(error.to_string().contains(text), "{error}");
    }
    let (config, mut world) = World::new(Some(Err("no DNS server")));
    let client = config.start().unwrap();
    world.next_lookup_finds(Some(Err("no DNS server"))).await;
    *world.found.lock().unwrap() = Some(Ok(&["two", "one", "two"]));
    let (mut conn, _) = world.net.serve(7).await;
    is_connected_by(&client, &mut conn).await;
    assert_eq!(client.servers().len(), 2, "{:?}", client.servers());
    let error = client.update_server_list("dns-srv://other.example/app").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
}

#[tokio::test(start_paused = true)]
async fn changed_srv_records_are_used_by_the_next_attempt() {
    let (config, mut world) = World::new(None);
    let client = config.start().unwrap();
    world.next_lookup_finds(None).await;
    // The lookup before does not end.
    world.next_lookup_finds(Some(Ok(&["one"]))).await;
    let (mut conn, _) = world.net.serve_for(7, 600_000).await;
    assert_eq!(conn.host.name, "one");

    world.next_lookup_finds(Some(Ok(&["two"]))).await;
    is_connected_by(&client, &mut conn).await;
    drop(conn);
    let (mut conn, asked) = world.net.serve_for(7, 600_000).await;
    assert_eq!((conn.host.name.as_str(), asked.session_id), ("two", 7));

    // Without an answer, the servers stay.
    for found in [Some(Err("no DNS server")), Some(Ok(&[][..])), None] {
        world.next_lookup_finds(found).await;
    }
    world.next_lookup_finds(Some(Ok(&["two"]))).await;
    is_connected_by(&client, &mut conn).await;
    drop(conn);
    let (mut conn, asked) = world.net.serve_for(7, 600_000).await;
    assert_eq!((conn.host.name.as_str(), asked.session_id), ("two", 7));

    // The lookups end with the client.
    drop(client);
    conn.confirm_close().await;
    while within_limit("the end of the lookups", world.lookups.recv()).await.is_some() {}
}

// Case (Found in docent itself): a client asked a server of a new SRV record for its status only after a reconnect.
#[tokio::test(start_paused = true)]
async fn a_return_knows_of_changed_srv_records() {
    let (config, mut world) = World::new(Some(Ok(&["one"])));
    let client = config.with_failback(ms(60_000)).start().unwrap();
    let (_conn, _) = world.net.serve_for(7, 600_000).await;
    world.next_lookup_finds(Some(Ok(&["one"]))).await;
    world.next_lookup_finds(Some(Ok(&["two", "one"]))).await;
    let mut names = [asked(&mut world.net).await.host.name, asked(&mut world.net).await.host.name];
    names.sort();
    assert_eq!(names, ["one", "two"]);
    // The record of the server is gone: the connection stays.
    world.next_lookup_finds(Some(Ok(&["two", "three"]))).await;
    world.next_lookup_finds(Some(Ok(&["two", "three"]))).await;
    assert_eq!(servers(&client), ["three", "two"]);
    assert_eq!(client.metrics().connections, 1);
    assert_eq!(client.server().unwrap().name, "one");
}

// Case (Found in docent itself): changed SRV records took the place of a server list that the program had set.
#[tokio::test(start_paused = true)]
async fn a_list_of_the_program_counts_until_it_sets_the_name_again() {
    let (config, mut world) = World::new(Some(Ok(&["one"])));
    let client = config.start().unwrap();
    let (mut conn, _) = world.net.serve_for(7, 600_000).await;
    client.wait_until_connected(LONG).await.unwrap();
    client.update_server_list("three:1").unwrap();
    assert_eq!(conn.maybe_request().await, None);
    let (mut conn, _) = world.net.serve_for(7, 600_000).await;
    assert_eq!(conn.host.name, "three");
    for _ in 0..2 {
        world.next_lookup_finds(Some(Ok(&["two"]))).await;
    }
    is_connected_by(&client, &mut conn).await;
    drop(conn);
    let (mut conn, _) = world.net.serve_for(7, 600_000).await;
    assert_eq!((conn.host.name.as_str(), servers(&client)), ("three", vec!["three".to_owned()]));

    let begin = stopwatch();
    client.update_server_list("dns-srv://zk.example/app").unwrap();
    world.next_lookup_finds(Some(Ok(&["two"]))).await;
    assert!(begin.elapsed() < ms(1000));
    is_connected_by(&client, &mut conn).await;
    assert_eq!(servers(&client), ["two"]);
    drop(conn);
    let (conn, _) = world.net.serve_for(7, 600_000).await;
    assert_eq!(conn.host.name, "two");
}

// Case (Found in docent itself): the servers of SRV records had no costs, and the name itself had one.
#[tokio::test(start_paused = true)]
async fn servers_of_srv_records_have_costs() {
    let (config, mut world) = World::new(Some(Ok(&["one", "three", "two"])));
    let seen: Arc<Mutex<Vec<Host>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let config = config.with_server_preference(move |server| {
        noted.lock().unwrap().push(server.host().clone());
        u64::from(server.host().name != "two")
    });
    let client = config.start().unwrap();
    let (mut conn, _) = world.net.serve_for(7, 600_000).await;
    is_connected_by(&client, &mut conn).await;
    assert_eq!(conn.host.name, "two");
    assert!(seen.lock().unwrap().iter().all(|server| server.port != 0), "{seen:?}");
}

// Case (Found in docent itself): SRV records that changed during a move replaced the list that has the server to return to.
#[tokio::test(start_paused = true)]
async fn srv_records_that_change_during_a_move_wait_for_its_end() {
    let (config, mut world) = World::new(Some(Ok(&["one", "two"])));
    let is_better = Arc::new(AtomicBool::new(false));
    let prefers = Arc::clone(&is_better);
    let config = config.with_failback(ms(60_000)).with_connection_timeout(ms(600_000));
    let config = config.with_server_preference(move |server| {
        u64::from(prefers.load(Ordering::Relaxed) != (server.host().name == "two"))
    });
    let client = config.start().unwrap();
    let (mut conn, _) = world.net.serve_for(7, 600_000).await;
    assert_eq!(conn.host.name, "one");
    is_better.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let mut question = asked(&mut world.net).await;
        let reply = b"Zookeeper version: 3.9.5\nConnections: 1\nMode: follower\n";
        question.stream.write_all(reply).await.unwrap();
    }
    assert_eq!(conn.maybe_request().await, None);
    // The server of the move does not reply.
    let target = world.net.accept().await;
    assert_eq!(target.host.name, "two");
    world.next_lookup_finds(Some(Ok(&["three"]))).await;
    let (conn, asked) = world.net.serve_for(7, 600_000).await;
    assert_eq!((conn.host.name.as_str(), asked.session_id), ("one", 7));
    assert_eq!(client.state().get(), Some(ConnectionState::Connected));
    for _ in 0..2 {
        world.next_lookup_finds(Some(Ok(&["three"]))).await;
    }
    assert_eq!(servers(&client), ["three"]);
}

// Case (Found in docent itself): a client asked as many servers for their status as a name had records.
#[tokio::test(start_paused = true)]
async fn a_name_has_no_more_than_64_servers() {
    let names: Vec<&'static str> = (0..100).map(|number| &*format!("zk{number}").leak()).collect();
    let (config, mut world) = World::new(Some(Ok(names.leak())));
    let client = config.start().unwrap();
    let (_conn, _) = world.net.serve_for(7, 600_000).await;
    assert_eq!(client.servers().len(), 64);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_set_before_the_first_lookup_counts_until_the_name_is_set() {
    let (config, mut world) = World::new(Some(Ok(&["one"])));
    let client = config.start().unwrap();
    client.update_server_list("three:1").unwrap();
    let (conn, _) = world.net.serve_for(7, 600_000).await;
    assert_eq!(conn.host.name, "three");
    client.update_server_list("dns-srv://zk.example").unwrap();
    for _ in 0..2 {
        world.next_lookup_finds(Some(Ok(&["two"]))).await;
    }
    assert_eq!(servers(&client), ["two"]);
}
