//! Scenarios in which sessions and clients begin and end, and docent sends Curator's frames.

use std::time::Duration;

use docent::{
    Config, ConnectionState, ErrorKind,
    protocol::OpCode,
    recipes::locks::{InterProcessMutex, Owner},
};
use docent_testing::fault::Fault;

use super::{Scenario, options};
use crate::support::{
    DEADLINE,
    given_up_session::{give_up_session, wait_until_given_up},
    within_deadline,
};

/// The session timeout of tests that wait for its end.
const SHORT_SESSION: Duration = Duration::from_secs(6);

/// The client gives up its session between a lost create and the search for its node.
pub(crate) async fn scenario_09_the_session_ends_during_a_create(scenario: Scenario) {
    let (a, tap) = scenario.client_with("A", SHORT_SESSION).await;
    let mutex = scenario.mutex(&a);
    mutex.acquire().await.unwrap().release().await.unwrap();
    scenario.tap.inject(Fault::drop_before(OpCode::Create2));
    tap.refuse().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await }
    });
    wait_until_given_up(&a, &tap).await;
    within_deadline("acquire", waiting).await.unwrap().unwrap().release().await.unwrap();
    a.close().await.unwrap();
    scenario.with_synced_searches().assert_equal();
}

/// The frames are the same, but Curator counts the lock as held, and lets the thread enter it again.
pub(crate) async fn scenario_21_the_session_ends_while_holding(scenario: Scenario) {
    let (a, tap) = scenario.client_with("A", SHORT_SESSION).await;
    let (mutex, owner) = (scenario.mutex(&a), Owner::new());
    let guard = mutex.acquire_as(&owner).await.unwrap();
    give_up_session(&a, &tap).await;
    a.wait_until_connected(DEADLINE).await.unwrap();
    assert!(!guard.is_held() && !mutex.is_acquired_in_this_process());
    let error = mutex.acquire_as(&owner).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LockLost), "{error}");
    guard.release().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_equal();
}

pub(crate) async fn scenario_25_a_client_closes_during_a_timed_wait(scenario: Scenario) {
    a_client_closes_during_a_wait(scenario, " 20000").await;
}

/// N4: Curator after 5.9.0 waits for ever. The frames are the same.
pub(crate) async fn scenario_32_a_client_closes_during_an_untimed_wait(scenario: Scenario) {
    a_client_closes_during_a_wait(scenario, "").await;
}

async fn a_client_closes_during_a_wait(scenario: Scenario, wait: &str) {
    let [a, b] = scenario.peers(["A", "B"]).await;
    a.acquire().await;
    drop(b.peer.send(format!("acquire {}{wait}", b.handle)));
    scenario.wait_for_waiter("B").await;
    scenario.close([b]).await;
    a.release().await;
    scenario.close([a]).await;
    scenario.assert_equal();
}

pub(crate) async fn scenario_35_the_server_ends_the_holders_session(scenario: Scenario) {
    let [a, b] = scenario.peers(["A", "B"]).await;
    a.acquire().await;
    let waiting = b.send_acquire();
    scenario.wait_for_waiter("B").await;
    scenario.tap.kill_session("A", DEADLINE).await.unwrap();
    waiting.reply().await.ok();
    b.release().await;
    a.peer.event(&format!("lost {}", a.handle)).await;
    a.peer.event("state RECONNECTED").await;
    a.release().await;
    scenario.close([a, b]).await;
    scenario.assert_equal();
}

/// The create has no reply, and the search for its node is sent in the next session.
pub(crate) async fn scenario_37_the_server_ends_the_session_of_a_create(scenario: Scenario) {
    let a = scenario.peer_with("A", 0, &[]).await;
    a.acquire().await;
    a.release().await;
    scenario.tap.inject(Fault::drop_before(OpCode::Create2));
    a.tap.refuse().await.unwrap();
    assert_eq!(a.send_acquire().reply().await.error_kind(), "ConnectionLoss");
    scenario.tap.kill_session("A", DEADLINE).await.unwrap();
    a.tap.accept().await.unwrap();
    scenario.wait_for_reply("A", 2, OpCode::GetChildren2).await;
    scenario.close([a]).await;
    scenario.with_synced_searches().assert_equal();
}

pub(crate) async fn scenario_43_the_first_create_of_a_client(scenario: Scenario) {
    let tap = scenario.tap.client("A").await.unwrap();
    // Does not wait for its session.
    let client = Config::new(&tap.connect_string()).unwrap().start();
    let options = options().with_default_data("127.0.0.1");
    let mutex = InterProcessMutex::with_options(&client, &scenario.root, options).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
    scenario.assert_equal();
}

pub(crate) async fn scenario_54_the_client_gives_up_its_session(scenario: Scenario) {
    let (b, tap) = scenario.client_with("B", SHORT_SESSION).await;
    assert!(b.exists("/").await.unwrap().is_some());
    let mut states = b.states();
    give_up_session(&b, &tap).await;
    use ConnectionState::{Connected, Lost, Reconnected, Suspended};
    for expected in [Connected, Suspended, Lost, Reconnected] {
        assert_eq!(within_deadline("a state", states.next()).await, Some(expected));
    }
    b.close().await.unwrap();
    scenario.assert_equal();
}
