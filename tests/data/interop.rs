//! Barriers, counters and caches that docent and Curator share. Source of the other side:
//! `tests/java/CuratorData.java`.

use docent::{CuratorCache, DistributedAtomicInteger, cache::CachedNode};

use super::*;
use crate::{
    atomic::{changed, options},
    barriers::double::both,
    support::peer::{Answer, Options, Outcome as Replied, Peer, Side},
};

fn options_of(retries: u32) -> Options {
    Options { session: Duration::from_secs(20), retries }
}

#[tokio::test]
async fn each_side_waits_on_the_other_sides_barrier() {
    let Some((fixture, curator)) = Peer::beside_curator(options_of(3)).await else { return };
    let (a, _tap) = fixture.client("A").await;
    let path = &fixture.path;
    let ours = DistributedBarrier::with_options(&a, path, lock_options()).unwrap();
    for _ in 0..20 {
        ours.set_barrier().await.unwrap();
        assert!(!curator.ask(format!("bwait barrier:{path} 50")).await.is_ok());
        let waiting = curator.send(format!("bwait barrier:{path}"));
        ours.remove_barrier().await.unwrap();
        waiting.reply().await.ok();
        curator.ask(format!("bset barrier:{path}")).await.ok();
        assert!(!ours.wait_on_barrier_timeout(ms(50)).await.unwrap());
        let removing =
            async { curator.ask(format!("bremove barrier:{path}")).await.ok().to_owned() };
        let (waited, _) =
            tokio::join!(within_deadline("the wait", ours.wait_on_barrier()), removing);
        waited.unwrap();
    }
    curator.close().await;
}

#[tokio::test]
async fn members_of_both_sides_enter_and_leave_together() {
    let Some((fixture, curator)) = Peer::beside_curator(options_of(3)).await else { return };
    let (a, _tap) = fixture.client("A").await;
    let path = &fixture.path;
    for round in 0..30 {
        let (first, second) = (spawn_enter(member(&a, path, 4)), spawn_enter(member(&a, path, 4)));
        let theirs = ["x", "y"].map(|name| format!("dbarrier=4:{path}#{name}"));
        let one = curator.send(format!("denter {}", theirs[0]));
        fixture.children(path, 3).await;
        assert!(!first.is_finished() && !second.is_finished(), "three of four");
        let other = curator.send(format!("denter {}", theirs[1]));
        let [first, second] = both(first, second).await;
        one.reply().await.ok();
        other.reply().await.ok();
        let mut one = curator.send(format!("dleave {}", theirs[0]));
        let first = spawn_leave(first);
        // A member whose node is not the lowest deletes it first.
        assert!(one.is_pending() && !first.is_finished(), "two are inside");
        let (second, other) = (spawn_leave(second), curator.send(format!("dleave {}", theirs[1])));
        done("the first", first).await;
        done("the second", second).await;
        one.reply().await.ok();
        other.reply().await.ok();
        let left = fixture.children(path, 0).await;
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
    curator.close().await;
}

/// A side is cut off after this number of its writes.
const CUT_EVERY: usize = 250;

/// Cuts a client off at every [`CUT_EVERY`]th write, while the write is in flight: in turn before it reaches the
/// server, after the server has applied it, and by a cut of the connection.
fn cutting(fixture: &Fixture, client: &TapClient, writes: usize) -> JoinHandle<()> {
    let nth = |number: usize| u32::try_from(number * CUT_EVERY).unwrap();
    for number in (1..=writes / CUT_EVERY).filter(|number| number % 3 != 0) {
        let fault = if number % 3 == 1 { Fault::drop_before } else { Fault::drop_reply };
        let fault = fault(OpCode::SetData).of(client.label()).nth(nth(number));
        fixture.tap.inject(fault);
    }
    let (client, mut records) = (client.clone(), fixture.tap.subscribe());
    tokio::spawn(async move {
        let is_write = request(client.label(), OpCode::SetData);
        let mut number = 0;
        while records.until(DEADLINE, &is_write).await.is_ok() {
            number += 1;
            if number % (3 * CUT_EVERY) == 0 {
                client.cut();
            }
        }
    })
}

/// The number in the environment variable for a long run, or else `usual`.
fn long_run<N: std::str::FromStr>(variable: &str, usual: N) -> N {
    let set = std::env::var(variable);
    set.map_or(usual, |number| number.parse().ok().expect("a number"))
}

/// The number of increments that succeeded, and of those whose outcome is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counted {
    known: i64,
    unknown: i64,
}

async fn increments(counter: &DistributedAtomicLong, number: i64) -> Counted {
    let mut counted = Counted::default();
    for _ in 0..number {
        match within_deadline("an increment", counter.increment()).await {
            Ok(value) => counted.known += i64::from(value.succeeded()),
            Err(error) if error.outcome() == Outcome::Unknown => counted.unknown += 1,
            Err(error) => panic!("{error}"),
        }
    }
    counted
}

/// Starts Curator's increments in batches of up to 250, each with its own deadline.
fn curators_increments(curator: &Peer, path: &str, number: i64) -> Vec<Answer> {
    let part = number.min(250);
    (0..number / part).map(|_| curator.send(format!("arun along:{path} {part}"))).collect()
}

async fn sum(answers: Vec<Answer>) -> Counted {
    let mut counted = Counted::default();
    for answer in answers {
        let answer = answer.reply().await;
        let (known, unknown) = answer.ok().split_once(' ').unwrap();
        counted.known += known.parse::<i64>().unwrap();
        counted.unknown += unknown.parse::<i64>().unwrap();
    }
    counted
}

/// Both sides count at once, and both are cut off repeatedly while a write is in flight. Without retries, Curator
/// counts no increment twice (C21).
#[tokio::test]
async fn increments_of_both_sides_are_counted_once() {
    let each: i64 = long_run("DOCENT_INTEROP_INCREMENTS", 1500);
    let (Some(fixture), true) = (Fixture::real().await, Side::Curator.is_available()) else {
        return;
    };
    fixture.tap.keep(1000);
    let tap_of_curator = fixture.tap.client("J").await.unwrap();
    let curator = Peer::java(&tap_of_curator.connect_string(), options_of(0)).await;
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let path = &fixture.path;
    let counter = DistributedAtomicLong::with_options(&a, path, options(10_000)).unwrap();
    let cutters = [&tap, &tap_of_curator].map(|tap| cutting(&fixture, tap, each as usize));
    let theirs = curators_increments(&curator, path, each);
    let ours = increments(&counter, each).await;
    let theirs = sum(theirs).await;
    cutters.iter().for_each(JoinHandle::abort);
    fixture.tap.clear_faults();
    for (side, counted) in [("docent", ours), ("Curator", theirs)] {
        assert_eq!(counted.known + counted.unknown, each, "{side}: {counted:?}");
        assert!(counted.unknown > 0, "no cut of {side} has lost an outcome: {counted:?}");
    }
    let node = observer.get_data(path).await.unwrap();
    let value = i64::from_be_bytes(node.data[..].try_into().unwrap());
    let known = ours.known + theirs.known;
    let possible = known..=known + ours.unknown + theirs.unknown;
    let counts = format!("docent {ours:?}, Curator {theirs:?}");
    println!("the sum is {value}: {counts}");
    assert!(possible.contains(&value), "{value} is not in {possible:?}: {counts}");
    let writes = i64::from(node.stat.version) + 1;
    assert_eq!(value, writes, "each write is one increment: {counts}");
    // Without cuts, every outcome is known.
    until("Curator's connection", async || {
        let answer = curator.ask(format!("aget along:{path}")).await;
        matches!(answer.outcome, Replied::Ok(_))
    })
    .await;
    let more = curators_increments(&curator, path, 100);
    let all_known = Counted { known: 100, unknown: 0 };
    assert_eq!(increments(&counter, 100).await, all_known);
    assert_eq!(sum(more).await, all_known);
    assert_eq!(counter.get().await.unwrap().pre_value, value + 200);
    let theirs = format!("true {0} {0}", value + 200);
    assert_eq!(curator.ask(format!("aget along:{path}")).await.ok(), theirs);
    curator.close().await;
}

/// Both sides write the same bytes, also for negative numbers.
#[tokio::test]
async fn each_side_reads_the_other_sides_numbers() {
    let Some((fixture, curator)) = Peer::beside_curator(options_of(3)).await else { return };
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let (long, int) = (format!("{}/l", fixture.path), format!("{}/i", fixture.path));
    curator.ask(format!("adec along:{long}")).await.ok();
    a.create(&int, b"", CreateMode::Persistent).await.unwrap();
    curator.ask(format!("adec aint:{int}")).await.ok();
    let longs = DistributedAtomicLong::with_options(&a, &long, options(4)).unwrap();
    let ints = DistributedAtomicInteger::with_options(&a, &int, options(4)).unwrap();
    assert_eq!(changed(longs.subtract(41).await), (-1, -42));
    assert_eq!(changed(ints.try_set(i32::MIN).await), (-1, i32::MIN));
    assert_eq!(curator.ask(format!("aget along:{long}")).await.ok(), "true -42 -42");
    let wrapped = curator.ask(format!("adec aint:{int}")).await;
    assert_eq!(wrapped.ok(), format!("true {} {}", i32::MIN, i32::MAX));
    curator.close().await;
}

/// `PATH=VERSION=DATA`, with the data in hexadecimal.
fn dumped(path: &str, version: i32, data: &[u8]) -> String {
    let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{path}={version}={hex}")
}

/// The nodes below a path, as the server has them.
async fn tree(client: &Client, root: &str) -> Vec<String> {
    let mut nodes = Vec::new();
    let mut unread = vec![root.to_owned()];
    while let Some(path) = unread.pop() {
        let Ok(node) = client.get_data(&path).await else { continue };
        nodes.push(dumped(&path, node.stat.version, &node.data));
        let children = client.get_children(&path).await.unwrap();
        unread.extend(children.iter().map(|child| format!("{path}/{child}")));
    }
    nodes.sort_unstable();
    nodes
}

/// Both sides change one tree at random and both cache it. Both are cut off repeatedly, and docent's client loses its
/// session. While Curator is cut off, nodes are only created and written: it can miss replaced nodes (C1).
// Case (Caches): docent and Curator change and cache one tree, and both are cut off: both caches
// have the tree of the server.
#[tokio::test]
async fn caches_of_both_sides_converge_to_the_same_tree() {
    let changes: u32 = long_run("DOCENT_INTEROP_CHANGES", 400);
    let (Some(fixture), true) = (Fixture::real().await, Side::Curator.is_available()) else {
        return;
    };
    fixture.tap.keep(1000);
    let tap_of_curator = fixture.tap.client("J").await.unwrap();
    // With 600 retries, Curator's cache gives up no read (C2, C3).
    let curator = Peer::java(&tap_of_curator.connect_string(), options_of(600)).await;
    let (a, tap) = fixture.client("A").await;
    let writer = fixture.observer().await;
    fixture.create_path(&writer).await;
    let path = &fixture.path;
    let cache = CuratorCache::start(&a, path).unwrap();
    let handle = format!("cache:{path}");
    curator.ask(format!("cstart {handle}")).await.ok();
    let mut paths = Vec::new();
    for name in ["a", "b", "a-b"] {
        paths.push(format!("{path}/{name}"));
        paths.extend(["a", "c"].map(|below| format!("{path}/{name}/{below}")));
        paths.push(format!("{path}/{name}/a/x"));
    }
    let mut random = 12_u32;
    let mut below = |end: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % end
    };
    let mut only_growth_until = 0;
    let mut applied = [0, 0];
    for number in 0.. {
        if applied.iter().sum::<u32>() >= changes {
            break;
        }
        match number % 250 {
            50 => tap.cut(),
            100 => tap.kill_session(DEADLINE).await.unwrap(),
            150 => {
                tap_of_curator.cut();
                only_growth_until = number + 25;
            }
            // Curator's setWatches2 is sent before this request.
            175 => drop(curator.ask(format!("read {path}")).await.ok()),
            _ => {}
        }
        let path = &paths[below(paths.len() as u32) as usize];
        let data = number.to_string();
        let kind = below(if number < only_growth_until { 4 } else { 6 });
        let by_curator = number >= only_growth_until && below(2) == 0;
        let is_applied = if by_curator {
            let command = match kind {
                0..=1 => format!("make {path} {data}"),
                2..=3 => format!("write {path} {data}"),
                _ => format!("remove {path}"),
            };
            matches!(curator.ask(command).await.outcome, Replied::Ok(_))
        } else {
            match kind {
                0..=1 => writer.create(path, data.as_bytes(), CreateMode::Persistent).await.is_ok(),
                2..=3 => writer.set_data(path, data.as_bytes(), None).await.is_ok(),
                _ => writer.delete(path, None).await.is_ok(),
            }
        };
        applied[usize::from(by_curator)] += u32::from(is_applied);
    }
    assert!(applied.iter().all(|count| *count > changes / 4), "too few of one side: {applied:?}");
    let wanted = tree(&writer, path).await;
    let ours = |node: &CachedNode| {
        dumped(node.path(), node.stat().version, node.data().map_or(&[][..], |data| data))
    };
    until("the tree in our cache", async || {
        let mut nodes: Vec<_> = cache.snapshot().iter().map(ours).collect();
        nodes.sort_unstable();
        nodes == wanted && !cache.is_stale()
    })
    .await;
    until("the tree in Curator's cache", async || {
        let dump = curator.ask(format!("cdump {handle}")).await;
        dump.ok().split(' ').eq(wanted.iter().map(String::as_str))
    })
    .await;
    assert_eq!(cache.failures().len(), 0);
    println!("{applied:?} changes of docent and of Curator, {} nodes", wanted.len());
    curator.ask(format!("cclose {handle}")).await.ok();
    curator.close().await;
}
