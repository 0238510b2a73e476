//! The example `recipe_peer`: its command lines about the client and its ensemble.

use docent::{Client, acl};
use docent_testing::{TestingCluster, TestingServer, server};
use tokio::process::Command;

use crate::{
    reconfig::{OBSERVER, SUPER_DIGEST},
    support::{
        eventually,
        peer::{Outcome, Peer},
    },
};

async fn peer(connect: &str, flags: &str) -> Peer {
    let program = tokio::task::spawn_blocking(|| xtask::example("recipe_peer").unwrap());
    let mut command = Command::new(program.await.unwrap());
    command.args([connect, "20000", "3", flags]);
    Peer::spawn("recipe_peer", command)
}

/// The scenario of the recording D30, by the commands of the recording.
#[tokio::test]
async fn a_peer_follows_its_ensemble_on_command() {
    let config = server::Config {
        servers: 3,
        reconfig_enabled: true,
        super_digest: Some(SUPER_DIGEST.to_owned()),
        ..server::Config::default()
    };
    let cluster = TestingCluster::start_with(config).await.unwrap();
    // The peer is no super user.
    let admin = Client::connect(&cluster.connect_string()).await.unwrap();
    admin.add_auth("digest", b"super:test").await.unwrap();
    admin.set_acl("/zookeeper/config", acl::OPEN_ACL_UNSAFE, None).await.unwrap();

    let one = cluster.addr(0).unwrap().to_string();
    let plain = peer(&one, "quiet").await;
    plain.event("ready").await;
    assert_eq!(plain.ask("ensemble -").await.ok(), one);
    assert_eq!(plain.ask("listeners -").await.ok(), "0");
    assert_eq!(plain.ask("busy 10").await.ok(), "");
    plain.close().await;

    let peer = peer(&one, "tracker,quiet").await;
    peer.event("ready").await;
    let mut all: Vec<_> = (0..3).map(|at| cluster.addr(at).unwrap().to_string()).collect();
    all.sort();
    let is = async |expected: String| {
        eventually("the servers", async || {
            (peer.ask("ensemble -").await.ok() == expected).then_some(())
        })
        .await;
    };
    is(all.join(",")).await;
    // The watch on the configuration.
    assert_eq!(peer.ask("listeners -").await.ok(), "1");
    let answer = peer.ask(format!("reconfig - {}", OBSERVER.replace("0.0.0.0", "localhost"))).await;
    assert!(answer.ok().starts_with("0x7365727665722e"), "{}", answer.ok());
    is(format!("{},localhost:4003", all.join(","))).await;
    peer.close().await;
}

#[tokio::test]
async fn a_lazy_peer_is_ready_without_a_session() {
    let server = TestingServer::start().await.unwrap();
    server.stall();
    let peer = peer(&server.connect_string(), "lazy").await;
    assert_eq!(peer.event("ready").await.text, "ready 0");
    server.resume();
    peer.event("state CONNECTED").await;
    let first = peer.ask("session -").await.ok().to_owned();
    peer.ask(format!("killsession - {}", server.connect_string())).await.ok();
    eventually("another session", async || {
        let answer = peer.ask("session -").await.outcome;
        matches!(answer, Outcome::Ok(session) if session != first).then_some(())
    })
    .await;
    peer.close().await;
}
