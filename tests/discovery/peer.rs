//! The example `recipe_peer`: its command lines about service discovery.

use docent_testing::TestingServer;
use tokio::process::Command;

use crate::support::peer::Peer;

/// A peer with the settings of the recordings.
pub(crate) async fn recipe_peer(name: &str, connect: &str) -> Peer {
    let program = tokio::task::spawn_blocking(|| xtask::example("recipe_peer").unwrap());
    let mut command = Command::new(program.await.unwrap());
    command.args([connect, "20000", "3", "none"]);
    let peer = Peer::spawn(name, command);
    peer.event("ready").await;
    peer
}

#[tokio::test]
async fn a_peer_registers_and_finds_on_command() {
    let server = TestingServer::start().await.unwrap();
    let peer = recipe_peer("recipe_peer", &server.connect_string()).await;
    let json = |id: &str, port: u32| {
        format!(
            r#"{{"name":"web","id":"{id}","address":"h","port":{port},"sslPort":null,"payload":{{"@class":"a.B","k":"v w"}},"registrationTimeUTC":1,"serviceType":"DYNAMIC","uriSpec":null}}"#
        )
    };
    assert_eq!(peer.ask("dnames disc:/s").await.error_kind(), "IllegalState");
    peer.ask("dopen disc:/s").await.ok();
    peer.ask("dopen disc:/s#2 new").await.ok();
    peer.ask("dopen disc:/s#3 watch").await.ok();
    assert_eq!(peer.ask("dnames disc:/s").await.ok(), "0");
    let mut events = peer.events_from_now();
    assert_eq!(peer.ask("scstart disc:/s web").await.ok(), "0");
    peer.ask(format!("dreg disc:/s {}", json("i1", 1))).await.ok();
    events.next("svc disc:/s web 1").await;
    peer.ask(format!("dreg disc:/s {}", json("i2", 1))).await.ok();
    events.next("svc disc:/s web 2").await;
    peer.ask(format!("dupdate disc:/s {}", json("i2", 2))).await.ok();
    events.next("svc disc:/s web 2").await;
    assert_eq!(peer.ask("sclist disc:/s web").await.ok(), "2 i1=h:1 i2=h:2");
    assert_eq!(peer.ask("dnames disc:/s").await.ok(), "1 web");
    assert_eq!(peer.ask("dids disc:/s web").await.ok(), "2 i1 i2");
    assert_eq!(peer.ask("dget disc:/s web i2").await.ok(), json("i2", 2));
    let full = json("i2", 2).replace(":null}", ":null,\"enabled\":true}");
    assert_eq!(peer.ask("dget disc:/s#2 web i2").await.ok(), full);
    assert_eq!(peer.ask("dget disc:/s web none").await.ok(), "-");
    for strategy in ["rr", "random", "sticky"] {
        peer.ask(format!("pstart disc:/s web {strategy} 1 60000")).await.ok();
        assert_eq!(peer.ask("pall disc:/s web").await.ok(), "2 i1 i2");
        peer.ask("perror disc:/s web i1").await.ok();
        assert_eq!(peer.ask("pget disc:/s web").await.ok(), "i2", "{strategy}");
        peer.ask("pclose disc:/s web").await.ok();
    }
    assert_eq!(peer.ask("pget disc:/s web").await.error_kind(), "IllegalState");
    peer.ask("dunreg disc:/s i1").await.ok();
    events.next("svc disc:/s web 1").await;
    peer.ask("scclose disc:/s web").await.ok();
    assert_eq!(peer.ask("dreg disc:/s []").await.error_kind(), "BadCommand");
    peer.ask("dclose disc:/s").await.ok();
    assert_eq!(peer.ask("dids disc:/s#2 web").await.ok(), "0");
    peer.close().await;
}
