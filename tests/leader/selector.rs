//! The selector. Tests ported from Curator's `TestLeaderSelector` have the Java name above them.

use docent::leader::Term;

use super::*;
use crate::support::has_no_request;

on_both_servers! {
    a_term_that_watches_is_dropped_when_its_node_is_deleted
    an_idle_leader_and_its_waiter_send_nothing
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
