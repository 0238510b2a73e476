//! Double barriers under faults: cuts, lost requests and replies, lost sessions, dropped futures.

use super::double::{both, both_leave, done, member, spawn_enter, spawn_leave};
use crate::*;
use docent::{CreateOptions, ErrorKind, Perms};

on_both_servers! {
    a_barrier_is_not_opened_in_another_session
    a_barrier_is_counted_again_before_it_is_opened_again
    a_member_that_enters_again_is_not_waited_for
    a_member_that_comes_late_keeps_ready
    a_member_that_comes_late_passes_a_node_that_was_there
    an_opening_that_is_over_ends_a_wait
    every_request_and_every_reply_may_be_lost
    a_refused_second_create_does_not_forget_the_first
    an_enter_is_dropped_at_every_poll
    an_enter_that_completes_is_dropped_at_every_poll
    a_leave_is_dropped_at_every_poll
}

/// The session of the member that completes the count ends before it has created `ready`, and the other member leaves.
// Case (Found in docent itself): a member of a double barrier repeated the create of `ready` in its
// next session: the barrier opened for a member that came alone.
async fn a_barrier_is_not_opened_in_another_session(fixture: Fixture) {
    let ((a, _tap_a), (b, tap)) = (fixture.client("A").await, fixture.client("B").await);
    let first = spawn_enter(member(&a, &fixture.path, 2));
    fixture.children(&fixture.path, 1).await;
    has_watches(&a, 2).await;
    fixture.tap.inject(Fault::drop_before(OpCode::Create2).of("B").nth(2));
    let mut records = fixture.tap.subscribe();
    let second = spawn_enter(member(&b, &fixture.path, 2));
    records.until(DEADLINE, request("B", OpCode::Create2)).await.unwrap();
    tap.refuse().await.unwrap();
    records.until(DEADLINE, request("B", OpCode::Create2)).await.unwrap();
    tap.kill_session(DEADLINE).await.unwrap();
    first.abort();
    fixture.children(&fixture.path, 0).await;
    tap.accept().await.unwrap();
    let alone = fixture.children(&fixture.path, 1).await;
    assert_ne!(alone, ["ready"]);
    assert!(!second.is_finished());
    let first = spawn_enter(member(&a, &fixture.path, 2));
    let [first, second] = both(first, second).await;
    both_leave(first, second).await;
}

/// `ready` is created without a reply. While the connection is broken, the other member leaves, and `ready` goes.
// Case (Found in docent itself): a member of a double barrier repeated the create of `ready` without
// a new count after a lost reply: the barrier opened for fewer members than it is for.
async fn a_barrier_is_counted_again_before_it_is_opened_again(fixture: Fixture) {
    let ((a, tap), (b, _tap_b)) = (fixture.client("A").await, fixture.client("B").await);
    let [other, ready] = ["00000000-0000-4000-8000-000000000000", "ready"]
        .map(|name| format!("{}/{name}", fixture.path));
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    b.create(&other, b"", options).await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A").nth(2));
    let mut records = fixture.tap.subscribe();
    let first = spawn_enter(member(&a, &fixture.path, 2));
    records.until(DEADLINE, request("A", OpCode::Create2)).await.unwrap();
    tap.refuse().await.unwrap();
    records.until(DEADLINE, request("A", OpCode::Create2)).await.unwrap();
    fixture.children(&fixture.path, 3).await;
    b.delete(&ready, None).await.unwrap();
    b.delete(&other, None).await.unwrap();
    tap.accept().await.unwrap();
    has_watches(&a, 2).await;
    assert!(!first.is_finished());
    let second = spawn_enter(member(&b, &fixture.path, 2));
    let [first, second] = both(first, second).await;
    both_leave(first, second).await;
}

/// A refusal does not settle the outcome of an earlier create.
async fn a_refused_second_create_does_not_forget_the_first(fixture: Fixture) {
    let ((a, tap), operator) = (fixture.client("A").await, fixture.observer().await);
    fixture.create_path(&operator).await;
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
    tap.refuse().await.unwrap();
    let mut first = member(&a, &fixture.path, 2);
    let entering = tokio::spawn(async move { first.enter().await });
    fixture.children(&fixture.path, 1).await;
    fixture.forbid(&operator, &fixture.path, Perms::CREATE).await;
    tap.accept().await.unwrap();
    let error = within_deadline("the refusal", entering).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
    fixture.children(&fixture.path, 0).await;
}

/// The last member enters the next round before the others have seen that it has left.
async fn a_member_that_enters_again_is_not_waited_for(fixture: Fixture) {
    let ((a, _tap), (b, tap_b)) = (fixture.client("A").await, fixture.client("B").await);
    let (low, high) = loop {
        let (low, high) = (member(&a, &fixture.path, 2), member(&b, &fixture.path, 2));
        if low.member_id() < high.member_id() {
            break (low, high);
        }
    };
    let (low, high) = (spawn_enter(low), spawn_enter(high));
    let [low, high] = both(low, high).await;
    let high = spawn_leave(high);
    fixture.children(&fixture.path, 2).await;
    has_no_request(&b).await;
    tap_b.stall();
    let low = done("the lowest", spawn_leave(low)).await;
    let low = spawn_enter(low);
    fixture.children(&fixture.path, 1).await;
    tap_b.resume();
    let high = done("the highest", high).await;
    let high = spawn_enter(high);
    drop(both(low, high).await);
    fixture.children(&fixture.path, 0).await;
}

/// The last member of a round leaves while one is inside that came after its first look.
async fn a_member_that_comes_late_keeps_ready(fixture: Fixture) {
    let ((a, _tap), operator) = (fixture.client("A").await, fixture.observer().await);
    let first = spawn_enter(member(&a, &fixture.path, 2));
    let before = fixture.children(&fixture.path, 1).await;
    let second = spawn_enter(member(&a, &fixture.path, 2));
    let [first, second] = both(first, second).await;
    let first = spawn_leave(first);
    has_no_request(&a).await;
    let late = done("the late member", spawn_enter(member(&a, &fixture.path, 2))).await;
    let own = format!("{}/{}", fixture.path, second.member_id());
    operator.delete(&own, None).await.unwrap();
    done("the last member of the round", first).await;
    let left = fixture.children(&fixture.path, 2).await;
    assert!(
        left.iter().any(|name| name == "ready") && !before.iter().any(|name| left.contains(name))
    );
    done("the late member", spawn_leave(late)).await;
    fixture.children(&fixture.path, 0).await;
}

/// `ready` was left by a former round. This round has written it, and two of its members are gone.
async fn a_member_that_comes_late_passes_a_node_that_was_there(fixture: Fixture) {
    let ((a, _tap), operator) = (fixture.client("A").await, fixture.observer().await);
    fixture.create_path(&operator).await;
    let ready = format!("{}/ready", fixture.path);
    operator.create(&ready, b"", CreateMode::Persistent).await.unwrap();
    let third = spawn_enter(member(&a, &fixture.path, 3));
    let others = [(); 2].map(|()| spawn_enter(member(&a, &fixture.path, 3)));
    let third = done("the third", third).await;
    for other in others {
        drop(done("another", other).await);
    }
    fixture.children(&fixture.path, 2).await;
    let late = done("the late member", spawn_enter(member(&a, &fixture.path, 3))).await;
    both_leave(third, late).await;
    fixture.children(&fixture.path, 0).await;
}

/// `ready` is created and deleted before the waiting member can look.
async fn an_opening_that_is_over_ends_a_wait(fixture: Fixture) {
    let ((a, tap), operator) = (fixture.client("A").await, fixture.observer().await);
    let waiting = spawn_enter(member(&a, &fixture.path, 2));
    has_watches(&a, 2).await;
    tap.stall();
    let ready = format!("{}/ready", fixture.path);
    operator.create(&ready, b"", CreateMode::Persistent).await.unwrap();
    operator.delete(&ready, None).await.unwrap();
    tap.resume();
    let inside = done("the member", waiting).await;
    done("the member", spawn_leave(inside)).await;
    fixture.children(&fixture.path, 0).await;
}

async fn every_request_and_every_reply_may_be_lost(fixture: Fixture) {
    let ((a, _tap), (b, _tap_b)) = (fixture.client("A").await, fixture.client("B").await);
    let ops = [
        OpCode::Exists,
        OpCode::Create2,
        OpCode::GetChildren2,
        OpCode::Delete,
        OpCode::Multi,
        OpCode::RemoveWatches,
    ];
    let (mut first, mut second) = (member(&a, &fixture.path, 2), member(&b, &fixture.path, 2));
    for op in ops {
        for nth in 1..=2 {
            for lose in [Fault::drop_reply, Fault::drop_before] {
                fixture.tap.inject(lose(op).of("A").nth(nth));
                fixture.tap.inject(lose(op).of("B").nth(nth));
                let what = format!("{op:?} {nth}");
                let entered = (spawn_enter(first), spawn_enter(second));
                let inside = (done(&what, entered.0).await, done(&what, entered.1).await);
                let left = (spawn_leave(inside.0), spawn_leave(inside.1));
                (first, second) = (done(&what, left.0).await, done(&what, left.1).await);
                fixture.tap.clear_faults();
                fixture.children(&fixture.path, 0).await;
            }
        }
    }
}

async fn settled(fixture: &Fixture, client: &Client) {
    fixture.children(&fixture.path, 0).await;
    has_watches(client, 0).await;
}

async fn an_enter_is_dropped_at_every_poll(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let mut first = member(&a, &fixture.path, 2);
    for polls in 1..20 {
        let attempt = tokio::time::timeout(ms(100), poll_at_most(polls, first.enter())).await;
        assert!(attempt.ok().flatten().is_none());
        settled(&fixture, &a).await;
    }
}

async fn an_enter_that_completes_is_dropped_at_every_poll(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    for polls in 1.. {
        let mut first = member(&a, &fixture.path, 1);
        let entered = poll_at_most(polls, first.enter()).await;
        drop(first);
        settled(&fixture, &a).await;
        if let Some(entered) = entered {
            return entered.unwrap();
        }
    }
}

async fn a_leave_is_dropped_at_every_poll(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    for others in [0, 1] {
        for polls in 1..20 {
            let mut first = member(&a, &fixture.path, 1);
            first.enter().await.unwrap();
            let mut second = member(&a, &fixture.path, 1);
            if others == 1 {
                second.enter().await.unwrap();
            }
            let left = tokio::time::timeout(ms(100), poll_at_most(polls, first.leave())).await;
            assert!(!first.is_inside());
            assert!(others == 0 || left.ok().flatten().is_none());
            assert!(others == 0 || second.leave_timeout(Duration::from_secs(10)).await.unwrap());
            settled(&fixture, &a).await;
        }
    }
}
