//! An ensemble without its majority: what a client may do there, and how it gets away again. On the
//! embedded cluster, and on a real one.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, not the helpers they call")]

mod support;

use std::time::Duration;

use docent::session::{Client, Config, SessionLease};
use docent::{ConnectionState, CreateMode, ErrorKind, Outcome};
use docent_testing::{TestingCluster, server};
use support::{eventually, real::RealEnsemble, within_deadline};
use xtask::Settings;

async fn cluster() -> TestingCluster {
    let config = server::Config {
        servers: 3,
        read_only_mode_enabled: true,
        local_sessions_enabled: true,
        ..server::Config::default()
    };
    TestingCluster::start_with(config).await.unwrap()
}

fn config(cluster: &TestingCluster) -> Config {
    Config::new(&cluster.connect_string()).unwrap().with_session_timeout(Duration::from_secs(20))
}

/// reliability case 35, pitfalls 25 and 43.
#[tokio::test]
async fn without_a_majority_one_may_read_and_then_moves_on() {
    let cluster = cluster().await;
    let writer = Client::connect_with(config(&cluster)).await.unwrap();
    within_deadline("a write", writer.create("/a", b"x", CreateMode::Persistent)).await.unwrap();
    within_deadline("close", writer.close()).await.unwrap();
    cluster.stop(1);
    cluster.stop(2);

    let client = Client::start(config(&cluster).with_read_only(true));
    reads_only(&client).await;
    let local = client.session().unwrap();

    cluster.restart(1).await.unwrap();
    cluster.restart(2).await.unwrap();
    moves_on(&client, &local).await;
}

/// The same with real servers.
#[tokio::test]
async fn without_a_real_majority_one_may_read_and_then_moves_on() {
    let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let settings = Settings {
        // Since 3.7 a read-only server grants sessions of its own only.
        config: vec![
            line("localSessionsEnabled", "true"),
            line("localSessionsUpgradingEnabled", "true"),
        ],
        properties: vec![line("readonlymode.enabled", "true")],
        ..Settings::default()
    };
    let Some(mut ensemble) = RealEnsemble::start_with(settings).await else { return };
    let config = || {
        let config = Config::new(&ensemble.connect()).unwrap();
        config.with_session_timeout(Duration::from_secs(20)).with_read_only(true)
    };
    let writer = Client::connect_with(config()).await.unwrap();
    within_deadline("a write", writer.create("/a", b"x", CreateMode::Persistent)).await.unwrap();
    within_deadline("close", writer.close()).await.unwrap();
    let config = config();
    // Not the one that the write went to last: each has it once a majority has and it was told.
    within_deadline("the write everywhere", async {
        for member in 0..3 {
            let member = Client::connect(&ensemble.connect_to(member)).await.unwrap();
            member.sync("/").await.unwrap();
        }
    })
    .await;
    ensemble.kill(1).await;
    ensemble.kill(2).await;

    let client = Client::start(config);
    reads_only(&client).await;
    let local = client.session().unwrap();

    // Neither serves before there are two.
    ensemble.start_again(1).await;
    ensemble.start_again(2).await;
    moves_on(&client, &local).await;
}

async fn reads_only(client: &Client) {
    within_deadline("a read-only session", async {
        let mut state = client.state();
        state.wait_for(|state| *state == Some(ConnectionState::ReadOnly)).await.map(|_| ())
    })
    .await
    .unwrap();
    assert_eq!(client.get_data("/a").await.unwrap().data, "x");
    for error in [
        client.set_data("/a", b"y", None).await.map(|_| ()),
        client.sync("/").await,
        client.transaction().check("/a", None).commit().await.map(|_| ()),
    ] {
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::NotReadOnly, Outcome::NotApplied));
    }
}

/// To a server that takes writes, with a session that others know.
async fn moves_on(client: &Client, local: &SessionLease) {
    eventually("a write", async || client.set_data("/a", b"z", None).await.ok()).await;
    assert!(local.is_lost(), "the read-only server's session is its own");
    // Connected, or Reconnected: an election may throw it off once more.
    let state = *client.state().borrow();
    assert!(
        matches!(state, Some(ConnectionState::Connected | ConnectionState::Reconnected)),
        "{state:?}"
    );
    client.close().await.unwrap();
}

#[tokio::test]
async fn who_does_not_ask_for_it_waits_for_a_majority() {
    let cluster = cluster().await;
    cluster.stop(1);
    cluster.stop(2);
    let client = Client::start(config(&cluster));
    let waiting = client.create("/a", b"", CreateMode::Persistent);
    cluster.restart(1).await.unwrap();
    within_deadline("the write", waiting).await.unwrap();
    assert_eq!(*client.state().borrow(), Some(ConnectionState::Connected));
}
