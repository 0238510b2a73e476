//! The leader recipes and kept nodes send the same requests as Curator: the same operations, paths, flags, data and
//! watches, in the same order.
//!
//! `../data/curator-leader-traces.txt` was recorded from Curator behind a proxy. Scenarios without a defect of Curator
//! run here behind the tap of `docent-testing`, with the same faults, and are compared client by client. Two differences
//! are allowed everywhere: the claim of a latch is a watching read (L1), and a `sync` precedes a search after a lost
//! reply. `docs/CURATOR.md` lists all scenarios, also those whose wanted behaviour differs, with their tests.

use std::time::Duration;

use docent::{
    Client, CloseMode, Config, ConnectionState, ConnectionStateErrorPolicy, CreateMode,
    LeaderLatch, LeaderOptions, LeaderSelector, LockOptions, NodeEvent, NodeOptions, OpCode,
    PersistentNode, Term, retry::RetryNTimes,
};
use docent_testing::{
    TestingServer,
    fault::Fault,
    server,
    tap::{CompareOptions, Record, Tap, TapClient, compare},
};
use tokio::sync::oneshot;

use crate::{
    ms,
    support::{
        DEADLINE, eventually,
        given_up_session::{config_without_expiry, give_up_session},
        real::unique_path,
        within_deadline,
    },
};

const TRACES: &str = include_str!("../data/curator-leader-traces.txt");

struct Scenario {
    tap: Tap,
    expected: String,
    expected_root: String,
    /// One component, as in the traces: the number of missing parents is part of the scenario.
    root: String,
    session: Duration,
    _server: TestingServer,
}

impl Scenario {
    async fn start(title: &str) -> Self {
        Self::start_on(title, server::Config::default(), Duration::from_secs(20)).await
    }

    /// On a server that expires no session by itself, with a session that the client gives up soon.
    async fn start_without_expiry(title: &str) -> Self {
        let config = config_without_expiry();
        Self::start_on(title, config, Duration::from_secs(2)).await
    }

    async fn start_on(title: &str, config: server::Config, session: Duration) -> Self {
        let server = TestingServer::start_with(config).await.unwrap();
        let start = format!("=== {title}\n");
        let (_, rest) = TRACES.split_once(&start).unwrap_or_else(|| panic!("no scenario {title}"));
        let expected = rest.split("\n=== ").next().unwrap_or_default().to_owned();
        let number = title[1..3].to_owned();
        Self {
            tap: Tap::start(&server.connect_string()).await.unwrap(),
            expected,
            expected_root: format!("/r{number}"),
            root: unique_path(&number).replace('/', "-").replacen('-', "/", 1),
            session,
            _server: server,
        }
    }

    async fn client(&self, label: &str) -> (Client, TapClient) {
        let tap = self.tap.client(label).await.unwrap();
        let config = Config::new(&tap.connect_string()).unwrap();
        let config = config.with_session_timeout(self.session).with_connection_timeout(DEADLINE);
        (config.connect().await.unwrap(), tap)
    }

    fn options() -> LeaderOptions {
        Self::lock_options().into()
    }

    fn lock_options() -> LockOptions {
        let policy = RetryNTimes::new(5, Duration::from_millis(100));
        LockOptions::default().with_retry_policy(policy).with_default_data("10.0.0.1")
    }

    fn latch(&self, client: &Client, id: &str) -> LeaderLatch {
        LeaderLatch::start_with(client, &self.root, id, Self::options()).unwrap()
    }

    fn node(&self, client: &Client, name: &str, mode: CreateMode) -> PersistentNode {
        let options = NodeOptions::default().with_lock_options(Self::lock_options());
        let path = format!("{}/{name}", self.root);
        PersistentNode::start_with(client, &path, mode, "v1", options).unwrap()
    }

    /// A latch of A that leads, and one of B that waits.
    async fn two(&self) -> ([(Client, TapClient); 2], [LeaderLatch; 2]) {
        let (a, b) = (self.client("A").await, self.client("B").await);
        let first = self.latch(&a.0, "idA");
        leads(&first).await;
        let second = self.latch(&b.0, "idB");
        self.watches("B", 1).await;
        ([a, b], [first, second])
    }

    /// Waits until the client has read with a watch this number of times.
    async fn watches(&self, label: &str, count: usize) {
        self.replies(label, OpCode::GetData, count).await;
    }

    async fn replies(&self, label: &str, op: OpCode, count: usize) {
        eventually(&format!("{count} replies to {op:?} of {label}"), async || {
            let trace = self.tap.trace();
            let is_one = |r: &&Record| &*r.client == label && r.is_reply(op);
            (trace.iter().filter(is_one).count() >= count).then_some(())
        })
        .await;
    }

    /// Waits for this number of replies, and until the client has no pending request: the tap sees a reply before the
    /// client.
    async fn settles(&self, client: &Client, label: &str, op: OpCode, count: usize) {
        self.replies(label, op, count).await;
        Self::settled(client).await;
    }

    async fn settled(client: &Client) {
        eventually("no pending request", async || (client.metrics().pending == 0).then_some(()))
            .await;
    }

    /// Closes the clients one after the other, and compares the requests of each.
    async fn end<const N: usize>(&self, clients: [Client; N]) {
        for client in clients {
            client.close().await.unwrap();
        }
        self.assert_equal();
    }

    /// Compares the requests of each client.
    fn assert_equal(&self) {
        let requests = |text: &str| -> String {
            let lines = text.lines().filter(|line| line.contains(" -> ") && !line.contains('#'));
            lines.map(|line| format!("{line}\n")).collect()
        };
        // The outsider of the recording was another program, which prints ACLs in its own way.
        let expected = requests(&self.expected).replace("[world:anyone:r]", "1:world:anyone");
        let actual = without_claim_watches(&requests(&self.tap.trace().text()));
        let options =
            CompareOptions::default().roots(&self.expected_root, &self.root).without("sync");
        if let Err(difference) = compare(&expected, &actual, &options) {
            panic!("{difference}\n\nactual trace:\n{}", self.tap.trace().text());
        }
    }
}

/// Takes the watch off the reads of a client's own nodes.
fn without_claim_watches(requests: &str) -> String {
    let guid = |line: &str| {
        let (_, rest) = line.split_once("_c_")?;
        rest.split('-').next().map(str::to_owned)
    };
    let mut own: Vec<(String, String)> = Vec::new();
    let mut out = String::new();
    for line in requests.lines() {
        let client = line.split(" -> ").next().unwrap_or_default().to_owned();
        let is_own = |guid: String| own.contains(&(client.clone(), guid));
        let claims = line.contains("-> getData(") && guid(line).is_some_and(is_own);
        if line.contains("-> create2(")
            && let Some(guid) = guid(line)
        {
            own.push((client, guid));
        }
        let line = if claims { line.replace("watch=true", "watch=false") } else { line.to_owned() };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

async fn leads(latch: &LeaderLatch) -> docent::Leadership {
    within_deadline("the leadership", latch.leadership()).await.unwrap()
}

async fn is_suspended(client: &Client) {
    let mut state = client.state();
    let suspended = state.wait_for(|state| *state == Some(ConnectionState::Suspended));
    within_deadline("the cut", suspended).await.unwrap();
}

#[tokio::test]
async fn r01_a_latch_alone() {
    let scenario = Scenario::start("R01-latch-alone").await;
    let (a, _tap) = scenario.client("A").await;
    let path = format!("{}/x/latch", scenario.root);
    let first = LeaderLatch::start_with(&a, &path, "idA", Scenario::options()).unwrap();
    leads(&first).await;
    assert_eq!(first.participants().await.unwrap().len(), 1);
    assert_eq!(first.leader().await.unwrap().unwrap().id, "idA");
    first.close().await.unwrap();
    let second = LeaderLatch::start_with(&a, &path, "", Scenario::options()).unwrap();
    leads(&second).await;
    assert_eq!(second.leader().await.unwrap().unwrap().id, "");
    second.close_with(CloseMode::NotifyLeader).await.unwrap();
    scenario.end([a]).await;
}

#[tokio::test]
async fn r02_a_queue_of_three_latches() {
    let scenario = Scenario::start("R02-latch-queue-of-three").await;
    let ([(a, _ta), (b, _tb)], [first, second]) = scenario.two().await;
    let (c, _tc) = scenario.client("C").await;
    let third = scenario.latch(&c, "idC");
    scenario.watches("C", 1).await;
    assert_eq!(third.participants().await.unwrap().len(), 3);
    assert_eq!(third.leader().await.unwrap().unwrap().id, "idA");
    second.close().await.unwrap();
    // Its own watch, the four reads of the queries, and the second watch.
    scenario.settles(&c, "C", OpCode::GetData, 6).await;
    first.close_with(CloseMode::NotifyLeader).await.unwrap();
    leads(&third).await;
    third.close().await.unwrap();
    scenario.end([a, b, c]).await;
}

#[tokio::test]
async fn r04_a_waiters_node_is_deleted() {
    let scenario = Scenario::start("R04-latch-waiter-node-deleted-by-other").await;
    let ([(a, _ta), (b, _tb)], [first, second]) = scenario.two().await;
    let (o, _to) = scenario.client("O").await;
    o.delete(&second.our_path().unwrap(), None).await.unwrap();
    assert_eq!(first.participants().await.unwrap().len(), 1);
    first.close().await.unwrap();
    leads(&second).await;
    scenario.end([a, b, o]).await;
}

#[tokio::test]
async fn r05_a_leader_is_cut_standard_policy() {
    let scenario = Scenario::start("R05-latch-leader-cut-standard-policy").await;
    let ([(a, ta), (b, _tb)], [first, second]) = scenario.two().await;
    ta.cut();
    eventually("A leads again", async || {
        first.current_leadership().filter(|leadership| leadership.epoch() == 2)
    })
    .await;
    a.close().await.unwrap();
    leads(&second).await;
    scenario.end([b]).await;
}

#[tokio::test]
async fn r06_a_leader_is_cut_session_policy() {
    let scenario = Scenario::start("R06-latch-leader-cut-session-policy").await;
    let (a, ta) = scenario.client("A").await;
    let (b, _tb) = scenario.client("B").await;
    let options = Scenario::options().with_error_policy(ConnectionStateErrorPolicy::Session);
    let first = LeaderLatch::start_with(&a, &scenario.root, "idA", options).unwrap();
    let leadership = leads(&first).await;
    let second = scenario.latch(&b, "idB");
    scenario.watches("B", 1).await;
    ta.cut();
    // The claim, and its repetition.
    scenario.settles(&a, "A", OpCode::GetData, 2).await;
    assert!(leadership.is_held());
    a.close().await.unwrap();
    leads(&second).await;
    scenario.end([b]).await;
}

#[tokio::test]
async fn r08_a_leaders_session_is_killed() {
    let scenario = Scenario::start("R08-latch-leader-session-killed-on-server").await;
    let ([(a, ta), (b, _tb)], [_first, second]) = scenario.two().await;
    ta.kill_session(DEADLINE).await.unwrap();
    leads(&second).await;
    // The claim, and the watch on B's node.
    scenario.settles(&a, "A", OpCode::GetData, 2).await;
    scenario.end([a, b]).await;
}

#[tokio::test]
async fn r09_a_leader_gives_its_session_up() {
    let title = "R09-latch-leader-expires-in-client-only";
    let scenario = Scenario::start_without_expiry(title).await;
    let ([(a, ta), (b, _tb)], [_first, second]) = scenario.two().await;
    give_up_session(&a, &ta).await;
    leads(&second).await;
    // The claim, the look at the old node, and the watch on B's node.
    scenario.settles(&a, "A", OpCode::GetData, 3).await;
    scenario.end([a, b]).await;
}

#[tokio::test]
async fn r16_a_predecessor_goes_between_listing_and_watch() {
    let title = "R16-latch-predecessor-goes-between-list-and-watch";
    let scenario = Scenario::start(title).await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let first = scenario.latch(&a, "idA");
    leads(&first).await;
    // Held back until the node is deleted.
    scenario.tap.inject(Fault::delay_reply(OpCode::GetChildren2, ms(1000)).of("B"));
    let second = scenario.latch(&b, "idB");
    let is_listing = |r: &Record| &*r.client == "B" && r.is_request(OpCode::GetChildren2);
    scenario.tap.wait_for(DEADLINE, is_listing).await.unwrap();
    first.close().await.unwrap();
    leads(&second).await;
    scenario.end([a, b]).await;
}

#[tokio::test]
async fn r19_a_latch_closes_while_creating() {
    let scenario = Scenario::start("R19-latch-closed-while-creating").await;
    let ([(a, _ta), (b, _tb)], [_first, second]) = scenario.two().await;
    let (c, _tc) = scenario.client("C").await;
    scenario.tap.inject(Fault::delay_reply(OpCode::Create2, ms(300)).of("C"));
    let third = scenario.latch(&c, "idC");
    let is_create = |r: &Record| &*r.client == "C" && r.is_request(OpCode::Create2);
    scenario.tap.wait_for(DEADLINE, is_create).await.unwrap();
    third.close().await.unwrap();
    a.close().await.unwrap();
    leads(&second).await;
    scenario.end([b, c]).await;
}

#[tokio::test]
async fn r44_a_create_is_refused() {
    let scenario = Scenario::start("R44-latch-noauth-gives-up").await;
    let (o, _to) = scenario.client("O").await;
    let (a, _ta) = scenario.client("A").await;
    let read = [docent::Acl::new(docent::Perms::READ, "world", "anyone")];
    o.create_with_acl(&scenario.root, b"", CreateMode::Persistent, &read).await.unwrap();
    let latch = scenario.latch(&a, "idA");
    within_deadline("the refusal", latch.leadership()).await.unwrap_err();
    assert_eq!(latch.our_path(), None);
    scenario.end([o, a]).await;
}

#[tokio::test]
async fn r50_a_latch_closes_during_an_outage() {
    let scenario = Scenario::start("R50-latch-closed-during-an-outage").await;
    let ([(a, ta), (b, _tb)], [first, second]) = scenario.two().await;
    ta.refuse().await.unwrap();
    ta.cut();
    is_suspended(&a).await;
    let closing = tokio::spawn(first.close());
    assert!(second.current_leadership().is_none());
    ta.accept().await.unwrap();
    leads(&second).await;
    // The retries may be exhausted by then; the background has deleted the node.
    let _ = within_deadline("the close", closing).await.unwrap();
    Scenario::settled(&a).await;
    scenario.end([a, b]).await;
}

#[tokio::test]
async fn r52_a_latch_starts_during_an_outage() {
    let scenario = Scenario::start("R52-latch-started-during-an-outage").await;
    let (o, _to) = scenario.client("O").await;
    o.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    let (a, ta) = scenario.client("A").await;
    ta.refuse().await.unwrap();
    ta.cut();
    is_suspended(&a).await;
    let latch = scenario.latch(&a, "idA");
    ta.accept().await.unwrap();
    leads(&latch).await;
    let (children, _) = o.get_children_with_stat(&scenario.root).await.unwrap();
    assert_eq!(children.len(), 1);
    scenario.end([o, a]).await;
}

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
    scenario.settles(&b, "B", OpCode::GetData, 1).await;
    assert_eq!(first.participants().await.unwrap().len(), 2);
    assert_eq!(first.leader().await.unwrap().unwrap().id, "idA");
    end_a1.send(()).unwrap();
    within_deadline("the end", task_a1).await.unwrap().unwrap();
    let (a2, _end_a2, task_a2) = term(&first);
    within_deadline("B's first term", b1).await.unwrap();
    // The three reads of the queries, and the watch.
    scenario.settles(&a, "A", OpCode::GetData, 4).await;
    end_b1.send(()).unwrap();
    within_deadline("the end", task_b1).await.unwrap().unwrap();
    within_deadline("A's second term", a2).await.unwrap();
    let (b2, _end_b2, task_b2) = term(&second);
    scenario.settles(&b, "B", OpCode::GetData, 2).await;
    task_a2.abort();
    within_deadline("B's second term", b2).await.unwrap();
    task_b2.abort();
    scenario.settles(&b, "B", OpCode::Delete, 2).await;
    scenario.end([a, b]).await;
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
    scenario.settles(&b, "B", OpCode::GetData, 1).await;
    lose(&ta).await;
    assert_eq!(within_deadline("the end", task_a1).await.unwrap().unwrap(), Term::Lost);
    let (_a2, _end_a2, _task_a2) = term(&first);
    within_deadline("B's term", b1).await.unwrap();
    scenario.settles(&a, "A", OpCode::GetData, 1).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test]
async fn r26_the_life_of_a_kept_node() {
    let scenario = Scenario::start("R26-pnode-life").await;
    let (a, _ta) = scenario.client("A").await;
    let node = scenario.node(&a, "x/n", CreateMode::Ephemeral);
    within_deadline("the node", node.created()).await.unwrap();
    // Two of the parents, and the watch.
    scenario.settles(&a, "A", OpCode::Exists, 4).await;
    node.set_data("v2");
    scenario.settles(&a, "A", OpCode::Exists, 5).await;
    node.close().await.unwrap();
    scenario.end([a]).await;
}

#[tokio::test]
async fn r27_a_kept_node_is_deleted_and_overwritten() {
    let scenario = Scenario::start("R27-pnode-deleted-and-overwritten-by-other").await;
    let ((a, _ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    let node = scenario.node(&a, "n", CreateMode::Ephemeral);
    let path = within_deadline("the node", node.created()).await.unwrap();
    scenario.settles(&a, "A", OpCode::Exists, 3).await;
    o.delete(&path, None).await.unwrap();
    scenario.settles(&a, "A", OpCode::Exists, 4).await;
    o.set_data(&path, b"other", None).await.unwrap();
    scenario.settles(&a, "A", OpCode::Exists, 5).await;
    node.close().await.unwrap();
    scenario.end([a, o]).await;
}

#[tokio::test]
async fn r29_the_session_of_a_kept_node_is_killed() {
    let scenario = Scenario::start("R29-pnode-session-killed").await;
    let (a, ta) = scenario.client("A").await;
    let node = scenario.node(&a, "n", CreateMode::Ephemeral);
    within_deadline("the node", node.created()).await.unwrap();
    scenario.settles(&a, "A", OpCode::Exists, 3).await;
    ta.kill_session(DEADLINE).await.unwrap();
    scenario.settles(&a, "A", OpCode::Exists, 4).await;
    scenario.end([a]).await;
}

#[tokio::test]
async fn r31_a_protected_sequential_node() {
    let scenario = Scenario::start("R31-pnode-protected-sequential").await;
    let ((a, ta), (o, _to)) = (scenario.client("A").await, scenario.client("O").await);
    let node = scenario.node(&a, "n-", CreateMode::EphemeralSequential);
    let mut events = node.events();
    let path = within_deadline("the node", node.created()).await.unwrap();
    scenario.settles(&a, "A", OpCode::Exists, 3).await;
    o.delete(&path, None).await.unwrap();
    scenario.settles(&a, "A", OpCode::Exists, 4).await;
    ta.kill_session(DEADLINE).await.unwrap();
    scenario.settles(&a, "A", OpCode::Exists, 5).await;
    node.close().await.unwrap();
    a.close().await.unwrap();
    o.close().await.unwrap();
    let mut created = 0;
    while let Some(event) = within_deadline("an event", events.next()).await {
        created +=
            usize::from(matches!(event, NodeEvent::Created { path: again, .. } if again == path));
    }
    assert!(created >= 2, "{created}");
    scenario.assert_equal();
}
