//! The test infrastructure itself: the checker catches bad histories, private servers keep what
//! they must, and the Java peer reports the events of its session.

use std::time::{Duration, Instant};

#[cfg(unix)]
use crate::support::contention::contend;
use crate::support::history::{History, Hold, Mode};
use crate::support::peer::{Options, Outcome, Peer, Side};
use crate::support::real::{RealEnsemble, RealServer, real_server, unique_path};
use xtask::Role;

/// A history of holds of one path: holder, mode, token, begin and end in milliseconds.
fn history(holds: &[(&str, Mode, i64, u64, Option<u64>)]) -> History {
    let start = Instant::now();
    let history = History::new();
    for &(holder, mode, token, acquired, releasing) in holds {
        history.record(Hold {
            path: "/lock".to_owned(),
            holder: holder.to_owned(),
            mode,
            token: Some(token),
            acquired: start + Duration::from_millis(acquired),
            releasing: releasing.map(|end| start + Duration::from_millis(end)),
        });
    }
    history
}

fn messages(history: &History) -> Vec<String> {
    history.violations().iter().map(ToString::to_string).collect()
}

#[test]
fn holds_that_follow_each_other_are_fine() {
    let history = history(&[
        ("b", Mode::Exclusive, 8, 10, Some(20)),
        ("a", Mode::Exclusive, 5, 0, Some(10)),
        ("a", Mode::Exclusive, 9, 21, None),
    ]);
    assert_eq!(messages(&history), [""; 0]);
    history.assert_exclusive();
}

#[test]
fn two_holders_at_once_are_caught() {
    let history =
        history(&[("a", Mode::Exclusive, 5, 0, Some(11)), ("b", Mode::Exclusive, 8, 10, Some(20))]);
    let messages = messages(&history);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].starts_with("two holders at once:"), "{}", messages[0]);
    assert!(messages[0].contains("/lock by a (Exclusive, token 5)"), "{}", messages[0]);
    assert!(messages[0].contains("/lock by b (Exclusive, token 8)"), "{}", messages[0]);
}

#[test]
fn a_hold_inside_another_is_caught_even_with_one_between() {
    let history = history(&[
        ("a", Mode::Exclusive, 5, 0, None),
        ("a", Mode::Exclusive, 5, 1, Some(2)),
        ("b", Mode::Exclusive, 8, 3, Some(4)),
    ]);
    let messages = messages(&history);
    assert!(messages.iter().any(|text| text.starts_with("two holders")), "{messages:?}");
}

#[test]
#[should_panic(expected = "two holders at once")]
fn a_hold_that_never_ended_excludes_all_later_ones() {
    history(&[("a", Mode::Exclusive, 5, 0, None), ("b", Mode::Exclusive, 8, 1000, None)])
        .assert_exclusive();
}

#[test]
fn a_token_that_does_not_grow_is_caught() {
    for token in [5, 4] {
        let history = history(&[
            ("a", Mode::Exclusive, 5, 0, Some(10)),
            ("b", Mode::Exclusive, token, 20, Some(30)),
        ]);
        let messages = messages(&history);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains("not greater"), "{}", messages[0]);
    }
}

#[test]
fn one_holder_may_re_enter() {
    let history =
        history(&[("a", Mode::Exclusive, 5, 0, Some(10)), ("a", Mode::Exclusive, 5, 2, Some(8))]);
    history.assert_exclusive();
}

#[test]
fn readers_share_but_not_with_a_writer() {
    let readers =
        history(&[("a", Mode::Shared, 6, 0, Some(10)), ("b", Mode::Shared, 5, 5, Some(15))]);
    readers.assert_exclusive();
    let mixed =
        history(&[("a", Mode::Shared, 5, 0, Some(10)), ("b", Mode::Exclusive, 6, 5, Some(15))]);
    assert_eq!(messages(&mixed).len(), 1);
}

#[test]
fn other_paths_are_other_locks() {
    let history = history(&[("a", Mode::Exclusive, 5, 0, None)]);
    let _ = history.acquired("/other", "b", Instant::now());
    history.assert_exclusive();
}

#[test]
fn one_lease_too_many_is_caught() {
    let history = history(&[
        ("a", Mode::Shared, 1, 0, Some(10)),
        ("b", Mode::Shared, 2, 1, Some(10)),
        ("c", Mode::Shared, 3, 9, Some(10)),
    ]);
    history.assert_at_most(3);
    let messages: Vec<_> =
        history.violations_of_semaphore(2).iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("3 holds at once, 2 allowed"), "{}", messages[0]);
    assert!(messages[0].contains("/lock by c"), "{}", messages[0]);
}

/// A session that outlives a start of a server, or an election, on a slow machine.
const PATIENT: Options = Options { session: Duration::from_secs(60), retries: 5 };

#[tokio::test]
async fn private_servers_keep_port_and_data_over_a_kill() {
    let (Some(mut server), Some(other)) = tokio::join!(RealServer::start(), RealServer::start())
    else {
        return;
    };
    assert_ne!(server.connect(), other.connect());
    let path = unique_path("lock");
    let handle = format!("mutex:{path}");
    let peer = Peer::java(&server.connect(), PATIENT).await;
    peer.ask(format!("acquire {handle}")).await.ok();
    let token = peer.token(&handle).await;

    let connect = server.connect();
    let mut events = peer.events();
    server.kill().await;
    events.next("state SUSPENDED").await;
    assert!(!peer.held(&handle).await, "the hold is unknown");
    server.start_again().await;
    assert_eq!(server.connect(), connect);
    events.next("state RECONNECTED").await;
    assert!(peer.held(&handle).await, "same session, same node");
    assert_eq!(peer.token(&handle).await, token);
    peer.close().await;
}

#[tokio::test]
async fn an_ensemble_outlives_its_leader() {
    let Some(mut ensemble) = RealEnsemble::start().await else { return };
    let peer = Peer::java(&ensemble.connect(), PATIENT).await;
    let handle = format!("mutex:{}", unique_path("lock"));
    peer.ask(format!("acquire {handle}")).await.ok();
    let token = peer.token(&handle).await;

    let old = ensemble.leader().await;
    ensemble.kill(old).await;
    let new = ensemble.leader().await;
    assert_ne!(new, old);
    // Whether or not the peer was connected to the old leader, its election closed all connections.
    peer.event("state RECONNECTED").await;
    assert!(peer.held(&handle).await);
    assert_eq!(peer.token(&handle).await, token);

    ensemble.start_again(old).await;
    assert_eq!(ensemble.role(old).await, Some(Role::Follower));
    peer.close().await;
}

#[tokio::test]
async fn a_java_peer_reports_a_lost_hold_once() {
    let Some(mut server) = RealServer::start().await else { return };
    let options = Options { session: Duration::from_secs(4), retries: 1 };
    let peer = Peer::java(&server.connect(), options).await;
    let handle = format!("mutex:{}", unique_path("lock"));
    peer.ask(format!("acquire {handle}")).await.ok();
    peer.ask(format!("acquire {handle}")).await.ok();
    let session = peer.ask("session").await.ok().to_owned();

    let mut events = peer.events_from_now();
    server.stop().await;
    events.next("state LOST").await;
    events.next(&format!("lost {handle}")).await;
    server.start_again().await;
    events.next("state RECONNECTED").await;
    assert!(!peer.held(&handle).await, "a lost hold stays lost");
    assert_ne!(peer.ask("session").await.ok(), session);
    peer.ask(format!("release {handle}")).await.ok();
    peer.ask(format!("release {handle}")).await.ok();

    // The next hold is a new one.
    peer.ask(format!("acquire {handle}")).await.ok();
    assert!(peer.held(&handle).await);
    assert!(events.drain().iter().all(|event| !event.text.starts_with("lost")));
    peer.close().await;
}

#[tokio::test]
async fn owners_of_one_java_peer_exclude_each_other() {
    let (Some(connect), true) = (real_server(), Side::Java.is_available()) else { return };
    let peer = Peer::java(&connect, Options::default()).await;
    let handle = format!("mutex:{}", unique_path("lock"));
    let other = format!("{handle}#other");
    peer.ask(format!("acquire {handle}")).await.ok();
    assert_eq!(peer.ask(format!("acquire {other} 100")).await.outcome, Outcome::TimedOut);
    assert_eq!(peer.ask(format!("release {other}")).await.error_kind(), "IllegalMonitorState");
    let waiting = peer.send(format!("acquire {other}"));
    peer.ask(format!("release {handle}")).await.ok();
    waiting.reply().await.ok();
    assert!(peer.held(&other).await && !peer.held(&handle).await);
    peer.close().await;
}

#[tokio::test]
async fn an_answer_that_the_cancel_overtook_is_still_cancelled() {
    let (Some(connect), true) = (real_server(), Side::Java.is_available()) else { return };
    let peer = Peer::java(&connect, Options::default()).await;
    let path = unique_path("lock");
    let handle = format!("mutex:{path}");
    peer.ask(format!("acquire {handle}#holder")).await.ok();
    for _ in 0..20 {
        let acquire = peer.send(format!("acquire {handle}"));
        let cancel = peer.send(format!("cancel {handle}"));
        cancel.reply().await.ok();
        assert_eq!(acquire.reply().await.error_kind(), "Cancelled");
    }
    assert!(peer.held(&format!("{handle}#holder")).await);
    peer.close().await;
}

/// A peer that runs a shell script.
#[cfg(unix)]
fn script(name: &str, text: &str) -> Peer {
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", text]);
    Peer::spawn(name, command)
}

#[cfg(unix)]
#[tokio::test]
#[should_panic(expected = "the peer ended without an answer\n  stderr: dying")]
async fn a_peer_that_dies_fails_its_callers_at_once() {
    let peer = script("sh", "read line; echo dying >&2");
    peer.ask("acquire mutex:/x").await.ok();
}

/// Each of the two answers its first `token`, for which it holds the lock, only when the other was
/// asked for one too: so both hold it then, however the machine is loaded. The token never grows.
#[cfg(unix)]
#[tokio::test]
async fn contention_catches_peers_that_exclude_no_one() {
    let directory = xtask::TemporaryDirectory::new("contention").unwrap();
    let liar = |name: &str, other: &str| {
        let marks = directory.path().display().to_string();
        let text = format!(
            "while read id verb rest; do \
               if [ $verb = token ]; then \
                 : > '{marks}/{name}'; until [ -e '{marks}/{other}' ]; do sleep 0.01; done; \
               fi; \
               echo \"$id ok 7\"; \
             done"
        );
        script(name, &text)
    };
    let (first, second) = (liar("first", "second"), liar("second", "first"));
    let history = contend(&first, &second, "mutex:/x", 10).await;
    let messages = messages(&history);
    assert!(messages.iter().any(|text| text.starts_with("two holders")), "no overlap");
    assert!(messages.iter().any(|text| text.contains("not greater")), "no bad token");
}

/// Without it, each scene of a test program that was run by itself passed without having been played.
#[test]
fn an_example_is_built_for_the_test_that_needs_it() {
    assert!(xtask::example("lock_peer").unwrap().is_file());
    let error = xtask::example("no_such_example").unwrap_err().to_string();
    assert!(error.contains("no_such_example"), "{error}");
    assert!(error.contains("cargo build --example"), "{error}");
}
