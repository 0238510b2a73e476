//! What takes how long. On a clock of the tests' own, which goes on when there is nothing else to do: so the
//! machine may be as slow as it likes.

use std::{io, sync::Arc, time::Duration};

use docent::{
    Client, Config,
    recipes::locks::{InterProcessLock, InterProcessMultiLock, InterProcessMutex},
    session::{Clock, Connecting, Host, Stream, Transport},
};
use docent_testing::TestingServer;
use tokio::time::{Instant, sleep};

use crate::{ms, options};

/// Connections to a server in this process, without sockets.
#[derive(Debug)]
struct InMemory(Arc<TestingServer>);

impl Transport for InMemory {
    fn connect<'a>(&'a self, _host: &'a Host, _within: Duration) -> Connecting<'a> {
        let stream = self.0.connect().map(|stream| Box::new(stream) as Box<dyn Stream>);
        Box::pin(async { stream.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()) })
    }
}

async fn server_and_client() -> (Arc<TestingServer>, Client) {
    let server = Arc::new(TestingServer::start().await.unwrap());
    let config = Config::new("embedded:2181").unwrap().with_session_timeout(ms(20_000));
    let client = Client::start_on(config, Clock::tokio(), InMemory(Arc::clone(&server)));
    client.wait_until_connected(ms(1000)).await.unwrap();
    (server, client)
}

/// For what answers take, and for timers, which are a millisecond late.
const NEXT_TO_NOTHING: Duration = ms(50);

#[tokio::test(start_paused = true)]
async fn a_timed_acquire_takes_its_time_and_no_more() {
    let (_server, client) = server_and_client().await;
    let mutex = InterProcessMutex::with_options(&client, "/lock", options()).unwrap();
    let _held = mutex.acquire().await.unwrap();
    for wait in [0, 300, 10_000].map(ms) {
        let began = Instant::now();
        assert!(mutex.acquire_timeout(wait).await.unwrap().is_none());
        let took = began.elapsed();
        assert!(took >= wait && took < wait + NEXT_TO_NOTHING, "{took:?} of {wait:?}");
    }
}

/// N8: Curator takes as long as its retries do, and fails.
#[tokio::test(start_paused = true)]
async fn a_timed_acquire_takes_one_second_more_at_most_without_a_server() {
    let (server, client) = server_and_client().await;
    let mutex = InterProcessMutex::with_options(&client, "/lock", options()).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    server.stop();
    for wait in [0, 300, 10_000].map(ms) {
        let began = Instant::now();
        assert!(mutex.acquire_timeout(wait).await.unwrap().is_none());
        let took = began.elapsed();
        assert!(took < wait + ms(1000) + NEXT_TO_NOTHING, "{took:?} of {wait:?}");
    }
}

/// N5: Curator gives each lock the whole time.
#[tokio::test(start_paused = true)]
async fn the_time_is_that_of_all_together() {
    let (_server, client) = server_and_client().await;
    let mutex = |path| Arc::new(InterProcessMutex::with_options(&client, path, options()).unwrap());
    let first = mutex("/a").acquire().await.unwrap();
    let _last = mutex("/c").acquire().await.unwrap();
    let locks: Vec<Arc<dyn InterProcessLock>> = vec![mutex("/a"), mutex("/b"), mutex("/c")];
    let lock = InterProcessMultiLock::of(locks);
    let began = Instant::now();
    let waiting = tokio::spawn(async move { lock.acquire_timeout(ms(3000)).await });
    sleep(ms(2500)).await;
    first.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_none());
    let took = began.elapsed();
    // With the whole time for each, it would be five and a half seconds.
    assert!(took >= ms(3000) && took < ms(3000) + NEXT_TO_NOTHING, "{took:?}");
}

/// N5 of leases: what was got before counts.
#[tokio::test(start_paused = true)]
async fn the_time_is_that_of_all_leases_together() {
    use docent::recipes::locks::InterProcessSemaphoreV2;
    let (_server, client) = server_and_client().await;
    let semaphore =
        InterProcessSemaphoreV2::with_options(&client, "/semaphore", 2, options()).unwrap();
    let mut out = semaphore.acquire_many(2).await.unwrap();
    let began = Instant::now();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_many_timeout(2, ms(3000)).await }
    });
    sleep(ms(2500)).await;
    out.remove(0).release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_none());
    let took = began.elapsed();
    assert!(took >= ms(3000) && took < ms(3000) + NEXT_TO_NOTHING, "{took:?}");
    // And the one that it got was given back.
    assert_eq!(semaphore.participants().await.unwrap().len(), 1);
}

/// CURATOR-106: with a policy that does not pause, Curator's background would spin.
#[tokio::test(start_paused = true)]
async fn a_guaranteed_delete_pauses_between_two_tries() {
    let (server, client) = server_and_client().await;
    let mutex = InterProcessMutex::with_options(&client, "/lock", crate::no_retries()).unwrap();
    let guard = mutex.acquire().await.unwrap();
    let path = guard.lock_path().to_owned();
    // Refuses twenty requests, which takes no time at all, and then no more.
    server.throttle(20);
    drop(guard);
    sleep(ms(1000)).await;
    let error = client.exists(&path).await.unwrap_err();
    assert_eq!(error.kind(), docent::ErrorKind::ThrottledOp, "ten tries in a second, not twenty");
    sleep(ms(2000)).await;
    assert!(client.exists(&path).await.unwrap().is_none());
}
