//! The leader recipes and kept nodes send the same requests as Curator: the same operations, paths, flags, data and
//! watches, in the same order.
//!
//! `../data/curator-leader-traces.txt` was recorded from Curator behind a proxy. Each scenario runs here behind the tap
//! of `docent-testing`, with the same faults, and is compared client by client. Two differences
//! are allowed everywhere: the claim of a latch is a watching read (L1), and a `sync` precedes a search after a lost
//! reply. Where docent differs by design, the test states each difference. `docs/CURATOR.md` lists all scenarios.

mod latches;
mod nodes;
mod selectors;

use std::time::Duration;

use docent::{
    Client, CloseMode, Config, ConnectionState, ConnectionStateErrorPolicy, CreateMode,
    LeaderLatch, LeaderOptions, LockOptions, NodeOptions, OpCode, PersistentNode,
    retry::RetryNTimes,
};
use docent_testing::{
    TestingServer,
    fault::Fault,
    server,
    tap::{CompareOptions, Difference, Record, Tap, TapClient, compare},
};

use crate::{
    ms,
    support::{
        DEADLINE, eventually, given_up_session::give_up_session, real::unique_path, within_deadline,
    },
};

const TRACES: &str = include_str!("../../data/curator-leader-traces.txt");

struct Scenario {
    tap: Tap,
    expected: String,
    expected_root: String,
    /// One component, as in the traces: the number of missing parents is part of the scenario.
    root: String,
    session: Duration,
    server: TestingServer,
}

impl Scenario {
    async fn start(title: &str) -> Self {
        Self::start_on(title, server::Config::default(), Duration::from_secs(20)).await
    }

    /// On a server that expires no session by itself, with a session that the client gives up soon.
    async fn start_without_expiry(title: &str) -> Self {
        let config = server::Config {
            tick_time: Duration::from_secs(3600),
            min_session_timeout: Some(ms(1000)),
            ..Default::default()
        };
        Self::start_on(title, config, Duration::from_secs(6)).await
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
            server,
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

    /// Waits until a client has no pending request: the tap sees a reply before the client.
    async fn settled(client: &Client) {
        eventually("no pending request", async || (client.metrics().pending == 0).then_some(()))
            .await;
    }

    /// Checks that the requests of each client are Curator's.
    fn assert_equal(&self) {
        self.assert_equal_without(&[]);
    }

    fn assert_equal_without(&self, operations: &[&str]) {
        if let Err(difference) = self.compare(operations) {
            panic!("{difference}\n\nactual trace:\n{}", self.tap.trace().text());
        }
    }

    /// Compares the requests of each client, without these operations.
    fn compare(&self, without: &[&str]) -> Result<(), Difference> {
        // The outsider of the recording was another program, which prints ACLs in its own way.
        let expected = requests(&self.expected).replace("[world:anyone:r]", "1:world:anyone");
        let actual = as_recorded(&without_claim_watches(&requests(&self.tap.trace().text())));
        let options = CompareOptions::default().roots(&self.expected_root, &self.root);
        let options = without.iter().fold(options.without("sync"), |all, op| all.without(op));
        compare(&expected, &actual, &options)
    }

    /// Checks that the requests are Curator's except for these differences: requests of one client in the recording, by
    /// their beginnings, and those that replace them.
    fn assert_differs(mut self, differences: &[(&str, &str)]) {
        assert!(self.compare(&[]).is_err(), "no difference");
        for (curators, ours) in differences {
            self.replace_requests(curators, ours);
        }
        self.assert_equal();
    }

    fn replace_requests(&mut self, curators: &str, ours: &str) {
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().map(|line| line.trim().to_owned());
            lines.filter(|line| !line.is_empty()).collect()
        };
        let (curators, mut expected) = (lines(curators), lines(&requests(&self.expected)));
        // The clients are compared one by one, so their order does not matter.
        expected.sort_by_key(|line| line.split(' ').next().map(str::to_owned));
        let same = |at: &usize| {
            let there = expected.iter().skip(*at).zip(&curators);
            there.filter(|(line, start)| line.starts_with(*start)).count() == curators.len()
        };
        let places: Vec<_> = (0..expected.len()).filter(same).collect();
        let [at] = places.as_slice() else { panic!("{places:?}: {curators:?} in {expected:#?}") };
        expected.splice(*at..at + curators.len(), lines(ours));
        self.expected = expected.join("\n");
    }
}

/// The lines of a trace that are requests.
fn requests(text: &str) -> String {
    let lines = text.lines().filter(|line| line.contains(" -> ") && !line.contains('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Writes setWatches as the recording does: it has lists of data watches only, without the zxid.
fn as_recorded(requests: &str) -> String {
    let line = |line: &str| match line.split_once(" setWatches(101) zxid=") {
        Some((client, rest)) if rest.ends_with(" exist=[] child=[]") => {
            let (_, paths) = rest.split_once("data=[").unwrap_or_default();
            let (paths, _) = paths.split_once(']').unwrap_or_default();
            format!("{client} setWatches(101) data=['{}']\n", paths.replace(", ", "', '"))
        }
        _ => format!("{line}\n"),
    };
    requests.lines().map(line).collect()
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
    a.close().await.unwrap();
    scenario.assert_equal();
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
    scenario.watches("C", 6).await;
    Scenario::settled(&c).await;
    first.close_with(CloseMode::NotifyLeader).await.unwrap();
    leads(&third).await;
    third.close().await.unwrap();
    for client in [a, b, c] {
        client.close().await.unwrap();
    }
    scenario.assert_equal();
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
    for client in [a, b, o] {
        client.close().await.unwrap();
    }
    scenario.assert_equal();
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
    b.close().await.unwrap();
    scenario.assert_equal();
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
    scenario.watches("A", 2).await;
    Scenario::settled(&a).await;
    assert!(leadership.is_held());
    a.close().await.unwrap();
    leads(&second).await;
    b.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test]
async fn r08_a_leaders_session_is_killed() {
    let scenario = Scenario::start("R08-latch-leader-session-killed-on-server").await;
    let ([(a, ta), (b, _tb)], [_first, second]) = scenario.two().await;
    ta.kill_session(DEADLINE).await.unwrap();
    leads(&second).await;
    // The claim, and the watch on B's node.
    scenario.watches("A", 2).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test]
async fn r09_a_leader_gives_its_session_up() {
    let title = "R09-latch-leader-expires-in-client-only";
    let scenario = Scenario::start_without_expiry(title).await;
    let ([(a, ta), (b, _tb)], [_first, second]) = scenario.two().await;
    give_up_session(&a, &ta).await;
    leads(&second).await;
    // The claim, the look at the old node, and the watch on B's node.
    scenario.watches("A", 3).await;
    Scenario::settled(&a).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test]
async fn r16_a_predecessor_goes_between_listing_and_watch() {
    let title = "R16-latch-predecessor-goes-between-list-and-watch";
    let scenario = Scenario::start(title).await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let first = scenario.latch(&a, "idA");
    leads(&first).await;
    // Held back until the node is deleted.
    scenario.tap.inject(Fault::delay_reply(OpCode::GetChildren2, DEADLINE).of("B"));
    let second = scenario.latch(&b, "idB");
    let is_listed = |r: &Record| &*r.client == "B" && r.is_reply(OpCode::GetChildren2);
    scenario.tap.wait_for(DEADLINE, is_listed).await.unwrap();
    first.close().await.unwrap();
    scenario.tap.end_delays();
    leads(&second).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_equal();
}

#[tokio::test]
async fn r19_a_latch_closes_while_creating() {
    let scenario = Scenario::start("R19-latch-closed-while-creating").await;
    let ([(a, _ta), (b, _tb)], [_first, second]) = scenario.two().await;
    let (c, _tc) = scenario.client("C").await;
    scenario.tap.inject(Fault::delay_reply(OpCode::Create2, DEADLINE).of("C"));
    let third = scenario.latch(&c, "idC");
    let is_created = |r: &Record| &*r.client == "C" && r.is_reply(OpCode::Create2);
    scenario.tap.wait_for(DEADLINE, is_created).await.unwrap();
    let closing = third.close();
    scenario.tap.end_delays();
    within_deadline("the close", closing).await.unwrap();
    a.close().await.unwrap();
    leads(&second).await;
    b.close().await.unwrap();
    c.close().await.unwrap();
    scenario.assert_equal();
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
    o.close().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_equal();
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
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.assert_equal();
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
    o.close().await.unwrap();
    a.close().await.unwrap();
    scenario.assert_equal();
}

#[test]
fn every_recorded_scenario_is_played_and_listed() {
    let sources = [
        include_str!("mod.rs"),
        include_str!("latches.rs"),
        include_str!("nodes.rs"),
        include_str!("selectors.rs"),
    ]
    .concat();
    let document = include_str!("../../../docs/CURATOR.md");
    let titles = TRACES.lines().filter_map(|line| line.strip_prefix("=== "));
    // The second run of a scenario whose order varies.
    for title in titles.filter(|title| !title.ends_with(" (other run)")) {
        let row = document.lines().find(|line| line.starts_with(&format!("| {title} | ")));
        let row = row.unwrap_or_else(|| panic!("{title} is not in CURATOR.md"));
        let test = row.split('`').nth(1).unwrap();
        let (_, body) = sources.split_once(&format!("async fn {test}()")).unwrap();
        let body = body.split("\n}\n").next().unwrap();
        assert!(body.contains(&format!("\"{title}\"")), "{test} does not play {title}");
    }
}
