//! The example `recipe_peer`: its command lines.

use docent_testing::TestingServer;
use tokio::process::Command;

use crate::support::{
    eventually,
    peer::{Outcome, Peer},
};

async fn peer(server: &TestingServer, arguments: &[&str]) -> Peer {
    let program = tokio::task::spawn_blocking(|| xtask::example("recipe_peer").unwrap());
    let mut command = Command::new(program.await.unwrap());
    command.arg(server.connect_string()).args(arguments);
    let peer = Peer::spawn("recipe_peer", command);
    peer.event("ready").await;
    peer
}

#[tokio::test]
async fn a_peer_leads_on_command() {
    let server = TestingServer::start().await.unwrap();
    let peer = peer(&server, &["6000", "5", "100", "session"]).await;
    // All at once: a question right behind the start waits for the first place, though not for the await.
    let start = peer.send("latch start a /latch idA notify");
    let leads = peer.send("latch await a 10000");
    let question = peer.send("latch leader? a");
    start.reply().await.ok();
    assert_eq!(question.reply().await.ok(), "true");
    leads.reply().await.ok();
    peer.event("leader a").await;
    assert!(peer.ask("latch token a").await.ok().parse::<i64>().unwrap() > 0);
    assert_eq!(peer.ask("latch participants a").await.ok(), "1 *idA");
    assert_eq!(peer.ask("latch who a").await.ok(), "idA");
    let path = peer.ask("latch path a").await.ok().to_owned();
    assert_eq!(peer.ask("latch leaderpath a").await.ok(), path);
    peer.ask("latch start b /latch -").await.ok();
    assert_eq!(peer.ask("latch await b 100").await.outcome, Outcome::TimedOut);
    assert_eq!(peer.ask("latch token b").await.error_kind(), "Lost");
    peer.ask("latch close a").await.ok();
    peer.event("notleader a").await;
    peer.ask("latch await b").await.ok();
    assert_eq!(peer.ask("latch who b").await.ok(), "-");
    assert_eq!(peer.ask("latch await c").await.error_kind(), "IllegalState");

    peer.ask("selector start s /selector idS").await.ok();
    peer.event("lead s 1").await;
    assert_eq!(peer.ask("selector leader? s").await.ok(), "true");
    peer.ask("selector yield s").await.ok();
    peer.event("lead-end s 1 returned").await;
    assert_eq!(peer.ask("selector requeue s").await.ok(), "true");
    peer.event("lead s 2").await;
    peer.ask("selector interrupt s").await.ok();
    peer.event("lead-end s 2 interrupted").await;
    // The leadership ends before the node is deleted, as in Curator.
    eventually("no participant", async || {
        (peer.ask("selector who s").await.ok() == "none").then_some(())
    })
    .await;
    peer.ask("selector close s").await.ok();
    peer.close().await;
}

#[tokio::test]
async fn a_peer_keeps_nodes_and_joins_groups_on_command() {
    let server = TestingServer::start().await.unwrap();
    let peer = peer(&server, &[]).await;
    peer.ask("pnode start n /n ephemeral v1").await.ok();
    peer.ask("pnode wait n 10000").await.ok();
    peer.event("created n /n").await;
    assert_eq!(peer.ask("pnode path n").await.ok(), "/n");
    assert_eq!(peer.ask("pnode data n").await.ok(), "v1");
    let session = peer.ask("session").await.ok().to_owned();
    let read = peer.ask("read /n").await;
    assert!(read.ok().starts_with(&format!("v1 0 {session} ")), "{read:?}");
    peer.ask("remove /n").await.ok();
    peer.event("lost n").await;
    peer.ask("pnode close n").await.ok();
    peer.ask("ttlnode start t /t 60000 x").await.ok();
    peer.ask("ttlnode wait t 10000").await.ok();
    peer.ask("ttlnode close t").await.ok();
    peer.ask("group join g /g me").await.ok();
    assert_eq!(peer.ask("group members g").await.ok(), "1 me=10.0.0.1");
    peer.ask("group leave g").await.ok();
    peer.ask("makero /closed").await.ok();
    peer.ask("latch start l /closed id").await.ok();
    assert_eq!(peer.ask("latch await l").await.error_kind(), "NoAuth");
    let mut events = peer.events_from_now();
    peer.ask(format!("killsession {}", server.connect_string())).await.ok();
    events.next("state LOST").await;
    events.next("state RECONNECTED").await;
    peer.close().await;
}
