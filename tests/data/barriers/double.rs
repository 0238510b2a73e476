//! Double barriers: entering and leaving, alone and with others.

use docent::ErrorKind;

use crate::*;

on_both_servers! {
    a_member_alone_needs_no_other
    a_member_that_is_dropped_inside_leaves
    calls_at_the_wrong_time_are_refused
    a_missing_chroot_is_an_error_of_enter
}

pub(crate) fn member(client: &Client, path: &str, quantity: usize) -> DistributedDoubleBarrier {
    let options = lock_options();
    DistributedDoubleBarrier::with_options(client, path, quantity, options).unwrap()
}

pub(crate) type Entering = JoinHandle<DistributedDoubleBarrier>;

pub(crate) fn spawn_enter(mut member: DistributedDoubleBarrier) -> Entering {
    tokio::spawn(async move {
        member.enter().await.unwrap();
        assert!(member.is_inside());
        member
    })
}

pub(crate) fn spawn_leave(mut member: DistributedDoubleBarrier) -> Entering {
    tokio::spawn(async move {
        member.leave().await.unwrap();
        assert!(!member.is_inside());
        member
    })
}

pub(crate) async fn done(what: &str, task: Entering) -> DistributedDoubleBarrier {
    within_deadline(what, task).await.unwrap()
}

pub(crate) async fn both(first: Entering, second: Entering) -> [DistributedDoubleBarrier; 2] {
    [done("the first", first).await, done("the second", second).await]
}

pub(crate) async fn both_leave(first: DistributedDoubleBarrier, second: DistributedDoubleBarrier) {
    both(spawn_leave(first), spawn_leave(second)).await;
}

/// Two members inside.
async fn two_inside(fixture: &Fixture, client: &Client) -> [DistributedDoubleBarrier; 2] {
    let first = spawn_enter(member(client, &fixture.path, 2));
    fixture.children(&fixture.path, 1).await;
    let second = spawn_enter(member(client, &fixture.path, 2));
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

async fn a_member_that_is_dropped_inside_leaves(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    // The last one has opened the barrier, or has waited for that.
    for last in 0..2 {
        let mut inside = two_inside(&fixture, &a).await;
        inside.rotate_right(1 - last);
        let [first, second] = inside;
        drop(first);
        fixture.children(&fixture.path, 2).await;
        drop(second);
        fixture.children(&fixture.path, 0).await;
    }
}

async fn calls_at_the_wrong_time_are_refused(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let bad = |error: Error| assert_eq!(error.kind(), ErrorKind::BadArguments, "{error}");
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
