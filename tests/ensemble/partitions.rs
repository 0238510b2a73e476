//! Which requests an isolated member still answers, and for how long: the embedded ensemble behaves like a real one.

use super::*;

const SYNC_LIMIT: u32 = 6;

/// Additional time for a busy machine.
const SLACK: Duration = Duration::from_secs(5);

on_both_servers! {
    #[tokio::test(flavor = "multi_thread")]
    crate::Ensemble::embedded, crate::Ensemble::real;
    an_isolated_follower_answers_reads(3, super::SYNC_LIMIT)
    an_isolated_leader_answers_sync(3, super::SYNC_LIMIT)
}

async fn an_isolated_follower_answers_reads(ensemble: Ensemble) {
    let leader = ensemble.leader().await;
    let client = ensemble.client_of((leader + 1) % 3).await;
    within_deadline("a node", client.create("/a", b"", CreateMode::Persistent)).await.unwrap();
    let isolation = ensemble.isolate(3, &[(leader + 1) % 3]);
    let since = Instant::now();
    let mut last = since;
    while is_connected(&client) && within_deadline("an answer", client.exists("/a")).await.is_ok() {
        last = Instant::now();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lasted(last - since);
    drop(isolation);
}

/// A leader answers reads and sync until it steps down. A write gets no reply.
async fn an_isolated_leader_answers_sync(ensemble: Ensemble) {
    let leader = ensemble.leader().await;
    let (client, writer) = (ensemble.client_of(leader).await, ensemble.client_of(leader).await);
    within_deadline("a node", client.create("/a", b"", CreateMode::Persistent)).await.unwrap();
    let isolation = ensemble.isolate(3, &[leader]);
    let since = Instant::now();
    let writing = tokio::spawn({
        let writer = writer.clone();
        async move { writer.create("/b", b"", CreateMode::Persistent).await }
    });
    let mut last = since;
    while is_connected(&client) {
        // A sync requires no majority, unlike a write.
        let synced = within_deadline("an answer", client.sync("/")).await;
        let read = within_deadline("an answer", client.exists("/a")).await;
        if synced.is_err() || read.is_err() {
            break;
        }
        last = Instant::now();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lasted(last - since);
    let error = within_deadline("the write", writing).await.unwrap().unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    drop(isolation);
    eventually("another write", async || client.set_data("/a", b"", None).await.ok()).await;
}

/// Whether a call would be sent now. Without a connection, it would wait for the next one.
fn is_connected(client: &Client) -> bool {
    client.state().get().is_some_and(ConnectionState::is_connected)
}

/// A follower answers for syncLimit after the last ping or tick, a leader for a tick more.
#[track_caller]
fn lasted(time: Duration) {
    eprintln!("answered for {time:?}");
    let limit = TICK * SYNC_LIMIT;
    assert!(time + TICK * 3 / 2 > limit && time < limit + TICK + SLACK, "{time:?}");
}

/// An abandoned acquire's create is ordered by the leader but not committed: the followers' acknowledgements are
/// delayed. The leader answers `sync` and a listing without them, and shows no node. Once they arrive, the node exists;
/// it must be deleted, or it would block all contenders until the session ends.
// Case (Found in docent itself): an acquire that was given up left its node when the leader
// committed its create after the search (1 of 3,000 simulated seeds).
#[tokio::test]
async fn a_create_that_is_committed_after_the_search_leaves_no_node() {
    // Longer than the test takes on a loaded machine: the leader stays the leader.
    let ensemble = Ensemble::embedded(3, SYNC_LIMIT * 100).await;
    let leader = ensemble.leader().await;
    let (client, other) = (ensemble.client_of(leader).await, ensemble.client_of(leader).await);
    let mutex = InterProcessMutex::new(&client, "/lock").unwrap();
    within_deadline("a first hold", mutex.acquire()).await.unwrap().release().await.unwrap();
    let Ensemble::Embedded(cluster) = &ensemble else { unreachable!() };
    let followers: Vec<_> = (0..3).filter(|member| *member != leader).collect();
    followers.iter().for_each(|follower| cluster.cut(*follower, leader));
    let acquiring = tokio::spawn(async move { mutex.acquire().await });
    until("the create is ordered", async || {
        let ordered = cluster.machine(|machine, _| machine.last_zxid());
        ordered > cluster.machine(|machine, _| machine.node("/lock").unwrap().1.pzxid)
    })
    .await;
    // The connection breaks, and the acquire is dropped: the outcome of its create stays unknown.
    let mut states = client.states();
    cluster.cut_connections(leader);
    acquiring.abort();
    passes(&mut states, ConnectionState::Reconnected).await;
    // The search (a write and a listing) is sent on the new connection, and gets no reply. The leader answers its other
    // client after it received the search.
    until("the search is sent", async || client.metrics().in_flight >= 2).await;
    for _ in 0..10 {
        within_deadline("an answer", other.exists("/lock")).await.unwrap();
    }
    followers.iter().for_each(|follower| cluster.heal(*follower, leader));
    let mutex = InterProcessMutex::new(&other, "/lock").unwrap();
    within_deadline("the other's hold", mutex.acquire()).await.unwrap().release().await.unwrap();
}
