//! The selector. Tests ported from Curator's `TestLeaderSelector` have the Java name above them.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use docent::{
    Client, ErrorKind, LeaderSelector, Leadership, OpCode, Perms, Term, acl,
    recipes::locks::InterProcessMutex,
};
use docent_testing::tap::Record;
use tokio::sync::{mpsc, oneshot};

use crate::{
    Fixture, options, requests,
    support::{
        DEADLINE, eventually,
        given_up_session::{give_up_session, short_session, without_expiry},
        pending_and_watches, within_deadline,
    },
};

on_both_servers! {
    a_selector_leads_for_the_time_of_a_future
    two_selectors_take_turns
    a_term_is_dropped_when_the_connection_is_lost
    a_waiting_selector_survives_a_cut
    a_dropped_run_leaves_the_election
    a_refused_create_ends_the_run_without_a_loop
    a_term_that_watches_is_dropped_when_its_node_is_deleted
    an_idle_leader_and_its_waiter_send_nothing
}

fn selector(fixture: &Fixture, client: &Client, id: &str) -> LeaderSelector {
    LeaderSelector::with_options(client, &fixture.path, id, options()).unwrap()
}

type Running = tokio::task::JoinHandle<Result<Term<u32>, docent::Error>>;

/// A selector that runs one term in a task: the leadership, and what ends the term.
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

/// `TestLeaderSelector.testLeaderNodeDeleteOnInterrupt`, `testInterruptLeadership`.
async fn a_selector_leads_for_the_time_of_a_future(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let before = fixture.tap.len();
    let selector = selector(&fixture, &a, "idA");
    let (leadership, end, running) = one_term(&selector);
    let leadership = within_deadline("the term", leadership).await.unwrap();
    assert!(leadership.is_held() && selector.current_leadership().is_some());
    assert_eq!(requests(&fixture, "A", before), [OpCode::Create2, OpCode::GetChildren2]);
    assert_eq!(&*a.get_data(leadership.path()).await.unwrap().data, b"idA");
    let stat = a.exists(leadership.path()).await.unwrap().unwrap();
    assert_eq!(leadership.fencing_token().await.unwrap(), stat.czxid);
    assert_eq!(selector.leader().await.unwrap().unwrap().id, "idA");
    end.send(42).unwrap();
    let term = within_deadline("the end", running).await.unwrap().unwrap();
    assert_eq!(term, Term::Completed(42));
    assert!(!leadership.is_held() && selector.current_leadership().is_none());
    fixture.children(&fixture.path, 0).await;
}

/// `TestLeaderSelector.testAutoRequeue`, `testRotatingLeadership`.
async fn two_selectors_take_turns(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    let (b, _b) = fixture.client("B").await;
    let leaders = Arc::new(AtomicUsize::new(0));
    let (report, mut reports) = mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for (client, id) in [(&a, "a"), (&b, "b")] {
        let selector = selector(&fixture, client, id);
        let (leaders, report) = (Arc::clone(&leaders), report.clone());
        tasks.push(tokio::spawn(async move {
            let (selector, report, leaders) = (&selector, &report, &leaders);
            let term = |leadership: Leadership| async move {
                assert_eq!(leaders.fetch_add(1, Ordering::SeqCst), 0, "two leaders");
                report.send((id, leadership.fencing_token().await.unwrap())).unwrap();
                let terms = leadership.epoch();
                // The other one has queued by then.
                while selector.participants().await.unwrap().len() < 2 && terms < 5 {}
                leaders.fetch_sub(1, Ordering::SeqCst);
                if terms == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            selector.run_requeued(term).await
        }));
    }
    drop(report);
    for task in tasks {
        within_deadline("the terms", task).await.unwrap().unwrap();
    }
    let mut terms = Vec::new();
    while let Some(term) = reports.recv().await {
        terms.push(term);
    }
    assert_eq!(terms.len(), 10);
    assert!(terms.windows(2).all(|pair| pair[0].1 < pair[1].1), "tokens rise: {terms:?}");
    assert!(terms[..8].windows(2).all(|pair| pair[0].0 != pair[1].0), "turns: {terms:?}");
    fixture.children(&fixture.path, 0).await;
}

/// L11: Curator's selector can only ask its listener to end. `TestLeaderSelector.testErrorPolicies`.
async fn a_term_is_dropped_when_the_connection_is_lost(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let ours = selector(&fixture, &a, "a");
    let (leadership, _end, running) = one_term(&ours);
    let leadership = within_deadline("the term", leadership).await.unwrap();
    tap.cut();
    let term = within_deadline("the end", running).await.unwrap().unwrap();
    assert_eq!(term, Term::Lost);
    assert!(!leadership.is_held());
    fixture.children(&fixture.path, 0).await;
}

/// L12: in Curator, a waiting participant leaves the election silently.
async fn a_waiting_selector_survives_a_cut(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    let (b, tap) = fixture.client("B").await;
    let (first, end, running) = one_term(&selector(&fixture, &a, "a"));
    within_deadline("the first term", first).await.unwrap();
    let (second, end_second, running_second) = one_term(&selector(&fixture, &b, "b"));
    let nodes = fixture.children(&fixture.path, 2).await;
    eventually("B watches", async || (b.metrics().watches == 1).then_some(())).await;
    let before = fixture.tap.len();
    tap.cut();
    eventually("the listing and the watch", async || {
        let sent = requests(&fixture, "B", before);
        sent.ends_with(&[OpCode::GetChildren2, OpCode::GetData]).then_some(())
    })
    .await;
    let mut now = fixture.children(&fixture.path, 2).await;
    now.sort_unstable();
    let mut nodes = nodes;
    nodes.sort_unstable();
    assert_eq!(now, nodes, "the places are kept");
    end.send(1).unwrap();
    within_deadline("the end", running).await.unwrap().unwrap();
    within_deadline("the second term", second).await.unwrap();
    end_second.send(2).unwrap();
    let term = within_deadline("the end", running_second).await.unwrap().unwrap();
    assert_eq!(term, Term::Completed(2));
}

/// `TestLeaderSelector.testClosing`. L13: nothing leads after the drop.
async fn a_dropped_run_leaves_the_election(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    let ours = selector(&fixture, &a, "a");
    let (leadership, _end, running) = one_term(&ours);
    let leadership = within_deadline("the term", leadership).await.unwrap();
    let token = leadership.cancellation_token();
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(!leadership.is_held() && token.is_cancelled());
    assert!(ours.current_leadership().is_none());
    fixture.children(&fixture.path, 0).await;
}

/// L15: in Curator, a selector with autoRequeue sends more than a thousand creates a second.
async fn a_refused_create_ends_the_run_without_a_loop(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let only_read = [docent::Acl { perms: Perms::READ, id: acl::OPEN_ACL_UNSAFE[0].id }];
    a.set_acl(&fixture.path, &only_read, None).await.unwrap();
    let before = fixture.tap.len();
    let ours = selector(&fixture, &a, "a");
    let term = |_leadership: Leadership| async { ControlFlow::Break(()) };
    let error = within_deadline("the refusal", ours.run_requeued(term)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
    assert_eq!(requests(&fixture, "A", before), [OpCode::Create2]);
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

async fn an_idle_leader_and_its_waiter_send_nothing(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    let (b, _b) = fixture.client("B").await;
    let (first, end, running) = one_term(&selector(&fixture, &a, "a"));
    within_deadline("the first term", first).await.unwrap();
    let (second, end_second, running_second) = one_term(&selector(&fixture, &b, "b"));
    eventually("B watches", async || (pending_and_watches(&b) == (0, 1)).then_some(())).await;
    eventually("A is idle", async || (pending_and_watches(&a).0 == 0).then_some(())).await;
    let before = fixture.tap.len();
    // Of each two pings: two thirds of the session timeout.
    for label in ["A", "B"] {
        let mut records = fixture.tap.subscribe_from(before);
        for _ in 0..2 {
            let ping = |r: &Record| &*r.client == label && r.is_request(OpCode::Ping);
            records.until(DEADLINE, ping).await.unwrap();
        }
    }
    for label in ["A", "B"] {
        assert_eq!(requests(&fixture, label, before), [], "{label}");
    }
    end.send(1).unwrap();
    within_deadline("the end", running).await.unwrap().unwrap();
    within_deadline("the second term", second).await.unwrap();
    end_second.send(2).unwrap();
    within_deadline("the end", running_second).await.unwrap().unwrap();
}

/// L26, N2: in Curator, a waiter can win on the node of its dead session.
#[tokio::test]
async fn a_waiting_selector_does_not_adopt_the_node_of_its_dying_session() {
    let (fixture, server) = without_expiry().await;
    let (a, _a) = fixture.client("A").await;
    let (b, tap) = short_session(&fixture, "B").await;
    let holder = InterProcessMutex::new(&a, &fixture.path).unwrap().acquire().await.unwrap();
    let (second, end, running) = one_term(&selector(&fixture, &b, "b"));
    eventually("B watches", async || (b.metrics().watches == 1).then_some(())).await;
    let old_session = b.session().unwrap().session_id();
    give_up_session(&b, &tap).await;
    assert!(server.session_ids().contains(&old_session), "the server still has it");
    holder.release().await.unwrap();
    let leadership = within_deadline("the term", second).await.unwrap();
    assert_ne!(leadership.session_id(), old_session);
    let stat = b.exists(leadership.path()).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, leadership.session_id());
    end.send(0).unwrap();
    within_deadline("the end", running).await.unwrap().unwrap();
}
