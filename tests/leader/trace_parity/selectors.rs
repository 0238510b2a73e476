//! Selectors.

use docent::{LeaderSelector, Term};
use tokio::sync::oneshot;

use super::*;

type Running = tokio::task::JoinHandle<Result<Term<()>, docent::Error>>;

/// A selector that runs one term in a task: what reports its begin, what ends it, and its result.
fn term(selector: &LeaderSelector) -> (oneshot::Receiver<()>, oneshot::Sender<()>, Running) {
    let (begun, begins) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let selector = selector.clone();
    let running = tokio::spawn(async move {
        let work = |_| async move {
            begun.send(()).unwrap();
            let _ = ended.await;
        };
        selector.run(work).await
    });
    (begins, end, running)
}

fn selector(scenario: &Scenario, client: &Client, path: &str, id: &str) -> LeaderSelector {
    let path = format!("{}{path}", scenario.root);
    LeaderSelector::with_options(client, &path, id, Scenario::options()).unwrap()
}

#[tokio::test]
async fn r21_selectors_take_turns() {
    let scenario = Scenario::start("R21-selector-two-terms").await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let first = selector(&scenario, &a, "/sel", "idA");
    let second = selector(&scenario, &b, "/sel", "idB");
    let (a1, end_a1, task_a1) = term(&first);
    within_deadline("A's first term", a1).await.unwrap();
    let (b1, end_b1, task_b1) = term(&second);
    scenario.watches("B", 1).await;
    Scenario::settled(&b).await;
    assert_eq!(first.participants().await.unwrap().len(), 2);
    assert_eq!(first.leader().await.unwrap().unwrap().id, "idA");
    end_a1.send(()).unwrap();
    within_deadline("the end", task_a1).await.unwrap().unwrap();
    let (a2, _end_a2, task_a2) = term(&first);
    within_deadline("B's first term", b1).await.unwrap();
    // The three reads of the queries, and the watch.
    scenario.watches("A", 4).await;
    Scenario::settled(&a).await;
    end_b1.send(()).unwrap();
    within_deadline("the end", task_b1).await.unwrap().unwrap();
    within_deadline("A's second term", a2).await.unwrap();
    let (b2, _end_b2, task_b2) = term(&second);
    scenario.watches("B", 2).await;
    Scenario::settled(&b).await;
    task_a2.abort();
    within_deadline("B's second term", b2).await.unwrap();
    task_b2.abort();
    scenario.replies("B", OpCode::Delete, 2).await;
    Scenario::settled(&b).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test]
async fn r22_a_leading_selector_is_cut() {
    let scenario = Scenario::start("R22-selector-leader-cut").await;
    two_selectors(&scenario, async |ta: &TapClient| ta.cut()).await;
    scenario.assert_equal();
}

#[tokio::test]
async fn r24_a_leading_selectors_session_is_killed() {
    let scenario = Scenario::start("R24-selector-leader-session-killed").await;
    two_selectors(&scenario, async |ta: &TapClient| ta.kill_session(DEADLINE).await.unwrap()).await;
    scenario.assert_equal();
}

/// A leads and B waits; then A loses the leadership, queues again, and waits behind B.
async fn two_selectors(scenario: &Scenario, lose: impl AsyncFnOnce(&TapClient)) {
    let ((a, ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let first = selector(scenario, &a, "", "idA");
    let second = selector(scenario, &b, "", "idB");
    let (a1, _end_a1, task_a1) = term(&first);
    within_deadline("A's term", a1).await.unwrap();
    let (b1, _end_b1, _task_b1) = term(&second);
    scenario.watches("B", 1).await;
    Scenario::settled(&b).await;
    lose(&ta).await;
    assert_eq!(within_deadline("the end", task_a1).await.unwrap().unwrap(), Term::Lost);
    let (_a2, _end_a2, _task_a2) = term(&first);
    within_deadline("B's term", b1).await.unwrap();
    scenario.watches("A", 1).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
}

/// L12: in Curator, B leaves the election silently, and A leads again, alone.
#[tokio::test]
async fn r23_a_waiting_selector_is_cut() {
    let scenario = Scenario::start("R23-selector-waiter-cut-leaves-for-ever").await;
    let ((a, _ta), (b, tb)) = (scenario.client("A").await, scenario.client("B").await);
    let (first, second) = (selector(&scenario, &a, "", "idA"), selector(&scenario, &b, "", "idB"));
    let (a1, end_a1, task_a1) = term(&first);
    within_deadline("A's term", a1).await.unwrap();
    let (b1, _end_b1, _task_b1) = term(&second);
    scenario.watches("B", 1).await;
    Scenario::settled(&b).await;
    tb.cut();
    is_suspended(&b).await;
    let mut state = b.state();
    let back = state.wait_for(|state| state.is_some_and(ConnectionState::is_connected));
    within_deadline("the reconnect", back).await.unwrap();
    Scenario::settled(&b).await;
    end_a1.send(()).unwrap();
    within_deadline("the end", task_a1).await.unwrap().unwrap();
    within_deadline("B's term", b1).await.unwrap();
    let (_a2, _end_a2, _task_a2) = term(&first);
    scenario.watches("A", 1).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_differs(&[
        (
            "A -> delete(2) /r23/_c_G1-lock-0000000000
             A -> create2(15) /r23/_c_G3-lock-
             A -> getChildren2(12) /r23",
            "A -> delete(2) /r23/_c_G1-lock-0000000000 v=-1
             A -> create2(15) /r23/_c_G3-lock- data=\"idA\" acl=31:world:anyone flags=3
             A -> getChildren2(12) /r23 watch=false
             A -> getData(4) /r23/_c_G2-lock-0000000001 watch=true",
        ),
        (
            "B -> delete(2) /r23/_c_G2-lock-0000000001
             B -> getChildren2(12) /r23
             B -> getData(4) /r23/_c_G1-lock-0000000000 watch=false",
            "B -> getChildren2(12) /r23 watch=false
             B -> getData(4) /r23/_c_G1-lock-0000000000 watch=true
             B -> getChildren2(12) /r23 watch=false",
        ),
    ]);
}

/// L11: in Curator, the listener of A leads beside B for as long as it likes. The requests are Curator's.
#[tokio::test]
async fn r25_a_stubborn_listener() {
    let scenario = Scenario::start("R25-selector-stubborn-listener").await;
    two_selectors(&scenario, async |ta: &TapClient| ta.kill_session(DEADLINE).await.unwrap()).await;
    scenario.assert_equal();
}

/// L26: in Curator, B leads on the node of its dead session, and C beside it.
#[tokio::test]
async fn r40_a_waiting_selector_gives_its_session_up() {
    let title = "R40-selector-waiter-adopts-dying-node";
    let scenario = Scenario::start_without_expiry(title).await;
    let ((a, _ta), (b, tb)) = (scenario.client("A").await, scenario.client("B").await);
    let (c, _tc) = scenario.client("C").await;
    let [first, second, third] = [(&a, "idA"), (&b, "idB"), (&c, "idC")]
        .map(|(client, id)| selector(&scenario, client, "", id));
    let (a1, end_a1, task_a1) = term(&first);
    within_deadline("A's term", a1).await.unwrap();
    let (_b1, _end_b1, _task_b1) = term(&second);
    scenario.watches("B", 1).await;
    let (c1, _end_c1, _task_c1) = term(&third);
    scenario.watches("C", 1).await;
    Scenario::settled(&c).await;
    give_up_session(&b, &tb).await;
    // Its old node is deleted: C watches A's, and B queues again behind C.
    scenario.watches("B", 3).await;
    scenario.watches("C", 2).await;
    Scenario::settled(&b).await;
    Scenario::settled(&c).await;
    end_a1.send(()).unwrap();
    within_deadline("the end", task_a1).await.unwrap().unwrap();
    within_deadline("C's term", c1).await.unwrap();
    assert!(second.current_leadership().is_none());
    a.close().await.unwrap();
    b.close().await.unwrap();
    c.close().await.unwrap();
    scenario.assert_differs(&[
        (
            "B -> getData(4) /r40/_c_G1-lock-0000000000 watch=true
             B -> getChildren2(12) /r40
             B -> closeSession",
            "B -> getData(4) /r40/_c_G1-lock-0000000000 watch=true
             B -> delete(2) /r40/_c_G2-lock-0000000001 v=-1
             B -> create2(15) /r40/_c_G4-lock- data=\"idB\" acl=31:world:anyone flags=3
             B -> getChildren2(12) /r40 watch=false
             B -> getData(4) /r40/_c_G3-lock-0000000002 watch=true
             B -> closeSession(-11)",
        ),
        (
            "C -> getChildren2(12) /r40
             C -> closeSession",
            "C -> getChildren2(12) /r40 watch=false
             C -> getData(4) /r40/_c_G1-lock-0000000000 watch=true
             C -> getChildren2(12) /r40 watch=false
             C -> closeSession(-11)",
        ),
    ]);
}

/// L13: in Curator, A goes on leading after its close, and does not hear of the end of its session.
#[tokio::test]
async fn r43_a_selector_closes() {
    let title = "R43-selector-closed-while-its-listener-goes-on";
    let scenario = Scenario::start(title).await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let (first, second) = (selector(&scenario, &a, "", "idA"), selector(&scenario, &b, "", "idB"));
    let (a1, _end_a1, task_a1) = term(&first);
    within_deadline("A's term", a1).await.unwrap();
    let (b1, _end_b1, _task_b1) = term(&second);
    scenario.watches("B", 1).await;
    Scenario::settled(&b).await;
    task_a1.abort();
    within_deadline("B's term", b1).await.unwrap();
    assert!(first.current_leadership().is_none());
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> connect sid=prev
         A -> connect sid=0",
        "A -> delete(2) /r43/_c_G1-lock-0000000000 v=-1",
    )]);
}

/// L15: in Curator, some 1,800 creates in a second.
#[tokio::test]
async fn r45_a_create_is_refused() {
    let scenario = Scenario::start("R45-selector-noauth-hot-loop").await;
    let ((o, _to), (a, _ta)) = (scenario.client("O").await, scenario.client("A").await);
    let read = [docent::Acl::new(docent::Perms::READ, "world", "anyone")];
    o.create_with_acl(&scenario.root, b"", CreateMode::Persistent, &read).await.unwrap();
    let selector = selector(&scenario, &a, "", "idA");
    let work = async |_| std::ops::ControlFlow::<()>::Continue(());
    let run = within_deadline("the refusal", selector.run_requeued(work)).await;
    assert_eq!(run.unwrap_err().kind(), docent::ErrorKind::NoAuth);
    o.close().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_differs(&[(
        "A -> create2(15) /r45/_c_G2-lock-
         A -> create2(15) /r45/_c_G3-lock-",
        "",
    )]);
}
