//! An ensemble without its majority: which operations it serves, and how a client moves on to one with a majority. On
//! the embedded cluster, and on a real one.

use docent::{
    LeaderLatch, LeaderOptions, leader::ConnectionStateErrorPolicy, locks::InterProcessMutex,
    session::SessionLease,
};

use super::*;
use crate::support::ensemble::{address, serving_without_majority};

async fn cluster() -> TestingCluster {
    let config = server::Config {
        servers: 3,
        read_only_mode_enabled: true,
        local_sessions_enabled: true,
        local_sessions_upgrading_enabled: true,
        ..server::Config::default()
    };
    TestingCluster::start_with(config).await.unwrap()
}

fn config(cluster: &TestingCluster) -> Config {
    Config::new(&cluster.connect_string()).unwrap().with_session_timeout(Duration::from_secs(20))
}

/// A `sync` needs a majority, as a write does.
#[tokio::test]
async fn without_a_majority_one_may_read_and_then_moves_on() {
    let cluster = cluster().await;
    let writer = config(&cluster).connect().await.unwrap();
    within_deadline("a write", writer.create("/a", b"x", CreateMode::Persistent)).await.unwrap();
    within_deadline("close", writer.close()).await.unwrap();
    only_an_upgraded_session_moves(|member| address(&cluster, member)).await;
    cluster.stop(1);
    cluster.stop(2);

    let client = config(&cluster).with_read_only(true).start().unwrap();
    reads_only(&client).await;
    let local = client.session().unwrap();

    cluster.restart(1).await.unwrap();
    cluster.restart(2).await.unwrap();
    moves_on(&client, &local).await;
}

/// The same with real servers.
#[tokio::test]
async fn without_a_real_majority_one_may_read_and_then_moves_on() {
    let settings = settings(
        // Since 3.7, a read-only server grants only local sessions.
        &[("localSessionsEnabled", "true"), ("localSessionsUpgradingEnabled", "true")],
        &[("readonlymode.enabled", "true")],
    );
    let Some(mut ensemble) = RealEnsemble::start_of(3, settings).await else { return };
    let config = || {
        let config = Config::new(&ensemble.connect()).unwrap();
        config.with_session_timeout(Duration::from_secs(20)).with_read_only(true)
    };
    let writer = config().connect().await.unwrap();
    within_deadline("a write", writer.create("/a", b"x", CreateMode::Persistent)).await.unwrap();
    within_deadline("close", writer.close()).await.unwrap();
    let config = config();
    // A member has the write only once the commit has arrived, so sync with each of them.
    within_deadline("the write everywhere", async {
        for member in 0..3 {
            let member = Client::connect(&ensemble.connect_to(member)).await.unwrap();
            member.sync("/").await.unwrap();
        }
    })
    .await;
    only_an_upgraded_session_moves(|member| ensemble.connect_to(member)).await;
    ensemble.kill(1).await;
    ensemble.kill(2).await;

    let client = config.start().unwrap();
    reads_only(&client).await;
    let local = client.session().unwrap();

    // A member serves writes only once two of them run.
    ensemble.start_again(1).await;
    ensemble.start_again(2).await;
    moves_on(&client, &local).await;
}

/// A session is known to its server alone until it creates an ephemeral node, alone or in a transaction.
async fn only_an_upgraded_session_moves(connect_to: impl Fn(usize) -> String) {
    for (member, upgrade) in [(0, "nothing"), (1, "create"), (2, "transaction")] {
        let to = |member| Config::new(&connect_to(member)).unwrap();
        let client = within_deadline("a session", to(member).connect()).await.unwrap();
        client.set_data("/a", b"x", None).await.unwrap();
        let (path, mode) = ("/ephemeral", CreateMode::Ephemeral);
        match upgrade {
            "create" => drop(client.create(path, b"", mode).await.unwrap()),
            "transaction" => {
                let mut transaction = client.transaction();
                transaction.create(path, b"", mode);
                drop(transaction.commit().await.unwrap());
            }
            _ => {}
        }
        let token = client.detach().unwrap();
        let session = token.session_id();
        let moved = to((member + 1) % 3).with_session(token).connect();
        let moved = within_deadline("a move", moved).await.unwrap();
        moved.sync("/").await.unwrap();
        let owner = moved.exists(path).await.unwrap().map(|stat| stat.ephemeral_owner);
        let is_upgraded = upgrade != "nothing";
        assert_eq!(session_id(&moved) == session, is_upgraded, "{upgrade}");
        assert_eq!(owner, is_upgraded.then_some(session), "{upgrade}");
        within_deadline("close", moved.close()).await.unwrap();
    }
}

async fn reads_only(client: &Client) {
    reaches(client, ConnectionState::ReadOnly).await;
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

/// Waits until the client is at a server that accepts writes, with a session that the whole ensemble knows.
async fn moves_on(client: &Client, local: &SessionLease) {
    eventually("a write", async || client.set_data("/a", b"z", None).await.ok()).await;
    assert!(local.is_lost(), "the read-only server's session is its own");
    // Connected, or Reconnected: an election may disconnect the client once more.
    let state = client.state().get();
    assert!(
        matches!(state, Some(ConnectionState::Connected | ConnectionState::Reconnected)),
        "{state:?}"
    );
    client.close().await.unwrap();
}

/// A server without a majority (3.4 to 3.6) keeps serving a session that the majority expires, so its replies renew no
/// hold.
#[tokio::test]
async fn a_hold_ends_by_its_deadline_on_a_read_only_server() {
    let (cluster, config) = serving_without_majority().await;
    let client = config.connect().await.unwrap();
    let mutex = InterProcessMutex::new(&client, "/lock").unwrap();
    let guard = within_deadline("acquire", mutex.acquire()).await.unwrap();
    let lease = client.session().unwrap();
    assert!(guard.is_held() && guard.guarded().is_ok());
    let mut states = client.states();

    cluster.stop(1);
    cluster.stop(2);
    let last = client.now();
    passes(&mut states, ConnectionState::ReadOnly).await;
    assert_eq!(session_id(&client), lease.session_id(), "the same session");
    // The server answers all the time.
    until("the end of the hold", async || {
        let _ = client.exists("/lock").await;
        !guard.is_held()
    })
    .await;
    within_deadline("the loss", guard.lost()).await;
    assert!(lease.deadline() < last + Duration::from_secs(2), "not renewed since");
    assert!(client.now() >= lease.deadline());
    assert!(!guard.is_held() && guard.guarded().is_err());
    passes(&mut states, ConnectionState::Lost).await;
    assert!(lease.is_lost());
    passes(&mut states, ConnectionState::ReadOnly).await;
    let refused = mutex.acquire_timeout(Duration::from_millis(100)).await;
    assert!(refused.is_err(), "{refused:?}");
    drop(guard);
}

/// On a server without a majority, no participant begins to lead, and a leader leads no longer than its deadline, with
/// any policy.
// Case (Leader election and kept nodes): a server without a majority.
#[tokio::test]
async fn a_participant_on_a_read_only_server_does_not_lead() {
    use ConnectionStateErrorPolicy::{Session, Standard};
    for policy in [Standard, Session] {
        let (cluster, config) = serving_without_majority().await;
        let (a, b) = (config.clone().connect().await.unwrap(), config.connect().await.unwrap());
        let options = LeaderOptions::default().with_error_policy(policy);
        let first = LeaderLatch::start_with(&a, "/election", "a", options.clone()).unwrap();
        let leadership = within_deadline("a leader", first.leadership()).await.unwrap();
        let second = LeaderLatch::start_with(&b, "/election", "b", options.clone()).unwrap();
        eventually("a waiter", async || second.node_ahead()).await;
        let mut states = a.states();
        cluster.stop(1);
        cluster.stop(2);
        passes(&mut states, ConnectionState::ReadOnly).await;
        if policy == Standard {
            assert!(!leadership.is_held());
        }
        within_deadline("the loss", leadership.lost()).await;
        let third = LeaderLatch::start_with(&a, "/election", "c", options).unwrap();
        // The members answer all the time, and their data show `a` as the leader.
        for _ in 0..20 {
            assert!(a.get_children("/election").await.is_ok_and(|queue| !queue.is_empty()));
            let latches = [&first, &second, &third];
            assert!(latches.iter().all(|latch| latch.current_leadership().is_none()));
            let _ = within_deadline("an answer", b.exists("/election")).await;
        }
        cluster.restart(1).await.unwrap();
        cluster.restart(2).await.unwrap();
        let latches = [&first, &second, &third];
        eventually("a leadership", async || {
            latches.iter().find_map(|latch| latch.current_leadership()).map(drop)
        })
        .await;
    }
}
