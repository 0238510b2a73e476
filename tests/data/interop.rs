//! Barriers and counters with both docent and Curator in them. Source of the other side:
//! `tests/java/CuratorDataPeer.java`.

use std::path::Path;

use docent::{
    CreateMode, DistributedAtomicInteger, DistributedAtomicLong, DistributedBarrier, OpCode,
    Outcome,
};
use docent_testing::fault::Fault;
use tokio::process::Command;

use crate::{
    atomic::{changed, lock_options, options},
    barriers::{
        double::{done, entering, leaving, member},
        ms,
    },
    support::{
        fixture::Fixture,
        peer::{Peer, Side},
        within_deadline,
    },
};

/// The real server, and a peer of Curator's on it; `None` if there is none.
async fn with_curator() -> Option<(Fixture, Peer)> {
    let (fixture, true) = (Fixture::real().await?, Side::Java.is_available()) else { return None };
    let command = tokio::task::spawn_blocking(|| {
        let java = crate::support::real::java().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        let classes = java.compile(&source.join("tests/java/CuratorDataPeer.java")).unwrap();
        java.command(&classes).unwrap()
    });
    let mut command = command.await.unwrap();
    command.arg("CuratorDataPeer").arg(&fixture.server);
    let peer = Peer::spawn("curator", Command::from(command));
    peer.event("ready").await;
    Some((fixture, peer))
}

#[tokio::test]
async fn each_side_waits_on_the_other_sides_barrier() {
    let Some((fixture, curator)) = with_curator().await else { return };
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
    a.close().await.unwrap();
}

#[tokio::test]
async fn members_of_both_sides_enter_and_leave_together() {
    let Some((fixture, curator)) = with_curator().await else { return };
    let (a, _tap) = fixture.client("A").await;
    let path = &fixture.path;
    for round in 0..30 {
        let (first, second) = (entering(member(&a, path, 4)), entering(member(&a, path, 4)));
        let theirs = ["x", "y"].map(|name| format!("dbarrier=4:{path}#{name}"));
        let one = curator.send(format!("denter {}", theirs[0]));
        fixture.children(path, 3).await;
        assert!(!first.is_finished() && !second.is_finished(), "three of four");
        let other = curator.send(format!("denter {}", theirs[1]));
        let (first, second) = (done("the first", first).await, done("the second", second).await);
        one.reply().await.ok();
        other.reply().await.ok();
        let mut one = curator.send(format!("dleave {}", theirs[0]));
        let first = leaving(first);
        // A member that is not the lowest has deleted its node.
        assert!(one.is_pending() && !first.is_finished(), "two are inside");
        let (second, other) = (leaving(second), curator.send(format!("dleave {}", theirs[1])));
        done("the first", first).await;
        done("the second", second).await;
        one.reply().await.ok();
        other.reply().await.ok();
        let left = fixture.children(path, 0).await;
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
    curator.close().await;
    a.close().await.unwrap();
}

/// Both sides count at once; ours is cut off between two increments, again and again.
#[tokio::test]
async fn ten_thousand_increments_of_both_sides_are_counted_once() {
    const EACH: i64 = 5_000;
    let Some((fixture, curator)) = with_curator().await else { return };
    let (a, tap) = fixture.client("A").await;
    fixture.tap.keep(1000);
    let path = &fixture.path;
    let counter = DistributedAtomicLong::with_options(&a, path, options(10_000)).unwrap();
    let theirs = curator.send(format!("arun along:{path} {EACH}"));
    for number in 1..=EACH {
        changed(counter.increment().await);
        if number % 250 == 0 {
            tap.cut();
            // The cut hits no increment: the connection is seen to be lost before the next one.
            let _ = a.sync("/").await;
        }
    }
    let counted = tokio::time::timeout(ms(300_000), theirs.reply()).await.unwrap();
    assert_eq!(counted.ok(), EACH.to_string());
    assert_eq!(counter.get().await.unwrap().pre_value, 2 * EACH);
    assert_eq!(curator.ask(format!("aget along:{path}")).await.ok(), "true 10000 10000");
    // With lost requests and replies, the outcome of some is unknown; none is counted twice.
    fixture.tap.seed(7);
    let often = |fault: Fault| fault.of("A").times(u32::MAX).one_in(20);
    fixture.tap.inject(often(Fault::drop_reply(OpCode::SetData)));
    fixture.tap.inject(often(Fault::drop_before(OpCode::SetData)));
    let theirs = curator.send(format!("arun along:{path} 1000"));
    let (mut counted, mut unknown) = (0, 0);
    for _ in 0..200 {
        match within_deadline("an increment", counter.increment()).await {
            Ok(value) => counted += i64::from(value.succeeded()),
            Err(error) if error.outcome() == Outcome::Unknown => unknown += 1,
            Err(error) => panic!("{error}"),
        }
    }
    fixture.tap.clear_faults();
    assert_eq!(theirs.reply().await.ok(), "1000");
    a.wait_until_connected(ms(60_000)).await.unwrap();
    let sum = counter.get().await.unwrap().pre_value - 2 * EACH - 1000;
    assert!((counted..=counted + unknown).contains(&sum), "{sum}: {counted} and {unknown}");
    curator.close().await;
    a.close().await.unwrap();
}

/// The bytes are the same, also of negative numbers.
#[tokio::test]
async fn each_side_reads_the_other_sides_numbers() {
    let Some((fixture, curator)) = with_curator().await else { return };
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
    a.close().await.unwrap();
}
