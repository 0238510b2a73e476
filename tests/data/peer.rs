//! The example `recipe_peer`: its command lines for barriers and atomic numbers.

use docent::OpCode;
use docent_testing::{
    TestingServer,
    fault::Fault,
    tap::{Tap, What},
};
use tokio::process::Command;

use crate::support::{peer::Peer, within_deadline};

async fn command(arguments: &[&str]) -> Command {
    let program = tokio::task::spawn_blocking(|| xtask::example("recipe_peer").unwrap());
    let mut command = Command::new(program.await.unwrap());
    command.args(arguments);
    command
}

/// A peer with these arguments.
pub(crate) async fn peer(arguments: &[&str]) -> Peer {
    let peer = Peer::spawn("recipe_peer", command(arguments).await);
    peer.event("ready").await;
    peer
}

async fn peer_of(server: &TestingServer) -> Peer {
    peer(&[&server.connect_string(), "20000", "3"]).await
}

/// The session timeout and the retries of a data recipe.
#[tokio::test]
async fn the_settings_of_a_peer_follow_from_its_command_line() {
    let server = TestingServer::start().await.unwrap();
    for (arguments, session, retries) in [
        // The session of the leader recipes, which have the same command line.
        (&[][..], 6000, 3),
        (&["9000"], 9000, 3),
        (&["9000", "1"], 9000, 1),
        (&["9000", "1", "10", "session"], 9000, 1),
        (&["none"], 20_000, 3),
        (&["9000", "quiet"], 9000, 3),
        (&["9000", "2", "quiet,tracker"], 9000, 2),
    ] {
        let tap = Tap::start(&server.connect_string()).await.unwrap();
        let peer = peer(&[&[&*tap.connect_string()], arguments].concat()).await;
        tap.inject(Fault::drop_reply(OpCode::GetData).below("/l").times(u32::MAX));
        assert_eq!(peer.ask("aget along:/l").await.error_kind(), "ConnectionLoss");
        let trace = tap.trace();
        let reads =
            trace.iter().filter(|r| r.is_request(OpCode::GetData) && r.path() == Some("/l"));
        assert_eq!(reads.count(), retries + 1, "{arguments:?}");
        let asked = trace.iter().find_map(|record| match record.what {
            What::Connect { time_out, .. } => Some(time_out),
            _ => None,
        });
        assert_eq!(asked, Some(session), "{arguments:?}");
        peer.close().await;
    }
}

#[tokio::test]
async fn a_peer_refuses_a_wrong_command_line() {
    for (arguments, why) in [
        (&[][..], "CONNECT is missing"),
        (&["h:1", "6000", "5", "quick"], "quick is no flag"),
        (&["h:1", "6000", "5", "100", "quiet"], "POLICY is standard or session, not quiet"),
        (&["h:1", "6000", "5x"], "RETRIES: 5x: invalid digit found in string"),
        (&["h:1", "lazy", "6000"], "6000 is one argument too many"),
    ] {
        let ended = within_deadline("the end", command(arguments).await.output()).await.unwrap();
        let text = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{text}");
        assert!(text.starts_with(&format!("recipe_peer: {why} (usage: ")), "{text}");
        assert!(text.contains("[FLAGS | SLEEP_MS "), "{text}");
    }
}

#[tokio::test]
async fn a_peer_waits_at_barriers_on_command() {
    let server = TestingServer::start().await.unwrap();
    let peer = peer_of(&server).await;
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
    let peer = peer_of(&server).await;
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
