//! The example `recipe_peer`: its command lines for barriers and atomic numbers.

use docent_testing::TestingServer;
use tokio::process::Command;

use crate::support::peer::Peer;

async fn peer(server: &TestingServer) -> Peer {
    let program = tokio::task::spawn_blocking(|| xtask::example("recipe_peer").unwrap());
    let mut command = Command::new(program.await.unwrap());
    command.args([&server.connect_string(), "20000", "3"]);
    let peer = Peer::spawn("recipe_peer", command);
    peer.event("ready").await;
    peer
}

#[tokio::test]
async fn a_peer_waits_at_barriers_on_command() {
    let server = TestingServer::start().await.unwrap();
    let peer = peer(&server).await;
    peer.ask("bset barrier:/b/x").await.ok();
    assert!(!peer.ask("bwait barrier:/b/x 50").await.is_ok());
    let waiting = peer.send("bwait barrier:/b/x#other");
    peer.ask("bremove barrier:/b/x").await.ok();
    waiting.reply().await.ok();
    assert!(!peer.ask("denter dbarrier=2:/d#lo 50").await.is_ok());
    let low = peer.send("denter dbarrier=2:/d#lo");
    let high = peer.send("denter dbarrier=2:/d#hi");
    low.reply().await.ok();
    high.reply().await.ok();
    let names = peer.children("/d").await;
    let first = |name: &str| name.chars().next().unwrap();
    assert!(('0'..='7').contains(&first(&names[0])), "{names:?}");
    assert!(('8'..='f').contains(&first(&names[1])), "{names:?}");
    assert_eq!(names[2], "ready");
    assert!(!peer.ask("dleave dbarrier=2:/d#lo 50").await.is_ok());
    assert!(peer.ask("dleave dbarrier=2:/d#hi 5000").await.is_ok());
    let refused = peer.ask("dleave dbarrier=2:/d#hi").await;
    assert_eq!(refused.error_kind(), "BadArguments");
    peer.close().await;
}

#[tokio::test]
async fn a_peer_counts_on_command() {
    let server = TestingServer::start().await.unwrap();
    let peer = peer(&server).await;
    for (command, answer) in [
        ("aget along:/l", "true 0 0 0 0"),
        ("ainc along:/l", "true 0 1 1 0"),
        ("aadd along:/l 41", "true 1 42 1 0"),
        ("asub along:/l 100", "true 42 -58 1 0"),
        ("acas along:/l -58 7", "true -58 7 0 0"),
        ("acas along:/l 1 2", "false 7 0 0 0"),
        ("atryset along:/l 9", "true 7 9 1 0"),
        ("aforce along:/l -1", ""),
        ("ainit along:/l 5", "false"),
        ("ainit along:/new/n 5", "true"),
        ("aopen aint:/i 0 0 /lock 1000", ""),
        ("ainc aint:/i", "true 0 1 1 0"),
        ("adec aint:/i", "true 1 0 1 0"),
        ("atryset avalue:/v hello", "true - hello 1 0"),
        ("acas avalue:/v hello \"\"", "true hello \"\" 0 0"),
        ("acas avalue:/v \"\" 0x00ff", "true \"\" 0x00ff 0 0"),
        ("aget avalue:/v", "true 0x00ff 0x00ff 0 0"),
        ("acas avalue:/v x y", "false 0x00ff - 0 0"),
    ] {
        assert_eq!(peer.ask(command).await.ok(), answer, "{command}");
    }
    peer.ask("write /l four").await.ok();
    assert_eq!(peer.ask("ainc along:/l").await.error_kind(), "BadReply");
    assert_eq!(peer.ask("ainc along:/l x").await.error_kind(), "BadCommand");
    peer.close().await;
}
