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

use docent::protocol::{EventType, OpCode};
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
        let client = self.tap.client(label).await.unwrap();
        let mut command = Command::new(docent_program().unwrap());
        command.env("LOCK_PEER_DATA", "10.0.0.1").args([
            client.connect_string().as_str(),
            "20000",
            "3",
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

    fn assert_equal(&self) {
        let options = CompareOptions::default().roots(&self.expected_root, &self.root);
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
    let operator = docent::Client::connect(&scene.server).await.unwrap();
    let children = operator.get_children(&scene.root).await.unwrap().to_vec();
    let own =
        children.iter().max_by_key(|name| name.rsplit('-').next().map(str::to_owned)).unwrap();
    operator.delete(&format!("{}/{own}", scene.root), None).await.unwrap();
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
