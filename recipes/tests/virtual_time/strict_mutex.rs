//! The strict mutex in virtual time: the wait of a rival, the end of a hold, and replies that never grant the lock.

use std::time::Duration;

use docent_protocol::CreateMode;
use docent_recipes::{
    ErrorKind,
    locks::{InterProcessMutex, LockGuard, StrictMutex},
};
use docent_session::{Client, CreateOptions, runtime::Instant};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{T, World, options, support::InProcess};

const PATH: &str = "/locks/strict";
/// The wait of a rival: the claim and 1 % of it.
const WAIT: Duration = Duration::from_millis(6_060);
/// More than any step takes in virtual time.
const SOON: Duration = Duration::from_millis(500);

impl World {
    fn expire(&self, guard: &LockGuard) -> Instant {
        assert!(self.server.expire_session(guard.session_id()));
        self.clock.now()
    }

    async fn record(&self) -> String {
        let data = self.client().await.get_data(PATH).await.unwrap().data;
        String::from_utf8(data.to_vec()).unwrap()
    }
}

async fn client_with(world: &World, session_timeout: Duration) -> Client {
    world.config().with_session_timeout(session_timeout).connect().await.unwrap()
}

fn mutex(client: &Client) -> StrictMutex {
    StrictMutex::with_options(client, PATH, options()).unwrap()
}

/// Acquires the mutex beside the test.
fn waits(mutex: &StrictMutex) -> JoinHandle<LockGuard> {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.acquire().await.unwrap() })
}

async fn until_two_contend(mutex: &StrictMutex) {
    while mutex.participants().await.unwrap().len() < 2 {
        sleep(Duration::from_millis(1)).await;
    }
}

// Case (Strict mutexes): a release: no wait.
#[tokio::test(start_paused = true)]
async fn a_released_strict_lock_is_acquired_without_a_wait() {
    let world = World::new().await;
    let (a, b) = (mutex(&world.client().await), mutex(&world.client().await));
    let mut last = 0;
    for round in 0..6 {
        let first = a.acquire_timeout(Duration::ZERO).await.unwrap().expect("free");
        assert!(first.is_held() && a.is_acquired_in_this_process());
        let token = first.fencing_token().await.unwrap();
        assert!(world.record().await.contains(&format!(" held token={token} claim_ms=6000 ")));
        let waiting = waits(&b);
        until_two_contend(&a).await;
        let start = world.clock.now();
        if round % 2 == 0 {
            first.release().await.unwrap();
        } else {
            drop(first);
        }
        let second = waiting.await.unwrap();
        assert!(world.clock.now() < start + SOON, "round {round}");
        let next = second.fencing_token().await.unwrap();
        assert!(last < token && token < next, "{last} {token} {next}");
        last = next;
        second.release().await.unwrap();
        assert!(world.record().await.ends_with(&format!(" free token={next}")));
    }
}

/// The holder still believes in its hold when the rival sees its node gone: the rival waits until the claim has ended.
// Case (Strict mutexes): the session of a holder is killed while its claim lasts: the rival waits
// for the claim and 1 %.
#[tokio::test(start_paused = true)]
async fn a_rival_of_a_lost_hold_waits_for_its_claim() {
    let world = World::new().await;
    let (a, b) = (mutex(&world.client().await), mutex(&world.client().await));
    for _ in 0..3 {
        let lost = a.acquire().await.unwrap();
        let waiting = waits(&b);
        sleep(Duration::from_secs(20)).await;
        assert!(lost.is_held(), "renewed");
        let proven_until = lost.proven_until();
        let expired = world.expire(&lost);
        let guard = waiting.await.unwrap();
        let waited = world.clock.now().duration_since(expired);
        assert!(waited >= WAIT && waited < WAIT + SOON, "{waited:?}");
        assert!(proven_until > expired, "the claim was not over when the node was gone");
        assert!(proven_until < world.clock.now(), "the holds overlap");
        assert!(!lost.is_held() && guard.is_held());
        guard.release().await.unwrap();
        lost.release().await.unwrap();
    }
}

// Case (Strict mutexes): sessions with different timeouts: the wait is that of the holder.
#[tokio::test(start_paused = true)]
async fn a_rival_waits_for_the_claim_in_the_record() {
    let world = World::new().await;
    let (long, short) = (Duration::from_secs(10), Duration::from_secs(4));
    for (of_holder, of_rival) in [(long, short), (short, long)] {
        let holder = mutex(&client_with(&world, of_holder).await).acquire().await.unwrap();
        let expired = world.expire(&holder);
        let rival = client_with(&world, of_rival).await;
        let guard = mutex(&rival).acquire().await.unwrap();
        let waited = world.clock.now().duration_since(expired);
        let wait = of_holder + of_holder / 100;
        assert!(waited >= wait && waited < wait + SOON, "{waited:?}");
        guard.release().await.unwrap();
    }
}

// Case (Strict mutexes): another client deletes the node of the holder.
#[tokio::test(start_paused = true)]
async fn a_deleted_lock_node_ends_the_strict_hold_and_the_rival_waits_all_the_same() {
    let world = World::new().await;
    let (a, b) = (world.client().await, world.client().await);
    let guard = mutex(&a).acquire().await.unwrap();
    let deleted = world.clock.now();
    b.delete(guard.path(), None).await.unwrap();
    let waiting = waits(&mutex(&b));
    // Nothing watches the node: the renewal finds it gone.
    timeout(T / 2, guard.lost()).await.expect("found by the renewal");
    assert_eq!(guard.proven_until(), Instant::ZERO);
    guard.release().await.unwrap();
    let next = waiting.await.unwrap();
    assert!(world.clock.now() >= deleted + WAIT);
    next.release().await.unwrap();
}

/// A silent server renews nothing: the hold ends at its proven bound, and a late reply does not revive it.
#[tokio::test(start_paused = true)]
async fn a_strict_hold_ends_at_its_proven_bound_and_is_never_revived() {
    let (world, client) = World::with_client().await;
    let guard = mutex(&client).acquire().await.unwrap();
    sleep(Duration::from_secs(9)).await;
    let token = guard.cancellation_token();
    world.server.stall();
    let mut until = guard.proven_until();
    // A renewal may have been on its way.
    sleep(Duration::from_secs(1)).await;
    until = until.max(guard.proven_until());
    assert!(guard.is_held());
    guard.lost().await;
    let now = world.clock.now();
    assert!(now >= until.min(guard.proven_until()) || now + T / 10 >= until, "{now:?} {until:?}");
    assert!(!guard.is_held() && token.is_cancelled());
    world.server.resume();
    for _ in 0..20 {
        sleep(Duration::from_millis(500)).await;
        assert!(!guard.is_held() && guard.guarded().is_err(), "revived");
    }
    drop(guard);
    // The holder has released the lock if its session still existed; otherwise the rival waits.
    let again = mutex(&world.client().await).acquire().await.unwrap();
    again.release().await.unwrap();
}

// Case (Strict mutexes): a renewal wakes no waiter.
#[tokio::test(start_paused = true)]
async fn an_idle_strict_hold_sends_three_renewals_per_claim() {
    let (world, client) = World::with_client().await;
    let guard = mutex(&client).acquire().await.unwrap();
    let watched = world.client().await;
    let (_, mut watcher) = watched.get_data_and_watch(guard.path()).await.unwrap();
    let before = client.metrics().requests;
    let start = world.clock.now();
    sleep(T * 20).await;
    let sent = client.metrics().requests - before;
    assert!((59..=61).contains(&sent), "{sent} requests, which replace the pings");
    assert!(guard.is_held() && guard.proven_until() > start + T * 20);
    let unchanged = timeout(Duration::from_millis(1), watcher.next()).await;
    assert!(unchanged.is_err(), "a renewal wakes no watch");
    guard.release().await.unwrap();
}

/// Each rival waits for the whole time: the wait of another one does not count.
// Case (Strict mutexes): a rival that gives up: no other one profits from its wait.
#[tokio::test(start_paused = true)]
async fn a_rival_that_gives_up_leaves_no_mark() {
    let world = World::new().await;
    let lost = mutex(&world.client().await).acquire().await.unwrap();
    world.expire(&lost);
    let record = world.record().await;
    let client = world.client().await;
    assert!(mutex(&client).acquire_timeout(T / 2).await.unwrap().is_none());
    let start = world.clock.now();
    assert!(mutex(&client).acquire_timeout(Duration::ZERO).await.unwrap().is_none());
    assert!(timeout(T / 2, mutex(&client).acquire()).await.is_err(), "dropped while it waits");
    assert_eq!(world.record().await, record);
    assert!(world.clock.now() < start + T);
    let start = world.clock.now();
    let guard = mutex(&client).acquire_timeout(2 * T).await.unwrap().expect("waited out");
    let waited = world.clock.now().duration_since(start);
    assert!(waited >= WAIT && waited < WAIT + SOON, "{waited:?}");
    guard.release().await.unwrap();
}

/// The record names another holder without a node when the wait for the first one is over.
#[tokio::test(start_paused = true)]
async fn a_rival_waits_for_each_lost_holder() {
    let world = World::new().await;
    let lost = mutex(&world.client().await).acquire().await.unwrap();
    world.expire(&lost);
    let client = world.client().await;
    let waiting = waits(&mutex(&client));
    sleep(WAIT - SOON).await;
    let record = world.record().await.replace(" node=", " node=another-");
    client.set_data(PATH, record.as_bytes(), None).await.unwrap();
    let start = world.clock.now();
    let guard = waiting.await.unwrap();
    assert!(world.clock.now() >= start + WAIT);
    guard.release().await.unwrap();
}

/// A rival loses its node with its session, and queues again. Its wait still counts from when it saw that the
/// holder's node was gone.
#[tokio::test(start_paused = true)]
async fn a_rival_whose_session_ends_waits_once() {
    let world = World::new().await;
    let lost = mutex(&world.client().await).acquire().await.unwrap();
    world.expire(&lost);
    let client = world.client().await;
    let start = world.clock.now();
    let waiting = waits(&mutex(&client));
    sleep(T / 2).await;
    let session = client.session().unwrap().session_id();
    assert!(world.server.expire_session(session));
    let guard = waiting.await.unwrap();
    assert_ne!(guard.session_id(), session);
    let waited = world.clock.now().duration_since(start);
    assert!(waited >= WAIT && waited < WAIT + 2 * SOON, "{waited:?}");
    guard.release().await.unwrap();
}

// Case (Strict mutexes): nodes of other recipes.
#[tokio::test(start_paused = true)]
async fn a_strict_mutex_refuses_the_nodes_of_other_recipes() {
    let (_world, client) = World::with_client().await;
    let strict = mutex(&client);
    strict.acquire().await.unwrap().release().await.unwrap();
    let plain = InterProcessMutex::new(&client, PATH).unwrap();
    let intruder = plain.acquire().await.unwrap();
    let error = strict.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignNode);
    assert!(error.to_string().contains("-lock-"), "{error}");
    assert_eq!(error.path(), Some(PATH));
    assert_eq!(strict.participants().await.unwrap().len(), 0, "no node is left");
    intruder.release().await.unwrap();
    // The other way round, the plain mutex waits for the strict one.
    let guard = strict.acquire().await.unwrap();
    assert!(plain.acquire_timeout(T).await.unwrap().is_none());
    guard.release().await.unwrap();
    let own = plain.acquire().await.unwrap();
    own.release().await.unwrap();
    strict.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_strict_mutex_replaces_no_record_that_it_cannot_read() {
    let (_world, client) = World::with_client().await;
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    client.create(PATH, b"10.0.0.1", options).await.unwrap();
    for (data, kind) in [
        (&b"10.0.0.1"[..], ErrorKind::ForeignNode),
        (b"", ErrorKind::ForeignNode),
        (b"docent-strict-mutex/1 held", ErrorKind::BadReply),
        (b"docent-strict-mutex/2 free token=1", ErrorKind::BadReply),
    ] {
        client.set_data(PATH, data, None).await.unwrap();
        assert_eq!(mutex(&client).acquire().await.unwrap_err().kind(), kind);
        assert_eq!(client.get_data(PATH).await.unwrap().data, data);
        assert_eq!(client.get_children(PATH).await.unwrap().len(), 0);
    }
}

/// The record is changed by hand while the lock is held: the hold ends with the next renewal.
// Case (Found in docent itself): a strict hold whose record was replaced by another one kept its
// bound ahead.
#[tokio::test(start_paused = true)]
async fn a_changed_record_ends_the_hold() {
    let (_world, client) = World::with_client().await;
    let guard = mutex(&client).acquire().await.unwrap();
    let token = guard.fencing_token().await.unwrap();
    let data = format!("docent-strict-mutex/1 free token={token}");
    client.set_data(PATH, data.as_bytes(), None).await.unwrap();
    timeout(T / 2, guard.lost()).await.expect("found by the renewal");
    // The record no longer makes a rival wait.
    assert_eq!(guard.proven_until(), Instant::ZERO);
    guard.release().await.unwrap();
    assert_eq!(client.get_children(PATH).await.unwrap().len(), 0, "the node is deleted");
    assert_eq!(client.get_data(PATH).await.unwrap().data, data.as_bytes());
    mutex(&client).acquire().await.unwrap().release().await.unwrap();
}

/// A node whose token is not greater than that of the last holder is not granted the lock; a later one is.
// Case (Strict mutexes): the queue out of order: tokens rise all the same.
#[tokio::test(start_paused = true)]
async fn tokens_rise_from_record_to_record() {
    let (world, client) = World::with_client().await;
    let (first, second) = (mutex(&client), mutex(&client));
    let held = first.acquire().await.unwrap();
    let waiting = waits(&second);
    until_two_contend(&first).await;
    client.create("/later", b"", CreateMode::Persistent).await.unwrap();
    let token = world.server.machine(|machine, _| machine.last_zxid());
    let data = format!("docent-strict-mutex/1 free token={token}");
    client.set_data(PATH, data.as_bytes(), None).await.unwrap();
    held.release().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(guard.fencing_token().await.unwrap() > token);
    guard.release().await.unwrap();
}

/// No token of this ensemble is above that of the record, and none will be for a long time.
// Case (Found in docent itself): a strict record that was copied from another ensemble made each
// acquire fail with `NoNode`, after a wait for a holder that is elsewhere.
#[tokio::test(start_paused = true)]
async fn a_record_of_another_ensemble_is_refused_until_it_is_deleted() {
    let (world, client) = World::with_client().await;
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    client.create(PATH, b"", options).await.unwrap();
    for rest in
        ["free token=99999999999", "held token=99999999999 claim_ms=6000 session=0x1 node=a"]
    {
        let data = format!("docent-strict-mutex/1 {rest}");
        client.set_data(PATH, data.as_bytes(), None).await.unwrap();
        let start = world.clock.now();
        let error = mutex(&client).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignRecord, "{error}");
        assert!(error.to_string().contains("delete"), "{error}");
        assert!(world.clock.now() < start + SOON, "no wait for a holder elsewhere");
        assert_eq!(client.get_children(PATH).await.unwrap().len(), 0);
        assert_eq!(client.get_data(PATH).await.unwrap().data, data.as_bytes());
    }
    client.delete(PATH, None).await.unwrap();
    mutex(&client).acquire().await.unwrap().release().await.unwrap();
}

/// Slow disks: each reply to a write takes longer than the time between two renewals.
// Case (Found in docent itself): a strict hold was lost although each renewal was applied: a reply
// that took more than a third of the claim was thrown away.
#[tokio::test(start_paused = true)]
async fn late_replies_renew_a_strict_hold_from_their_send_times() {
    let world = World::new().await;
    let transport = InProcess::new(&world.server);
    let client = world.config().with_transport(transport.clone()).connect().await.unwrap();
    transport.set_latency(T * 9 / 20);
    let guard = mutex(&client).acquire().await.unwrap();
    sleep(20 * T).await;
    assert!(guard.is_held());
    transport.set_latency(T * 3 / 5);
    let proven = guard.proven_until();
    sleep(20 * T).await;
    assert!(guard.is_held() && guard.proven_until() >= proven + 19 * T);
    assert!(client.metrics().pending <= 5, "{}", client.metrics().pending);
    transport.set_latency(2 * T);
    let stalled = world.clock.now();
    guard.lost().await;
    // The hold ends with its session or with its claim, whichever is first.
    assert!(world.clock.now() <= stalled + T && guard.proven_until() <= stalled + T);
}

/// Each reply takes so long that a timed acquire gives up between its grant and the reply to it.
#[tokio::test(start_paused = true)]
async fn a_timed_acquire_that_gives_up_behind_its_grant_frees_the_lock() {
    let world = World::new().await;
    let other = mutex(&world.client().await);
    other.acquire().await.unwrap().release().await.unwrap();
    let transport = InProcess::new(&world.server);
    let client = world.config().with_transport(transport.clone()).connect().await.unwrap();
    transport.set_latency(Duration::from_millis(800));
    // The grant is the fourth request: it is sent after 2.4 s, and the call ends after 3 s.
    let error = mutex(&client).acquire_timeout(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unanswered, "{error}");
    let free = timeout(SOON, other.acquire()).await.expect("no claim is left to wait for");
    let record = world.client().await.get_data(PATH).await.unwrap().stat;
    assert_eq!(record.version, 5, "granted three times, and freed twice");
    free.unwrap().release().await.unwrap();
}

/// Renewals are refused for longer than the time between two of them. Each refused one is repeated soon, so the first one
/// behind the outage comes before the end of the claim.
#[tokio::test(start_paused = true)]
async fn a_refused_renewal_is_repeated_before_the_next_one_is_due() {
    let (world, client) = World::with_client().await;
    let guard = mutex(&client).acquire().await.unwrap();
    sleep(20 * T).await;
    // One is due each third of the claim, and refused ones are repeated each thirtieth: 2.4 s.
    world.server.throttle(12);
    sleep(2 * T).await;
    assert!(guard.is_held());
    // If all are refused, the loss is reported at the end of the claim.
    world.server.throttle(u32::MAX);
    timeout(T, guard.lost()).await.expect("not renewed");
    world.server.throttle(0);
}

/// The node is made, but the transactions that grant and release the lock are larger than a request may be.
// Case (Found in docent itself): a strict mutex whose grant is larger than a request may be left
// its lock node behind.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_too_large_leaves_no_node() {
    let world = World::new().await;
    let other = world.client().await;
    mutex(&other).acquire().await.unwrap().release().await.unwrap();
    let client = world.config().with_max_request_bytes(150).connect().await.unwrap();
    let error = mutex(&client).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RequestTooLarge, "{error}");
    let free = timeout(SOON, mutex(&other).acquire()).await.expect("no node blocks the lock");
    free.unwrap().release().await.unwrap();
}

/// A read-only server shows the writes in its log, committed or not.
// Case (Found in docent itself): a strict mutex believed a read-only server, which may show writes
// that were never committed (read, not seen).
#[tokio::test(start_paused = true)]
async fn a_strict_mutex_refuses_a_client_of_read_only_servers() {
    let world = World::new().await;
    let client = world.config().with_read_only(true).connect().await.unwrap();
    let refused = StrictMutex::new(&client, PATH).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadArguments);
    assert!(refused.to_string().contains("with_read_only"), "{refused}");
    assert_eq!(client.exists("/locks").await.unwrap(), None);
}
