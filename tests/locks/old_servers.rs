//! Servers without create2 and containers: ZooKeeper 3.4, which replies Unimplemented and closes the connection, and
//! older ClickHouse Keepers, which close it without a reply (ClickHouse issue 55595).

use docent::cache::CuratorCache;

use super::*;
use crate::support::traced::Fields;

async fn fixture() -> Fixture {
    Fixture::of_version(server::Version::V3_4).await
}

/// The requests sent that a 3.4 server does not know; each costs a connection.
fn unknown(fixture: &Fixture) -> Vec<OpCode> {
    let later =
        [OpCode::Create2, OpCode::CreateContainer, OpCode::CheckWatches, OpCode::RemoveWatches];
    let sent = |record: &Record| later.into_iter().find(|op| record.is_request(*op));
    fixture.tap.trace().iter().filter_map(sent).collect()
}

// Case (Found in docent itself): no lock worked on servers before 3.5, nor on older ClickHouse
// Keepers.
#[tokio::test]
async fn every_lock_works_on_3_4() {
    let fixture = fixture().await;
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    for options in [no_retries(), options(), options().with_pipelined_listing()] {
        every_lock(&fixture, &a, &b, options).await;
    }
    // Detected once for each session.
    assert_eq!(unknown(&fixture), [OpCode::Create2; 2]);
}

async fn every_lock(fixture: &Fixture, a: &Client, b: &Client, options: LockOptions) {
    let path = |name: &str| format!("{}/{name}", fixture.path);
    // Each lock has an acquire that times out, and a waiter.
    let theirs = each_lock(b, &fixture.path, &options);
    for ((kind, ours), (_, theirs)) in each_lock(a, &fixture.path, &options).iter().zip(theirs) {
        let guard = within_deadline(kind, ours.acquire()).await.unwrap();
        let token = guard.fencing_token().await.unwrap();
        let stat = a.exists(guard.path()).await.unwrap().unwrap();
        assert_eq!((token, guard.session_id()), (stat.czxid, stat.ephemeral_owner), "{kind}");
        let mut guarded = guard.guarded().unwrap();
        guarded.create(&path("job"), b"", CreateMode::Ephemeral).commit().await.unwrap();
        a.delete(&path("job"), None).await.unwrap();
        assert!(theirs.acquire_timeout(ms(50)).await.unwrap().is_none(), "{kind}");
        let waiter = tokio::spawn(async move { theirs.acquire().await });
        // The watch of the timed-out acquire is still set.
        guard.release().await.unwrap();
        let guard = within_deadline(kind, waiter).await.unwrap().unwrap();
        assert!(guard.fencing_token().await.unwrap() > token, "{kind}");
        guard.release().await.unwrap();
    }

    // Readers, a writer, a downgrade.
    let lock = InterProcessReadWriteLock::with_options(a, &path("rw"), options.clone()).unwrap();
    let me = Owner::new();
    let writing = lock.write_lock().acquire_as(&me).await.unwrap();
    let reading = lock.read_lock().acquire_as(&me).await.unwrap();
    writing.release().await.unwrap();
    let other = InterProcessReadWriteLock::with_options(b, &path("rw"), options.clone()).unwrap();
    let shared = other.read_lock().acquire().await.unwrap();
    assert!(other.write_lock().acquire_timeout(ms(0)).await.unwrap().is_none());
    reading.release().await.unwrap();
    drop(shared);

    // Leases limited by a shared count, with a waiter that times out.
    let count = SharedCount::start(a, &path("count"), 1).await.unwrap();
    let (at, options_of_leases) = (path("semaphore"), options.clone());
    let semaphore =
        InterProcessSemaphoreV2::with_count_and_options(a, &at, &count, options_of_leases).unwrap();
    let lease = semaphore.acquire().await.unwrap();
    assert!(semaphore.acquire_timeout(ms(50)).await.unwrap().is_none());
    lease.release().await.unwrap();

    let revocable = InterProcessMutex::with_options(a, &path("mutex"), options.clone()).unwrap();
    let revoked = Arc::new(tokio::sync::Notify::new());
    let notify = Arc::clone(&revoked);
    revocable.make_revocable(move || notify.notify_one());
    let guard = revocable.acquire().await.unwrap();
    Revoker::attempt_revoke(b, &RetryNTimes::new(0, ms(0)), guard.path()).await.unwrap();
    within_deadline("the listener", revoked.notified()).await;
    guard.release().await.unwrap();

    // A mutex in a namespace, and a shared value.
    let options = options.with_namespace(fixture.path.trim_start_matches('/'));
    let namespaced = InterProcessMutex::with_options(a, "/mutex", options);
    namespaced.unwrap().acquire().await.unwrap().release().await.unwrap();
    let value = SharedValue::start(a, &path("value"), "red").await.unwrap();
    value.set_value("blue").await.unwrap();
    assert_eq!(value.value(), "blue");
    for name in ["mutex", "rw", "semaphore/leases", "semaphore/locks", "multi2/leases"] {
        fixture.children(&path(name), 0).await;
    }
}

/// A single broken connection, with any number of creates in flight, does not show that the server lacks create2.
// Case (Found in docent itself): several creates on one broken connection passed for two losses:
// the server was taken for one before 3.5, and lock parents became persistent for the session's
// life.
#[tokio::test]
async fn a_broken_connection_counts_once_for_any_number_of_creates() {
    let fixture = Fixture::embedded().await;
    let (client, tap) = fixture.client("A").await;
    tap.stall();
    let paths: Vec<_> = (0..8).map(|at| format!("{}/{at}/lock", fixture.path)).collect();
    let acquire = |path: &String| {
        spawn_acquire(&InterProcessMutex::with_options(&client, path, options()).unwrap())
    };
    let acquires: Vec<_> = paths.iter().map(acquire).collect();
    until("all creates in flight", async || client.metrics().pending == 8).await;
    tap.cut();
    tap.resume();
    for acquire in acquires {
        let guard = within_deadline("acquire", acquire).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(fixture.requests(0, OpCode::Create), 0, "a create (1) was sent");
}

/// The first request is queued before the first session and connection.
#[tokio::test]
async fn a_lock_acquired_before_the_first_connection_works_on_3_4() {
    let fixture = fixture().await;
    let tap = fixture.tap.client("A").await.unwrap();
    let client = Config::new(&tap.connect_string()).unwrap().start().unwrap();
    let path = format!("{}/deep/lock", fixture.path);
    let mutex = InterProcessMutex::with_options(&client, &path, no_retries()).unwrap();
    let guard = within_deadline("acquire", mutex.acquire()).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(unknown(&fixture), [OpCode::Create2]);
}

/// A proxy that closes a connection some time after the server has closed it. Returns its address, and the number of
/// connections on which a client has written in between: these bytes are lost.
async fn slow_to_close(server: &str) -> (String, Arc<AtomicUsize>) {
    const OPEN_FOR: Duration = ms(100);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connect = listener.local_addr().unwrap().to_string();
    let lost = Arc::new(AtomicUsize::new(0));
    let (server, counter) = (server.to_owned(), Arc::clone(&lost));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&server).await else { return };
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                tokio::select! {
                    _ = tokio::io::copy(&mut from_client, &mut to_server) => return,
                    _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
                }
                let late = from_client.read_u8();
                if let Ok(Ok(_)) = tokio::time::timeout(OPEN_FOR, late).await {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (connect, lost)
}

/// The connection on which create2 was refused is about to be closed: the create that replaces it waits for the next.
#[tokio::test]
async fn a_create_waits_for_the_end_of_the_connection_that_refused_create2() {
    let fixture = fixture().await;
    let (connect, lost) = slow_to_close(&fixture.server).await;
    for path in ["/a", "/b/c"] {
        let client = Client::connect(&connect).await.unwrap();
        let mutex = InterProcessMutex::with_options(&client, path, no_retries()).unwrap();
        let guard = within_deadline("acquire", mutex.acquire()).await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(lost.load(Ordering::Relaxed), 0, "a request was lost with the connection");
        client.close().await.unwrap();
    }
}

async fn use_cache(client: &Client) {
    let cache = CuratorCache::start(client, "/a").unwrap();
    within_deadline("the cache", cache.initialized()).await.unwrap();
    cache.close().await;
}

#[tokio::test]
async fn each_missing_operation_is_logged_once_in_a_session() {
    let (events, _guard) = Traced::start(Level::INFO, "missing_operations");
    let lacking = || -> Vec<String> {
        let line = |event: Fields| format!("{} {}", event.0["session"], event.0["op"]);
        events.take().into_iter().map(line).collect()
    };
    let fixture = fixture().await;
    let (client, _tap) = fixture.client("A").await;
    let line = |op: &str| format!("{:#x} {op}", session_id(&client));
    for path in ["/a", "/b/c", "/a"] {
        let mutex = InterProcessMutex::with_options(&client, path, no_retries()).unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(lacking(), [line("create2")]);
    // A server without create2 has no addWatch either: it is not sent.
    use_cache(&client).await;
    use_cache(&client).await;
    assert_eq!(lacking(), [""; 0]);
    assert_eq!(fixture.requests(0, OpCode::AddWatch), 0);
    // A client that begins with a cache.
    let (client, _tap) = fixture.client("B").await;
    let line = format!("{:#x} addWatch", session_id(&client));
    use_cache(&client).await;
    use_cache(&client).await;
    assert_eq!(lacking(), [line]);
}
