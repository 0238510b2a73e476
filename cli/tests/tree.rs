//! `docent tree`: the lines, the exit codes, and an outage.

use std::os::unix::process::ExitStatusExt as _;

use super::*;

/// Creates `/t` and nodes below it.
async fn populated() -> String {
    let chroot = new_chroot().await;
    for path in ["/t", "/t/b", "/t/b/c", "/t/b-x"] {
        run(&chroot, &["create", path, "data"]).await.ok();
    }
    run(&chroot, &["set", "/t/b", "two"]).await.ok();
    chroot
}

#[tokio::test]
async fn changes_are_printed_until_a_signal() {
    let chroot = populated().await;
    let other = client(&chroot).await;
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let mut watching = Watching::start(&chroot, &["tree", "--watch", "/t"]);
        watching.expect(&["node /t 0"]).await;
        while watching.line().await != "watching 4" {}
        other.create("/t/new", b"", CreateMode::Persistent).await.unwrap();
        watching.expect(&["created /t/new 0"]).await;
        other.set_data("/t/new", b"x", None).await.unwrap();
        watching.expect(&["changed /t/new 1"]).await;
        other.delete("/t/new", None).await.unwrap();
        watching.expect(&["deleted /t/new 1"]).await;
        kill(signal, watching.child.id().unwrap()).await;
        let status = within_deadline("the end", watching.child.wait()).await.unwrap();
        // The program ended by the signal; a shell would report 128 + N.
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
    while let Some(line) = watching.next().await {
        let object: Value = serde_json::from_str(&line).unwrap();
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
    // The session is killed, so the command continues in another one.
    behind.kill_session(crate::support::DEADLINE).await.unwrap();
    watching.expect(&["stale", "resynced 2"]).await;
    watching.child.kill().await.unwrap();
}
