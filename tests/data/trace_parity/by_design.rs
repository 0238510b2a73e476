//! The recordings that show defects of Curator. Each test plays one, and states the requests in which docent differs.

use docent::{CreateMode, DistributedAtomicLong, DistributedDoubleBarrier, Outcome};
use docent_testing::fault::Fault;

use super::{OpCode, Scenario, barrier, changed, done, entering, member, ms, options};
use crate::{
    barriers::cut_off,
    support::{DEADLINE, eventually, pending_and_watches, within_deadline},
};

/// Starts to enter, with a limit.
fn entering_within(
    mut member: DistributedDoubleBarrier,
    millis: u64,
) -> tokio::task::JoinHandle<(DistributedDoubleBarrier, bool)> {
    tokio::spawn(async move {
        let entered = member.enter_timeout(ms(millis)).await.unwrap();
        (member, entered)
    })
}

/// Two members, the first with the lower id.
fn in_order(
    low: &docent::Client,
    high: &docent::Client,
    path: &str,
) -> (DistributedDoubleBarrier, DistributedDoubleBarrier) {
    loop {
        let (low, high) = (member(low, path, 2), member(high, path, 2));
        if low.member_id() < high.member_id() {
            return (low, high);
        }
    }
}

/// Waits until a wait at a barrier has its watch.
async fn waits(client: &docent::Client) {
    eventually("the watch", async || (pending_and_watches(client) == (0, 1)).then_some(())).await;
}

/// Waits until a member that enters has its watches: on `ready` and on its node.
async fn has_watches(client: &docent::Client) {
    eventually("the watches", async || (pending_and_watches(client) == (0, 2)).then_some(())).await;
}

/// The requests, with each look at `ready`, the members and the own node once: a cut and a reconnect may cause one look or
/// two. The watches are set again by a look, or by the session before it, and removed behind each look.
fn looks_once(requests: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for line in requests.lines().filter(|line| !line.contains("Watches(")) {
        kept.push(line);
        if let [.., a, b, c, d, e, f] = kept[..]
            && (a, b, c) == (d, e, f)
            && a.contains("/ready watch=true")
        {
            kept.truncate(kept.len() - 3);
        }
        // A new session: the wait looks again if the first look has begun in the one before.
        if let [.., a, b] = kept[..]
            && a == b
            && a.contains("getData(4)")
        {
            kept.truncate(kept.len() - 1);
        }
    }
    kept.iter().map(|line| format!("{line}\n")).collect()
}

/// C16: the node of a member whose time is up is deleted, so the next one does not pass with it, and has nothing to leave
/// (C15).
#[tokio::test]
async fn d17_an_enter_times_out() {
    let mut scenario = Scenario::start("D17-double-barrier-enter-times-out").await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let path = scenario.path("");
    let (low, high) = in_order(&a, &b, &path);
    for member in [low, high] {
        let (_, entered) =
            within_deadline("the enter", entering_within(member, 1500)).await.unwrap();
        assert!(!entered);
    }
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.differs(
        "A -> getChildren2(12) /d17 watch=false
         B -> exists(3) /d17/ready watch=true",
        "A -> getChildren2(12) /d17 watch=false
         A -> exists(3) /d17/G1 watch=true
         A -> exists(3) /d17/ready watch=true
         A -> getChildren2(12) /d17 watch=false
         A -> exists(3) /d17/G1 watch=true
         A -> delete(2) /d17/G1 v=-1
         A -> exists(3) /d17/ready watch=false
         B -> exists(3) /d17/ready watch=true",
    );
    scenario.differs(
        "B -> create2(15) /d17/ready data=\"10.0.0.1\" acl=31:world:anyone flags=0
         B -> getChildren2(12) /d17 watch=false
         B -> exists(3) /d17/G1 watch=true
         B -> delete(2) /d17/G2 v=-1
         B -> getChildren2(12) /d17 watch=false
         B -> delete(2) /d17/ready v=-1",
        "B -> exists(3) /d17/G2 watch=true
         B -> exists(3) /d17/ready watch=true
         B -> getChildren2(12) /d17 watch=false
         B -> exists(3) /d17/G2 watch=true
         B -> delete(2) /d17/G2 v=-1
         B -> exists(3) /d17/ready watch=false",
    );
    scenario.assert_equal();
}

/// C13: after the reconnect, the member looks again and waits on.
#[tokio::test]
async fn d18_a_cut_while_entering() {
    let mut scenario = Scenario::start("D18-double-barrier-cut-while-entering").await;
    let (a, ta) = scenario.client("A").await;
    let first = entering_within(member(&a, &scenario.path(""), 2), 3000);
    has_watches(&a).await;
    ta.cut();
    let (mut member, entered) = within_deadline("the enter", first).await.unwrap();
    assert!(!entered);
    assert!(!member.enter_timeout(ms(1500)).await.unwrap());
    a.close().await.unwrap();
    scenario.differs(
        "A -> exists(3) /d18/ready watch=true
         A -> create2(15) /d18/G1 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         A -> closeSession(-11)",
        "A -> exists(3) /d18/ready watch=true
         A -> getChildren2(12) /d18 watch=false
         A -> exists(3) /d18/G1 watch=true
         A -> delete(2) /d18/G1 v=-1
         A -> exists(3) /d18/ready watch=false
         A -> exists(3) /d18/ready watch=true
         A -> create2(15) /d18/G2 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         A -> getChildren2(12) /d18 watch=false
         A -> exists(3) /d18/G2 watch=true
         A -> exists(3) /d18/ready watch=true
         A -> getChildren2(12) /d18 watch=false
         A -> exists(3) /d18/G2 watch=true
         A -> delete(2) /d18/G2 v=-1
         A -> exists(3) /d18/ready watch=false
         A -> closeSession(-11)",
    );
    scenario.watches_own_node("A", "/d18");
    scenario.assert_equal_in(looks_once);
}

/// C17, C18: a foreign child is not waited for, and a leave whose time is up deletes its own node and leaves `ready`.
#[tokio::test]
async fn d19_a_member_too_many_and_a_foreign_child() {
    let mut scenario = Scenario::start("D19-double-barrier-oversubscribed").await;
    let ((a, _ta), (b, _tb)) = (scenario.client("A").await, scenario.client("B").await);
    let (c, _tc) = scenario.client("C").await;
    let path = scenario.path("");
    // The late one is between the two, so that the highest is the same as in the recording without the foreign child.
    let (low, late, high) = loop {
        let ((low, high), late) = (in_order(&a, &b, &path), member(&c, &path, 2));
        if (low.member_id()..high.member_id()).contains(&late.member_id()) {
            break (low, late, high);
        }
    };
    let low = entering(low);
    has_watches(&a).await;
    let high = done("B", entering(high)).await;
    let mut low = done("A", low).await;
    let late = done("C", entering(late)).await;
    let elsewhere = scenario.elsewhere().await;
    elsewhere.create(&scenario.path("/foreign"), b"x", CreateMode::Persistent).await.unwrap();
    assert!(!low.leave_timeout(ms(1500)).await.unwrap());
    let mut left = elsewhere.get_children(&path).await.unwrap().to_vec();
    left.sort_unstable();
    let mut wanted = [high.member_id(), late.member_id(), "foreign", "ready"];
    wanted.sort_unstable();
    assert_eq!(left, wanted);
    a.close().await.unwrap();
    b.close().await.unwrap();
    c.close().await.unwrap();
    scenario.differs(
        "C -> create2(15) /d19/G3 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         A -> getChildren2(12) /d19 watch=false
         A -> exists(3) /d19/foreign watch=true
         A -> getChildren2(12) /d19 watch=false
         A -> exists(3) /d19/foreign watch=true
         A -> delete(2) /d19/ready v=-1",
        "C -> create2(15) /d19/G3 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         C -> getChildren2(12) /d19 watch=false
         C -> setData(5) /d19/ready data=\"10.0.0.1\" v=0
         A -> getChildren2(12) /d19 watch=false
         A -> exists(3) /d19/G2 watch=true
         A -> getChildren2(12) /d19 watch=false
         A -> exists(3) /d19/G2 watch=true
         A -> delete(2) /d19/G1 v=-1",
    );
    scenario.watches_own_node("A", "/d19");
    scenario.assert_equal();
}

/// C21 to C24: a write whose reply was lost is settled by reading, and not repeated with another version.
#[tokio::test]
async fn d22_lost_replies() {
    let mut scenario = Scenario::start("D22-atomic-lost-replies").await;
    let elsewhere = scenario.elsewhere().await;
    let number = |number: i64| number.to_be_bytes();
    elsewhere.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    let path = scenario.path("/n");
    elsewhere.create(&path, &number(1), CreateMode::Persistent).await.unwrap();
    let (a, _ta) = scenario.client("A").await;
    let at = |path: &str| DistributedAtomicLong::with_options(&a, path, options(4)).unwrap();
    let lose = |op| scenario.tap.inject(Fault::drop_reply(op).of("A"));
    let counter = at(&path);
    lose(OpCode::SetData);
    let lost = counter.increment().await.unwrap_err();
    assert_eq!(lost.outcome(), Outcome::Unknown);
    assert_eq!(elsewhere.get_data(&path).await.unwrap().data, number(2)[..]);
    scenario.tap.inject(Fault::drop_before(OpCode::SetData).of("A"));
    assert_eq!(changed(counter.increment().await), (2, 3));
    lose(OpCode::SetData);
    let lost = counter.compare_and_set(3, 9).await.unwrap_err();
    assert_eq!(lost.outcome(), Outcome::Unknown);
    assert_eq!(counter.get().await.unwrap().pre_value, 9);
    let other = at(&scenario.path("/m"));
    lose(OpCode::Create2);
    let lost = other.increment().await.unwrap_err();
    assert_eq!(lost.outcome(), Outcome::Unknown);
    assert_eq!(other.get().await.unwrap().pre_value, 1);
    lose(OpCode::Create2);
    let lost = at(&scenario.path("/i")).initialize(5).await.unwrap_err();
    assert_eq!(lost.outcome(), Outcome::Unknown);
    a.close().await.unwrap();
    scenario.differs(
        "A -> setData(5) /d22/n data=0x0000000000000003 v=1
         A -> getData(4) /d22/n watch=false
         A -> setData(5) /d22/n data=0x0000000000000004 v=2
         A -> connect sid=prev
         A -> setData(5) /d22/n data=0x0000000000000004 v=2
         A -> getData(4) /d22/n watch=false
         A -> setData(5) /d22/n data=0x0000000000000009 v=3
         A -> connect sid=prev
         A -> setData(5) /d22/n data=0x0000000000000009 v=3
         A -> getData(4) /d22/n watch=false",
        "A -> getData(4) /d22/n watch=false
         A -> setData(5) /d22/n data=0x0000000000000003 v=1
         A -> connect sid=prev
         A -> setData(5) /d22/n data=0x0000000000000003 v=1
         A -> getData(4) /d22/n watch=false
         A -> setData(5) /d22/n data=0x0000000000000009 v=2
         A -> connect sid=prev
         A -> setData(5) /d22/n data=0x0000000000000009 v=2
         A -> getData(4) /d22/n watch=false
         A -> getData(4) /d22/n watch=false",
    );
    scenario.differs(
        "A -> getData(4) /d22/m watch=false
         A -> setData(5) /d22/m data=0x0000000000000002 v=0
         A -> getData(4) /d22/m watch=false",
        "A -> getData(4) /d22/m watch=false
         A -> getData(4) /d22/m watch=false",
    );
    scenario.differs(
        "A -> create2(15) /d22/i data=0x0000000000000005 acl=31:world:anyone flags=0
         A -> closeSession(-11)",
        "A -> create2(15) /d22/i data=0x0000000000000005 acl=31:world:anyone flags=0
         A -> getData(4) /d22/i watch=false
         A -> closeSession(-11)",
    );
    scenario.assert_equal();
}

/// C13, C14: after the cut the member looks again, and does not pass alone; the time of the next enter is observed.
#[tokio::test]
async fn d28_no_bypass() {
    let mut scenario = Scenario::start("D28-double-barrier-bypass").await;
    let (a, ta) = scenario.client("A").await;
    let elsewhere = scenario.elsewhere().await;
    let first = entering_within(member(&a, &scenario.path(""), 2), 3000);
    has_watches(&a).await;
    ta.cut();
    let (mut member, entered) = within_deadline("the enter", first).await.unwrap();
    assert!(!entered, "alone");
    assert!(!member.enter_timeout(ms(1500)).await.unwrap());
    let third = entering_within(member, 20_000);
    has_watches(&a).await;
    elsewhere.create(&scenario.path("/ready"), b"x", CreateMode::Persistent).await.unwrap();
    let (_member, entered) = within_deadline("the enter", third).await.unwrap();
    assert!(entered, "`ready` is newer than the member");
    a.close().await.unwrap();
    scenario.differs(
        "A -> getChildren2(12) /d28 watch=false
         A -> delete(2) /d28/G1 v=-1
         A -> delete(2) /d28/ready v=-1
         A -> exists(3) /d28/ready watch=true
         A -> create2(15) /d28/G1 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         A -> getChildren2(12) /d28 watch=false",
        "A -> exists(3) /d28/ready watch=true
         A -> getChildren2(12) /d28 watch=false
         A -> exists(3) /d28/G1 watch=true
         A -> delete(2) /d28/G1 v=-1
         A -> exists(3) /d28/ready watch=false
         A -> exists(3) /d28/ready watch=true
         A -> create2(15) /d28/G2 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         A -> getChildren2(12) /d28 watch=false
         A -> exists(3) /d28/G2 watch=true
         A -> exists(3) /d28/ready watch=true
         A -> getChildren2(12) /d28 watch=false
         A -> exists(3) /d28/G2 watch=true
         A -> delete(2) /d28/G2 v=-1
         A -> exists(3) /d28/ready watch=false
         A -> exists(3) /d28/ready watch=true
         A -> create2(15) /d28/G3 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         A -> getChildren2(12) /d28 watch=false
         A -> exists(3) /d28/G3 watch=true",
    );
    scenario.watches_own_node("A", "/d28");
    scenario.assert_equal_in(looks_once);
}

/// C13, without a limit.
#[tokio::test]
async fn d32_no_bypass_without_a_limit() {
    let mut scenario = Scenario::start("D32-double-barrier-bypass-untimed").await;
    let (a, ta) = scenario.client("A").await;
    let first = entering(member(&a, &scenario.path(""), 2));
    has_watches(&a).await;
    ta.cut();
    scenario.replies("A", OpCode::GetChildren2, 2).await;
    has_watches(&a).await;
    assert!(!first.is_finished(), "alone");
    first.abort();
    within_deadline("the end", first).await.unwrap_err();
    eventually("the deletion", async || (a.metrics().pending == 0).then_some(())).await;
    scenario.replies("A", OpCode::Delete, 1).await;
    a.close().await.unwrap();
    scenario.differs(
        "A -> setWatches(101) data=[] exist=[/d32/ready] child=[]
         A -> closeSession(-11)",
        "A -> exists(3) /d32/ready watch=true
         A -> getChildren2(12) /d32 watch=false
         A -> exists(3) /d32/G1 watch=true
         A -> delete(2) /d32/G1 v=-1
         A -> closeSession(-11)",
    );
    scenario.watches_own_node("A", "/d32");
    scenario.assert_equal_in(looks_once);
}

/// C12: the wait outlasts the end of its session and an outage. C20: the create whose reply was lost is found. C40: a
/// member without a session can leave.
#[tokio::test]
async fn d37_an_outage_an_expiry_and_a_lost_create() {
    let mut scenario = Scenario::start("D37-barrier-outage-expiry-and-lost-create").await;
    let ((a, ta), (b, tb)) = (scenario.client("A").await, scenario.client("B").await);
    let elsewhere = scenario.elsewhere().await;
    elsewhere.create(&scenario.root, b"", CreateMode::Persistent).await.unwrap();
    let path = scenario.path("/bar");
    elsewhere.create(&path, b"", CreateMode::Persistent).await.unwrap();
    let waiting = barrier(&a, &path);
    let waiting = tokio::spawn(async move { waiting.wait_on_barrier().await });
    waits(&a).await;
    ta.kill_session(DEADLINE).await.unwrap();
    scenario.replies("A", OpCode::GetData, 2).await;
    waits(&a).await;
    cut_off(&a, &ta).await;
    ta.accept().await.unwrap();
    a.wait_until_connected(DEADLINE).await.unwrap();
    scenario.tap.inject(Fault::drop_reply(OpCode::Create2).of("B"));
    let first = entering_within(member(&b, &path, 2), 3000);
    assert!(!within_deadline("the enter", first).await.unwrap().1);
    assert!(!waiting.is_finished());
    elsewhere.delete_recursive(&path).await.unwrap();
    within_deadline("the wait", waiting).await.unwrap().unwrap();
    let two = scenario.path("/two");
    elsewhere.create(&two, b"", CreateMode::Persistent).await.unwrap();
    let second = entering(member(&b, &two, 1));
    let mut second = done("the second", second).await;
    tb.kill_session(DEADLINE).await.unwrap();
    b.wait_until_connected(DEADLINE).await.unwrap();
    let other = scenario.path("/two/other");
    elsewhere.create(&other, b"x", CreateMode::Persistent).await.unwrap();
    assert!(second.leave_timeout(ms(1000)).await.unwrap());
    a.close().await.unwrap();
    b.close().await.unwrap();
    scenario.differs("A -> exists(3) /d37/bar watch=true", "A -> getData(4) /d37/bar watch=true");
    scenario.differs(
        "A -> exists(3) /d37/bar watch=true
         A -> exists(3) /d37/bar watch=true",
        "A -> getData(4) /d37/bar watch=true",
    );
    scenario.differs(
        "B -> create2(15) /d37/bar/G1 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         B -> exists(3) /d37/two/ready watch=true",
        "B -> create2(15) /d37/bar/G1 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         B -> exists(3) /d37/bar/G1 watch=false
         B -> getChildren2(12) /d37/bar watch=false
         B -> exists(3) /d37/bar/G1 watch=true
         B -> exists(3) /d37/bar/ready watch=true
         B -> getChildren2(12) /d37/bar watch=false
         B -> exists(3) /d37/bar/G1 watch=true
         B -> delete(2) /d37/bar/G1 v=-1
         B -> exists(3) /d37/bar/ready watch=false
         B -> exists(3) /d37/two/ready watch=true",
    );
    scenario.differs(
        "B -> create2(15) /d37/two/G2 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         B -> connect sid=prev",
        "B -> create2(15) /d37/two/G2 data=\"10.0.0.1\" acl=31:world:anyone flags=1
         B -> getChildren2(12) /d37/two watch=false
         B -> create2(15) /d37/two/ready data=\"10.0.0.1\" acl=31:world:anyone flags=0
         B -> connect sid=prev",
    );
    scenario.differs(
        "B -> connect sid=0
         A -> closeSession(-11)",
        "B -> connect sid=0
         B -> getChildren2(12) /d37/two watch=false
         B -> delete(2) /d37/two/ready v=-1
         A -> closeSession(-11)",
    );
    scenario.assert_equal_in(looks_once);
}
