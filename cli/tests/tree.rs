//! `docent tree`: the lines, the exit codes, and the effects of an outage.

use std::os::unix::process::ExitStatusExt as _;

use crate::support::{client, docent, kill, run, server, unique_path, within_deadline};
use docent::CreateMode;
use docent_testing::tap::Tap;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout},
};

/// Returns a connect string with a new chroot, which exists.
async fn new_chroot() -> String {
    let (server, path) = (server(), unique_path("tree"));
    run(&server, &["create", "-p", &path]).await.ok();
    format!("{server}{path}")
}

/// Creates `/t` and nodes below it.
async fn populated() -> String {
    let chroot = new_chroot().await;
    for path in ["/t", "/t/b", "/t/b/c", "/t/b-x"] {
        run(&chroot, &["create", path, "data"]).await.ok();
    }
    run(&chroot, &["set", "/t/b", "two"]).await.ok();
    chroot
}

/// A running `docent tree --watch` and its output.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(connect: &str, arguments: &[&str]) -> Self {
        let mut child = docent(connect, arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn expect(&mut self, wanted: &[&str]) {
        for wanted in wanted {
            let line = within_deadline(wanted, self.lines.next_line()).await.unwrap();
            assert_eq!(line.as_deref(), Some(*wanted));
        }
    }
}

const TREE: &str = "node /t 0\nnode /t/b 1\nnode /t/b-x 0\nnode /t/b/c 0\n";

#[tokio::test]
async fn a_tree_is_printed_with_its_versions() {
    let chroot = populated().await;
    assert_eq!(run(&chroot, &["tree", "/t"]).await.ok(), TREE);
    let children = "node /t 0\nnode /t/b 1\nnode /t/b-x 0\n";
    assert_eq!(run(&chroot, &["tree", "--depth", "1", "/t"]).await.ok(), children);
    assert_eq!(run(&chroot, &["tree", "-d", "0", "/t"]).await.ok(), "node /t 0\n");
    let out = run(&chroot, &["tree", "--json", "/t/b/c"]).await.ok();
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&object["event"], &object["path"]), (&"node".into(), &"/t/b/c".into()));
    assert_eq!((&object["version"], &object["stat"]["dataLength"]), (&0.into(), &4.into()));
}

#[tokio::test]
async fn changes_are_printed_until_a_signal() {
    let chroot = populated().await;
    let other = client(&chroot).await;
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let mut watching = Watching::start(&chroot, &["tree", "--watch", "/t"]);
        watching.expect(&["node /t 0"]).await;
        while within_deadline("the tree", watching.lines.next_line()).await.unwrap().unwrap()
            != "watching 4"
        {}
        other.create("/t/new", b"", CreateMode::Persistent).await.unwrap();
        watching.expect(&["created /t/new 0"]).await;
        other.set_data("/t/new", b"x", None).await.unwrap();
        watching.expect(&["changed /t/new 1"]).await;
        other.delete("/t/new", None).await.unwrap();
        watching.expect(&["deleted /t/new 1"]).await;
        kill(signal, watching.child.id().unwrap()).await;
        let status = within_deadline("the end", watching.child.wait()).await.unwrap();
        // A shell reports 128 + N.
        assert_eq!(status.signal(), Some(number));
    }
}

#[tokio::test]
async fn watching_ends_with_its_count_or_its_time() {
    let chroot = populated().await;
    let other = client(&chroot).await;
    let arguments = ["tree", "-w", "-n", "2", "--json", "/t/b"];
    let mut watching = Watching::start(&chroot, &arguments);
    let mut objects = Vec::new();
    while let Some(line) = within_deadline("a line", watching.lines.next_line()).await.unwrap() {
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        if object["event"] == "watching" {
            assert_eq!(object["nodes"], 2);
            other.delete_recursive("/t/b").await.unwrap();
        }
        objects.push(object);
    }
    let status = within_deadline("the end", watching.child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0));
    let paths: Vec<_> = objects.iter().map(|o| (&o["event"], &o["path"])).collect();
    let deleted = "deleted".into();
    assert_eq!(paths[3..], [(&deleted, &"/t/b/c".into()), (&deleted, &"/t/b".into())]);
    let ran = run(&chroot, &["tree", "-w", "-t", "300ms", "/t/b-x"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(124), "node /t/b-x 0\nwatching 1\n"));
}

// Case (Caches): a tree is followed from a shell across an outage.
#[tokio::test]
async fn the_differences_of_an_outage_are_printed() {
    let chroot = populated().await;
    let other = client(&chroot).await;
    let (servers, path) = chroot.split_once('/').unwrap();
    let tap = Tap::start(servers).await.unwrap();
    let behind = tap.client("tree").await.unwrap();
    let connect = format!("{}/{path}", behind.connect_string());
    let mut watching = Watching::start(&connect, &["tree", "-w", "/t/b"]);
    watching.expect(&["node /t/b 1", "node /t/b/c 0", "watching 2"]).await;
    behind.refuse().await.unwrap();
    behind.cut();
    watching.expect(&["stale"]).await;
    other.delete("/t/b/c", None).await.unwrap();
    other.create("/t/b/d", b"", CreateMode::Persistent).await.unwrap();
    behind.accept().await.unwrap();
    watching.expect(&["deleted /t/b/c 0", "created /t/b/d 0", "resynced 2"]).await;
    // In another session.
    behind.kill_session(crate::support::DEADLINE).await.unwrap();
    watching.expect(&["stale", "resynced 2"]).await;
    watching.child.kill().await.unwrap();
}

#[tokio::test]
async fn missing_and_unreadable_nodes_are_errors_of_one_line() {
    let chroot = populated().await;
    for options in [&["tree"][..], &["tree", "--watch"]] {
        let of = |path| [options, &[path]].concat();
        run(&chroot, &of("/nope")).await.failed(1, "/nope: no such node");
        run(&chroot, &of("nope")).await.failed(64, "a path looks like /a/b");
        let missing = format!("{chroot}/no/such/chroot");
        run(&missing, &of("/t")).await.failed(64, "/no/such/chroot does not exist");
        run("127.0.0.1:1", &[&of("/t")[..], &["--connect-timeout", "100ms"]].concat())
            .await
            .failed(69, "127.0.0.1:1");
    }
    let auth = ["--auth", "digest:me:secret"];
    let create = ["create", "--acl", "auth::cdrwa", auth[0], auth[1], "/t/b/mine", "x"];
    run(&chroot, &create).await.ok();
    for options in [&["tree"][..], &["tree", "-w"]] {
        let of = |path| [options, &[path]].concat();
        run(&chroot, &of("/t/b/mine")).await.failed(77, "--auth digest:USER:PASSWORD");
    }
    // The rest of the tree is printed.
    let ran = run(&chroot, &["tree", "/t/b"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(77), "node /t/b 1\nnode /t/b/c 0\n"));
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    let ran = run(&chroot, &["tree", "-w", "-t", "300ms", "/t/b"]).await;
    let wanted = "node /t/b 1\nnode /t/b/c 0\nunreadable /t/b/mine NoAuth\nwatching 2\n";
    assert_eq!((ran.code, ran.out.as_str()), (Some(124), wanted));
    let all = run(&chroot, &["tree", auth[0], auth[1], "/t/b"]).await.ok();
    assert!(all.ends_with("node /t/b/mine 0\n"), "{all}");
    run(&chroot, &["tree", "--count", "1", "/t"]).await.failed(64, "--watch");
    run(&chroot, &["tree", "-w", "--count", "0", "/t"]).await.failed(64, "--count");
}
