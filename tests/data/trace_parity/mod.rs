//! Barriers and atomic values send the same requests as Curator: the same operations, paths, flags, data and watches, in
//! the same order.
//!
//! `curator-barrier-atomic-traces.txt` was recorded from Curator behind a proxy. Scenarios without a defect of Curator
//! run here behind the tap of `docent-testing`, with the same faults, and are compared client by client; each test
//! states the lines in which docent differs by design. `docs/CURATOR.md` lists all scenarios, also those whose wanted
//! behaviour differs, with their tests.

mod by_design;

use docent::{
    Client, Config, CreateMode, DistributedAtomicInteger, DistributedAtomicLong,
    DistributedAtomicValue, DistributedBarrier, ErrorKind, OpCode, PromotedToLock,
};
use docent_testing::{
    TestingServer,
    fault::Fault,
    tap::{CompareOptions, Record, Tap, TapClient, compare},
};

use crate::{
    atomic::{changed, lock_options, options},
    barriers::{
        double::{done, entering, leaving, member},
        ms,
    },
    support::{
        DEADLINE, eventually, pending_and_watches, real::unique_path,
        recordings::assert_played_and_listed, within_deadline,
    },
};

const TRACES: &str = include_str!("../curator-barrier-atomic-traces.txt");

struct Scenario {
    tap: Tap,
    server: TestingServer,
    /// The requests of the recording.
    expected: String,
    expected_root: String,
    /// One component, as in the traces: the number of missing parents is part of the scenario.
    root: String,
}

impl Scenario {
    async fn start(title: &str) -> Self {
        let server = TestingServer::start().await.unwrap();
        let start = format!("=== {title}\n");
        let (_, rest) = TRACES.split_once(&start).unwrap_or_else(|| panic!("no scenario {title}"));
        let recording = rest.split("\n=== ").next().unwrap_or_default();
        let number = title[1..3].to_owned();
        Self {
            tap: Tap::start(&server.connect_string()).await.unwrap(),
            server,
            expected: requests(recording),
            expected_root: format!("/d{number}"),
            root: unique_path(&number).replace('/', "-").replacen('-', "/", 1),
        }
    }

    async fn client(&self, label: &str) -> (Client, TapClient) {
        let tap = self.tap.client(label).await.unwrap();
        let config = Config::new(&tap.connect_string()).unwrap();
        let config = config.with_session_timeout(ms(20_000)).with_connection_timeout(DEADLINE);
        (config.connect().await.unwrap(), tap)
    }

    /// A client that is not recorded.
    async fn elsewhere(&self) -> Client {
        Client::connect(&self.server.connect_string()).await.unwrap()
    }

    fn path(&self, rest: &str) -> String {
        format!("{}{rest}", self.root)
    }

    async fn replies(&self, label: &str, op: OpCode, count: usize) {
        eventually(&format!("{count} replies to {op:?} of {label}"), async || {
            let trace = self.tap.trace();
            let is_one = |r: &&Record| &*r.client == label && r.is_reply(op);
            (trace.iter().filter(is_one).count() >= count).then_some(())
        })
        .await;
    }

    /// Holds the next read back until the delays are ended.
    fn hold_back_the_next_read(&self) -> u64 {
        self.tap.inject(Fault::delay_reply(OpCode::GetData, DEADLINE));
        self.tap.len()
    }

    async fn is_reading(&self, since: u64) {
        eventually("the read", async || {
            let trace = self.tap.trace().since(since);
            trace.iter().any(|r| r.is_reply(OpCode::GetData)).then_some(())
        })
        .await;
    }

    /// The lines of the recording for which docent sends others. Each must be there.
    fn differs(&mut self, lines: &str, ours: &str) {
        let trimmed = |text: &str| -> String {
            text.lines().map(|line| format!("{}\n", line.trim())).collect()
        };
        let (lines, ours) = (trimmed(lines), trimmed(ours));
        assert!(self.expected.contains(&lines), "{lines}\nis not in\n{}", self.expected);
        self.expected = self.expected.replacen(&lines, &ours, 1);
    }

    /// The first look of a member that waits ends with a watch on its own node, which Curator does not set.
    fn watches_own_node(&mut self, label: &str, path: &str) {
        let listing = format!("{label} -> getChildren2(12) {path} watch=false");
        let watch = format!("{label} -> exists(3) {path}/G1 watch=true");
        self.differs(&listing, &format!("{listing}\n{watch}"));
    }

    /// Compares the requests of each client.
    fn assert_equal(&self) {
        self.assert_equal_in(str::to_owned);
    }

    /// As [`assert_equal`](Self::assert_equal), of what a function leaves of both. The write that changes nothing, which
    /// Curator does not send before it looks at a barrier, is left out: `stale.rs` tests what it is for.
    fn assert_equal_in(&self, part: impl Fn(&str) -> String) {
        let actual = with_numbered_ids(&requests(&self.tap.trace().text()));
        let is_settling = |line: &&str| line.contains("multi(14) [check(13)");
        let actual = actual.lines().filter(|line| !is_settling(line));
        let actual = part(&actual.map(|line| format!("{line}\n")).collect::<String>());
        let options = CompareOptions::default()
            .roots(&self.expected_root, &self.root)
            .without("removeWatches");
        if let Err(difference) = compare(&part(&self.expected), &actual, &options) {
            panic!("{difference}\n\nactual trace:\n{}", self.tap.trace().text());
        }
    }
}

/// The requests, under the name that the client had on its first connection.
fn requests(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.split_once(" -> "));
    let lines = lines.filter(|(client, _)| !client.contains(['#', ' ']));
    lines
        .map(|(client, rest)| {
            let client = client.trim_end_matches(['\'', '*']);
            // The recordings have no zxids.
            let rest = match rest.split_once(" zxid=") {
                Some((front, back)) => format!("{front} {}", back.split_once(' ').unwrap().1),
                None => rest.to_owned(),
            };
            format!("{client} -> {rest}\n")
        })
        .collect()
}

/// Replaces the ids of members by `G1`, `G2`, ... in the order of their appearance.
fn with_numbered_ids(text: &str) -> String {
    let mut out = text.to_owned();
    let mut number = 0;
    for (at, _) in text.match_indices('/') {
        let Some(name) = text.get(at + 1..at + 37) else { continue };
        let is_id = name.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        if is_id && out.contains(name) {
            number += 1;
            out = out.replace(name, &format!("G{number}"));
        }
    }
    out
}

fn barrier(client: &Client, path: &str) -> DistributedBarrier {
    DistributedBarrier::with_options(client, path, lock_options()).unwrap()
}

/// C11: docent reads the node, which leaves no watch if it is missing. It does not read again after its deletion.
#[tokio::test]
async fn d14_a_barrier() {
    let mut scenario = Scenario::start("D14-barrier").await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let path = scenario.path("/x/bar");
    let (ours, theirs) = (barrier(&a, &path), barrier(&b, &path));
    ours.set_barrier().await.unwrap();
    ours.set_barrier().await.unwrap();
    assert!(!theirs.wait_on_barrier_timeout(ms(500)).await.unwrap());
    let waiting = barrier(&b, &path);
    let waiting = tokio::spawn(async move { waiting.wait_on_barrier().await });
    scenario.replies("B", OpCode::GetData, 3).await;
    ours.remove_barrier().await.unwrap();
    within_deadline("the wait", waiting).await.unwrap().unwrap();
    ours.remove_barrier().await.unwrap();
    theirs.wait_on_barrier().await.unwrap();
    assert!(theirs.wait_on_barrier_timeout(ms(0)).await.unwrap());
    ours.set_barrier().await.unwrap();
    for _ in 0..2 {
        assert!(!theirs.wait_on_barrier_timeout(ms(0)).await.unwrap());
    }
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.differs(
        "B -> exists(3) /d14/x/bar watch=true
         A -> delete(2) /d14/x/bar v=-1
         B -> exists(3) /d14/x/bar watch=true",
        "B -> exists(3) /d14/x/bar watch=true
         A -> delete(2) /d14/x/bar v=-1",
    );
    for _ in 0..7 {
        scenario.differs(
            "B -> exists(3) /d14/x/bar watch=true",
            "B -> getData(4) /d14/x/bar watch=true",
        );
    }
    scenario.assert_equal();
}

/// C11. After a reconnect, the watch is set again by the session, and the waiter sends nothing.
#[tokio::test]
async fn d15_a_barrier_with_faults() {
    let mut scenario = Scenario::start("D15-barrier-faults").await;
    let ((a, _ta), (b, tb)) = (scenario.client("A").await, scenario.client("B").await);
    let path = scenario.path("");
    let ours = barrier(&a, &path);
    ours.set_barrier().await.unwrap();
    let theirs = barrier(&b, &path);
    let waiting = tokio::spawn(async move { theirs.wait_on_barrier().await });
    scenario.replies("B", OpCode::GetData, 1).await;
    tb.cut();
    scenario.replies("B", OpCode::SetWatches, 1).await;
    scenario.tap.inject(Fault::drop_reply(OpCode::Delete).of("A"));
    ours.remove_barrier().await.unwrap();
    within_deadline("the wait", waiting).await.unwrap().unwrap();
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2).of("A"));
    ours.set_barrier().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.differs(
        "B -> setWatches(101) data=[/d15] exist=[] child=[]
         B -> exists(3) /d15 watch=true
         B -> exists(3) /d15 watch=true
         A -> delete(2) /d15 v=-1
         B -> exists(3) /d15 watch=true",
        "B -> setWatches(101) data=[/d15] exist=[] child=[]
         A -> delete(2) /d15 v=-1",
    );
    // Not repeated before a look.
    scenario.differs(
        "A -> connect sid=prev
         A -> delete(2) /d15 v=-1",
        "A -> connect sid=prev
         A -> exists(3) /d15 watch=false
         A -> exists(3) / watch=false",
    );
    scenario.differs(
        "A -> connect sid=prev
         A -> create2(15) /d15 data=\"10.0.0.1\" acl=31:world:anyone flags=0",
        "A -> connect sid=prev
         A -> exists(3) /d15 watch=false
         A -> exists(3) / watch=false",
    );
    scenario.differs("B -> exists(3) /d15 watch=true", "B -> getData(4) /d15 watch=true");
    scenario.assert_equal();
}

/// C17, C18: the last member deletes its node and `ready` together, and no other member deletes `ready`.
#[tokio::test]
async fn d16_two_members_of_a_double_barrier() {
    let mut scenario = Scenario::start("D16-double-barrier-two").await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let path = scenario.path("/b");
    // The first member of the recording has the lower id.
    let (low, high) = loop {
        let (low, high) = (member(&a, &path, 2), member(&b, &path, 2));
        if low.member_id() < high.member_id() {
            break (low, high);
        }
    };
    let low = entering(low);
    eventually("the watches", async || (pending_and_watches(&a) == (0, 2)).then_some(())).await;
    let high = entering(high);
    let (low, high) = (done("A", low).await, done("B", high).await);
    eventually("no watch", async || (pending_and_watches(&a) == (0, 0)).then_some(())).await;
    let low = leaving(low);
    eventually("the watch", async || (pending_and_watches(&a) == (0, 1)).then_some(())).await;
    let high = leaving(high);
    done("A", low).await;
    done("B", high).await;
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.differs(
        "A -> delete(2) /d16/b/G1 v=-1
         A -> delete(2) /d16/b/ready v=-1",
        "A -> multi(14) [delete(2) /d16/b/G1 v=-1; delete(2) /d16/b/ready v=-1]",
    );
    scenario.differs("B -> delete(2) /d16/b/ready v=-1", "");
    scenario.watches_own_node("A", "/d16/b");
    scenario.assert_equal();
}

/// Data of another length than a number's are an error; Curator reads the first bytes of longer ones.
#[tokio::test]
async fn d20_numbers_and_values() {
    let mut scenario = Scenario::start("D20-atomic-long-int-value").await;
    let (a, _ta) = scenario.client("A").await;
    let elsewhere = scenario.elsewhere().await;
    let at = |rest: &str| {
        let path = scenario.path(rest);
        DistributedAtomicLong::with_options(&a, &path, options(4)).unwrap()
    };
    let long = at("/c/long");
    assert_eq!(changed(long.get().await), (0, 0));
    assert_eq!(changed(long.increment().await), (0, 1));
    assert_eq!(changed(long.increment().await), (1, 2));
    assert_eq!(changed(long.decrement().await), (2, 1));
    assert_eq!(changed(long.add(41).await), (1, 42));
    assert_eq!(changed(long.subtract(100).await), (42, -58));
    assert_eq!(changed(long.compare_and_set(-58, 7).await), (-58, 7));
    assert!(!long.compare_and_set(1, 2).await.unwrap().succeeded());
    assert_eq!(changed(long.try_set(9).await), (7, 9));
    long.force_set(-1).await.unwrap();
    assert!(!long.initialize(5).await.unwrap());
    assert!(at("/new/n").initialize(5).await.unwrap());
    assert!(!at("/none").compare_and_set(0, 1).await.unwrap().succeeded());
    at("/f/g").force_set(3).await.unwrap();
    let int = scenario.path("/int");
    let int = DistributedAtomicInteger::with_options(&a, &int, options(4)).unwrap();
    assert_eq!(changed(int.increment().await), (0, 1));
    assert_eq!(changed(int.add(-3).await), (1, -2));
    let value = scenario.path("/val");
    let value = DistributedAtomicValue::with_options(&a, &value, options(4)).unwrap();
    assert!(value.try_set("hello").await.unwrap().succeeded());
    assert!(value.compare_and_set("hello", "").await.unwrap().succeeded());
    assert_eq!(value.get().await.unwrap().pre_value.as_deref(), Some(&b""[..]));
    let path = scenario.path("/c/long");
    elsewhere.set_data(&path, &[0, 0, 0, 1], None).await.unwrap();
    assert_eq!(long.get().await.unwrap_err().kind(), ErrorKind::BadReply);
    elsewhere.set_data(&path, &[0, 0, 0, 0, 0, 0, 0, 2, 255, 255, 255, 255], None).await.unwrap();
    assert_eq!(long.increment().await.unwrap_err().kind(), ErrorKind::BadReply);
    // The version that Curator's write leaves.
    elsewhere.set_data(&path, &[0; 8], None).await.unwrap();
    elsewhere.set_data(&path, b"", None).await.unwrap();
    assert_eq!(changed(long.increment().await), (0, 1));
    long.force_set(i64::MAX).await.unwrap();
    assert_eq!(changed(long.increment().await), (i64::MAX, i64::MIN));
    a.close().await.unwrap();
    scenario.differs("A -> setData(5) /d20/c/long data=0x0000000000000003 v=9", "");
    scenario.assert_equal();
}

#[tokio::test]
async fn d21_contention_and_promotion() {
    let scenario = Scenario::start("D21-atomic-contention-and-promotion").await;
    let (a, _ta) = scenario.client("A").await;
    let elsewhere = scenario.elsewhere().await;
    let path = scenario.path("/n");
    elsewhere.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    let number = |number: i64| number.to_be_bytes();
    elsewhere.create(&path, &number(5), CreateMode::Persistent).await.unwrap();
    let set = async |to: i64, since| {
        scenario.is_reading(since).await;
        elsewhere.set_data(&path, &number(to), None).await.unwrap();
        scenario.tap.end_delays();
    };
    let counter = DistributedAtomicLong::with_options(&a, &path, options(4)).unwrap();
    let since = scenario.hold_back_the_next_read();
    let (result, ()) = tokio::join!(counter.increment(), set(100, since));
    assert_eq!(changed(result), (100, 101));
    let once = DistributedAtomicLong::with_options(&a, &path, options(1)).unwrap();
    let since = scenario.hold_back_the_next_read();
    let (result, ()) = tokio::join!(once.increment(), set(200, since));
    assert_eq!(result.unwrap().post_value, None);
    let promotion = PromotedToLock::new(&scenario.path("/lock"));
    let promoted = options(1).with_promotion(promotion);
    let promoted = DistributedAtomicLong::with_options(&a, &path, promoted).unwrap();
    let since = scenario.hold_back_the_next_read();
    let (result, ()) = tokio::join!(promoted.increment(), set(300, since));
    assert_eq!(changed(result), (300, 301));
    let since = scenario.hold_back_the_next_read();
    let deleting = async {
        scenario.is_reading(since).await;
        elsewhere.delete(&path, None).await.unwrap();
        scenario.tap.end_delays();
    };
    let (result, ()) = tokio::join!(counter.increment(), deleting);
    assert_eq!(changed(result), (0, 1));
    elsewhere.delete(&path, None).await.unwrap();
    let since = scenario.hold_back_the_next_read();
    let creating = async {
        scenario.is_reading(since).await;
        elsewhere.create(&path, &number(10), CreateMode::Persistent).await.unwrap();
        scenario.tap.end_delays();
    };
    let (result, ()) = tokio::join!(counter.increment(), creating);
    assert_eq!(changed(result), (10, 11));
    a.close().await.unwrap();
    scenario.assert_equal();
}

#[test]
fn every_recorded_scenario_is_played_and_listed() {
    assert_played_and_listed(TRACES, &[include_str!("mod.rs"), include_str!("by_design.rs")]);
}
