//! Lock nodes that another client deletes, as an operator does with zkCli: `lost` and `cancellation_token` watch them.

use super::*;
use crate::support::ensemble::{client_of, leader_and_follower};

on_both_servers! {
    a_deleted_node_ends_the_hold_of_every_lock
    without_a_watch_nothing_is_sent_and_a_deletion_is_not_seen
    the_watch_is_set_once_for_a_hold
    a_write_to_the_node_ends_no_hold
    a_node_deleted_during_an_outage_ends_the_hold
    a_node_created_in_its_place_ends_the_hold
    a_node_created_in_place_of_one_that_was_found_ends_the_hold
    a_release_leaves_another_clients_node_in_its_place
    a_release_leaves_no_watch
    a_watch_that_is_not_set_is_set_later
    a_revocable_lock_notices_without_another_request
    a_watched_guard_keeps_no_client
}

/// The number of reads of a path that set a watch, since a position in the trace.
fn reads(fixture: &Fixture, since: u64, path: &str) -> usize {
    let is_read = |r: &Record| r.is_request(OpCode::GetData) && r.path() == Some(path);
    fixture.tap.trace().since(since).filter(is_read).iter().count()
}

/// Starts to watch the node, and waits for the reply.
async fn watch(fixture: &Fixture, client: &Client, guard: &LockGuard) {
    let mut records = fixture.tap.subscribe();
    let token = guard.cancellation_token();
    assert!(!token.is_cancelled());
    assert_eq!(client.metrics().pending, 1, "queued by the call itself");
    records.until(DEADLINE, |record| record.is_reply(OpCode::GetData)).await.unwrap();
    has_no_request(client).await;
}

/// Checks that a hold ends within the deadline, by each method of its guard that reports it.
async fn assert_lost(what: &str, guard: &LockGuard) {
    within_deadline(what, guard.lost()).await;
    assert!(!guard.is_held(), "{what}");
    assert!(matches!(guard.guarded(), Err(error) if error.kind() == ErrorKind::LockLost), "{what}");
    within_deadline(what, guard.cancellation_token().cancelled()).await;
}

// Case (Found in docent itself): a holder whose node another client had deleted was never notified,
// although it waited for the loss of its lock.
async fn a_deleted_node_ends_the_hold_of_every_lock(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    let at = |name: &str| format!("{}/{name}", fixture.path);
    let pair = InterProcessReadWriteLock::with_options(&client, &at("read"), options()).unwrap();
    let revocable = InterProcessMutex::with_options(&client, &at("revocable"), options()).unwrap();
    let parts = [&*at("first"), &*at("second"), &*at("third")];
    let multi = InterProcessMultiLock::with_options(&client, &parts, &options()).unwrap();
    let me = Owner::new();
    let writing = pair.write_lock().acquire_as(&me).await.unwrap();
    let reading = pair.read_lock().acquire_as(&me).await.unwrap();
    writing.release().await.unwrap();
    revocable.make_revocable(|| {});
    let lease = semaphore(&fixture, &client, 2).acquire().await.unwrap();
    let mut guards = vec![
        ("a downgraded reader", reading),
        ("revocable", revocable.acquire().await.unwrap()),
        ("lease", lease),
    ];
    for (kind, lock) in each_lock(&client, &fixture.path, &options()) {
        guards.push((kind, lock.acquire().await.unwrap()));
    }
    let ends = async |kind: &str, node: usize, guard: LockGuard| {
        let token = guard.cancellation_token();
        assert!(guard.is_held() && !token.is_cancelled(), "{kind}");
        operator.delete(guard.paths().nth(node).unwrap(), None).await.unwrap();
        within_deadline(kind, token.cancelled()).await;
        assert_lost(kind, &guard).await;
        // The node is missing, which is no error.
        guard.release().await.unwrap();
    };
    for (kind, guard) in guards {
        ends(kind, 0, guard).await;
    }
    for node in 0..parts.len() {
        ends("each node of a multi lock", node, multi.acquire().await.unwrap()).await;
    }
    has_no_request(&client).await;
    assert_eq!(client.metrics().watches, 0, "no watch is left");
}

/// A holder that calls neither `lost` nor `cancellation_token` sends the same requests as in Curator.
async fn without_a_watch_nothing_is_sent_and_a_deletion_is_not_seen(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    let guard = mutex(&fixture, &client).acquire().await.unwrap();
    let before = client.metrics().requests;
    assert!(guard.is_held() && guard.guarded().is_ok());
    guard.fencing_token().await.unwrap();
    operator.delete(guard.path(), None).await.unwrap();
    assert!(guard.is_held() && guard.guarded().is_ok());
    assert_eq!(client.metrics().requests, before);
    // The node is deleted on the server.
    let checked = guard.guarded().unwrap().set_data(&fixture.path, b"", None).commit().await;
    assert_eq!(checked.unwrap_err().kind(), ErrorKind::NoNode);
    // A watch that is set after the deletion: its read finds no node, and leaves no watch.
    let token = guard.cancellation_token();
    within_deadline("a node deleted before the watch", token.cancelled()).await;
    assert_lost("a node deleted before the watch", &guard).await;
    assert_eq!(client.metrics().watches, 0);
}

async fn the_watch_is_set_once_for_a_hold(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let ours = mutex(&fixture, &client);
    let me = Owner::new();
    let first = ours.acquire_as(&me).await.unwrap();
    let second = ours.acquire_as(&me).await.unwrap();
    let path = first.path().to_owned();
    let before = fixture.tap.len();
    for guard in [&first, &second] {
        for _ in 0..3 {
            assert!(!guard.cancellation_token().is_cancelled());
            poll_once(guard.lost());
        }
    }
    has_watches(&client, 1).await;
    // The end of one guard leaves the watch to the other one.
    first.release().await.unwrap();
    assert!(!second.cancellation_token().is_cancelled());
    assert_eq!(reads(&fixture, before, &path), 1);
    let operator = fixture.observer().await;
    operator.delete(&path, None).await.unwrap();
    assert_lost("the second guard", &second).await;
    assert_eq!(reads(&fixture, before, &path), 1);
}

async fn a_write_to_the_node_ends_no_hold(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    let guard = mutex(&fixture, &client).acquire().await.unwrap();
    let path = guard.path().to_owned();
    let before = fixture.tap.len();
    watch(&fixture, &client, &guard).await;
    for round in 2..5 {
        operator.set_data(&path, b"__REVOKE__", None).await.unwrap();
        until("the watch is set again", async || {
            reads(&fixture, before, &path) == round && pending_and_watches(&client) == (0, 1)
        })
        .await;
        assert!(guard.is_held() && !guard.cancellation_token().is_cancelled());
    }
    operator.delete(&path, None).await.unwrap();
    assert_lost("a node deleted behind writes", &guard).await;
}

async fn a_node_deleted_during_an_outage_ends_the_hold(fixture: Fixture) {
    let (client, tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    // 0: the node is deleted. 1: another node replaces it. 2: the watch is set during the outage.
    for way in 0..3 {
        let guard = mutex(&fixture, &client).acquire().await.unwrap();
        if way != 2 {
            watch(&fixture, &client, &guard).await;
        }
        let session = session_id(&client);
        tap.refuse().await.unwrap();
        tap.cut();
        operator.delete(guard.path(), None).await.unwrap();
        if way == 1 {
            operator.create(guard.path(), b"", CreateMode::Ephemeral).await.unwrap();
        }
        reaches(&client, ConnectionState::Suspended).await;
        let token = guard.cancellation_token();
        assert!(guard.is_held() && !token.is_cancelled(), "not known yet");
        tap.accept().await.unwrap();
        within_deadline("the loss", token.cancelled()).await;
        assert_lost("a node deleted during an outage", &guard).await;
        assert_eq!(session_id(&client), session, "in the same session");
        if way == 1 {
            operator.delete(guard.path(), None).await.unwrap();
        }
    }
}

/// The `czxid` distinguishes the nodes: they have the same path, and may have the same session.
async fn a_node_created_in_its_place_ends_the_hold(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    for (other, mode) in [
        (&operator, CreateMode::Ephemeral),
        (&operator, CreateMode::Persistent),
        (&client, CreateMode::Ephemeral),
    ] {
        let guard = mutex(&fixture, &client).acquire().await.unwrap();
        operator.delete(guard.path(), None).await.unwrap();
        other.create(guard.path(), b"", mode).await.unwrap();
        assert!(guard.is_held());
        assert_lost("another node", &guard).await;
        operator.delete(guard.path(), None).await.unwrap();
    }
}

/// After a lost reply the `czxid` is unknown: the owner distinguishes the nodes.
// Case (Found in docent itself): a persistent node at the path of a deleted lock node gave its
// `czxid` as the fencing token.
async fn a_node_created_in_place_of_one_that_was_found_ends_the_hold(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    mutex(&fixture, &client).acquire().await.unwrap().release().await.unwrap();
    for (mode, by_token) in [
        (CreateMode::Ephemeral, false),
        (CreateMode::Persistent, false),
        (CreateMode::Persistent, true),
    ] {
        fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
        let guard = within_deadline("acquire", mutex(&fixture, &client).acquire()).await.unwrap();
        operator.delete(guard.path(), None).await.unwrap();
        operator.create(guard.path(), b"", mode).await.unwrap();
        if by_token {
            let error = guard.fencing_token().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LockLost);
        }
        assert_lost("another node", &guard).await;
        operator.delete(guard.path(), None).await.unwrap();
    }
}

/// The holder knows from `lost` or `fencing_token` that the node is another client's.
// Case (Found in docent itself): a release deleted the node that another client had created at the
// path of the lock node, although the holder knew that its own was deleted.
async fn a_release_leaves_another_clients_node_in_its_place(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    for (is_dropped, by_token) in [(false, false), (true, false), (false, true), (true, true)] {
        if by_token {
            fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
        }
        let guard = within_deadline("acquire", mutex(&fixture, &client).acquire()).await.unwrap();
        let path = guard.path().to_owned();
        operator.delete(&path, None).await.unwrap();
        operator.create(&path, b"", CreateMode::Ephemeral).await.unwrap();
        if by_token {
            guard.fencing_token().await.unwrap_err();
        } else {
            within_deadline("the loss", guard.lost()).await;
        }
        if is_dropped {
            drop(guard)
        } else {
            guard.release().await.unwrap()
        }
        // This reply follows those to the requests of the release, if there are any.
        client.exists("/").await.unwrap();
        assert!(operator.exists(&path).await.unwrap().is_some(), "{is_dropped} {by_token}");
        operator.delete(&path, None).await.unwrap();
    }
}

/// Even if the release is sent before the reply to the read arrives. The holder's own deletion is not reported.
async fn a_release_leaves_no_watch(fixture: Fixture) {
    let (client, tap) = fixture.client("A").await;
    // Creates the parents.
    mutex(&fixture, &client).acquire().await.unwrap().release().await.unwrap();
    let before = fixture.tap.len();
    for is_in_flight in [false, true] {
        for is_dropped in [false, true] {
            let guard = mutex(&fixture, &client).acquire().await.unwrap();
            if is_in_flight {
                tap.stall();
                let token = guard.cancellation_token();
                poll_once(guard.lost());
                assert!(!token.is_cancelled());
            } else {
                watch(&fixture, &client, &guard).await;
            }
            if is_dropped {
                drop(guard);
                tap.resume();
            } else {
                let release = tokio::spawn(guard.release());
                tokio::task::yield_now().await;
                tap.resume();
                within_deadline("release", release).await.unwrap().unwrap();
            }
            fixture.children(&fixture.path, 0).await;
            has_watches(&client, 0).await;
        }
    }
    let requests = |op| fixture.requests(before, op);
    assert_eq!((requests(OpCode::GetData), requests(OpCode::Delete)), (4, 4));
    for op in [OpCode::CheckWatches, OpCode::RemoveWatches, OpCode::Exists] {
        assert_eq!(requests(op), 0, "the watch costs one getData, and nothing at the release");
    }
}

/// The read that sets the watch is lost or forbidden for a while, or the application removes all watches of the path.
async fn a_watch_that_is_not_set_is_set_later(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    for way in ["lost request", "lost reply", "forbidden", "removed"] {
        let guard = mutex(&fixture, &client).acquire().await.unwrap();
        let path = guard.path().to_owned();
        let before = fixture.tap.len();
        let lose = |fault: Fault| fixture.tap.inject(fault.of("A").times(2));
        match way {
            "lost request" => lose(Fault::drop_before(OpCode::GetData)),
            "lost reply" => lose(Fault::drop_reply(OpCode::GetData)),
            "forbidden" => fixture.forbid(&operator, &path, Perms::READ).await,
            _ => watch(&fixture, &client, &guard).await,
        }
        let token = guard.cancellation_token();
        if way == "removed" {
            client.remove_watches(&path, docent::watch::WatcherType::Any).await.unwrap();
        }
        let wanted = if way == "removed" { 2 } else { 3 };
        until(way, async || reads(&fixture, before, &path) >= wanted).await;
        assert!(guard.is_held() && !token.is_cancelled(), "{way}: the node is there");
        fixture.allow_all(&operator, &path).await;
        has_watches(&client, 1).await;
        operator.delete(&path, None).await.unwrap();
        within_deadline(way, token.cancelled()).await;
        assert_lost(way, &guard).await;
    }
}

/// A revocable lock already has a watch, for the revocation.
async fn a_revocable_lock_notices_without_another_request(fixture: Fixture) {
    let (client, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    let ours = mutex(&fixture, &client);
    // In the second round, a write has triggered the watch, and it was set again.
    for is_written in [false, true] {
        ours.make_revocable(|| {});
        let guard = ours.acquire().await.unwrap();
        let path = guard.path().to_owned();
        if is_written {
            let before = fixture.tap.len();
            operator.set_data(&path, b"", None).await.unwrap();
            until("the watch is set again", async || {
                reads(&fixture, before, &path) == 1 && pending_and_watches(&client) == (0, 1)
            })
            .await;
        }
        let before = client.metrics().requests;
        operator.delete(&path, None).await.unwrap();
        until("the deletion is known", async || !guard.is_held()).await;
        assert_eq!(client.metrics().requests, before);
        drop(guard);
        fixture.children(&fixture.path, 0).await;
    }
}

/// The task of the watch lives no longer than the users of the client.
async fn a_watched_guard_keeps_no_client(fixture: Fixture) {
    for is_watched in [false, true] {
        let (client, tap) = fixture.client("A").await;
        let guard = mutex(&fixture, &client).acquire().await.unwrap();
        let path = guard.path().to_owned();
        if is_watched {
            watch(&fixture, &client, &guard).await;
        } else {
            // The read fails each time.
            fixture.tap.inject(Fault::drop_before(OpCode::GetData).of("A").times(u32::MAX));
            let before = fixture.tap.len();
            let token = guard.cancellation_token();
            until("a read", async || reads(&fixture, before, &path) > 1).await;
            assert!(!token.is_cancelled());
        }
        let weak = client.downgrade();
        drop((guard, client));
        until("the end of the client", async || weak.upgrade().is_none()).await;
        fixture.tap.clear_faults();
        drop(tap);
    }
}

/// An overloaded server (3.7 and later) refuses the read, and so does a full queue.
#[tokio::test]
async fn a_read_that_is_refused_is_repeated() {
    let fixture = Fixture::with(server::Config::default()).await;
    let (client, tap) = fixture.client_with("A", |config| config.with_max_requests(4)).await;
    let operator = fixture.observer().await;
    for is_full in [false, true] {
        let guard = mutex(&fixture, &client).acquire().await.unwrap();
        if is_full {
            tap.stall();
            let filling: Vec<_> = (0..4).map(|_| client.get_data("/")).collect();
            poll_once(guard.lost());
            assert_eq!(client.metrics().pending, 4, "the read is refused");
            tap.resume();
            drop(filling);
        } else {
            fixture.testing_server().throttle(2);
            poll_once(guard.lost());
        }
        has_watches(&client, 1).await;
        assert!(guard.is_held());
        operator.delete(guard.path(), None).await.unwrap();
        assert_lost("the loss", &guard).await;
    }
}

/// The deletion is seen once the client's server has applied it, also by a client that has moved to another one.
#[tokio::test]
async fn a_deletion_is_seen_once_a_lagging_server_has_applied_it() {
    let cluster = TestingCluster::start(3).await.unwrap();
    let (leader, follower) = leader_and_follower(&cluster);
    for is_watched in [true, false] {
        let fixture = Fixture::of_member(&cluster, follower).await;
        let operator = client_of(&cluster, leader).await;
        let (client, tap) = fixture.client("A").await;
        let guard = mutex(&fixture, &client).acquire().await.unwrap();
        if is_watched {
            watch(&fixture, &client, &guard).await;
        }
        cluster.set_lag(follower, true);
        operator.delete(guard.path(), None).await.unwrap();
        if !is_watched {
            watch(&fixture, &client, &guard).await;
        }
        // The server still shows the node.
        assert!(client.exists(guard.path()).await.unwrap().is_some());
        assert!(guard.is_held());
        if is_watched {
            cluster.set_lag(follower, false);
        } else {
            fixture.tap.set_upstream(&cluster.addr(leader).unwrap().to_string());
            tap.cut();
        }
        assert_lost("the loss", &guard).await;
        cluster.set_lag(follower, false);
    }
}
