//! Double barriers: entering and leaving, alone and with others.

use std::time::Duration;

use docent::{
    AtomicOptions, Client, CreateMode, DistributedAtomicLong, DistributedDoubleBarrier, ErrorKind,
    OpCode,
};
use tokio::task::JoinHandle;

use crate::{
    atomic::lock_options,
    support::{fixture::Fixture, has_watches, ms, within_deadline},
};

on_both_servers! {
    a_member_alone_needs_no_other
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

/// Waits until both members have entered, or left.
pub(crate) async fn both(first: Entering, second: Entering) -> [DistributedDoubleBarrier; 2] {
    [done("the first", first).await, done("the second", second).await]
}

/// Leaves with two members.
pub(crate) async fn both_leave(first: DistributedDoubleBarrier, second: DistributedDoubleBarrier) {
    both(leaving(first), leaving(second)).await;
}

/// Two members inside.
async fn two_inside(fixture: &Fixture, client: &Client) -> [DistributedDoubleBarrier; 2] {
    let first = entering(member(client, &fixture.path, 2));
    fixture.children(&fixture.path, 1).await;
    let second = entering(member(client, &fixture.path, 2));
    both(first, second).await
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
    has_watches(&a, 2).await;
    assert!(!first.is_finished());
    let second = entering(member(&a, &fixture.path, 2));
    let [first, second] = both(first, second).await;
    both_leave(first, second).await;
    fixture.children(&fixture.path, 0).await;
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
    let [first, second] = both(first, second).await;
    both_leave(first, second).await;
    fixture.children(&fixture.path, 2).await;
}

/// C19: in Curator, the watches on `ready` and on neighbours stay.
async fn a_round_leaves_no_watch(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let mut alone = member(&a, &fixture.path, 2);
    assert!(!alone.enter_timeout(ms(100)).await.unwrap());
    let [first, second] = two_inside(&fixture, &a).await;
    both_leave(first, second).await;
    has_watches(&a, 0).await;
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
}

async fn a_member_that_is_dropped_inside_leaves(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let [first, second] = two_inside(&fixture, &a).await;
    drop(first);
    fixture.children(&fixture.path, 2).await;
    drop(second);
    fixture.children(&fixture.path, 0).await;
}

async fn calls_at_the_wrong_time_are_refused(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let bad = |error: docent::Error| assert_eq!(error.kind(), ErrorKind::BadArguments, "{error}");
    bad(DistributedDoubleBarrier::new(&a, &fixture.path, 0).unwrap_err());
    let before = fixture.tap.len();
    let mut member = member(&a, &fixture.path, 1);
    bad(member.leave().await.unwrap_err());
    assert_eq!(fixture.sent("A", before), Vec::<OpCode>::new());
    member.enter().await.unwrap();
    bad(member.enter().await.unwrap_err());
    member.leave().await.unwrap();
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
