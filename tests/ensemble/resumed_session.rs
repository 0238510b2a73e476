//! A session that is resumed while a write of its earlier connection is not committed: its requests wait for that
//! write, also on another connection. The embedded ensemble behaves like a real one.

use super::*;

/// In ticks. Long enough for the test: the isolated leader steps down after it.
const SYNC_LIMIT: u32 = 60;

/// The number of requests of another session that are answered while the resumed session waits.
const OTHERS: usize = 20;

on_both_servers! {
    #[tokio::test]
    crate::Ensemble::embedded, crate::Ensemble::real;
    a_session_resumed_on_the_leader_waits_for_its_writes(3, super::SYNC_LIMIT)
    a_session_resumed_on_a_follower_waits_for_its_writes(5, super::SYNC_LIMIT)
}

/// Resumes a session at a member, behind a create that cannot be committed: the member, like the others of `connected`,
/// is cut off from a majority.
///
/// Source: `CommitProcessor.pendingRequests`, which is keyed by the session.
async fn a_resumed_session_waits(
    ensemble: Ensemble,
    size: usize,
    member: usize,
    connected: &[usize],
) {
    let tap = Tap::start(&ensemble.connect_to(member)).await.unwrap();
    let connection = tap.client("A").await.unwrap();
    let config = Ensemble::config_of(&connection.connect_string());
    let client = config.connect().await.unwrap();
    let other = ensemble.client_of(member).await;
    within_deadline("a node", client.create("/a", b"", CreateMode::Persistent)).await.unwrap();
    let session = session_id(&client);

    let isolation = ensemble.isolate(size, connected);
    let writing = tokio::spawn({
        let client = client.clone();
        async move { client.create("/b", b"", CreateMode::Persistent).await }
    });
    ensemble.has_outstanding(member).await;
    let mut states = client.states();
    connection.cut();
    let error = within_deadline("the loss of the create", writing).await.unwrap().unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    passes(&mut states, ConnectionState::Reconnected).await;
    let reading = tokio::spawn({
        let client = client.clone();
        async move { client.exists("/b").await }
    });
    until("the read is sent", async || client.metrics().pending > 0 || reading.is_finished()).await;
    for _ in 0..OTHERS {
        within_deadline("another session's reply", other.exists("/a")).await.unwrap();
    }
    assert!(!reading.is_finished(), "answered before the write was committed");
    drop(isolation);
    let found = within_deadline("the read", reading).await.unwrap().unwrap();
    assert!(found.is_some(), "the read was answered without the create before it");
    assert_eq!(session_id(&client), session);
}

async fn a_session_resumed_on_the_leader_waits_for_its_writes(ensemble: Ensemble) {
    let leader = ensemble.leader().await;
    a_resumed_session_waits(ensemble, 3, leader, &[leader]).await;
}

/// With five members: the leader confirms the session to the follower, but they lack a majority.
// Case (Found in docent itself): the embedded ensemble: the same on a follower, for a write that it
// had sent to its leader; a real 3.8.0 lets the session wait on both.
async fn a_session_resumed_on_a_follower_waits_for_its_writes(ensemble: Ensemble) {
    let leader = ensemble.leader().await;
    let follower = (leader + 1) % 5;
    a_resumed_session_waits(ensemble, 5, follower, &[leader, follower]).await;
}
