//! The renewal of a proven bound: on a follower, on the leader, and while the leader is paused.

use docent::locks::LockOptions;

use super::*;

const SYNC_LIMIT: u32 = 12;

/// Long enough for a renewal on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(8);

on_both_servers! {
    #[tokio::test(flavor = "multi_thread")]
    crate::Ensemble::embedded, crate::Ensemble::real;
    a_hold_stays_proven(3, super::SYNC_LIMIT)
}

async fn client(ensemble: &Ensemble, member: usize, timeout: Duration) -> Client {
    let config = Ensemble::config_of(&ensemble.connect_to(member));
    config.with_session_timeout(timeout).with_direct_servers(true).connect().await.unwrap()
}

async fn hold(client: &Client, path: &str, every: Option<Duration>) -> LockGuard {
    let mut options = LockOptions::default();
    if let Some(every) = every {
        options = options.with_proven_renewal(every);
    }
    let mutex = InterProcessMutex::with_options(client, path, options).unwrap();
    within_deadline("the lock", mutex.acquire()).await.unwrap()
}

fn is_proven(client: &Client, guard: &LockGuard) -> bool {
    client.now() < guard.proven_until()
}

/// Each renewal on a follower needs a connection, and on the leader only the first one.
async fn a_hold_stays_proven(ensemble: Ensemble) {
    let leader = ensemble.leader().await;
    tokio::join!(
        stays_proven(&ensemble, leader, true),
        stays_proven(&ensemble, (leader + 1) % 3, false),
    );
}

async fn stays_proven(ensemble: &Ensemble, member: usize, is_leader: bool) {
    let client = client(ensemble, member, TIMEOUT).await;
    // The bound set by the session's creation passes before the lock is acquired.
    let created = client.session().unwrap();
    until("the first bound has passed", async || client.now() > created.proven_until()).await;
    let guard = hold(&client, &format!("/lock-{member}"), Some(TIMEOUT / 8)).await;
    let first = guard.proven_until();
    assert!(is_proven(&client, &guard), "not proven when it is acquired");
    let state = client.state().get();
    let (mut last, mut renewals) = (first, 0);
    until("two timeouts of renewals, and more than ten", async || {
        assert!(is_proven(&client, &guard), "lapsed");
        let proven = guard.proven_until();
        renewals += u64::from(proven > last);
        last = proven;
        renewals > 10 && last > first + TIMEOUT * 2
    })
    .await;
    let connections = client.metrics().connections;
    eprintln!("{connections} connections for {renewals} renewals");
    assert!(if is_leader { connections <= 3 } else { connections >= renewals }, "{connections}");
    assert!(guard.is_held());
    assert_eq!(client.state().get(), state, "the state of the connection has changed");
    guard.release().await.unwrap();
    client.close().await.unwrap();
}

/// A follower answers pings for a paused leader, for longer than the sessions last. When the leader continues, it ends
/// the sessions at once: the replies prove nothing, and the clients' leases outlive their nodes.
// Case (Renewed holds): a leader stands still.
#[tokio::test(flavor = "multi_thread")]
async fn a_proven_bound_ends_before_a_leader_that_stood_still_ends_the_session() {
    const TIMEOUT: Duration = Duration::from_secs(6);
    let Some(ensemble) = Ensemble::real(3, 2 * SYNC_LIMIT).await else { return };
    let leader = ensemble.leader().await;
    let (follower, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let naive = client(&ensemble, follower, TIMEOUT).await;
    let renewing = client(&ensemble, follower, TIMEOUT).await;
    let observer = ensemble.client_of(other).await;
    let naive_guard = hold(&naive, "/naive", None).await;
    let guard = hold(&renewing, "/proven", Some(TIMEOUT / 8)).await;
    let first = guard.proven_until();
    until("a renewal", async || guard.proven_until() > first).await;

    let Ensemble::Real(real) = &ensemble else { unreachable!() };
    let frozen = Frozen::new(real.process_id(leader).unwrap());
    let since = Instant::now();
    let is_up = async || since.elapsed() > TIMEOUT + TIMEOUT / 2 && !is_proven(&renewing, &guard);
    until("the sessions' time is up", is_up).await;
    let was_held = naive_guard.is_held();
    drop(frozen);
    let mut overlaps = false;
    eventually("both nodes are deleted", async || {
        let naive_gone = observer.exists(naive_guard.path()).await.ok()?.is_none();
        let gone = observer.exists(guard.path()).await.ok()?.is_none();
        assert!(!gone || !is_proven(&renewing, &guard), "deleted within the proven bound");
        overlaps |= naive_gone && naive_guard.is_held();
        (naive_gone && gone).then_some(())
    })
    .await;
    eprintln!("is_held() behind the timeout: {was_held}; behind the deletion: {overlaps}");
    assert!(was_held, "the follower has answered no pings");
}

/// A follower freezes while the connection is replaced or the write after it is in flight. A hold that was not proven
/// by then is not proven later, even if the follower serves its clients again before it learns that their sessions have
/// ended.
// Case (Renewed holds): a follower freezes in a renewal.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_at_a_follower_that_freezes_proves_nothing() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let Some(ensemble) = Ensemble::real(3, SYNC_LIMIT).await else { return };
    let leader = ensemble.leader().await;
    let (follower, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let observer = ensemble.client_of(other).await;
    let mut holds = Vec::new();
    for number in 0..4 {
        let client = client(&ensemble, follower, TIMEOUT).await;
        let guard = hold(&client, &format!("/frozen/{number}"), Some(TIMEOUT / 10)).await;
        holds.push((client, guard));
    }
    // One of them is being renewed when the follower freezes.
    let (renewing, _) = &holds[0];
    let before = renewing.metrics().connections;
    until("a renewal", async || renewing.metrics().connections > before).await;
    let Ensemble::Real(real) = &ensemble else { unreachable!() };
    let mut frozen = Some(Frozen::new(real.process_id(follower).unwrap()));
    let mut bounds = vec![docent::runtime::Instant::ZERO; holds.len()];
    let mut gone = vec![false; holds.len()];
    let mut gaps = vec![Duration::MAX; holds.len()];
    eventually("each node is deleted, or its session goes on", async || {
        for (at, (client, guard)) in holds.iter().enumerate() {
            let now = client.now();
            let bound = guard.proven_until();
            bounds[at] = bounds[at].max(bound);
            let node = observer.exists(guard.path()).await.ok()?;
            if node.is_none() && !std::mem::replace(&mut gone[at], true) {
                assert!(client.now() >= bounds[at], "deleted within the proven bound");
                gaps[at] = now.duration_since(bounds[at]);
            }
        }
        // The follower continues when some of the sessions have ended and others have not.
        if gone.contains(&true) {
            frozen.take();
        }
        // A session that has not ended by then continues.
        let goes_on = |at: usize| {
            let (client, guard) = &holds[at];
            let is_connected = client.state().get().is_some_and(|state| state.is_connected());
            let session = client.session().map(|session| session.session_id());
            frozen.is_none() && is_connected && session == Some(guard.session_id())
        };
        (0..holds.len()).all(|at| gone[at] || goes_on(at)).then_some(())
    })
    .await;
    eprintln!("deleted {gaps:?} after the proven bounds");
    for (at, (client, guard)) in holds.iter().enumerate() {
        if gone[at] {
            until("the end of the hold", async || !guard.is_held()).await;
            assert!(!is_proven(client, guard), "revived");
        }
    }
}
