//! The example `recipe_peer`: its command lines about caches.

use docent_testing::TestingServer;
use tokio::process::Command;

use crate::support::peer::Peer;

#[tokio::test]
async fn a_peer_caches_on_command() {
    let server = TestingServer::start().await.unwrap();
    let program = tokio::task::spawn_blocking(|| xtask::example("recipe_peer").unwrap());
    let mut command = Command::new(program.await.unwrap());
    command.args([server.connect_string().as_str(), "20000", "3"]);
    let peer = Peer::spawn("recipe_peer", command);
    peer.event("ready").await;
    peer.ask("mk /c/d x").await.ok();
    let mut events = peer.events_from_now();
    peer.ask("cstart cache:/c keep nodata storage=s").await.ok();
    events.next("cache cache:/c created /c 0 \"\"").await;
    events.next("cache cache:/c created /c/d 0 x").await;
    events.next("cache cache:/c initialized 2").await;
    assert_eq!(peer.ask("csize cache:/c").await.ok(), "2");
    assert_eq!(peer.ask("cget cache:/c /c/d").await.ok(), "0 -");
    assert_eq!(peer.ask("cget cache:/c /c/e").await.ok(), "-");
    peer.ask("cclose cache:/c").await.ok();
    peer.ask("set /c/d 0x00ff").await.ok();
    peer.ask("cstart cache:/c#2 storage=s").await.ok();
    events.next("cache cache:/c#2 changed /c/d 1 0x00ff was 0 -").await;
    events.next("cache cache:/c#2 initialized 2").await;
    assert_eq!(peer.ask("clist cache:/c#2").await.ok(), "2 /c/d=1 /c=0");
    peer.ask("cstart cache:/c#pcc pcc").await.ok();
    events.next("cache cache:/c#pcc CHILD_ADDED /c/d 1 0x00ff").await;
    events.next("cache cache:/c#pcc INITIALIZED").await;
    peer.ask("cstart cache:/c#node single node").await.ok();
    events.next("cache cache:/c#node nodeChanged").await;
    assert_eq!(peer.ask("create /c/e -").await.ok(), "/c/e");
    events.next("cache cache:/c#pcc CHILD_ADDED /c/e 0 \"\"").await;
    assert_eq!(peer.ask("get /c/e").await.ok(), "0 \"\"");
    peer.ask("rmr /c").await.ok();
    events.next("cache cache:/c#2 deleted /c 0 \"\"").await;
    assert_eq!(peer.ask("get /c").await.error_kind(), "NoNodeException");
    assert_eq!(peer.ask("csize cache:/none").await.error_kind(), "IllegalStateException");
    peer.close().await;
}

/// C41: a value that is not compressed is reported, and shown with its subtree.
#[tokio::test]
async fn a_peer_caches_compressed_data_on_command() {
    let server = TestingServer::start().await.unwrap();
    let program = tokio::task::spawn_blocking(|| xtask::example("recipe_peer").unwrap());
    let mut command = Command::new(program.await.unwrap());
    command.args([server.connect_string().as_str(), "20000", "3"]);
    let peer = Peer::spawn("recipe_peer", command);
    peer.event("ready").await;
    peer.ask("createz /z one").await.ok();
    peer.ask("bulk /z n 8 11").await.ok();
    assert_eq!(peer.ask("children /z").await.list(), ["n10", "n8", "n9"]);
    assert_eq!(peer.ask("get /z").await.ok().split_once(' ').unwrap().1[..8], *"0x1f8b08");
    assert_eq!(peer.ask("set /z/n8 plain").await.ok(), "1");
    let mut events = peer.events();
    peer.ask("cstart cache:/z compressed").await.ok();
    events.next("cache cache:/z created /z 0 one").await;
    events.next("cacheerror cache:/z DataInconsistencyException").await;
    events.next("cache cache:/z created /z/n8 1 plain").await;
    events.next("cache cache:/z initialized 4").await;
    assert_eq!(peer.ask("setz /z/n8 mended").await.ok(), "2");
    events.next("cache cache:/z changed /z/n8 2 mended was 1 plain").await;
    assert_eq!(peer.ask("cget cache:/z /z/n8").await.ok(), "2 mended");
    peer.ask("acl /z/n9 none").await.ok();
    assert_eq!(peer.ask("get /z/n9").await.error_kind(), "NoAuthException");
    peer.ask("acl /z/n9 open").await.ok();
    assert_eq!(peer.ask("get /z/n9").await.ok(), "0 \"\"");
    assert_eq!(peer.ask("acl /z/n9 half").await.error_kind(), "BadCommand");
    assert_eq!(peer.ask("bulk /z n x 9").await.error_kind(), "BadCommand");
    assert_eq!(peer.ask("qoffer queue:/q x").await.error_kind(), "BadCommand");
    peer.close().await;
}
