//! The renewal of proven bounds by holds and leaderships, in virtual time: its pace and its cost, its limits on
//! servers where it proves nothing, and the end of a bound.

use std::time::Duration;

use docent_protocol::{Acl, CreateMode, Perms};
use docent_recipes::{
    AclProvider,
    leader::{LeaderLatch, LeaderOptions, LeaderSelector, Leadership, Term},
    locks::{InterProcessMutex, InterProcessSemaphoreV2, LockGuard, StrictMutex},
};
use docent_session::{Client, runtime::Instant};
use docent_testing::server;
use tokio::time::{sleep, timeout};

use crate::{T, World, options};

const PATH: &str = "/locks/proven";
const EVERY: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);

impl World {
    fn is_proven(&self, guard: &LockGuard) -> bool {
        self.clock.now() < guard.proven_until()
    }

    fn leads_by_proof(&self, leadership: &Leadership) -> bool {
        self.clock.now() < leadership.proven_until()
    }

    /// Sleeps, and asserts that the guard's proven bound stays ahead.
    async fn sleep_proven(&self, guard: &LockGuard, duration: Duration) {
        let end = self.clock.now() + duration;
        while self.clock.now() < end {
            sleep(T / 60).await;
            assert!(guard.is_held() && self.is_proven(guard), "lapsed");
        }
    }
}

async fn hold(client: &Client, path: &str, every: Duration) -> LockGuard {
    let options = options().with_proven_renewal(every);
    InterProcessMutex::with_options(client, path, options).unwrap().acquire().await.unwrap()
}

// Case (Renewed holds): renewals every millisecond, and every hour.
// Case (Found in docent itself): renewals of proven bounds at an interval above half of the session
// timeout came too late, and the bound lapsed.
#[tokio::test(start_paused = true)]
async fn any_interval_of_renewals_keeps_the_bound_ahead() {
    for every in [Duration::ZERO, Duration::from_millis(1), EVERY, T / 2, T * 4, Duration::MAX] {
        let (world, client) = World::with_client().await;
        let guard = hold(&client, PATH, every).await;
        world.sleep_proven(&guard, MINUTE).await;
        // From one per half of the session timeout to one per tenth of it.
        let connections = client.metrics().connections;
        assert!((19..=101).contains(&connections), "{every:?}: {connections} connections");
        // A refused renewal is repeated before the next one is due.
        world.server.throttle(1);
        world.sleep_proven(&guard, T * 2).await;
        guard.release().await.unwrap();
    }
}

/// The holds of a client share their reconnects, whatever their intervals are.
#[tokio::test(start_paused = true)]
async fn many_holds_reconnect_no_more_often_than_one() {
    let (world, client) = World::with_client().await;
    let mut guards = Vec::new();
    for number in 0..50 {
        let every = T / 10 + Duration::from_millis(number * 48);
        guards.push(hold(&client, &format!("{PATH}/{number}"), every).await);
    }
    world.sleep_proven(&guards[49], MINUTE).await;
    assert!(guards.iter().all(|guard| world.is_proven(guard)));
    let connections = client.metrics().connections;
    assert!(connections <= 101, "{connections} connections");
}

/// The bound of the session's creation ends during the first renewal, before the caller has seen any bound.
// Case (Found in docent itself): a hold that began just before the end of a proven bound was never
// proven: the bound ended during the first renewal.
#[tokio::test(start_paused = true)]
async fn a_hold_is_proven_that_begins_just_before_the_end_of_a_bound() {
    const LATENCY: Duration = Duration::from_millis(50);
    for before in [1, 2, 3, 4, 6, 8] {
        let world = World::new().await;
        let client = world.config_with(LATENCY).connect().await.unwrap();
        drop(hold(&client, PATH, EVERY).await);
        let client = world.config_with(LATENCY).connect().await.unwrap();
        let end = client.session().unwrap().proven_until();
        sleep(end.duration_since(world.clock.now()) - LATENCY * before).await;
        let guard = hold(&client, PATH, EVERY).await;
        assert!(world.is_proven(&guard), "{before} latencies before the end");
        world.sleep_proven(&guard, MINUTE).await;
    }
}

/// A queue that is full of other requests at all times, as in a client that is used for more than a lock.
// Case (Found in docent itself): a strict hold ended while the queue of its client was full:
// `TooManyRequests` refused its renewals.
#[tokio::test(start_paused = true)]
async fn a_full_queue_ends_no_strict_hold() {
    let world = World::new().await;
    let config = world.config_with(Duration::from_millis(300)).with_max_requests(4);
    let client = config.connect().await.unwrap();
    let guard =
        StrictMutex::with_options(&client, PATH, options()).unwrap().acquire().await.unwrap();
    let renewed = hold(&client, "/locks/renewed", EVERY).await;
    for _ in 0..4 {
        let client = client.clone();
        tokio::spawn(async move {
            while client.ended().is_none() {
                if client.exists("/").await.is_err() {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
    let end = world.clock.now() + MINUTE;
    while world.clock.now() < end {
        sleep(T / 60).await;
        assert!(guard.is_held() && world.is_proven(&guard), "the strict hold has lapsed");
        assert!(renewed.is_held() && world.is_proven(&renewed), "the renewed bound has lapsed");
    }
    guard.release().await.unwrap();
    client.close().await.unwrap();
}

/// A clone of a leadership outlives its end; the next leader does not wait for its bound.
// Case (Found in docent itself): a leadership that had ended, and a hold whose node was known to be
// deleted, had a proven bound ahead, beside the next leader or holder.
#[tokio::test(start_paused = true)]
async fn a_leadership_that_has_ended_has_no_proven_bound() {
    let world = World::new().await;
    let options =
        || LeaderOptions::default().with_lock_options(options().with_proven_renewal(EVERY));
    let (a, b) = (world.client().await, world.client().await);
    let first = LeaderLatch::start_with(&a, PATH, "a", options()).unwrap();
    let second = LeaderLatch::start_with(&b, PATH, "b", options());
    let led = first.leadership().await.unwrap();
    sleep(MINUTE).await;
    assert!(led.is_held() && world.leads_by_proof(&led));
    first.close().await.unwrap();
    let second = second.unwrap();
    let next = second.leadership().await.unwrap();
    assert!(!led.is_held() && next.is_held());
    assert_eq!(led.proven_until(), Instant::ZERO, "two leaders, within the proven bound");
    sleep(T).await;
    assert!(world.leads_by_proof(&next));
    // With the standard error policy, a lost connection ends it.
    world.server.cut_session(next.session_id());
    next.lost().await;
    assert_eq!(next.proven_until(), Instant::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_hold_whose_node_is_known_to_be_deleted_has_no_proven_bound() {
    let world = World::new().await;
    let (client, other) = (world.client().await, world.client().await);
    // The deletion is noticed by the renewal, and by the watch.
    for is_watched in [false, true] {
        let guard = hold(&client, PATH, EVERY).await;
        assert!(world.is_proven(&guard));
        other.delete(guard.path(), None).await.unwrap();
        if is_watched {
            guard.lost().await;
        } else {
            sleep(T).await;
        }
        assert!(!guard.is_held());
        assert_eq!(guard.proven_until(), Instant::ZERO);
        guard.release().await.unwrap();
    }
}

/// The first renewal does not find the node: the acquire tries again, and returns no guard that is lost already.
// Case (Found in docent itself): an acquire with a proven renewal returned a guard whose first
// renewal had not found the node.
// Case (Found in docent itself): a selector with a proven renewal, and a mutex, failed with
// `LockLost` when the first renewal did not find the node: the participant took part no longer; a
// semaphore tried again.
#[tokio::test(start_paused = true)]
async fn a_hold_whose_node_goes_before_its_first_renewal_is_not_returned() {
    const LATENCY: Duration = Duration::from_millis(200);
    let world = World::new().await;
    let (client, other) =
        (world.config_with(LATENCY).connect().await.unwrap(), world.client().await);
    let leases = format!("{PATH}/leases");
    other.ensure_path(&leases, CreateMode::Container).await.unwrap();
    for path in ["mutex", "selector"] {
        other.ensure_path(&format!("{PATH}/{path}"), CreateMode::Container).await.unwrap();
    }
    sleep(T).await;
    // After the listing that grants the lock, and before its reply.
    let delete_first = async |parent: &str| loop {
        if let Some(name) = other.get_children(parent).await.unwrap().iter().next() {
            sleep(LATENCY * 3 / 2).await;
            return other.delete(&format!("{parent}/{name}"), None).await.unwrap();
        }
        sleep(LATENCY / 10).await;
    };
    let path = format!("{PATH}/mutex");
    let options = || options().with_proven_renewal(EVERY);
    let mutex = InterProcessMutex::with_options(&client, &path, options()).unwrap();
    let (guard, ()) = tokio::join!(mutex.acquire(), delete_first(&path));
    let guard = guard.unwrap();
    assert!(guard.is_held() && world.is_proven(&guard));

    let path = format!("{PATH}/selector");
    let selector = LeaderSelector::with_options(&client, &path, "A", options()).unwrap();
    let term = selector.run(|leadership| async move { leadership.is_held() });
    let (term, ()) = tokio::join!(term, delete_first(&path));
    assert_eq!(term.unwrap(), Term::Completed(true));

    let semaphore = InterProcessSemaphoreV2::with_options(&client, PATH, 1, options()).unwrap();
    let (lease, ()) = tokio::join!(semaphore.acquire(), delete_first(&leases));
    let lease = lease.unwrap();
    assert!(lease.is_held() && world.is_proven(&lease));
}

/// A leadership that does not begin, because the connection was lost after the listing, leaves no node to the next
/// attempt: a participant has one node.
// Case (Found in docent itself): a selector that lost its connection while it was granted had a
// second node, until the background had deleted the first.
#[tokio::test(start_paused = true)]
async fn a_selector_that_lost_its_connection_while_it_was_granted_has_one_node() {
    const LATENCY: Duration = Duration::from_millis(100);
    for outage in (1..6).map(Duration::from_secs) {
        let world = World::new().await;
        let config = world.config_with(LATENCY).with_request_timeout(T / 12);
        let client = config.connect().await.unwrap();
        let children = || world.server.machine(|machine, _| machine.child_paths(PATH).len());
        sleep(T).await;
        let options = options().with_proven_renewal(EVERY);
        let selector = LeaderSelector::with_options(&client, PATH, "A", options).unwrap();
        let running = tokio::spawn(async move { selector.run(async |_| ()).await });
        while children() == 0 {
            sleep(LATENCY / 10).await;
        }
        // After the listing, while the first renewal reconnects.
        sleep(LATENCY * 5 / 2).await;
        world.server.machine(|machine, now| machine.stop_member(now, 0));
        sleep(outage).await;
        world.server.machine(|machine, now| machine.start_member(now, 0));
        while !running.is_finished() {
            assert!(children() <= 1, "{outage:?}");
            sleep(LATENCY / 10).await;
        }
        assert_eq!(running.await.unwrap().unwrap(), Term::Completed(()));
    }
}

/// A Keeper resumes no session, so a planned reconnect ends the locks of the client. It is not repeated.
// Case (Renewed holds): a Keeper.
// Case (Found in docent itself): each renewal of a proven bound lost the session on a Keeper, which
// resumes none, and with it all locks of the client.
#[tokio::test(start_paused = true)]
async fn renewals_lose_one_session_of_a_keeper_at_most() {
    for version in [server::Version::Keeper24, server::Version::Keeper26] {
        let world = World::with(server::Config { version, ..Default::default() }).await;
        for path in ["/locks", PATH] {
            let other = world.client().await;
            other.create(path, b"", CreateMode::Persistent).await.unwrap();
        }
        let client = world.client().await;
        let lost = hold(&client, PATH, EVERY).await;
        // The older one has lost sessions before, to an operation that it does not know.
        let is_lost = timeout(MINUTE, lost.lost()).await.is_ok();
        assert_eq!(is_lost, version == server::Version::Keeper26, "{version:?}");
        drop(lost);
        let guard = hold(&client, PATH, EVERY).await;
        let sessions = client.metrics().sessions;
        sleep(MINUTE).await;
        assert!(guard.is_held(), "{version:?}: lost by a renewal");
        assert_eq!(client.metrics().sessions, sessions, "{version:?}");
        assert!(!world.is_proven(&guard));
        guard.release().await.unwrap();
        // A strict mutex needs no reconnect.
        let strict = StrictMutex::with_options(&client, "/locks/strict", options()).unwrap();
        let guard = strict.acquire().await.unwrap();
        world.sleep_proven(&guard, MINUTE).await;
        assert_eq!(client.metrics().sessions, sessions, "{version:?}");
    }
}

/// Nothing can be proved about a session from another process, and no reconnect is spent on it.
// Case (Found in docent itself): renewals reconnected for nothing: for a session that was handed
// in, and twice as often for a lock node that may not be read.
#[tokio::test(start_paused = true)]
async fn a_session_that_was_handed_in_is_not_reconnected_for_proofs() {
    let world = World::new().await;
    let token = world.client().await.detach().unwrap();
    let client = world.config().with_session(token).connect().await.unwrap();
    let guard = hold(&client, PATH, EVERY).await;
    sleep(MINUTE).await;
    assert!(guard.is_held() && !world.is_proven(&guard));
    let metrics = client.metrics();
    assert_eq!((metrics.sessions, metrics.connections), (1, 1));
    assert!(metrics.requests < 50, "{} requests", metrics.requests);
}

/// No client may read the lock nodes.
#[derive(Debug)]
struct LockNodesUnread;

impl AclProvider for LockNodesUnread {
    fn acl_for_path(&self, path: &str) -> Option<&[Acl<'_>]> {
        const UNREAD: &[Acl<'_>] = &[Acl::new(Perms::WRITE, "world", "anyone")];
        path.contains("-lock-").then_some(UNREAD)
    }
}

/// The check needs the permission to read the node.
#[tokio::test(start_paused = true)]
async fn a_renewal_without_permission_costs_no_more_than_one_with_it() {
    let (world, client) = World::with_client().await;
    // The bound of the session's creation passes first: without it, no renewal ends the attempts.
    sleep(T).await;
    let options = options().with_proven_renewal(EVERY).with_acl_provider(LockNodesUnread);
    let mutex = InterProcessMutex::with_options(&client, PATH, options).unwrap();
    let guard = mutex.acquire().await.unwrap();
    sleep(MINUTE).await;
    assert!(guard.is_held() && !world.is_proven(&guard));
    let connections = client.metrics().connections;
    assert!(connections <= 32, "{connections} connections");
}

// Case (Renewed holds): ZooKeeper 3.4.
#[tokio::test(start_paused = true)]
async fn holds_are_renewed_on_the_oldest_servers() {
    let version = server::Version::V3_4;
    let world = World::with(server::Config { version, ..Default::default() }).await;
    let client = world.client().await;
    let guard = hold(&client, PATH, EVERY).await;
    world.sleep_proven(&guard, MINUTE).await;
    let strict = StrictMutex::with_options(&client, "/locks/strict", options()).unwrap();
    let strict = strict.acquire().await.unwrap();
    world.sleep_proven(&strict, MINUTE).await;
    assert!(world.is_proven(&guard));
    assert_eq!(client.metrics().sessions, 1);
}
