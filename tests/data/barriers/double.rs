//! Double barriers: entering and leaving, alone and with others.

use std::time::{Duration, Instant};

use docent::{
    AtomicOptions, Client, CreateMode, DistributedAtomicLong, DistributedDoubleBarrier, ErrorKind,
    OpCode,
};
use tokio::task::JoinHandle;

use super::{ms, requests};
use crate::{
    atomic::lock_options,
    support::{eventually, fixture::Fixture, pending_and_watches, within_deadline},
};

on_both_servers! {
    members_enter_and_leave_together
    members_of_many_clients_enter_and_leave_again_and_again
    a_member_too_many_passes
    a_member_alone_needs_no_other
    a_timed_enter_of_a_used_object_ends_in_time
    a_timed_leave_is_false_while_another_member_is_inside
    a_member_whose_time_is_up_does_not_count
    a_timed_out_leave_leaves_ready_to_the_others
    a_ready_of_a_former_round_opens_nothing
    children_of_others_do_not_count
    a_round_leaves_no_watch
    a_member_that_is_dropped_inside_leaves
    calls_at_the_wrong_time_are_refused
    a_missing_chroot_is_an_error_of_enter
}

pub(crate) fn member(client: &Client, path: &str, quantity: usize) -> DistributedDoubleBarrier {
    let options = lock_options();
    DistributedDoubleBarrier::with_options(client, path, quantity, options).unwrap()
}

pub(crate) type Entering = JoinHandle<DistributedDoubleBarrier>;

/// Starts to enter.
pub(crate) fn entering(mut member: DistributedDoubleBarrier) -> Entering {
    tokio::spawn(async move {
        member.enter().await.unwrap();
        assert!(member.is_inside());
        member
    })
}

/// Starts to leave.
pub(crate) fn leaving(mut member: DistributedDoubleBarrier) -> Entering {
    tokio::spawn(async move {
        member.leave().await.unwrap();
        assert!(!member.is_inside());
        member
    })
}

pub(crate) async fn done(what: &str, task: Entering) -> DistributedDoubleBarrier {
    within_deadline(what, task).await.unwrap()
}

/// Two members inside.
async fn two_inside(fixture: &Fixture, client: &Client) -> [DistributedDoubleBarrier; 2] {
    let first = entering(member(client, &fixture.path, 2));
    fixture.children(&fixture.path, 1).await;
    let second = entering(member(client, &fixture.path, 2));
    [done("the first", first).await, done("the second", second).await]
}

/// `TestDistributedDoubleBarrier.testBasic`.
async fn members_enter_and_leave_together(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let first = entering(member(&a, &fixture.path, 2));
    let names = fixture.children(&fixture.path, 1).await;
    let node = a.get_data(&format!("{}/{}", fixture.path, names[0])).await.unwrap();
    assert_eq!(&*node.data, b"10.0.0.1");
    assert_ne!(node.stat.ephemeral_owner, 0);
    assert!(!first.is_finished());
    let second = entering(member(&a, &fixture.path, 2));
    let (first, second) = (done("the first", first).await, done("the second", second).await);
    fixture.children(&fixture.path, 3).await;
    let first = leaving(first);
    eventually("the watch", async || (pending_and_watches(&a) == (0, 1)).then_some(())).await;
    assert!(!first.is_finished(), "the other one is inside");
    let second = leaving(second);
    done("the first", first).await;
    done("the second", second).await;
    fixture.children(&fixture.path, 0).await;
    a.close().await.unwrap();
}

/// `testMultiClient`, with the same objects in all rounds.
async fn members_of_many_clients_enter_and_leave_again_and_again(fixture: Fixture) {
    const MEMBERS: usize = 5;
    const ROUNDS: usize = 10;
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for number in 0..MEMBERS {
        use std::sync::atomic::Ordering::SeqCst;
        let (client, tap) = fixture.client(&format!("M{number}")).await;
        let mut member = member(&client, &fixture.path, MEMBERS);
        let inside = std::sync::Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            for round in 0..ROUNDS {
                // Counted before the enter: after it, all have begun to enter this round.
                inside.fetch_add(1, SeqCst);
                member.enter().await.unwrap();
                let begun = inside.load(SeqCst);
                assert!(begun >= (round + 1) * MEMBERS, "{begun} in round {round}");
                member.leave().await.unwrap();
            }
            client.close().await.unwrap();
            drop(tap);
        }));
    }
    for task in tasks {
        within_deadline("a member", task).await.unwrap();
    }
    fixture.children(&fixture.path, 0).await;
}

/// `testOverSubscribed`.
async fn a_member_too_many_passes(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let [first, second] = two_inside(&fixture, &a).await;
    let third = done("the third", entering(member(&a, &fixture.path, 2))).await;
    let leaving = [first, second, third].map(leaving);
    for member in leaving {
        done("a leave", member).await;
    }
    fixture.children(&fixture.path, 0).await;
    a.close().await.unwrap();
}

async fn a_member_alone_needs_no_other(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let mut member = member(&a, &fixture.path, 1);
    for _ in 0..3 {
        assert!(member.enter_timeout(Duration::ZERO).await.unwrap());
        fixture.children(&fixture.path, 2).await;
        assert!(member.leave_timeout(Duration::ZERO).await.unwrap());
        fixture.children(&fixture.path, 0).await;
    }
    a.close().await.unwrap();
}

/// C14: in Curator, it waits without a limit. `time.rs` checks how late it may be.
async fn a_timed_enter_of_a_used_object_ends_in_time(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let [first, second] = two_inside(&fixture, &a).await;
    let (first, second) = (leaving(first), leaving(second));
    let mut first = done("the first", first).await;
    done("the second", second).await;
    let id = first.member_id().to_owned();
    let start = Instant::now();
    let entered = within_deadline("the enter", first.enter_timeout(ms(300))).await.unwrap();
    assert!(!entered && start.elapsed() >= ms(300));
    assert_ne!(first.member_id(), id, "each round has another node");
    fixture.children(&fixture.path, 0).await;
    a.close().await.unwrap();
}

/// C15: in Curator, it is true if the own node is deleted and one other is left.
async fn a_timed_leave_is_false_while_another_member_is_inside(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let [first, second] = two_inside(&fixture, &a).await;
    let (mut low, mut high) =
        if first.member_id() < second.member_id() { (first, second) } else { (second, first) };
    // The member that is not the lowest deletes its node, and waits for the lowest.
    assert!(!high.leave_timeout(ms(200)).await.unwrap());
    let names = fixture.children(&fixture.path, 2).await;
    assert!(names.iter().any(|name| name == low.member_id()), "{names:?}");
    assert!(low.leave_timeout(ms(5000)).await.unwrap());
    fixture.children(&fixture.path, 0).await;
    a.close().await.unwrap();
}

/// C16: in Curator, its node stays, and the next member passes with it.
async fn a_member_whose_time_is_up_does_not_count(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let mut first = member(&a, &fixture.path, 2);
    assert!(!first.enter_timeout(ms(200)).await.unwrap());
    fixture.children(&fixture.path, 0).await;
    let mut second = member(&a, &fixture.path, 2);
    assert!(!second.enter_timeout(ms(200)).await.unwrap());
    fixture.children(&fixture.path, 0).await;
    a.close().await.unwrap();
}

/// C17: in Curator, it deletes `ready` and leaves its own node.
async fn a_timed_out_leave_leaves_ready_to_the_others(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    for lowest_first in [true, false] {
        let [first, second] = two_inside(&fixture, &a).await;
        let is_first = (first.member_id() < second.member_id()) == lowest_first;
        let (mut one, other) = if is_first { (first, second) } else { (second, first) };
        assert!(!one.leave_timeout(ms(200)).await.unwrap());
        let mut names = fixture.children(&fixture.path, 2).await;
        names.sort_unstable();
        assert_eq!(names, [other.member_id(), "ready"]);
        done("the other", leaving(other)).await;
        fixture.children(&fixture.path, 0).await;
    }
    a.close().await.unwrap();
}

/// C18: in Curator, a `ready` that survived a crash of all members opens every later round.
async fn a_ready_of_a_former_round_opens_nothing(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let ready = format!("{}/ready", fixture.path);
    a.create(&ready, b"", CreateMode::Persistent).await.unwrap();
    let mut alone = member(&a, &fixture.path, 2);
    assert!(!alone.enter_timeout(ms(200)).await.unwrap());
    // Both have to enter, and the second wakes the first.
    let first = entering(alone);
    fixture.children(&fixture.path, 2).await;
    eventually("the watches", async || (pending_and_watches(&a) == (0, 2)).then_some(())).await;
    assert!(!first.is_finished());
    let second = entering(member(&a, &fixture.path, 2));
    let (first, second) = (done("the first", first).await, done("the second", second).await);
    let (first, second) = (leaving(first), leaving(second));
    done("the first", first).await;
    done("the second", second).await;
    fixture.children(&fixture.path, 0).await;
    a.close().await.unwrap();
}

/// C18: in Curator, they count, and a leave waits for them for ever.
async fn children_of_others_do_not_count(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    for name in ["0-low", "foreign"] {
        let path = format!("{}/{name}", fixture.path);
        a.create(&path, b"", CreateMode::Persistent).await.unwrap();
    }
    let mut alone = member(&a, &fixture.path, 2);
    assert!(!alone.enter_timeout(ms(200)).await.unwrap());
    let first = entering(alone);
    fixture.children(&fixture.path, 3).await;
    let second = entering(member(&a, &fixture.path, 2));
    let (first, second) = (done("the first", first).await, done("the second", second).await);
    let (first, second) = (leaving(first), leaving(second));
    done("the first", first).await;
    done("the second", second).await;
    fixture.children(&fixture.path, 2).await;
    a.close().await.unwrap();
}

/// C19: in Curator, the watches on `ready` and on neighbours stay.
async fn a_round_leaves_no_watch(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let mut alone = member(&a, &fixture.path, 2);
    assert!(!alone.enter_timeout(ms(100)).await.unwrap());
    let [first, second] = two_inside(&fixture, &a).await;
    let (first, second) = (leaving(first), leaving(second));
    done("the first", first).await;
    done("the second", second).await;
    eventually("no watch", async || (pending_and_watches(&a) == (0, 0)).then_some(())).await;
    let observer = fixture.observer().await;
    let before = fixture.tap.len();
    // The parent may have been removed: it is a container.
    fixture.create_path(&observer).await;
    let ready = format!("{}/ready", fixture.path);
    observer.create(&ready, b"", CreateMode::Persistent).await.unwrap();
    a.sync("/").await.unwrap();
    a.exists("/").await.unwrap();
    let text = fixture.tap.trace().since(before).of("A").text();
    assert!(!text.contains("EVENT"), "{text}");
    a.close().await.unwrap();
}

async fn a_member_that_is_dropped_inside_leaves(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let [first, second] = two_inside(&fixture, &a).await;
    drop(first);
    fixture.children(&fixture.path, 2).await;
    drop(second);
    fixture.children(&fixture.path, 0).await;
    a.close().await.unwrap();
}

async fn calls_at_the_wrong_time_are_refused(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let bad = |error: docent::Error| assert_eq!(error.kind(), ErrorKind::BadArguments, "{error}");
    bad(DistributedDoubleBarrier::new(&a, &fixture.path, 0).unwrap_err());
    let before = fixture.tap.len();
    let mut member = member(&a, &fixture.path, 1);
    bad(member.leave().await.unwrap_err());
    assert_eq!(requests(&fixture, "A", before), Vec::<OpCode>::new());
    member.enter().await.unwrap();
    bad(member.enter().await.unwrap_err());
    member.leave().await.unwrap();
    a.close().await.unwrap();
}

async fn a_missing_chroot_is_an_error_of_enter(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let client = a.with_chroot(&fixture.path).unwrap();
    let mut barrier = member(&client, "/barrier", 1);
    let error = within_deadline("the error", barrier.enter()).await.unwrap_err();
    assert!(error.is_missing_chroot(), "{error}");
    let counter =
        DistributedAtomicLong::with_options(&client, "/counter", AtomicOptions::default());
    let counter = counter.unwrap();
    let error = within_deadline("the error", counter.increment()).await.unwrap_err();
    assert!(error.is_missing_chroot(), "{error}");
}
