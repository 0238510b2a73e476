//! docent and Curator contend for one lock, on a real server and on the embedded one.
//!
//! Every test is written once, with lock peers, and runs for each pair of clients, in both orders.

use super::*;
use crate::{
    history::{Hold, Mode, assert_at_most, assert_exclusive},
    support::real::{server, unique_path},
};

/// Runs each test for each pair.
macro_rules! pairs {
    ($($pair:ident: $first:expr, $second:expr;)*) => { $(
        mod $pair {
            use super::Side;

            pairs! { @tests $first, $second;
                a_contended_mutex_is_held_by_one_at_a_time
                the_lock_goes_to_the_first_waiter
                a_contended_semaphore_mutex_is_held_by_one_at_a_time
                a_holder_receives_every_revocation
                readers_share_and_writers_do_not
                contended_readers_and_writers_exclude_each_other
                a_semaphore_limits_its_leases
                a_contended_multi_lock_is_held_by_one_at_a_time
            }
        }
    )* };
    (@tests $first:expr, $second:expr; $($test:ident)*) => { $(
        #[tokio::test]
        async fn $test() {
            if let Some(peers) = super::Peers::start($first, $second).await {
                super::$test(peers).await;
            }
        }
    )* };
}

pairs! {
    docent_and_java: Side::Docent, Side::Curator;
    java_and_docent: Side::Curator, Side::Docent;
    docent_and_docent: Side::Docent, Side::Docent;
}

/// The number of contended acquires or revocations of each side.
const ROUNDS: usize = 200;

/// Long enough for a machine that is busy with other tests.
const SESSION: Duration = Duration::from_secs(20);

/// Two peers on the server of this run.
struct Peers {
    first: Peer,
    second: Peer,
}

impl Peers {
    /// `None` if a prerequisite is missing; the test is then counted as skipped.
    #[track_caller]
    fn start(first_side: Side, second_side: Side) -> impl Future<Output = Option<Self>> {
        let available = first_side.is_available() && second_side.is_available();
        let server = server();
        let options = Options { session: SESSION, ..Options::default() };
        async move {
            let connect = available.then_some(server)?;
            let (first, second) = tokio::join!(
                Peer::start(first_side, "first", &connect, options),
                Peer::start(second_side, "second", &connect, options),
            );
            Some(Self { first, second })
        }
    }

    async fn close(self) {
        tokio::join!(self.first.close(), self.second.close());
    }
}

/// Acquires and releases locks as fast as the peer can. Returns the holds.
async fn holds(
    peer: &Peer,
    owner: &str,
    rounds: usize,
    handle: impl Fn(usize) -> (String, Mode),
) -> Vec<Hold> {
    let mut holds = Vec::new();
    for (handle, mode) in (0..rounds).map(handle) {
        let acquired = peer.ask(format!("acquire {handle}")).await;
        assert_eq!(acquired.ok().contains("lease-"), handle.starts_with("sem="), "{acquired:?}");
        assert!(peer.held(&handle).await);
        let holder = format!("{} {owner}", peer.name());
        // Reading the token makes the hold last a round trip to the server.
        let token = Some(peer.token(&handle).await);
        let releasing = Instant::now();
        holds.push(Hold { holder, mode, token, acquired: acquired.at, releasing });
        peer.ask(format!("release {handle}")).await.ok();
    }
    assert_eq!(holds.len(), rounds);
    holds
}

// Case (What broke other clients): six contenders panic.
async fn a_contended_mutex_is_held_by_one_at_a_time(peers: Peers) {
    contend_for(peers, "mutex").await;
}

async fn a_contended_semaphore_mutex_is_held_by_one_at_a_time(peers: Peers) {
    contend_for(peers, "semmutex").await;
}

async fn contend_for(peers: Peers, kind: &str) {
    let handle = format!("{kind}:{}", unique_path("lock"));
    let exclusive = |_| (handle.clone(), Mode::Exclusive);
    let (first, second) = tokio::join!(
        holds(&peers.first, "", ROUNDS, exclusive),
        holds(&peers.second, "", ROUNDS, exclusive),
    );
    assert_exclusive([first, second].concat());
    assert_eq!(peers.first.participants(&handle).await, [""; 0]);
    peers.close().await;
}

async fn the_lock_goes_to_the_first_waiter(peers: Peers) {
    for (holder, waiter) in [(&peers.first, &peers.second), (&peers.second, &peers.first)] {
        let handle = format!("mutex:{}", unique_path("lock"));
        holder.ask(format!("acquire {handle}")).await.ok();
        let mut waiting = waiter.send(format!("acquire {handle}"));
        // A third owner, behind the other two.
        let late = format!("{handle}#late");
        participants(holder, &handle, 2).await;
        let mut last = holder.send(format!("acquire {late}"));
        let queue = participants(holder, &handle, 3).await;
        assert!(waiting.is_pending() && last.is_pending());
        let first_token = holder.token(&handle).await;

        holder.ask(format!("release {handle}")).await.ok();
        waiting.reply().await.ok();
        assert!(last.is_pending());
        assert_eq!(participants(waiter, &handle, 2).await, queue[1..]);
        let second_token = waiter.token(&handle).await;
        assert!(second_token > first_token, "{second_token} after {first_token}");

        waiter.ask(format!("release {handle}")).await.ok();
        last.reply().await.ok();
        assert!(holder.token(&late).await > second_token);
        holder.ask(format!("release {late}")).await.ok();
    }
    peers.close().await;
}

async fn a_holder_receives_every_revocation(peers: Peers) {
    for (holder, other) in [(&peers.first, &peers.second), (&peers.second, &peers.first)] {
        let handle = format!("mutex:{}", unique_path("lock"));
        let mut events = holder.events_from_now();
        for _ in 0..ROUNDS {
            holder.ask(format!("revocable {handle}")).await.ok();
            holder.ask(format!("acquire {handle}")).await.ok();
            let queue = other.participants(&handle).await;
            assert_eq!(queue.len(), 1);

            other.ask(format!("revoke {}", queue[0])).await.ok();
            events.next(&format!("revoke {handle}")).await;
            assert!(holder.held(&handle).await, "a revocation is a request");
            let next = other.send(format!("acquire {handle}"));
            holder.ask(format!("release {handle}")).await.ok();
            next.reply().await.ok();
            other.ask(format!("release {handle}")).await.ok();
        }
        assert_eq!(holder.participants(&handle).await, [""; 0]);
    }
    peers.close().await;
}

async fn readers_share_and_writers_do_not(peers: Peers) {
    let Peers { first, second } = &peers;
    let path = unique_path("lock");
    let (read, write) = (format!("read:{path}"), format!("write:{path}"));
    first.ask(format!("acquire {read}")).await.ok();
    second.ask(format!("acquire {read}")).await.ok();

    let writer = format!("{write}#writer");
    let mut writing = first.send(format!("acquire {writer}"));
    children(second, &path, 3).await;
    // Behind the writer, so it does not share with the earlier readers.
    let reader = format!("{read}#late");
    let mut reading = second.send(format!("acquire {reader}"));
    children(first, &path, 4).await;

    first.ask(format!("release {read}")).await.ok();
    assert!(writing.is_pending());
    second.ask(format!("release {read}")).await.ok();
    writing.reply().await.ok();
    assert!(reading.is_pending());
    // A writer can read as well, and is still a reader after releasing the write lock.
    let downgraded = format!("{read}#writer");
    first.ask(format!("acquire {downgraded}")).await.ok();
    assert!(reading.is_pending());
    first.ask(format!("release {writer}")).await.ok();
    reading.reply().await.ok();
    assert!(first.held(&downgraded).await);

    second.ask(format!("release {reader}")).await.ok();
    first.ask(format!("release {downgraded}")).await.ok();
    children(first, &path, 0).await;
    peers.close().await;
}

/// Two owners of each peer alternate between reading and writing, so that readers and writers of the same client and of
/// both clients meet.
async fn contended_readers_and_writers_exclude_each_other(peers: Peers) {
    let path = unique_path("lock");
    let rounds = async |peer: &Peer, owner: &str, first: usize| {
        let alternating = |round| match (first + round) % 3 {
            0 => (format!("write:{path}#{owner}"), Mode::Exclusive),
            _ => (format!("read:{path}#{owner}"), Mode::Shared),
        };
        holds(peer, owner, ROUNDS / 2, alternating).await
    };
    let (a, b, c, d) = tokio::join!(
        rounds(&peers.first, "a", 0),
        rounds(&peers.first, "b", 1),
        rounds(&peers.second, "a", 1),
        rounds(&peers.second, "b", 2),
    );
    assert_exclusive([a, b, c, d].concat());
    assert_eq!(peers.first.children(&path).await, [""; 0]);
    peers.close().await;
}

/// Four owners, two of each peer, for three leases.
async fn a_semaphore_limits_its_leases(peers: Peers) {
    let path = unique_path("semaphore");
    let rounds = async |peer: &Peer, owner: &str| {
        let lease = |_| (format!("sem=3:{path}#{owner}"), Mode::Shared);
        holds(peer, owner, ROUNDS / 2, lease).await
    };
    let (a, b, c, d) = tokio::join!(
        rounds(&peers.first, "a"),
        rounds(&peers.first, "b"),
        rounds(&peers.second, "a"),
        rounds(&peers.second, "b"),
    );
    assert_at_most(3, &[a, b, c, d].concat());
    assert_eq!(peers.first.participants(&format!("sem=3:{path}")).await, [""; 0]);
    assert_eq!(peers.first.children(&format!("{path}/locks")).await, [""; 0]);
    peers.close().await;
}

async fn a_contended_multi_lock_is_held_by_one_at_a_time(peers: Peers) {
    let (one, two) = (unique_path("one"), unique_path("two"));
    let rounds = async |peer: &Peer| {
        let mut holds = Vec::new();
        for _ in 0..ROUNDS {
            let acquired = peer.ask(format!("multi 20000 {one} {two}")).await;
            acquired.ok();
            // These requests prolong the hold, and check both of its nodes.
            for path in [&one, &two] {
                assert!(!peer.children(path).await.is_empty(), "held without a node");
            }
            let (holder, mode) = (peer.name().to_owned(), Mode::Exclusive);
            let (acquired, releasing) = (acquired.at, Instant::now());
            holds.push(Hold { holder, mode, token: None, acquired, releasing });
            peer.ask("multirelease").await.ok();
        }
        holds
    };
    let (first, second) = tokio::join!(rounds(&peers.first), rounds(&peers.second));
    assert_exclusive([first, second].concat());
    for path in [&one, &two] {
        assert_eq!(peers.first.children(path).await, [""; 0]);
    }
    peers.close().await;
}

/// Waits until `count` owners are in the queue, and returns their nodes.
async fn participants(peer: &Peer, handle: &str, count: usize) -> Vec<String> {
    let what = format!("{count} participants of {handle}");
    let ask = async || Some(peer.participants(handle).await).filter(|queue| queue.len() == count);
    eventually(&what, ask).await
}

/// Waits until the node has `count` children of any kind.
async fn children(peer: &Peer, path: &str, count: usize) -> Vec<String> {
    let what = format!("{count} children of {path}");
    let ask = async || Some(peer.children(path).await).filter(|names| names.len() == count);
    eventually(&what, ask).await
}
