//! The recordings of a cache in which docent sends other requests, or has other events, by design. Each test states
//! the differences.

use docent::OpCode;
use docent_testing::{fault::Fault, server::Version};

use super::{Player, counts, lines};
use crate::ms;

/// Sets the nodes of a scenario up.
async fn set_up(player: &Player, commands: &[&str]) {
    for command in commands {
        let words: Vec<_> = command.split(' ').map(str::to_owned).collect();
        player.write(&words).await;
    }
}

/// C41: data that do not decompress, and empty data, are shown, and so are the nodes below. Decompressing is left to the
/// application.
#[tokio::test]
async fn d04_compressed_data() {
    let nodes = [("/d04", ""), ("/d04/raw", "plain"), ("/d04/raw/under", "U")];
    let mut player = Player::start("D04", Version::V3_9, &nodes).await;
    set_up(&player, &["setz /d04 top", "createz /d04/z zipped"]).await;
    player.differs(
        "A -> getChildren2(12) /d04/z watch=false
         A -> getData(4) /d04/raw watch=false
         A -> getChildren2(12) /d04/raw watch=false
         A -> getData(4) /d04/raw/under watch=false
         A -> getData(4) /d04/e watch=false",
        "A -> getChildren2(12) /d04/raw watch=false
         A -> getChildren2(12) /d04/z watch=false
         A -> getData(4) /d04/raw/under watch=false
         A -> getChildren2(12) /d04/raw/under watch=false
         A -> getData(4) /d04/raw watch=false
         A -> getData(4) /d04/e watch=false
         A -> getChildren2(12) /d04/e watch=false",
    );
    player.has_events(
        &["cache:/d04 initialized 2", "cache:/d04 created /d04/raw 1 mended"],
        &[
            "cache:/d04 created /d04/raw 0 plain",
            "cache:/d04 created /d04/raw/under 0 U",
            "cache:/d04 initialized 4",
            "cache:/d04 changed /d04/raw 1 mended was 0 plain",
            "cache:/d04 created /d04/e 0 ",
        ],
    );
    let player = player.play().await;
    player.assert_equal();
    player.assert_events().await;
}

/// C1: the node that was replaced by one of the same version, and the children that were swapped with the same `cversion`,
/// are found by the resync.
#[tokio::test]
async fn d07_the_blind_spots_of_a_resync() {
    let nodes = [("/d07", "root"), ("/d07/x", "old"), ("/d07/p", "P"), ("/d07/p/k1", "K1")];
    let mut player = Player::start("D07", Version::V3_9, &nodes).await;
    set_up(&player, &["set /d07/x old1"]).await;
    player.has_events(
        &["cache:/d07 created /d07/p/k2 1 K22"],
        &[
            "cache:/d07 deleted /d07/x 1 old1",
            "cache:/d07 created /d07/x 1 new1",
            "cache:/d07 deleted /d07/p 0 P",
            "cache:/d07 created /d07/p 0 P",
            "cache:/d07 created /d07/p/k2 0 K2",
            "cache:/d07 changed /d07/p/k2 1 K22 was 0 K2",
        ],
    );
    player.play().await.assert_events().await;
}

/// C42: the watch is set once on the next connection, and the tree is loaded once.
#[tokio::test]
async fn d10_a_lost_reply_to_the_watch() {
    let nodes = [("/d10", "root"), ("/d10/a", "A"), ("/d10/b", "B")];
    let player = Player::start("D10", Version::V3_9, &nodes).await;
    player.tap.inject(Fault::drop_reply(OpCode::AddWatch).of("A"));
    let player = player.play().await;
    player.assert_equal_without_repetitions("");
    player.assert_events().await;
}

/// C2, C3: the listing whose reply was lost is repeated, and the cache is initialized after it.
#[tokio::test]
async fn d11_a_lost_listing() {
    let nodes = [("/d11", "root"), ("/d11/a", "A"), ("/d11/b", "B")];
    let mut player = Player::start("D11", Version::V3_9, &nodes).await;
    player.tap.inject(Fault::drop_reply(OpCode::GetChildren2).of("A"));
    player.has_events(
        &["cache:/d11 initialized 1"],
        &[
            "cache:/d11 created /d11/a 0 A",
            "cache:/d11 created /d11/b 0 B",
            "cache:/d11 initialized 3",
        ],
    );
    let player = player.play().await;
    assert_eq!(counts(&player.requests())["getChildren2(12) /d11 watch=false"], 2);
    player.assert_events().await;
}

/// A refused node is read again before it changes.
#[tokio::test]
async fn d12_a_node_that_may_not_be_read() {
    let nodes = [("/d12", "root"), ("/d12/a", "A"), ("/d12/s", "secret"), ("/d12/s/k", "K")];
    let mut player = Player::start("D12", Version::V3_9, &nodes).await;
    set_up(&player, &["acl /d12/s none"]).await;
    player.has_events(
        &["cache:/d12 created /d12/s 2 secret3"],
        &[
            "cache:/d12 created /d12/s 1 secret2",
            "cache:/d12 changed /d12/s 2 secret3 was 1 secret2",
        ],
    );
    let player = player.play().await;
    let (expected, mut sent) = (counts(&player.expected_requests), counts(&player.requests()));
    let again = "getData(4) /d12/s watch=false";
    assert!(sent[again] > expected[again], "{sent:?}");
    sent.insert(again.to_owned(), expected[again]);
    assert_eq!(sent, expected);
    player.assert_events().await;
}

/// C10: the cache of the direct children neither lists a child nor reads a grandchild. A single node joins the recursive
/// watch that its client has on the path: before ZooKeeper 3.9, another mode would replace it.
#[tokio::test]
async fn d13_wrapped_listeners() {
    let nodes = [("/d13", "root"), ("/d13/a", "A")];
    let mut player = Player::start("D13", Version::V3_9, &nodes).await;
    player.differs(
        "A -> getData(4) /d13/a watch=false
         A -> getChildren2(12) /d13/a watch=false
         A -> addWatch(106) /d13 mode=1",
        "A -> getData(4) /d13/a watch=false
         A -> addWatch(106) /d13 mode=1",
    );
    player.differs("A -> addWatch(106) /d13 mode=0", "A -> addWatch(106) /d13 mode=1");
    for request in ["getData(4)", "getChildren2(12)"] {
        let once = format!("A -> {request} /d13/a/g watch=false\n");
        player.differs(&once.repeat(2), &once);
    }
    player.has_events(&["cache:/d13#pcc CHILD_ADDED /d13/a/g 0 G"], &[]);
    let player = player.play().await;
    player.assert_equal();
    player.assert_events().await;
}

/// C6: the watch is requested once in a session, also for the second cache. Then, one-shot watches; the recording has
/// rounds of requests and lost connections, and no event.
#[tokio::test]
async fn d31_a_server_without_persistent_watches() {
    let mut player = Player::start("D31", Version::V3_4, &[]).await;
    player.has_events(&[], &["cache:/d31 initialized 0", "cache:/d31#b initialized 0"]);
    let player = player.play().await;
    let watch = "addWatch(106) /d31 mode=1";
    assert!(counts(&player.expected_requests)[watch] > 10);
    let sent = counts(&player.requests());
    assert_eq!(sent[watch], 1, "{sent:?}");
    let trace = player.tap.trace().text();
    let connections = trace.lines().filter(|line| line.contains("-> connect ")).count();
    assert_eq!(connections, 2, "{trace}");
    player.assert_events().await;
}

/// C9: the reply behind the close is not stored.
#[tokio::test]
async fn d34_a_reply_behind_the_close() {
    let mut player =
        Player::start("D34", Version::V3_9, &[("/d34", "root"), ("/d34/a", "A")]).await;
    player.held_back = Some((OpCode::GetData, "/d34/a"));
    player.tap.inject(Fault::delay_reply(OpCode::GetData, ms(1200)).of("A").nth(2));
    let player = player.play().await;
    player.assert_equal();
    // The recorded answer to `clist` is `1 /d34/a=0`.
    assert!(player.caches["cache:/d34"].snapshot().is_empty());
    player.assert_events().await;
}

/// The node that was deleted behind the listing is read because of the listing, as in Curator, but not because of its
/// change as well.
#[tokio::test]
async fn d35_writes_between_a_read_and_its_reply() {
    let nodes = [("/d35", "root"), ("/d35/a", "A")];
    let mut player = Player::start("D35", Version::V3_9, &nodes).await;
    player.held_back = Some((OpCode::GetChildren2, "/d35"));
    player.tap.inject(Fault::delay_reply(OpCode::GetChildren2, ms(1500)).of("A"));
    let player = player.play().await;
    let (mut expected, mut sent) = (counts(&player.expected_requests), counts(&player.requests()));
    let deleted = "getData(4) /d35/a watch=false";
    let times = (sent.remove(deleted).unwrap(), expected.remove(deleted).unwrap());
    assert!((1..=times.1).contains(&times.0), "{times:?}");
    assert_eq!(sent, expected);
    player.assert_events().await;
}

/// `TreeCache` reads changed nodes two or three times. It reports a node that was replaced as changed, and a resync as
/// another `initialized`.
#[tokio::test]
async fn d38_one_shot_watches() {
    let nodes = [("/d38", "root"), ("/d38/a", "A"), ("/d38/b", "B"), ("/d38/b/c", "C")];
    let mut player = Player::start("D38", Version::V3_4, &nodes).await;
    player.has_events(
        &["cache:/d38 changed /d38/n 0 N2 was 0 N", "cache:/d38 initialized 4"],
        &["cache:/d38 deleted /d38/n 0 N", "cache:/d38 created /d38/n 0 N2"],
    );
    let player = player.play().await;
    let sent = counts(&player.requests());
    for (request, count) in counts(&lines(player.expected)) {
        if request.starts_with("get") {
            let times = sent.get(&request).copied().unwrap_or_default();
            assert!((1..=count).contains(&times), "{request}: {sent:?}");
        }
    }
    player.assert_events().await;
}
