//! Searches on servers that show an old tree: a lagging follower, and a leader that does not know it is partitioned.

use std::sync::atomic::AtomicU32;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::support::given_up_session::config_without_expiry;

/// A cluster with a client that is connected to the leader, through a tap.
async fn cluster_and_client() -> (TestingCluster, Fixture, Client, TapClient) {
    let cluster = TestingCluster::start(3).await.unwrap();
    let leader = cluster.leader().unwrap();
    let fixture = Fixture::on(cluster.addr(leader).unwrap().to_string(), None).await;
    let (client, tap) = fixture.client("A").await;
    (cluster, fixture, client, tap)
}

/// Makes the next create succeed without a reply, and the client move to a follower that has not applied it.
async fn lose_next_create(cluster: &TestingCluster, fixture: &Fixture) {
    let follower = (0..3).find(|member| Some(*member) != cluster.leader()).unwrap();
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
    assert_eq!(
        fixture.children(&fixture.path, 1).await,
        [guard.path().rsplit('/').next().unwrap()]
    );
    let creates = fixture.tap.trace().iter().filter(|r| r.is_request(OpCode::Create2)).count();
    assert_eq!(creates, 3, "two before the parent existed, and no second one after the loss");
    guard.release().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

/// In 1 of 4,000 simulations, the node of a live session stayed and blocked all contenders.
#[tokio::test]
async fn a_clean_up_on_a_follower_that_lags_finds_the_node() {
    let (cluster, fixture, client, _tap) = cluster_and_client().await;
    let mutex = InterProcessMutex::with_options(&client, &fixture.path, no_retries()).unwrap();
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, &fixture.path, 1, no_retries()).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    lose_next_create(&cluster, &fixture).await;
    let error = within_deadline("acquire", mutex.acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    eventually("no lock node", async || {
        let observer = fixture.observer().await;
        let children = observer.get_children(&fixture.path).await.unwrap().to_vec();
        children.iter().all(|name| !name.starts_with("_c_")).then_some(())
    })
    .await;
    assert!(!client.session().unwrap().is_lost(), "deleted by the clean-up, not with the session");
}

/// A proxy that removes the children from listings, like a leader that is partitioned from its followers. Such a leader
/// still replies to `sync` (ZOOKEEPER-1675).
struct StaleProxy {
    connect: String,
    listings: Arc<AtomicU32>,
}

/// Reads a frame, and returns it with its length prefix.
async fn frame(from: &mut (impl AsyncReadExt + Unpin)) -> Option<Vec<u8>> {
    let len = from.read_u32().await.ok()?;
    let mut frame = len.to_be_bytes().to_vec();
    frame.resize(4 + len as usize, 0);
    from.read_exact(&mut frame[4..]).await.ok()?;
    Some(frame)
}

fn int(frame: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?))
}

/// The reply to a listing without its children; the bytes after the names are kept.
fn emptied(frame: &[u8], op: OpCode) -> Vec<u8> {
    let stat = if op == OpCode::GetChildren2 { &frame[frame.len() - 68..] } else { &[] };
    let mut payload = frame[4..20].to_vec();
    payload.extend_from_slice(&[0; 4]);
    payload.extend_from_slice(stat);
    let len = u32::try_from(payload.len()).unwrap();
    [&len.to_be_bytes()[..], &payload].concat()
}

impl StaleProxy {
    async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = listener.local_addr().unwrap().to_string();
        let listings = Arc::new(AtomicU32::new(0));
        let (server, left) = (server.to_owned(), Arc::clone(&listings));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { return };
                tokio::spawn(Self::pass(client, server, Arc::clone(&left)));
            }
        });
        Self { connect, listings }
    }

    async fn pass(client: TcpStream, server: TcpStream, left: Arc<AtomicU32>) {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let listings = Arc::new(std::sync::Mutex::new(Vec::new()));
        let asked = Arc::clone(&listings);
        let requests = async move {
            while let Some(frame) = frame(&mut from_client).await {
                for op in [OpCode::GetChildren, OpCode::GetChildren2] {
                    if int(&frame, 8) == Some(op.number()) {
                        asked.lock().unwrap().push((int(&frame, 4), op));
                    }
                }
                if to_server.write_all(&frame).await.is_err() {
                    return;
                }
            }
        };
        let replies = async move {
            while let Some(mut frame) = frame(&mut from_server).await {
                let listing = {
                    let listings = listings.lock().unwrap();
                    listings.iter().find(|(xid, _)| *xid == int(&frame, 4)).map(|(_, op)| *op)
                };
                if let Some(op) = listing
                    && int(&frame, 16) == Some(0)
                    && left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                        .is_ok()
                {
                    frame = emptied(&frame, op);
                }
                if to_client.write_all(&frame).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = requests => {}
            () = replies => {}
        }
    }

    /// Empties the next `listings` listings.
    fn hide(&self, listings: u32) {
        self.listings.store(listings, Ordering::Relaxed);
    }
}

/// A client behind a tap, which connects to a server through a [`StaleProxy`].
async fn stale_server_and_client() -> (TestingServer, StaleProxy, Fixture, Client, TapClient) {
    let server = TestingServer::start().await.unwrap();
    let proxy = StaleProxy::start(&server.connect_string()).await;
    let mut fixture = Fixture::on(proxy.connect.clone(), None).await;
    let (client, tap) = fixture.client("A").await;
    // Observers connect to the server itself.
    fixture.server = server.connect_string();
    (server, proxy, fixture, client, tap)
}

/// A first create whose reply is lost, a search that does not see its node, and a second create.
// Case (Found in docent itself): an acquire that was given up behind its second create left the
// first one's node; a second create that was refused, or found the first one's node, made the first
// be forgotten.
#[tokio::test]
async fn the_first_create_of_two_leaves_no_node() {
    let (_server, proxy, fixture, client, _tap) = stale_server_and_client().await;
    let mutex = mutex(&fixture, &client);
    mutex.acquire().await.unwrap().release().await.unwrap();
    let both = async || {
        fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
        proxy.hide(1);
    };

    // Held: the listing shows both nodes, and the duplicate is deleted.
    both().await;
    let guard = within_deadline("acquire", mutex.acquire()).await.unwrap();
    assert_eq!(
        fixture.children(&fixture.path, 1).await,
        [guard.path().rsplit('/').next().unwrap()]
    );
    assert!(guard.path().ends_with("0000000002"), "{}", guard.path());
    guard.release().await.unwrap();

    // Dropped after the second create, before any listing: both are deleted.
    both().await;
    fixture.tap.inject(Fault::delay_reply(OpCode::GetChildren2, DEADLINE).of("A"));
    let before = fixture.tap.len();
    let acquire = {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.acquire().await })
    };
    let mut creates = 0;
    let mut records = fixture.tap.subscribe_from(before);
    let second = |record: &docent_testing::tap::Record| {
        creates += usize::from(record.is_reply(OpCode::Create2));
        creates == 2 && record.is_request(OpCode::GetChildren2)
    };
    records.until(DEADLINE, second).await.unwrap();
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
    let (server, proxy, fixture, client, tap) = stale_server_and_client().await;
    let mutex = mutex(&fixture, &client);
    mutex.acquire().await.unwrap().release().await.unwrap();
    let operator = Client::connect(&server.connect_string()).await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    proxy.hide(1);
    tap.refuse().await.unwrap();
    let before = fixture.tap.len();
    let acquire = {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.acquire().await })
    };
    let mut records = fixture.tap.subscribe_from(before);
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
    let (_server, proxy, fixture, client, _tap) = stale_server_and_client().await;
    let lock = InterProcessReadWriteLock::with_options(&client, &fixture.path, options()).unwrap();
    let me = Owner::new();
    let writing = lock.write_lock().acquire_as(&me).await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    proxy.hide(1);
    let reading = within_deadline("downgrade", lock.read_lock().acquire_as(&me)).await.unwrap();
    assert_eq!(fixture.children(&fixture.path, 2).await.len(), 2);
    writing.release().await.unwrap();
    reading.release().await.unwrap();
    fixture.children(&fixture.path, 0).await;

    // Dropped: no node is left either.
    let writing = lock.write_lock().acquire_as(&me).await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    proxy.hide(1);
    let before = fixture.tap.len();
    let lock = lock.clone();
    let acquire = tokio::spawn(async move { lock.read_lock().acquire_as(&me).await });
    let mut creates = 0;
    let mut records = fixture.tap.subscribe_from(before);
    let second = |record: &docent_testing::tap::Record| {
        creates += usize::from(record.is_reply(OpCode::Create2));
        creates == 2
    };
    records.until(DEADLINE, second).await.unwrap();
    acquire.abort();
    writing.release().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}

/// The search misses the first node, and the second create succeeds: one of the two nodes is deleted.
#[tokio::test]
async fn a_protected_node_has_no_twin() {
    let (_server, proxy, fixture, client, _tap) = stale_server_and_client().await;
    fixture.create_path(&client).await;
    let path = format!("{}/item-", fixture.path);
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    proxy.hide(1);
    let options = protected(CreateMode::PersistentSequential);
    let created = create_protected(&client, &path, b"data", options);
    let created = within_deadline("create", created).await.unwrap();
    assert!(created.ends_with("-item-0000000001"), "{created}");
    let children = fixture.children(&fixture.path, 1).await;
    assert_eq!(created, format!("{}/{}", fixture.path, children[0]));
}

/// Two creates get no reply, the second one after a stale search: the next search finds both nodes. The first node is
/// kept, whatever the order of the listing; the other one is deleted.
#[tokio::test]
async fn of_two_nodes_that_a_search_finds_the_first_is_kept() {
    for mode in [CreateMode::EphemeralSequential, CreateMode::PersistentSequential] {
        let (_server, proxy, fixture, client, _tap) = stale_server_and_client().await;
        fixture.create_path(&client).await;
        let path = format!("{}/item-", fixture.path);
        fixture.tap.inject(Fault::drop_reply(OpCode::Create2).times(2));
        proxy.hide(1);
        let created = create_protected(&client, &path, b"", protected(mode));
        let created = within_deadline("create", created).await.unwrap();
        assert!(created.ends_with("-item-0000000000"), "{created}");
        let creates = fixture.tap.trace().iter().filter(|r| r.is_request(OpCode::Create2)).count();
        assert_eq!(creates, 2);
        let children = fixture.children(&fixture.path, 1).await;
        assert_eq!(created, format!("{}/{}", fixture.path, children[0]));
    }
}

/// A server that expires no session by itself, and a client with a short one, behind a tap and a [`StaleProxy`].
async fn stale_without_expiry() -> (TestingServer, StaleProxy, Fixture, Client, TapClient) {
    let server = TestingServer::start_with(config_without_expiry()).await.unwrap();
    let proxy = StaleProxy::start(&server.connect_string()).await;
    let mut fixture = Fixture::on(proxy.connect.clone(), None).await;
    fixture.server = server.connect_string();
    let (client, tap) = short_session(&fixture, "A").await;
    (server, proxy, fixture, client, tap)
}

/// A search misses the node of the earlier session, and the next create finds it: a node is created under another name,
/// even if no retries are left. Before this was fixed, the create failed with `NodeExists`.
// Case (Found in docent itself): a create that found its name taken by the node of the client's
// earlier session failed with `NodeExists`; and so did one whose own node two searches did not
// show.
#[tokio::test]
async fn an_existing_node_of_an_earlier_session_is_created_anew() {
    let (server, proxy, fixture, client, tap) = stale_without_expiry().await;
    fixture.create_path(&client).await;
    let first_session = client.session().unwrap().session_id();
    let before = fixture.tap.len();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    tap.refuse().await.unwrap();
    let path = format!("{}/member", fixture.path);
    let create = {
        let (client, path) = (client.clone(), path.clone());
        tokio::spawn(async move {
            // One retry for the lost reply, and one for the search that ends with the session.
            let policy = docent::retry::RetryNTimes::new(2, ms(100));
            let options = protected(CreateMode::Ephemeral).with_retry_policy(policy);
            create_protected(&client, &path, b"", options).await
        })
    };
    let mut records = fixture.tap.subscribe_from(before);
    records.until(DEADLINE, |record| record.is_reply(OpCode::Create2)).await.unwrap();
    proxy.hide(1);
    wait_until_given_up(&client, &tap).await;
    let created = within_deadline("create", create).await.unwrap().unwrap();
    assert!(server.session_ids().contains(&first_session), "the server still has it");
    let stat = client.exists(&created).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, client.session().unwrap().session_id());
    let children = fixture.children(&fixture.path, 1).await;
    assert_eq!(created, format!("{}/{}", fixture.path, children[0]));
}

/// Two searches are stale: the node is our own, so the create is repeated as long as the retry policy allows.
#[tokio::test]
async fn an_existing_node_that_no_search_shows_is_searched_for_again() {
    let (_server, proxy, fixture, client, _tap) = stale_server_and_client().await;
    fixture.create_path(&client).await;
    let path = format!("{}/member", fixture.path);
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    // The search after the lost reply, and the one after NodeExists.
    proxy.hide(2);
    let before = fixture.tap.len();
    let created = create_protected(&client, &path, b"", protected(CreateMode::Ephemeral));
    let created = within_deadline("create", created).await.unwrap();
    let trace = fixture.tap.trace().since(before);
    let creates = trace.iter().filter(|record| record.is_request(OpCode::Create2)).count();
    assert_eq!(creates, 2, "none is sent behind NodeExists without a pause: {}", trace.text());
    let children = fixture.children(&fixture.path, 1).await;
    assert_eq!(created, format!("{}/{}", fixture.path, children[0]));
}

/// The node of the earlier session is deleted, and then a late create of its name is applied: the search for all nodes
/// with the old GUID deletes it.
#[tokio::test]
async fn a_late_create_of_a_given_up_name_leaves_no_node() {
    let (_server, _proxy, fixture, client, tap) = stale_without_expiry().await;
    fixture.create_path(&client).await;
    let operator = fixture.observer().await;
    let before = fixture.tap.len();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    tap.refuse().await.unwrap();
    let path = format!("{}/member", fixture.path);
    let create = {
        let (client, path) = (client.clone(), path.clone());
        tokio::spawn(async move {
            create_protected(&client, &path, b"", protected(CreateMode::Ephemeral)).await
        })
    };
    let mut records = fixture.tap.subscribe_from(before);
    records.until(DEADLINE, |record| record.is_reply(OpCode::Create2)).await.unwrap();
    let old = format!("{}/{}", fixture.path, fixture.children(&fixture.path, 1).await[0]);
    // The first sync is the one before the search that finds the node.
    fixture.tap.inject(Fault::delay_request(OpCode::Sync, DEADLINE).of("A").nth(2));
    wait_until_given_up(&client, &tap).await;
    records.until(DEADLINE, |record| record.is_reply(OpCode::Delete)).await.unwrap();
    operator.create(&old, b"late", CreateMode::Ephemeral).await.unwrap();
    // Close the connection that delays all requests.
    fixture.tap.clear_faults();
    tap.cut();
    let created = within_deadline("create", create).await.unwrap().unwrap();
    assert_ne!(created, old);
    let children = fixture.children(&fixture.path, 1).await;
    assert_eq!(created, format!("{}/{}", fixture.path, children[0]));
}

/// A create was sent in each of two sessions, and only the first session's node exists: it is found late, and must not
/// be adopted.
#[tokio::test]
async fn the_node_of_the_first_of_two_sessions_is_not_taken_for_ours() {
    let (server, proxy, fixture, client, tap) = stale_without_expiry().await;
    let mutex = mutex(&fixture, &client);
    mutex.acquire().await.unwrap().release().await.unwrap();
    let first_session = client.session().unwrap().session_id();

    let before = fixture.tap.len();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    fixture.tap.inject(Fault::drop_before(OpCode::Create2).nth(2));
    tap.refuse().await.unwrap();
    let acquire = {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.acquire().await })
    };
    let mut records = fixture.tap.subscribe_from(before);
    records.until(DEADLINE, |record| record.is_reply(OpCode::Create2)).await.unwrap();
    proxy.hide(1);
    wait_until_given_up(&client, &tap).await;
    let guard = within_deadline("acquire", acquire).await.unwrap().unwrap();
    assert!(server.session_ids().contains(&first_session), "the server still has it");
    assert_ne!(guard.session_id(), first_session);
    let stat = client.exists(guard.path()).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, guard.session_id());
    guard.release().await.unwrap();
    fixture.children(&fixture.path, 0).await;
}
