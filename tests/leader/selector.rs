//! The selector. Tests ported from Curator's `TestLeaderSelector` have the Java name above them.

use docent::leader::Term;

use super::*;
use crate::support::has_no_request;

on_both_servers! {
    a_term_begins_with_a_connection
    a_term_that_watches_is_dropped_when_its_node_is_deleted
    a_term_that_ends_late_leaves_the_next_one
    an_idle_leader_and_its_waiter_send_nothing
    the_token_of_a_term_is_cancelled_before_its_delete_is_queued
}

fn selector(fixture: &Fixture, client: &Client, id: &str) -> LeaderSelector {
    LeaderSelector::with_options(client, &fixture.path, id, options()).unwrap()
}

type Running = tokio::task::JoinHandle<Result<Term<u32>, Error>>;

/// Runs one term of a selector in a task. Returns the leadership, the sender that ends the term,
/// and the task.
fn one_term(
    selector: &LeaderSelector,
) -> (oneshot::Receiver<Leadership>, oneshot::Sender<u32>, Running) {
    let (begun, leadership) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let selector = selector.clone();
    let running = tokio::spawn(async move {
        selector
            .run(|leadership| async move {
                begun.send(leadership).unwrap();
                ended.await.unwrap()
            })
            .await
    });
    (leadership, end, running)
}

/// The connection ends right behind the reply that grants the lock: the client reads both at once.
async fn a_term_begins_with_a_connection(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let reply_and_no_frame = |reply: &[u8]| [reply, &[0xff; 4]].concat();
    fixture.tap.inject(Fault::rewrite_reply(OpCode::GetChildren2, reply_and_no_frame).of("A"));
    let selector = selector(&fixture, &a, "a");
    let term = selector.run(|_| async { a.state().get().unwrap() });
    let term = within_deadline("the term", term).await.unwrap();
    assert!(matches!(term, Term::Completed(state) if state.is_connected()), "{term:?}");
}

async fn a_term_that_watches_is_dropped_when_its_node_is_deleted(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let ours = selector(&fixture, &a, "a");
    let (leadership, _end, running) = one_term(&ours);
    let leadership = within_deadline("the term", leadership).await.unwrap();
    let token = leadership.cancellation_token();
    observer.delete(leadership.path(), None).await.unwrap();
    within_deadline("the token", token.cancelled()).await;
    let term = within_deadline("the end", running).await.unwrap().unwrap();
    assert_eq!(term, Term::Lost);
}

/// A term whose node was deleted unseen ends when the next one of its selector has begun.
async fn a_term_that_ends_late_leaves_the_next_one(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let ours = selector(&fixture, &a, "a");
    let (first, end, running) = one_term(&ours);
    let first = within_deadline("the first term", first).await.unwrap();
    fixture.observer().await.delete(first.path(), None).await.unwrap();
    let (second, _end, _running) = one_term(&ours);
    let second = within_deadline("the second term", second).await.unwrap();
    end.send(1).unwrap();
    within_deadline("the end", running).await.unwrap().unwrap();
    assert_eq!(ours.current_leadership().unwrap().epoch(), second.epoch());
}

/// Work outside the term's future stops before another participant can lead, also on another thread.
async fn the_token_of_a_term_is_cancelled_before_its_delete_is_queued(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let ours = selector(&fixture, &a, "a");
    let (begun, leadership) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let mut running = Box::pin(ours.run(|leadership| async {
        begun.send(leadership).unwrap();
        ended.await.unwrap()
    }));
    let leadership = within_deadline("the term", async {
        tokio::select! {
            ended = &mut running => panic!("{ended:?}"),
            leadership = leadership => leadership.unwrap(),
        }
    });
    let token = leadership.await.cancellation_token();
    has_no_request(&a).await;
    let before = a.metrics().requests;
    end.send(1).unwrap();
    // No other task runs before the next await.
    poll_once(&mut running);
    assert!(a.metrics().requests > before, "the delete is queued");
    assert!(token.is_cancelled());
    let term = within_deadline("the end", running).await.unwrap();
    assert_eq!(term, Term::Completed(1));
}

// Case (Leader election and kept nodes): an idle leader, and its waiter.
async fn an_idle_leader_and_its_waiter_send_nothing(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let (first, end, running) = one_term(&selector(&fixture, &a, "a"));
    within_deadline("the first term", first).await.unwrap();
    let (second, end_second, running_second) = one_term(&selector(&fixture, &b, "b"));
    has_watches(&b, 1).await;
    has_no_request(&a).await;
    let before = fixture.tap.len();
    // The time of two pings of each client: two thirds of the session timeout.
    for label in ["A", "B"] {
        let mut records = fixture.tap.subscribe_from(before);
        for _ in 0..2 {
            records.until(DEADLINE, request(label, OpCode::Ping)).await.unwrap();
        }
    }
    for label in ["A", "B"] {
        assert_eq!(fixture.sent(label, before), [], "{label}");
    }
    end.send(1).unwrap();
    within_deadline("the end", running).await.unwrap().unwrap();
    within_deadline("the second term", second).await.unwrap();
    end_second.send(2).unwrap();
    within_deadline("the end", running_second).await.unwrap().unwrap();
}
