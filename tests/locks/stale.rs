//! Searches on servers that show an old tree: a lagging follower, and a leader that does not know it is partitioned.

use super::*;
use crate::support::{ensemble::leader_and_follower, given_up_session::config_without_expiry};

/// A cluster with a client that is connected to the leader, through a tap.
async fn cluster_and_client() -> (TestingCluster, Fixture, Client, TapClient) {
    let cluster = TestingCluster::start(3).await.unwrap();
    let fixture = Fixture::of_member(&cluster, cluster.leader().unwrap()).await;
    let (client, tap) = fixture.client("A").await;
    (cluster, fixture, client, tap)
}

/// Makes the next create succeed without a reply, and the client move to a follower that has not applied it.
async fn lose_next_create(cluster: &TestingCluster, fixture: &Fixture) {
    let (_, follower) = leader_and_follower(cluster);
    cluster.set_lag(follower, true);
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    fixture.tap.set_upstream(&cluster.addr(follower).unwrap().to_string());
}

// Case (Found in docent itself): a search by GUID on a follower that lagged saw nothing: a second
// create, or a node that blocked everybody.
#[tokio::test]
async fn a_search_on_a_follower_that_lags_finds_the_node() {
    let (cluster, fixture, client, _tap) = cluster_and_client().await;
    let mutex = mutex(&fixture, &client);
    mutex.acquire().await.unwrap().release().await.unwrap();
    lose_next_create(&cluster, &fixture).await;
    let guard = within_deadline("acquire", mutex.acquire()).await.unwrap();
    assert_only(&fixture, guard.path()).await;
    assert_eq!(
        fixture.requests(0, OpCode::Create2),
        3,
        "two before the parent existed, and no second one after the loss"
    );
    guard.release().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

/// In 1 of 4,000 simulations, the node of a live session stayed and blocked all contenders.
#[tokio::test]
async fn a_clean_up_on_a_follower_that_lags_finds_the_node() {
    let (cluster, fixture, client, _tap) = cluster_and_client().await;
    let mutex = mutex_without_retries(&fixture, &client);
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, &fixture.path, 1, no_retries()).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    lose_next_create(&cluster, &fixture).await;
    let error = within_deadline("acquire", mutex.acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    let observer = fixture.observer().await;
    until("no lock node", async || {
        let children = observer.get_children(&fixture.path).await.unwrap().to_vec();
        children.iter().all(|name| !name.starts_with("_c_"))
    })
    .await;
    assert!(!client.session().unwrap().is_lost(), "deleted by the clean-up, not with the session");
}

/// Removes the children from a reply to getChildren, like a leader that is partitioned from its followers. Such a leader
/// still replies to `sync` (ZOOKEEPER-1675).
fn without_children(reply: &[u8]) -> Vec<u8> {
    [&20_u32.to_be_bytes()[..], &reply[4..20], &0_u32.to_be_bytes()].concat()
}

/// The next searches show no node.
fn hide_from_searches(fixture: &Fixture, searches: u32) {
    let fault = Fault::rewrite_reply(OpCode::GetChildren, without_children);
    fixture.tap.inject(fault.times(searches));
}

async fn fixture_and_client() -> (Fixture, Client, TapClient) {
    let fixture = Fixture::with(server::Config::default()).await;
    let (client, tap) = fixture.client("A").await;
    (fixture, client, tap)
}

/// Checks that a node is the only one at the path of the fixture.
async fn assert_only(fixture: &Fixture, path: &str) {
    let children = fixture.children(&fixture.path, 1).await;
    assert_eq!(path, format!("{}/{}", fixture.path, children[0]));
}

/// A first create whose reply is lost, a search that does not see its node, and a second create.
// Case (Found in docent itself): an acquire that was given up behind its second create left the
// first one's node; a second create that was refused, or found the first one's node, made the first
// be forgotten.
#[tokio::test]
async fn the_first_create_of_two_leaves_no_node() {
    let (fixture, client, _tap) = fixture_and_client().await;
    let mutex = mutex(&fixture, &client);
    mutex.acquire().await.unwrap().release().await.unwrap();
    let both = || {
        fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
        hide_from_searches(&fixture, 1);
    };

    // Held: the listing shows both nodes, and the duplicate is deleted.
    both();
    let guard = within_deadline("acquire", mutex.acquire()).await.unwrap();
    assert_only(&fixture, guard.path()).await;
    assert!(guard.path().ends_with("0000000002"), "{}", guard.path());
    guard.release().await.unwrap();

    // Dropped after the second create, before any listing: both are deleted.
    both();
    fixture.tap.inject(Fault::delay_reply(OpCode::GetChildren2, DEADLINE).of("A"));
    let mut records = fixture.tap.subscribe();
    let acquire = spawn_acquire(&mutex);
    for _ in ["the first create", "the second"] {
        records.until(DEADLINE, |r| r.is_reply(OpCode::Create2)).await.unwrap();
    }
    records.until(DEADLINE, |r| r.is_request(OpCode::GetChildren2)).await.unwrap();
    assert_eq!(fixture.children(&fixture.path, 2).await.len(), 2);
    acquire.abort();
    // Close the connection that delays all replies.
    fixture.tap.clear_faults();
    fixture.tap.all_clients().cut();
    fixture.children(&fixture.path, 0).await;
}

/// A refusal does not settle the outcome of an earlier create.
#[tokio::test]
async fn a_refused_second_create_does_not_forget_the_first() {
    let (fixture, client, tap) = fixture_and_client().await;
    let mutex = mutex(&fixture, &client);
    mutex.acquire().await.unwrap().release().await.unwrap();
    let operator = fixture.observer().await;
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    hide_from_searches(&fixture, 1);
    tap.refuse().await.unwrap();
    let mut records = fixture.tap.subscribe();
    let acquire = spawn_acquire(&mutex);
    records.until(DEADLINE, |record| record.is_reply(OpCode::Create2)).await.unwrap();
    let without_create = [Acl { perms: Perms::READ | Perms::DELETE, ..acl::OPEN_ACL_UNSAFE[0] }];
    operator.set_acl(&fixture.path, &without_create, None).await.unwrap();
    tap.accept().await.unwrap();
    let error = within_deadline("acquire", acquire).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
    fixture.children(&fixture.path, 0).await;
}

/// The second create finds the first one's node, which is not sequential. Before this was fixed, the read node blocked
/// every writer.
#[tokio::test]
async fn a_downgrade_finds_its_first_create_by_the_second() {
    let (fixture, client, _tap) = fixture_and_client().await;
    let lock = pair(&fixture, &client);
    let me = Owner::new();
    let writing = lock.write_lock().acquire_as(&me).await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    hide_from_searches(&fixture, 1);
    let reading = within_deadline("downgrade", lock.read_lock().acquire_as(&me)).await.unwrap();
    assert_eq!(fixture.children(&fixture.path, 2).await.len(), 2);
    writing.release().await.unwrap();
    reading.release().await.unwrap();
    fixture.children(&fixture.path, 0).await;

    // Dropped: no node is left either.
    let writing = lock.write_lock().acquire_as(&me).await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    hide_from_searches(&fixture, 1);
    let mut records = fixture.tap.subscribe();
    let acquire = tokio::spawn(async move { lock.read_lock().acquire_as(&me).await });
    for _ in ["the first create", "the second"] {
        records.until(DEADLINE, |r| r.is_reply(OpCode::Create2)).await.unwrap();
    }
    acquire.abort();
    writing.release().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

/// The search misses the first node, and the second create succeeds: one of the two nodes is deleted.
#[tokio::test]
async fn a_protected_node_has_no_twin() {
    let (fixture, client, _tap) = fixture_and_client().await;
    fixture.create_path(&client).await;
    let path = format!("{}/item-", fixture.path);
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    hide_from_searches(&fixture, 1);
    let options = protected(CreateMode::PersistentSequential);
    let created = create_protected(&client, &path, b"data", options);
    let created = within_deadline("create", created).await.unwrap();
    assert!(created.ends_with("-item-0000000001"), "{created}");
    assert_only(&fixture, &created).await;
}

/// Two creates get no reply, the second one after a stale search: the next search finds both nodes. The first node is
/// kept, whatever the order of the listing; the other one is deleted.
#[tokio::test]
async fn of_two_nodes_that_a_search_finds_the_first_is_kept() {
    for mode in [CreateMode::EphemeralSequential, CreateMode::PersistentSequential] {
        let (fixture, client, _tap) = fixture_and_client().await;
        fixture.create_path(&client).await;
        let path = format!("{}/item-", fixture.path);
        fixture.tap.inject(Fault::drop_reply(OpCode::Create2).times(2));
        hide_from_searches(&fixture, 1);
        let created = create_protected(&client, &path, b"", protected(mode));
        let created = within_deadline("create", created).await.unwrap();
        assert!(created.ends_with("-item-0000000000"), "{created}");
        assert_eq!(fixture.requests(0, OpCode::Create2), 2);
        assert_only(&fixture, &created).await;
    }
}

/// Removes the last name from a reply to getChildren or getChildren2, like a server that has not applied the last create.
fn without_last_child(reply: &[u8]) -> Vec<u8> {
    let number = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().unwrap()) as usize;
    let (count, mut at) = (number(20), 24);
    let names: Vec<_> = (0..count)
        .map(|_| {
            let begin = at;
            at += 4 + number(at);
            &reply[begin..at]
        })
        .collect();
    // The digits at the end of a name are its place.
    let last = names.iter().max_by_key(|name| &name[name.len() - 10..]);
    let kept: Vec<_> = names.iter().filter(|name| Some(*name) != last).copied().collect();
    let (count, kept) = (u32::try_from(kept.len()).unwrap(), kept.concat());
    let length = u32::try_from(20 + kept.len() + reply[at..].len()).unwrap();
    [&length.to_be_bytes()[..], &reply[4..20], &count.to_be_bytes(), &kept, &reply[at..]].concat()
}

/// Two creates get no reply. The search and the listing that grants the lock show the node of the first one only, as
/// when the second one is applied behind them.
#[tokio::test]
async fn a_second_create_that_no_listing_shows_leaves_no_node() {
    let (fixture, client, _tap) = fixture_and_client().await;
    let mutex = mutex(&fixture, &client);
    mutex.acquire().await.unwrap().release().await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2).times(2));
    hide_from_searches(&fixture, 1);
    let hide_last = |op, nth| {
        fixture.tap.inject(Fault::rewrite_reply(op, without_last_child).nth(nth));
    };
    hide_last(OpCode::GetChildren, 2);
    hide_last(OpCode::GetChildren2, 1);
    let guard = within_deadline("acquire", mutex.acquire()).await.unwrap();
    assert!(guard.path().ends_with("0000000001"), "{}", guard.path());
    assert_only(&fixture, guard.path()).await;
}

/// A server that expires no session by itself, and a client with a short one.
async fn without_expiry() -> (Fixture, Client, TapClient) {
    let fixture = Fixture::with(config_without_expiry()).await;
    let (client, tap) = short_session(&fixture, "A").await;
    (fixture, client, tap)
}

/// A search misses the node of the earlier session, and the next create finds it: a node is created under another name,
/// even if no retries are left. Before this was fixed, the create failed with `NodeExists`.
// Case (Found in docent itself): a create that found its name taken by the node of the client's
// earlier session failed with `NodeExists`; and so did one whose own node two searches did not
// show.
#[tokio::test]
async fn an_existing_node_of_an_earlier_session_is_created_anew() {
    let (fixture, client, tap) = without_expiry().await;
    fixture.create_path(&client).await;
    let first_session = session_id(&client);
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    tap.refuse().await.unwrap();
    let path = format!("{}/member", fixture.path);
    let create = tokio::spawn({
        let client = client.clone();
        async move {
            // One retry for the lost reply, and one for the search that ends with the session.
            let policy = RetryNTimes::new(2, ms(100));
            let options = protected(CreateMode::Ephemeral).with_retry_policy(policy);
            create_protected(&client, &path, b"", options).await
        }
    });
    records.until(DEADLINE, |record| record.is_reply(OpCode::Create2)).await.unwrap();
    hide_from_searches(&fixture, 1);
    wait_until_given_up(&client, &tap).await;
    let created = within_deadline("create", create).await.unwrap().unwrap();
    assert!(fixture.testing_server().session_ids().contains(&first_session), "it is alive");
    let stat = client.exists(&created).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, session_id(&client));
    assert_only(&fixture, &created).await;
}

/// Two searches are stale: the node is our own, so the create is repeated as long as the retry policy allows.
#[tokio::test]
async fn an_existing_node_that_no_search_shows_is_searched_for_again() {
    let (fixture, client, _tap) = fixture_and_client().await;
    fixture.create_path(&client).await;
    let path = format!("{}/member", fixture.path);
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    // The search after the lost reply, and the one after NodeExists.
    hide_from_searches(&fixture, 2);
    let before = fixture.tap.len();
    let created = create_protected(&client, &path, b"", protected(CreateMode::Ephemeral));
    let created = within_deadline("create", created).await.unwrap();
    let creates = fixture.requests(before, OpCode::Create2);
    assert_eq!(creates, 2, "none is sent behind NodeExists without a pause");
    assert_only(&fixture, &created).await;
}

/// The node of the earlier session is deleted, and then a late create of its name is applied: the search for all nodes
/// with the old GUID deletes it.
#[tokio::test]
async fn a_late_create_of_a_given_up_name_leaves_no_node() {
    let (fixture, client, tap) = without_expiry().await;
    fixture.create_path(&client).await;
    let operator = fixture.observer().await;
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    tap.refuse().await.unwrap();
    let path = format!("{}/member", fixture.path);
    let create = tokio::spawn({
        let client = client.clone();
        async move { create_protected(&client, &path, b"", protected(CreateMode::Ephemeral)).await }
    });
    records.until(DEADLINE, |record| record.is_reply(OpCode::Create2)).await.unwrap();
    let old = format!("{}/{}", fixture.path, fixture.children(&fixture.path, 1).await[0]);
    // The search for all nodes with the GUID.
    fixture.tap.inject(Fault::delay_request(OpCode::GetChildren2, DEADLINE).of("A"));
    wait_until_given_up(&client, &tap).await;
    records.until(DEADLINE, |record| record.is_reply(OpCode::Delete)).await.unwrap();
    operator.create(&old, b"late", CreateMode::Ephemeral).await.unwrap();
    // Close the connection that delays all requests.
    fixture.tap.clear_faults();
    tap.cut();
    let created = within_deadline("create", create).await.unwrap().unwrap();
    assert_ne!(created, old);
    assert_only(&fixture, &created).await;
}

/// A create was sent in each of two sessions, and only the first session's node exists: it is found late, and must not
/// be adopted.
#[tokio::test]
async fn the_node_of_the_first_of_two_sessions_is_not_taken_for_ours() {
    let (fixture, client, tap) = without_expiry().await;
    let mutex = mutex(&fixture, &client);
    mutex.acquire().await.unwrap().release().await.unwrap();
    let first_session = session_id(&client);

    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    fixture.tap.inject(Fault::drop_before(OpCode::Create2).nth(2));
    tap.refuse().await.unwrap();
    let acquire = spawn_acquire(&mutex);
    records.until(DEADLINE, |record| record.is_reply(OpCode::Create2)).await.unwrap();
    hide_from_searches(&fixture, 1);
    wait_until_given_up(&client, &tap).await;
    let guard = within_deadline("acquire", acquire).await.unwrap().unwrap();
    assert!(fixture.testing_server().session_ids().contains(&first_session), "it is alive");
    assert_ne!(guard.session_id(), first_session);
    let stat = client.exists(guard.path()).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, guard.session_id());
    guard.release().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

/// The session of a waiter ends during its listing, which the next session repeats. The server keeps the node.
#[tokio::test]
async fn a_waiter_does_not_wait_with_the_node_of_its_earlier_session() {
    let (fixture, client, tap) = without_expiry().await;
    let rival = fixture.observer().await;
    let holder = mutex(&fixture, &rival).acquire().await.unwrap();
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::drop_before(OpCode::GetChildren2));
    tap.refuse().await.unwrap();
    let waiting = spawn_acquire(&mutex(&fixture, &client));
    records.until(DEADLINE, |record| record.is_request(OpCode::GetChildren2)).await.unwrap();
    let first_session = session_id(&client);
    wait_until_given_up(&client, &tap).await;
    until("a node of the next session", async || {
        let nodes = mutex(&fixture, &rival).participants().await.unwrap();
        let mut owners = Vec::new();
        for node in nodes {
            owners.extend(rival.exists(&node).await.unwrap().map(|stat| stat.ephemeral_owner));
        }
        owners.len() == 2 && !owners.contains(&first_session)
    })
    .await;
    assert!(fixture.testing_server().session_ids().contains(&first_session), "it is alive");
    holder.release().await.unwrap();
    let guard = within_deadline("acquire", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}
