//! Real sockets, on loopback: a port that nobody listens on, a server that says nothing.

use std::net::Ipv4Addr;

use docent_session::{Client, Config, ErrorKind, Outcome};
use tokio::net::TcpListener;

use crate::support::*;

fn quick(connect: &str) -> Config {
    Config::new(connect).unwrap().with_session_timeout(ms(2000)).with_connection_timeout(ms(300))
}

#[tokio::test]
async fn an_absent_server_is_an_error_that_names_it() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = Client::connect_with(quick(&address.to_string())).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::ConnectionLoss, Outcome::NotApplied));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_silent_server_is_an_error_in_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let error = Client::connect_with(quick(&address)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
}

/// A name that does not exist, in a list with a server that does: reliability case 31.
#[tokio::test]
async fn a_name_without_an_address_is_passed_over() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let connect = format!("no-such-host.invalid:1,{address}");
    for seed in 0..4 {
        let client = Client::start(quick(&connect).with_seed(seed));
        let accepted = tokio::time::timeout(ms(30_000), listener.accept()).await;
        accepted.expect("a connection").unwrap();
        drop(client);
    }
}
