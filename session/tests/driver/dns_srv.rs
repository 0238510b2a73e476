//! The servers of `dns-srv://name`, by a network with the SRV records of the test.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use docent_session::{
    Client, Config, ErrorKind,
    config::Host,
    runtime::{Clock, Connecting, ServerLookup, Transport},
};
use tokio::sync::mpsc;

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
                    // "itself" is no server.
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
        soon("a lookup", self.lookups.recv()).await.unwrap();
    }
}

/// Whose connection is answered.
async fn is_connected_by(client: &Client, conn: &mut Conn) {
    let read = client.get_data("/a");
    assert!(conn.answer_data(b"").await.contains("/app/a"));
    soon("an answer", read).await.unwrap();
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
        let error = soon("an error", config.connect()).await.unwrap_err();
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
    let error = client.update_server_list("dns-srv://zk.example/app").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
}

#[tokio::test(start_paused = true)]
async fn changed_srv_records_are_used_by_the_next_attempt() {
    let (config, mut world) = World::new(None);
    let client = config.start().unwrap();
    world.next_lookup_finds(None).await;
    // That one does not end.
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
    while soon("the end of the lookups", world.lookups.recv()).await.is_some() {}
}
