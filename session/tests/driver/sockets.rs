//! Real sockets, on loopback: a port without a listener, a silent server.

use docent_session::runtime::Tcp;
use docent_testing::TestingCluster;
use std::net::SocketAddr;
use tokio::net::TcpListener;

use super::*;
use crate::support::*;

fn quick(connect: &str) -> Config {
    Config::new(connect).unwrap().with_session_timeout(ms(2000)).with_connection_timeout(ms(1000))
}

#[tokio::test]
async fn an_absent_server_is_an_error_that_names_it() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = quick(&address.to_string()).connect().await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::ConnectionLoss, Outcome::NotApplied));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_silent_server_is_an_error_in_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let error = quick(&address).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
}

/// A server listens, and would reply at once.
// Case (Found in docent itself): `connect` with a connection timeout of zero, which fails at once, did or did not connect,
// as the timer of zero was early or late.
#[tokio::test]
async fn no_time_to_connect_is_none() {
    let server = TestingServer::start().await.unwrap();
    for _ in 0..20 {
        let config = quick(&server.connect_string()).with_connection_timeout(Duration::ZERO);
        let error = config.connect().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    }
}

/// A name that does not exist, in a list with a server that does.
#[tokio::test]
async fn a_name_without_an_address_is_passed_over() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let connect = format!("no-such-host.invalid:1,{address}");
    for seed in 0..4 {
        let client = quick(&connect).with_seed(seed).start().unwrap();
        let accepted = tokio::time::timeout(ms(30_000), listener.accept()).await;
        accepted.expect("a connection").unwrap();
        drop(client);
    }
}

/// A name whose address changes.
#[derive(Debug, Clone)]
struct Moving(Arc<Mutex<SocketAddr>>);

impl Transport for Moving {
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
        assert_eq!(host.to_string(), "zookeeper.example:2181", "the name, at each attempt");
        let address = *self.0.lock().unwrap();
        let server = Host { name: address.ip().to_string(), port: address.port() };
        Box::pin(async move { Tcp.connect(&server, within).await })
    }
}

/// ZOOKEEPER-1506: the server behind a name moves, and the session follows it. [`Tcp`] keeps
/// nothing between two attempts, and the client remembers names only.
#[tokio::test]
async fn a_name_is_looked_up_at_each_attempt() {
    let cluster = TestingCluster::start(3).await.unwrap();
    let connect = cluster.connect_string();
    let addresses: Vec<SocketAddr> = connect.split(',').map(|a| a.parse().unwrap()).collect();
    let name = Moving(Arc::new(Mutex::new(addresses[0])));
    let config = Config::new("zookeeper.example").unwrap();
    let client = config.with_transport(name.clone()).start().unwrap();
    within_limit("a node", client.create("/a", b"", CreateMode::Ephemeral)).await.unwrap();
    let session = client.session().unwrap().session_id();
    let mut states = client.states();

    *name.0.lock().unwrap() = addresses[1];
    cluster.stop(0);
    let back = async { while states.next().await != Some(ConnectionState::Reconnected.into()) {} };
    within_limit("a connection to where it is now", back).await;
    assert_eq!(client.session().unwrap().session_id(), session);
    assert!(within_limit("the node", client.exists("/a")).await.unwrap().is_some());
}
