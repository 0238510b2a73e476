//! What `lock_peer` sends is what Curator sends: the same operations, paths, flags, data and watches, in the
//! same order.
//!
//! `data/curator-traces.txt` was recorded from real Curator behind a proxy; each test plays one of its scenes
//! with `lock_peer` behind a proxy of ours, faults included, and compares client by client.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy knows test functions, not what they call"
)]

mod support;

use std::time::Duration;

use docent::{
    Client,
    protocol::{EventType, OpCode},
    recipes::locks::{InterProcessMutex, InterProcessSemaphoreV2, LockOptions, Revoker},
    session::retry::RetryNTimes,
};
use docent_testing::{
    fault::Fault,
    tap::{CompareOptions, Record, Tap, TapClient, compare},
};
use support::{
    DEADLINE,
    peer::{Outcome, Peer, Side, docent_program},
    real::{RealServer, is_real, server, unique_path},
};
use tokio::process::Command;
use xtask::Settings;

const TRACES: &str = include_str!("data/curator-traces.txt");

/// A scene: lock peers behind a tap, and the path that stands for the trace's.
struct Scene {
    tap: Tap,
    server: String,
    expected: String,
    expected_root: String,
    root: String,
}

/// A lock peer and its side of the tap.
struct Actor {
    peer: Peer,
    /// The peer's port: closed when this is dropped.
    _client: TapClient,
}

impl Scene {
    /// `None` if something is missing, which is then told and counted.
    #[track_caller]
    fn start(title: &str) -> impl Future<Output = Option<Self>> {
        Self::on(title, async move { Some(server()) })
    }

    /// On a server found out later.
    #[track_caller]
    fn on(
        title: &str,
        server: impl Future<Output = Option<String>>,
    ) -> impl Future<Output = Option<Self>> {
        let available = Side::Docent.is_available();
        let expected = section(title);
        let number = title.split('-').next().unwrap_or_default().to_owned();
        async move {
            let server = server.await.filter(|_| available)?;
            let tap = Tap::start(&server).await.unwrap();
            // One component, as in the traces: how many parents are missing is part of the scene.
            let root = unique_path(&number).replace('/', "-").replacen('-', "/", 1);
            Some(Self { tap, server, expected, expected_root: format!("/s{number}"), root })
        }
    }

    async fn actor(&self, label: &str) -> Actor {
        self.actor_with(label, 3, &[]).await
    }

    async fn actor_with(&self, label: &str, retries: u32, env: &[(&str, &str)]) -> Actor {
        let client = self.tap.client(label).await.unwrap();
        let mut command = Command::new(docent_program().unwrap());
        command.env("LOCK_PEER_DATA", "10.0.0.1").envs(env.iter().copied()).args([
            client.connect_string().as_str(),
            "20000",
            &retries.to_string(),
        ]);
        let peer = Peer::spawn(label, command);
        peer.event("ready").await;
        Actor { peer, _client: client }
    }

    fn handle(&self) -> String {
        format!("mutex:{}", self.root)
    }

    async fn seen(&self, wanted: impl FnMut(&Record) -> bool + Send) {
        self.tap.wait_for(DEADLINE, wanted).await.unwrap();
    }

    /// Waits for the `nth` such record; 1 is the first.
    async fn seen_nth(&self, nth: usize, mut wanted: impl FnMut(&Record) -> bool + Send) {
        let mut left = nth;
        let counted = |record: &Record| {
            left -= usize::from(wanted(record));
            left == 0
        };
        self.tap.wait_for(DEADLINE, counted).await.unwrap();
    }

    /// A client in this process.
    async fn client(&self, label: &str) -> (Client, TapClient) {
        let tap = self.tap.client(label).await.unwrap();
        (Client::connect(&tap.connect_string()).await.unwrap(), tap)
    }

    async fn operator_deletes_the_youngest(&self) {
        let operator = Client::connect(&self.server).await.unwrap();
        let children = operator.get_children(&self.root).await.unwrap().to_vec();
        let number = |name: &&String| name.rsplit('-').next().map(str::to_owned);
        let youngest = children.iter().max_by_key(number).unwrap();
        operator.delete(&format!("{}/{youngest}", self.root), None).await.unwrap();
        operator.close().await.unwrap();
    }

    fn assert_equal(&self) {
        self.assert_equal_with(|options| options);
    }

    fn assert_equal_with(&self, choose: impl FnOnce(CompareOptions) -> CompareOptions) {
        let options = CompareOptions::default().roots(&self.expected_root, &self.root);
        let options = choose(options);
        let actual = self.tap.trace().text();
        if let Err(difference) = compare(&self.expected, &actual, &options) {
            panic!("{difference}\n\nactual trace:\n{actual}");
        }
    }
}

impl Actor {
    async fn acquire(&self, handle: &str) {
        self.peer.ask(format!("acquire {handle}")).await.ok();
    }

    async fn release(&self, handle: &str) {
        self.peer.ask(format!("release {handle}")).await.ok();
    }
}

/// One scene of the recording.
fn section(title: &str) -> String {
    let start = format!("=== {title}\n");
    let (_, rest) = TRACES.split_once(&start).unwrap_or_else(|| panic!("no scene {title}"));
    rest.split("\n=== ").next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn scene_01_uncontended_with_missing_parents_and_reentrant() {
    let Some(scene) = Scene::start("01-uncontended-missing-parents").await else { return };
    let a = scene.actor("A").await;
    let handle = format!("{}/x/y", scene.handle());
    a.acquire(&handle).await;
    a.release(&handle).await;
    a.acquire(&handle).await;
    a.acquire(&handle).await;
    a.release(&handle).await;
    a.release(&handle).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_02_contended() {
    let Some(scene) = Scene::start("02-contended").await else { return };
    let (a, b, c) = (scene.actor("A").await, scene.actor("B").await, scene.actor("C").await);
    let handle = scene.handle();
    a.acquire(&handle).await;
    let second = b.peer.send(format!("acquire {handle}"));
    scene.seen(|record| &*record.client == "B" && record.is_reply(OpCode::GetData)).await;
    let third = c.peer.send(format!("acquire {handle}"));
    scene.seen(|record| &*record.client == "C" && record.is_reply(OpCode::GetData)).await;
    a.release(&handle).await;
    second.reply().await.ok();
    b.release(&handle).await;
    third.reply().await.ok();
    c.release(&handle).await;
    for actor in [a, b, c] {
        actor.peer.close().await;
    }
    scene.assert_equal();
}

#[tokio::test]
async fn scene_03_timeouts() {
    let Some(scene) = Scene::start("03-timeout").await else { return };
    let (a, b) = (scene.actor("A").await, scene.actor("B").await);
    let handle = scene.handle();
    a.acquire(&handle).await;
    for wait in ["400", "0", "-5"] {
        let reply = b.peer.ask(format!("acquire {handle} {wait}")).await;
        assert_eq!(reply.outcome, Outcome::TimedOut);
    }
    a.release(&handle).await;
    scene.seen(|record| is_event(record, EventType::NodeDeleted)).await;
    b.peer.ask(format!("acquire {handle} 0")).await.ok();
    b.release(&handle).await;
    a.peer.close().await;
    b.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_05_the_reply_of_a_create_is_lost() {
    let Some(scene) = Scene::start("05-create-reply-lost").await else { return };
    let a = scene.actor("A").await;
    let handle = scene.handle();
    a.acquire(&handle).await;
    a.release(&handle).await;
    scene.tap.inject(Fault::drop_reply(OpCode::Create2));
    a.acquire(&handle).await;
    a.release(&handle).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_10_our_node_is_deleted_while_waiting() {
    // Of its own: the usual one removes empty containers at once, and there is a pause in this scene.
    let properties = vec![("znode.container.checkIntervalMs".into(), "3600000".into())];
    let settings = Settings { properties, ..Settings::default() };
    let real = if is_real() { RealServer::start_with(settings).await } else { None };
    let connect = real.as_ref().map_or_else(server, RealServer::connect);
    let scene = Scene::on("10-our-node-deleted-while-waiting", async { Some(connect) });
    let Some(mut scene) = scene.await else { return };
    let (a, b) = (scene.actor("A").await, scene.actor("B").await);
    let handle = scene.handle();
    a.acquire(&handle).await;
    let waiting = b.peer.send(format!("acquire {handle}"));
    scene.seen(|record| &*record.client == "B" && record.is_reply(OpCode::GetData)).await;
    // In the recording the operator used A's connection; here, one of its own.
    scene.expected = without_the_operator(&scene.expected);
    scene.operator_deletes_the_youngest().await;
    a.release(&handle).await;
    waiting.reply().await.ok();
    b.release(&handle).await;
    a.peer.close().await;
    b.peer.close().await;
    scene.assert_equal();
}

/// Cuts what A sent between B's watch and A's release.
fn without_the_operator(trace: &str) -> String {
    let (before, rest) = trace.split_once("B <- getData OK").unwrap();
    let (watch, _) = rest.split_once('\n').unwrap();
    let (_, after) = rest.split_once("# A releases\n").unwrap();
    format!("{before}B <- getData OK{watch}\n{after}")
}

fn is_event(record: &Record, wanted: EventType) -> bool {
    record.path().is_some_and(|path| record.is_event(wanted, path))
}

// The rest of what can be played: lock peers where they will do, this process where they will not.

#[tokio::test]
async fn scene_04_two_owners_of_one_object() {
    let Some(scene) = Scene::start("04-same-instance-two-threads").await else { return };
    let a = scene.actor("A").await;
    let (one, two) = (format!("{}#1", scene.handle()), format!("{}#2", scene.handle()));
    a.acquire(&one).await;
    let waiting = a.peer.send(format!("acquire {two}"));
    scene.seen(|record| record.is_reply(OpCode::GetData)).await;
    a.release(&one).await;
    waiting.reply().await.ok();
    a.release(&two).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_08_a_create_fails_for_good() {
    let Some(scene) = Scene::start("08-retries-exhausted").await else { return };
    let a = scene.actor_with("A", 0, &[]).await;
    let handle = scene.handle();
    a.acquire(&handle).await;
    a.release(&handle).await;
    scene.tap.inject(Fault::drop_reply(OpCode::Create2));
    let reply = a.peer.ask(format!("acquire {handle}")).await;
    assert_eq!(reply.error_kind(), "ConnectionLoss");
    scene.seen_nth(2, |record| record.is_reply(OpCode::Delete)).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_11_a_vanished_node_and_no_retries() {
    let Some(mut scene) = Scene::start("11-nonode-policy-exhausted").await else { return };
    let (a, b) = (scene.actor("A").await, scene.actor_with("B", 0, &[]).await);
    let handle = scene.handle();
    a.acquire(&handle).await;
    let waiting = b.peer.send(format!("acquire {handle}"));
    scene.seen(|record| &*record.client == "B" && record.is_reply(OpCode::GetData)).await;
    // In the recording the operator used A's connection; here, one of its own.
    scene.expected = cut(&scene.expected, "B <- getData OK", "A -> delete(2) /s11/_c_G1");
    scene.operator_deletes_the_youngest().await;
    a.release(&handle).await;
    assert_eq!(waiting.reply().await.error_kind(), "NoNode");
    a.peer.close().await;
    b.peer.close().await;
    scene.assert_equal();
}

/// By design: Curator deletes twice, for its interrupt is told twice (CURATOR-375).
#[tokio::test]
async fn scene_12_a_waiter_gives_up() {
    let Some(mut scene) = Scene::start("12-interrupt-while-waiting").await else { return };
    let (a, b) = (scene.actor("A").await, scene.actor("B").await);
    let handle = scene.handle();
    a.acquire(&handle).await;
    let waiting = b.peer.send(format!("acquire {handle}"));
    scene.seen(|record| &*record.client == "B" && record.is_reply(OpCode::GetData)).await;
    b.peer.ask(format!("cancel {handle}")).await.ok();
    assert_eq!(waiting.reply().await.error_kind(), "Cancelled");
    scene.seen(|record| &*record.client == "B" && record.is_reply(OpCode::Delete)).await;
    a.release(&handle).await;
    a.peer.close().await;
    b.peer.close().await;
    let delete = "B -> delete(2) /s12/_c_G2-lock-0000000001 v=-1\n";
    scene.expected = scene.expected.replacen(delete, "", 1).replacen("B <- delete NONODE\n", "", 1);
    // Curator's waiter leaves its watch to the event; a dropped future takes it along.
    scene.assert_equal();
}

#[tokio::test]
async fn scene_13_a_revocation() {
    let Some(scene) = Scene::start("13-revoke").await else { return };
    let a = scene.actor("A").await;
    let (b, _b) = scene.client("B").await;
    let handle = scene.handle();
    a.peer.ask(format!("revocable {handle}")).await.ok();
    a.acquire(&handle).await;
    let (children, _) = b.get_children2(&scene.root).await.unwrap();
    let node = format!("{}/{}", scene.root, children.to_vec()[0]);
    b.set_data(&node, b"hello", None).await.unwrap();
    scene.seen_nth(2, |record| &*record.client == "A" && record.is_reply(OpCode::GetData)).await;
    Revoker::attempt_revoke(&b, &policy(), &node).await.unwrap();
    a.peer.event(&format!("revoke {handle}")).await;
    a.release(&handle).await;
    a.acquire(&handle).await;
    a.release(&handle).await;
    a.peer.close().await;
    b.close().await.unwrap();
    scene.assert_equal();
}

#[tokio::test]
async fn scene_14_a_downgrade() {
    let Some(scene) = Scene::start("14-rw-downgrade").await else { return };
    let (a, b) = (scene.actor("A").await, scene.actor("B").await);
    let (read, write) = (format!("read:{}", scene.root), format!("write:{}", scene.root));
    a.acquire(&write).await;
    let waiting = b.peer.send(format!("acquire {read}"));
    scene.seen(|record| &*record.client == "B" && record.is_reply(OpCode::GetData)).await;
    a.acquire(&read).await;
    a.release(&write).await;
    waiting.reply().await.ok();
    b.release(&read).await;
    a.release(&read).await;
    a.peer.close().await;
    b.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_16_a_semaphore() {
    let Some(mut scene) = Scene::start("16-semaphore").await else { return };
    let ((a, _a), (b, _b)) = (scene.client("A").await, scene.client("B").await);
    let semaphore = |client: &Client| {
        InterProcessSemaphoreV2::with_options(client, &scene.root, 2, options()).unwrap()
    };
    let (ours, theirs) = (semaphore(&a), semaphore(&b));
    let mut leases = ours.acquire_many(2).await.unwrap();
    let none = theirs.acquire_timeout(Duration::from_millis(1500)).await.unwrap();
    assert!(none.is_none());
    let waiting = tokio::spawn({
        let theirs = theirs.clone();
        async move { theirs.acquire().await }
    });
    // Two listings of the mutex's queue by now, and three of the leases.
    scene
        .seen_nth(5, |record| &*record.client == "B" && record.is_reply(OpCode::GetChildren2))
        .await;
    leases.remove(0).release().await.unwrap();
    let lease = waiting.await.unwrap().unwrap();
    leases.remove(0).release().await.unwrap();
    scene
        .seen_nth(3, |record| {
            &*record.client == "B" && is_event(record, EventType::NodeChildrenChanged)
        })
        .await;
    let none = theirs.acquire_many_timeout(2, Duration::from_millis(300)).await.unwrap();
    assert!(none.is_none());
    lease.release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    // Of two time-outs in the recording, one was faster than its own event, and asked about the watch.
    let late = "B -> checkWatches(17) /s16/leases type=3\nB -> delete(2) /s16/locks/_c_G11";
    scene.expected = scene.expected.replacen(late, "B -> delete(2) /s16/locks/_c_G11", 1).replacen(
        "B <- checkWatches NOWATCHER\n",
        "",
        1,
    );
    scene.assert_equal();
}

#[tokio::test]
async fn scene_17_deletes_are_lost() {
    let Some(scene) = Scene::start("17-release-while-down").await else { return };
    let a = scene.actor_with("A", 1, &[]).await;
    let handle = scene.handle();
    a.acquire(&handle).await;
    scene.tap.inject(Fault::drop_before(OpCode::Delete).times(4));
    let reply = a.peer.ask(format!("release {handle}")).await;
    assert_eq!(reply.error_kind(), "ConnectionLoss");
    scene.seen(|record| record.is_reply(OpCode::Delete)).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_24_the_parent_vanishes_before_the_second_create() {
    let Some(scene) = Scene::start("24-parent-vanishes-between-mkdirs-and-create").await else {
        return;
    };
    let a = scene.actor("A").await;
    let (o, _o) = scene.client("O").await;
    let handle = scene.handle();
    let delay = Duration::from_secs(1);
    scene.tap.inject(Fault::delay_request(OpCode::Create2, delay).of("A").nth(2));
    let waiting = a.peer.send(format!("acquire {handle}"));
    scene.seen(|record| record.is_reply(OpCode::CreateContainer)).await;
    o.delete(&scene.root, None).await.unwrap();
    waiting.reply().await.ok();
    a.release(&handle).await;
    a.peer.close().await;
    o.close().await.unwrap();
    scene.assert_equal();
}

/// N4 in the untimed scene: Curator after 5.9.0 waits for ever. The wire is the same.
#[tokio::test]
async fn scenes_25_and_32_a_client_closes_while_it_waits() {
    for (title, wait) in
        [("25-close-while-waiting", " 3000"), ("32-close-while-waiting-untimed", "")]
    {
        let Some(scene) = Scene::start(title).await else { return };
        let (a, b) = (scene.actor("A").await, scene.actor("B").await);
        let handle = scene.handle();
        a.acquire(&handle).await;
        drop(b.peer.send(format!("acquire {handle}{wait}")));
        scene.seen(|record| &*record.client == "B" && record.is_reply(OpCode::GetData)).await;
        b.peer.close().await;
        a.release(&handle).await;
        a.peer.close().await;
        scene.assert_equal();
    }
}

#[tokio::test]
async fn scene_26_the_reply_of_a_container_is_lost() {
    let Some(scene) = Scene::start("26-create-nonode-then-loss-in-mkdirs").await else { return };
    let a = scene.actor("A").await;
    let handle = format!("{}/q", scene.handle());
    scene.tap.inject(Fault::drop_reply(OpCode::CreateContainer));
    a.acquire(&handle).await;
    a.release(&handle).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_29_the_search_is_lost_too() {
    let Some(scene) = Scene::start("29-find-then-loss-before-connected").await else { return };
    let a = scene.actor_with("A", 1, &[]).await;
    let handle = scene.handle();
    a.acquire(&handle).await;
    a.release(&handle).await;
    scene.tap.inject(Fault::drop_reply(OpCode::Create2));
    scene.tap.inject(Fault::drop_before(OpCode::GetChildren));
    let reply = a.peer.ask(format!("acquire {handle}")).await;
    assert_eq!(reply.error_kind(), "ConnectionLoss");
    scene.seen_nth(2, |record| record.is_reply(OpCode::Delete)).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_30_the_data_of_a_revocable_lock() {
    let Some(scene) = Scene::start("30-revocable-data").await else { return };
    let a = scene.actor_with("A", 3, &[("LOCK_PEER_LOCK_DATA", "DATA")]).await;
    let handle = format!("write:{}", scene.root);
    a.acquire(&handle).await;
    a.release(&handle).await;
    a.peer.ask(format!("revocable {handle}")).await.ok();
    a.acquire(&handle).await;
    a.release(&handle).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_34_no_containers() {
    let Some(scene) = Scene::start("34-no-containers").await else { return };
    let env = [("LOCK_PEER_DATA", "127.0.0.1"), ("LOCK_PEER_OPTIONS", "no-containers")];
    let a = scene.actor_with("A", 3, &env).await;
    let handle = format!("{}/z", scene.handle());
    a.acquire(&handle).await;
    a.release(&handle).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_35_the_server_ends_the_holders_session() {
    let Some(scene) = Scene::start("35-server-side-expiry-while-holding-then-contend").await else {
        return;
    };
    let (a, b) = (scene.actor("A").await, scene.actor("B").await);
    let handle = scene.handle();
    a.acquire(&handle).await;
    let waiting = b.peer.send(format!("acquire {handle}"));
    scene.seen(|record| &*record.client == "B" && record.is_reply(OpCode::GetData)).await;
    scene.tap.kill_session("A", DEADLINE).await.unwrap();
    waiting.reply().await.ok();
    b.release(&handle).await;
    a.peer.event(&format!("lost {handle}")).await;
    a.peer.event("state RECONNECTED").await;
    a.release(&handle).await;
    a.peer.close().await;
    b.peer.close().await;
    scene.assert_equal();
}

/// By design: a dropped future cannot wait for its delete, so it asks about its watch before the event.
#[tokio::test]
async fn scene_36_a_waiter_for_a_lease_gives_up() {
    let Some(scene) = Scene::start("36-semaphore-interrupt").await else { return };
    let ((a, _a), (b, _b)) = (scene.client("A").await, scene.client("B").await);
    let semaphore = |client: &Client| {
        InterProcessSemaphoreV2::with_options(client, &scene.root, 1, options()).unwrap()
    };
    let lease = semaphore(&a).acquire().await.unwrap();
    let theirs = semaphore(&b);
    let waiting = tokio::spawn(async move { theirs.acquire().await });
    scene
        .seen_nth(2, |record| &*record.client == "B" && record.is_reply(OpCode::GetChildren2))
        .await;
    waiting.abort();
    scene.seen_nth(2, |record| &*record.client == "B" && record.is_reply(OpCode::Delete)).await;
    for child in ["leases", "locks"] {
        let path = format!("{}/{child}", scene.root);
        let _ = a.get_children2(&path).await.unwrap();
    }
    lease.release().await.unwrap();
    a.close().await.unwrap();
    b.close().await.unwrap();
    scene.assert_equal_with(|options| options.without("checkWatches"));
}

#[tokio::test]
async fn scene_40_an_upgrade() {
    let Some(scene) = Scene::start("40-upgrade").await else { return };
    let a = scene.actor("A").await;
    let (read, write) = (format!("read:{}", scene.root), format!("write:{}", scene.root));
    a.acquire(&read).await;
    let reply = a.peer.ask(format!("acquire {write} 300")).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    a.release(&read).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_41_a_watch_that_nobody_waits_for() {
    let Some(scene) = Scene::start("41-timeout-then-release-by-other-thread-removes-watch").await
    else {
        return;
    };
    let (a, b) = (scene.actor("A").await, scene.actor("B").await);
    let handle = scene.handle();
    a.acquire(&handle).await;
    let reply = b.peer.ask(format!("acquire {handle} 200")).await;
    assert_eq!(reply.outcome, Outcome::TimedOut);
    a.release(&handle).await;
    scene.seen(|record| is_event(record, EventType::NodeDeleted)).await;
    a.peer.close().await;
    b.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_43_the_first_create_of_a_client() {
    let Some(scene) = Scene::start("43-fresh-client-first-create-session0").await else { return };
    let tap = scene.tap.client("A").await.unwrap();
    let client = Client::start(docent::Config::new(&tap.connect_string()).unwrap());
    let options = options().with_default_data("127.0.0.1");
    let mutex = InterProcessMutex::with_options(&client, &scene.root, options).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
    scene.assert_equal();
}

#[tokio::test]
async fn scene_57_deletes_are_lost_without_retries() {
    let Some(scene) = Scene::start("57-guaranteed-delete-norwait-policy0").await else { return };
    let a = scene.actor_with("A", 0, &[]).await;
    let handle = scene.handle();
    a.acquire(&handle).await;
    scene.tap.inject(Fault::drop_before(OpCode::Delete).times(2));
    let reply = a.peer.ask(format!("release {handle}")).await;
    assert_eq!(reply.error_kind(), "ConnectionLoss");
    scene.seen(|record| record.is_reply(OpCode::Delete)).await;
    a.peer.close().await;
    scene.assert_equal();
}

#[tokio::test]
async fn scene_58_given_up_during_the_create() {
    let Some(scene) = Scene::start("58-interrupt-during-create").await else { return };
    let (a, _a) = scene.client("A").await;
    let mutex = InterProcessMutex::with_options(&a, &scene.root, options()).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    {
        let mut acquire = std::pin::pin!(mutex.acquire());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(acquire.as_mut().poll(&mut cx).is_pending());
    }
    scene.seen_nth(2, |record| record.is_reply(OpCode::Delete)).await;
    a.close().await.unwrap();
    scene.assert_equal();
}

/// What became of each recorded scene. `docs/CURATOR.md` has the same table.
const TABLE: &[(&str, &str)] = &[
    ("01-uncontended-missing-parents", "equal"),
    ("02-contended", "equal"),
    ("03-timeout", "equal"),
    ("04-same-instance-two-threads", "equal"),
    ("05-create-reply-lost", "equal"),
    ("07-create-lost-twice", "differs by design: N1"),
    ("08-retries-exhausted", "equal"),
    ("09-session-expired-during-create", "not played: expiry that only the client knows of"),
    ("10-our-node-deleted-while-waiting", "equal"),
    ("11-nonode-policy-exhausted", "equal"),
    ("12-interrupt-while-waiting", "differs by design: one delete, not two"),
    ("13-revoke", "equal"),
    ("14-rw-downgrade", "equal"),
    ("16-semaphore", "equal"),
    ("17-release-while-down", "equal"),
    ("19-session-change-in-protected-find-namespace", "differs by design: N3"),
    ("20-multilock", "differs by design: N5"),
    ("21-session-expires-while-holding", "not played: expiry that only the client knows of"),
    ("22-session-expires-while-waiting", "differs by design: N2"),
    ("24-parent-vanishes-between-mkdirs-and-create", "equal"),
    ("25-close-while-waiting", "equal"),
    ("26-create-nonode-then-loss-in-mkdirs", "equal"),
    ("29-find-then-loss-before-connected", "equal"),
    ("30-revocable-data", "equal"),
    ("32-close-while-waiting-untimed", "equal"),
    ("34-no-containers", "equal"),
    ("35-server-side-expiry-while-holding-then-contend", "equal"),
    ("36-semaphore-interrupt", "differs by design: a checkWatches more"),
    (
        "37-create-session-expired-retries-exhausted",
        "not played: expiry that only the client knows of",
    ),
    ("38-contended-create-lost-then-other-holder", "differs by design: N1"),
    ("40-upgrade", "equal"),
    ("41-timeout-then-release-by-other-thread-removes-watch", "equal"),
    ("43-fresh-client-first-create-session0", "equal"),
    ("45-three-threads-same-instance", "not played: the order of three threads is chance"),
    ("46-event-types", "not played: no lock"),
    ("47-semaphore-lease-create-lost-twice", "differs by design: N1"),
    ("48-foreign-child", "differs by design: N7"),
    ("50-timed-acquire-during-disconnect", "differs by design: N8"),
    ("51-release-by-other-thread", "not played: a guard cannot be released by who has none"),
    ("53-double-hold-old-session-node", "differs by design: N2"),
    ("54-simulated-expiry-timer", "not played: no lock"),
    ("55-root-path", "differs by design: N10"),
    ("57-guaranteed-delete-norwait-policy0", "equal"),
    ("58-interrupt-during-create", "equal"),
];

#[test]
fn every_recorded_scene_is_accounted_for() {
    let recorded: Vec<_> = TRACES.lines().filter_map(|line| line.strip_prefix("=== ")).collect();
    let told: Vec<_> = TABLE.iter().map(|(scene, _)| *scene).collect();
    assert_eq!(told, recorded);
    let docs = include_str!("../docs/CURATOR.md");
    let source = include_str!("trace_parity.rs");
    for (scene, verdict) in TABLE {
        println!("{scene:<60} {verdict}");
        assert!(docs.contains(&format!("| {scene} | {verdict} |")), "not in CURATOR.md: {scene}");
        let played = source.matches(&format!("\"{scene}\"")).count() > 1;
        assert!(played || *verdict != "equal", "{scene} is not played");
    }
}

fn policy() -> RetryNTimes {
    RetryNTimes::new(3, Duration::from_millis(100))
}

fn options() -> LockOptions {
    LockOptions::default().with_retry_policy(policy()).with_default_data("10.0.0.1")
}

/// The text without the lines between the first that contains `after` and the next that contains `before`.
fn cut(trace: &str, after: &str, before: &str) -> String {
    let mut lines = trace.lines();
    let mut kept: Vec<&str> = Vec::new();
    for line in lines.by_ref() {
        kept.push(line);
        if line.contains(after) {
            break;
        }
    }
    kept.extend(lines.skip_while(|line| !line.contains(before)));
    kept.join("\n")
}
