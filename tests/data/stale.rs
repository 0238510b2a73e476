//! Barriers and shared values on servers with an old tree: a lagging follower, and a leader that has not applied its commits yet.

use docent_testing::{TestingCluster, server};

use super::*;
use crate::{
    barriers::barrier,
    support::ensemble::{address, client_of, leader_and_follower},
};

/// A cluster, the index of a member that lags, and that of another member.
async fn cluster(leader_lags: bool) -> (TestingCluster, usize, usize) {
    let cluster = TestingCluster::start(3).await.unwrap();
    let (leader, follower) = leader_and_follower(&cluster);
    let (lagging, other) = if leader_lags { (leader, follower) } else { (follower, leader) };
    (cluster, lagging, other)
}

async fn a_wait_sees_a_barrier_that_was_set_before(leader_lags: bool) {
    let (cluster, lagging, other) = cluster(leader_lags).await;
    let (a, b) = (client_of(&cluster, lagging).await, client_of(&cluster, other).await);
    cluster.set_lag(lagging, true);
    let (ours, theirs) = (barrier(&a, "/barrier"), barrier(&b, "/barrier"));
    theirs.set_barrier().await.unwrap();
    assert!(a.exists("/barrier").await.unwrap().is_none(), "it lags");
    assert!(!ours.wait_on_barrier_timeout(ms(2_000)).await.unwrap());
    // The first barrier was removed before this wait: its event does not open the second one.
    theirs.remove_barrier().await.unwrap();
    theirs.set_barrier().await.unwrap();
    let waiting = tokio::spawn(async move { ours.wait_on_barrier_timeout(ms(2_000)).await });
    assert!(!within_deadline("the wait", waiting).await.unwrap().unwrap());
}

// Case (Found in docent itself): a wait at a barrier passed on a server that lags behind, although
// the barrier was set; a leave in a new session did not wait.
#[tokio::test]
async fn a_wait_on_a_follower_that_lags_sees_a_barrier_that_was_set_before() {
    a_wait_sees_a_barrier_that_was_set_before(false).await;
}

#[tokio::test]
async fn a_wait_on_a_leader_that_lags_sees_a_barrier_that_was_set_before() {
    a_wait_sees_a_barrier_that_was_set_before(true).await;
}

/// The next session begins at the leader, and reads first at a follower that does not have the barrier yet.
#[tokio::test]
async fn a_leave_in_a_new_session_waits_for_members_that_its_server_does_not_show() {
    let (cluster, lagging, leader) = cluster(false).await;
    let fixture = Fixture::of_member(&cluster, leader).await;
    let ((a, tap), b) = (fixture.client("A").await, fixture.observer().await);
    cluster.set_lag(lagging, true);
    let first = spawn_enter(member(&a, &fixture.path, 2));
    let second = done("B", spawn_enter(member(&b, &fixture.path, 2))).await;
    let mut first = done("A", first).await;
    let lease = a.session().unwrap();
    tap.kill_session(DEADLINE).await.unwrap();
    until("the loss", async || lease.is_lost()).await;
    a.wait_until_connected(DEADLINE).await.unwrap();
    tap.refuse().await.unwrap();
    tap.cut();
    reaches(&a, ConnectionState::Suspended).await;
    fixture.tap.set_upstream(&address(&cluster, lagging));
    tap.accept().await.unwrap();
    a.wait_until_connected(DEADLINE).await.unwrap();
    assert!(!first.leave_timeout(ms(2_000)).await.unwrap(), "the other one is inside");
    done("B", spawn_leave(second)).await;
}

/// The read behind a lost race is the first one of a new local session, on a follower that does not have the node yet.
// Case (Found in docent itself): `try_set_value` that had lost a race failed with NoNode in a new session, on a server that
// lags behind, although the node was there all the time.
#[tokio::test]
async fn a_lost_race_is_shown_in_a_new_session_whose_server_lags() {
    let config = server::Config {
        servers: 3,
        local_sessions_enabled: true,
        local_sessions_upgrading_enabled: true,
        ..server::Config::default()
    };
    let cluster = TestingCluster::start_with(config).await.unwrap();
    let (leader, follower) = leader_and_follower(&cluster);
    let fixture = Fixture::of_member(&cluster, leader).await;
    let (a, _tap) = fixture.client("A").await;
    cluster.set_lag(follower, true);
    let value = SharedValue::start_with(&a, &fixture.path, "one", &lock_options()).await.unwrap();
    let seen = value.versioned_value();
    value.set_value("two").await.unwrap();
    has_no_request(&a).await;
    fixture.tap.inject(Fault::drop_before(OpCode::GetData).of("A"));
    fixture.tap.set_upstream(&address(&cluster, follower));
    let race = value.try_set_value(&seen, "three");
    assert!(!within_deadline("the race", race).await.unwrap());
    assert_eq!(value.value(), "two");
}
