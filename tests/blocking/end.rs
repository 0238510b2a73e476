//! The end of sessions, threads and programs, and values that outlive their client.

use docent::{DistributedDoubleBarrier, GroupMember, SharedCount};
use std::{
    any::Any,
    process::{Command, Stdio},
    time::Instant,
};

use super::*;

blocking_on_both_servers! {
    handles_that_outlive_their_client_are_harmless
    the_last_drop_closes_the_session
}

fn handles_that_outlive_their_client_are_harmless(server: Server) {
    let client = server.client();
    let mutex = InterProcessMutex::new(&client, &server.path("mutex")).unwrap();
    let (released, dropped) = (mutex.acquire().unwrap(), server.path("other"));
    let dropped = InterProcessMutex::new(&client, &dropped).unwrap().acquire().unwrap();
    let (_, mut watcher) = client.exists_and_watch(&server.fixture.path).unwrap();
    let weak = client.downgrade();
    assert!(weak.upgrade().is_some());
    client.close().unwrap();
    assert!(!released.is_held() && !dropped.is_held());
    assert!(released.lost_timeout(DEADLINE).unwrap());
    // Its node was deleted with the session; there is no connection to check that.
    let _ = released.release();
    drop(dropped);
    assert!(watcher.next().unwrap().unwrap().is_end());
    assert_eq!(mutex.acquire().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(client.close().unwrap_err().kind(), ErrorKind::Closed);
    drop((client, mutex));
    drop(watcher);
    // The background tasks have given up their deletes.
    until_blocking("no client", || weak.upgrade().is_none());
    let other = InterProcessMutex::new(&server.client(), &server.path("mutex")).unwrap();
    let guard = other.acquire_timeout(DEADLINE).unwrap();
    guard.expect("the lock of the closed session").release().unwrap();
}

fn the_last_drop_closes_the_session(server: Server) {
    let observer = server.client();
    observer.ensure_path(&server.fixture.path, CreateMode::Persistent).unwrap();
    let path = server.path("ephemeral");
    let client = server.client();
    client.create(&path, b"", CreateMode::Ephemeral).unwrap();
    let watcher = client.add_watch(&path, AddWatchMode::Persistent).unwrap();
    drop(client);
    // The watcher keeps no session open.
    until_blocking("the end of the session", || observer.exists(&path).unwrap().is_none());
    drop(watcher);
    let client = server.client();
    client.create(&path, b"", CreateMode::Ephemeral).unwrap();
    drop(client);
    assert_eq!(observer.exists(&path).unwrap(), None, "the drop has waited");
}

/// Whichever value of a client is dropped last: its background tasks end, and then the session, before the time limit
/// of the last drop.
// Case (Programs without async): the background of a recipe outlives its last value.
// Case (Programs without async): a discovery, its cache and its provider are dropped on another
// thread, or as the last of their client.
#[test]
fn every_recipe_may_be_the_last_of_its_client() {
    type Last = Box<dyn Any>;
    type Kind<'a> = (&'static str, &'a dyn Fn(&Client) -> Last);
    let server = Server::embedded();
    let mutex = |client: &Client| InterProcessMutex::new(client, "/mutex").unwrap();
    let discovery = |client: &Client| ServiceDiscovery::new(client, "/services").unwrap();
    let kinds: [Kind<'_>; 12] = [
        ("client", &|client| Box::new(client.clone())),
        ("receiver", &|client| Box::new(client.wrap(client.state()))),
        ("watcher", &|client| Box::new(client.add_watch("/", AddWatchMode::Persistent).unwrap())),
        ("guard", &|client| Box::new(mutex(client).acquire().unwrap())),
        ("guard with a watch", &|client| {
            let guard = mutex(client).acquire().unwrap();
            assert!(!guard.cancellation_token().is_cancelled());
            Box::new(guard)
        }),
        ("semaphore", &|client| {
            let count = wait(|| SharedCount::start(client, "/count", 1)).unwrap();
            let semaphore =
                docent::InterProcessSemaphoreV2::with_count(client, "/semaphore", &count);
            let semaphore: InterProcessSemaphoreV2 = client.wrap(semaphore.unwrap());
            Box::new(semaphore.acquire().unwrap())
        }),
        ("latch", &|client| {
            let latch = LeaderLatch::start(client, "/election", "id").unwrap();
            latch.leadership().unwrap();
            Box::new(latch)
        }),
        ("member", &|client| {
            let member = GroupMember::join(client, "/group", "id", "").unwrap();
            wait(|| member.joined()).unwrap();
            Box::new(client.wrap((member.view(), member)))
        }),
        ("cache", &|client| {
            let (cache, events) =
                CuratorCache::start_with_events(client, "/", CacheOptions::default()).unwrap();
            wait(|| cache.initialized()).unwrap();
            Box::new(client.wrap((cache, events)))
        }),
        ("discovery", &|client| {
            let discovery = discovery(client);
            wait(|| discovery.register(ServiceInstance::new("web", "id"))).unwrap();
            Box::new(client.wrap((discovery.events("web", "id"), discovery)))
        }),
        ("provider", &|client| {
            let provider = discovery(client).service_provider("web").unwrap();
            wait(|| provider.initialized()).unwrap();
            Box::new(client.wrap((provider.cache().events(), provider)))
        }),
        ("barrier", &|client| {
            let mut barrier = DistributedDoubleBarrier::new(client, "/barrier", 1).unwrap();
            wait(|| barrier.enter()).unwrap();
            Box::new(client.wrap(barrier))
        }),
    ];
    for (kind, make) in kinds {
        // The shortest of three: the machine may be busy.
        let time = |_| {
            let last = make(&server.client());
            let before = Instant::now();
            drop(last);
            before.elapsed()
        };
        let shortest = (0..3).map(time).min().unwrap();
        assert!(shortest < Duration::from_millis(900), "{kind}: {shortest:?}");
        until_blocking(kind, || server.server().session_ids().is_empty());
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let nothing = xtask::KeptPort::free().unwrap();
    let config = Config::new(&nothing.address().to_string()).unwrap();
    let config = config.with_connection_timeout(Duration::from_secs(1));
    let error = Client::connect_with(config.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
    assert!(error.to_string().contains("refused"), "{error}");
    // `start_with` does not wait for a connection; requests do.
    let client = Client::start_with(config).unwrap();
    assert_eq!(client.get_data("/").unwrap_err().kind(), ErrorKind::ConnectionLoss);
    assert_eq!(Client::connect("host:port").unwrap_err().kind(), ErrorKind::InvalidConfig);
}

/// The server does not reply: drop and close wait for a limited time.
// Case (Programs without async): the server is silent at the last drop.
#[test]
fn a_silent_server_delays_the_end_for_a_limited_time() {
    let server = Server::embedded();
    let config = server.config().with_connection_timeout(Duration::from_secs(2));
    let client = Client::connect_with(config).unwrap();
    server.server().stall();
    let before = Instant::now();
    let closed = wait_timeout(Duration::from_millis(50), || client.as_async().close());
    assert!(closed.unwrap().is_none());
    drop(client);
    assert!(before.elapsed() < DEADLINE, "{:?}", before.elapsed());
    server.server().resume();
}

fn peer(how: &str, connect: &str, path: &str) -> (Option<i32>, String) {
    let program = xtask::example("blocking_peer").unwrap();
    let mut child = Command::new(program)
        .args([how, connect, path])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = eventually_blocking("the end of the program", || child.try_wait().unwrap());
    let output = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    (status.code(), output)
}

// Case (Programs without async): the program ends right after the last drop, before another thread
// has written.
#[test]
fn a_program_that_ends_by_itself_has_closed_its_session() {
    let server = Server::embedded();
    for (how, code) in [("return", 0), ("error", 1), ("panic", 101)] {
        let (ended, output) = peer(how, &server.fixture.server, "/node");
        assert_eq!((ended, &*output), (Some(code), "held true\n"), "{how}");
        assert_eq!(server.server().session_ids(), [0_i64; 0], "{how}");
    }
}

/// Its session expires, as for any program that is killed.
// Case (Programs without async): the program ends with an open client.
#[test]
fn a_program_that_keeps_its_client_to_the_end_ends_at_once() {
    let server = Server::embedded();
    for (number, how) in ["exit", "forget"].into_iter().enumerate() {
        let (ended, output) = peer(how, &server.fixture.server, &format!("/node-{how}"));
        assert_eq!((ended, &*output), (Some(0), "held true\n"), "{how}");
        assert_eq!(server.server().session_ids().len(), number + 1, "{how}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_thread_of_a_client_ends_with_it() {
    let server = Server::embedded();
    let (ended, output) = peer("threads", &server.fixture.server, "/");
    assert_eq!(
        (ended, &*output),
        (Some(0), "threads 0\nthreads 2\nthreads 1, held true\nthreads 0\n")
    );
}
