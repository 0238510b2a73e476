//! Watch requests that a server refuses, and watches that wait for a connection.

use super::*;

/// How long a refused request about watches may wait for its next try.
const NEXT_TRY: Duration = ms(1900);

/// After ThrottledOp (servers since 3.7) or any other error, the watches are set again later, and no watch ends.
// Case (Found in docent itself): a refusal of setWatches, such as ThrottledOp, ended all persistent
// watches, or the connection again and again; one of addWatch or removeWatches left the server with
// another mode than the client believed in.
#[test]
fn set_watches_that_is_refused_is_sent_again() {
    for err in [ErrorCode::ThrottledOp, ErrorCode::SystemError, ErrorCode::Unknown(-999)] {
        let mut scenario = Scenario::connected();
        scenario.add_watch(PERSISTENT, "/p", 1);
        scenario.read_and_watch(WatchKind::Data, "/p", 2);
        scenario.read_and_watch(WatchKind::Data, "/d", 3);
        scenario.read_and_watch(WatchKind::Exist, "/d", 4);
        scenario.answer();
        scenario.watch_events();
        let sent = scenario.reconnect();
        scenario.completions();
        assert_eq!(sent.len(), 1, "{sent:?}");
        scenario.reply(xid::SET_WATCHES, 60, err, b"");
        assert!(!scenario.is_broken() && scenario.machine.watches() == 4, "{err}");
        assert_eq!(scenario.watch_events(), []);
        scenario.wait(ms(0));
        assert_eq!(scenario.answer(), [""; 0], "not at once");
        // A reply meanwhile is newer than what the watches have seen.
        scenario.get("/x", 5);
        scenario.answer();
        let due = scenario.machine.poll_timeout().unwrap();
        assert!(due.duration_since(scenario.now) <= ms(100));
        for again in 0..3 {
            scenario.wait(NEXT_TRY);
            scenario.wire.clear();
            scenario.flush();
            let (xid, request) = scenario.wire.iter().find(|(xid, _)| *xid > 0).unwrap().clone();
            let watches = [r#"data_watches: ["/d", "/p"]"#, r#"persistent_watches: ["/p"]"#];
            assert_contains(&request, &["SetWatches2(", "relative_zxid: 50,"]);
            assert_contains(&request, &watches);
            scenario.reply(xid, 61, if again < 2 { err } else { ErrorCode::Ok }, b"");
        }
        // The only watcher that resyncs: no server reports the events in between.
        assert_eq!(scenario.watch_events_in_state(), [(1, RESYNC)]);
        assert_eq!(scenario.machine.watches(), 4);
        scenario.wait(NEXT_TRY);
        assert_eq!(scenario.answer(), [""; 0]);
    }
}

/// The pauses grow as long as all replies are refusals.
#[test]
fn refusals_make_the_pauses_longer() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/p")]);
    scenario.reconnect();
    let mut xid = xid::SET_WATCHES;
    let mut last = Duration::ZERO;
    for _ in 0..4 {
        scenario.reply(xid, 60, ErrorCode::ThrottledOp, b"");
        let pause = scenario.machine.unset.retry_at().unwrap().duration_since(scenario.now);
        assert!(pause > last && pause <= ms(800), "{pause:?} after {last:?}");
        last = pause;
        scenario.wait(pause);
        scenario.wire.clear();
        scenario.flush();
        xid = scenario.wire[0].0;
    }
}

/// One-shot watches alone: setWatches, which is all that servers before 3.6 know.
#[test]
fn set_watches_of_one_shots_that_is_refused_is_sent_again() {
    let mut scenario = Scenario::reading(WatchKind::Child);
    let sent = scenario.reconnect();
    assert!(sent[0].starts_with("SetWatches("), "{sent:?}");
    scenario.reply(xid::SET_WATCHES, 60, ErrorCode::ThrottledOp, b"");
    scenario.wait(ms(100));
    scenario.sends("SetWatches(");
    assert_eq!(scenario.machine.watches(), 1);
}

/// The next connection sets the watches that the last one did not, from the zxid at which they were lost.
#[test]
fn watches_that_could_not_be_set_again_are_set_on_the_next_server() {
    let mut scenario = Scenario::reading(WatchKind::Data);
    scenario.reconnect();
    scenario.reply(xid::SET_WATCHES, 60, ErrorCode::ThrottledOp, b"");
    scenario.get("/x", 2);
    scenario.answer();
    scenario.read("/x", 3, 70);
    assert_contains(&scenario.reconnect()[0], &["relative_zxid: 50,"]);
    // This setWatches has no reply either.
    assert_contains(&scenario.reconnect()[0], &["relative_zxid: 50,"]);
    // Nor has the one that is sent again after a refusal.
    scenario.reply(xid::SET_WATCHES, 70, ErrorCode::ThrottledOp, b"");
    scenario.wait_and_flush(NEXT_TRY);
    assert_contains(&scenario.reconnect()[0], &["relative_zxid: 50,"]);
    scenario.reply(xid::SET_WATCHES, 71, ErrorCode::Ok, b"");
    assert_contains(&scenario.reconnect()[0], &["relative_zxid: 70,"]);
}

/// While the machine's own requests about a mode are refused, the server keeps its old mode, and sends the events of
/// that mode.
#[test]
fn a_mode_that_cannot_be_narrowed_stays_until_it_can() {
    let mut scenario = Scenario::watching(&[(RECURSIVE, "/a"), (PERSISTENT, "/a")]);
    scenario.watch_events();
    scenario.completions();
    scenario.remove("/a", 1);
    scenario.reply_to_last(51, ErrorCode::ThrottledOp);
    // Whoever gave it back has no more to do with it.
    assert_eq!(scenario.completions(), [(1, Ok(51))]);
    scenario.event(EventType::NodeCreated, "/a/b");
    assert_eq!(scenario.watch_events(), [(2, EventType::NodeChildrenChanged)]);
    scenario.wait(NEXT_TRY);
    let sent = scenario.answer();
    assert!(sent.iter().any(|request| request.contains("mode: Persistent }")), "{sent:?}");
}

/// A removal that is refused is sent again after a pause, while the watch is unwanted.
#[test]
fn a_removal_that_is_refused_is_sent_again() {
    for wanted in [false, true] {
        let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
        scenario.remove("/a", 1);
        scenario.reply_to_last(51, ErrorCode::ThrottledOp);
        scenario.wait(ms(0));
        assert_eq!(scenario.answer(), [""; 0], "not at once");
        if wanted {
            scenario.add_watch(PERSISTENT, "/a", 2);
            scenario.answer();
        }
        scenario.wait(ms(100));
        let sent = scenario.answer();
        assert_eq!(sent.iter().any(|request| request.contains("Any")), !wanted, "{sent:?}");
    }
}

/// A read of `/a` that relied on an addWatch which is refused, and whose own reply is `err`.
fn read_whose_cover_is_refused(kind: WatchKind, err: ErrorCode) -> Scenario {
    let mut scenario = Scenario::connected();
    scenario.add_watch(PERSISTENT, "/a", 1);
    scenario.read_and_watch(kind, "/a", 2);
    scenario.flush();
    let xids = scenario.xids();
    let [.., add, read] = xids[..] else { panic!("{xids:?}") };
    scenario.reply(add, 51, ErrorCode::ThrottledOp, b"");
    scenario.reply(read, 52, err, b"");
    scenario
}

/// The addWatch is refused, and the read behind it relied on it: the read gets its own watch, with what happened
/// since it was answered.
#[test]
fn a_read_whose_cover_was_refused_gets_a_watch_of_its_own() {
    let mut scenario = read_whose_cover_is_refused(WatchKind::Data, ErrorCode::Ok);
    let refused = (1, refused(ErrorKind::ThrottledOp));
    assert_eq!(scenario.completions(), [refused, (2, Ok(52))]);
    let sent = scenario.answer();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_contains(&sent[0], &["SetWatches(", "relative_zxid: 52,"]);
    scenario.event(EventType::NodeDataChanged, "/a");
    assert_eq!(scenario.watch_events(), [(2, EventType::NodeDataChanged)]);
}

/// A server reports nothing about a node that was created and deleted in between: the watch of an exists resyncs and
/// ends.
#[test]
fn an_exists_whose_cover_was_refused_resyncs() {
    let mut scenario = read_whose_cover_is_refused(WatchKind::Exist, ErrorCode::NoNode);
    assert_eq!(scenario.watch_events_in_state(), [(2, RESYNC)]);
    assert_eq!((scenario.answer(), scenario.machine.watches()), (vec![], 0));
}

/// An addWatch that waited for a connection for too long was never sent.
// Case (Found in docent itself): reads relied on a persistent watch whose request had never been
// sent, and the watcher of an exists received a resync at once.
#[test]
fn a_watch_that_waited_too_long_for_a_connection_covers_no_read() {
    let mut scenario = Scenario::connected();
    scenario.cut();
    scenario.add_watch(PERSISTENT, "/a", 1);
    scenario.wait(ms(3001));
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::ConnectionLoss))]);
    scenario.read_and_watch(WatchKind::Exist, "/a", 2);
    scenario.resume();
    assert_contains(scenario.last_sent(), &["watch: true"]);
    scenario.reply_to_last(50, ErrorCode::NoNode);
    assert_eq!(scenario.watch_events(), []);
    assert_eq!(scenario.machine.watches(), 1);
}

/// A caller removes watches that others rely on: the remaining ones are set again, and resync.
#[test]
fn a_removal_for_all_that_halves_a_mode_is_made_up_for() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
    scenario.read_and_watch(WatchKind::Child, "/a", 2);
    scenario.answer();
    // Before 3.9 it takes the data half of the persistent watch (ZOOKEEPER-4471).
    scenario.remove_all("/a", WatcherType::Data, 3);
    scenario.answer();
    scenario.sends(r#"child_watches: ["/a"], persistent_watches: ["/a"]"#);
    assert_eq!(scenario.watch_events_in_state(), [(1, RESYNC)]);
}

/// Servers with WatchManagerOptimized take the one-shot watches of the batch and refuse the rest; whether they did is
/// not known, so they are sent once more.
// Case (Found in docent itself): a server that supports no persistent watches lost the one-shot
// watches that were in the same setWatches2.
#[test]
fn a_server_that_refuses_persistent_watches_is_sent_the_others_again() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/p")]);
    scenario.read_and_watch(WatchKind::Data, "/p", 2);
    scenario.answer();
    scenario.reconnect();
    scenario.watch_events();
    scenario.reply(xid::SET_WATCHES, 60, ErrorCode::MarshallingError, b"");
    assert!(!scenario.is_broken());
    assert_eq!(scenario.watch_events(), [(1, EventType::PersistentWatchRemoved)]);
    let sent = scenario.answer();
    assert!(sent.len() == 1 && sent[0].starts_with("SetWatches("), "{sent:?}");
    assert!(sent[0].contains(r#"data_watches: ["/p"]"#));
    assert_eq!(scenario.machine.watches(), 1);
}

/// A server with the same small limit would close the connection, each time.
// Case (Found in docent itself): setWatches was larger than the limit of requests: with a small
// `jute.maxbuffer` a client with many watches reconnected for ever.
#[test]
fn set_watches_keeps_to_the_limit_of_requests() {
    let mut scenario = Scenario::connected_with(config().with_max_request_bytes(1000));
    for watcher in 0..100 {
        scenario.read_and_watch(WatchKind::Data, &format!("/{watcher:050}"), watcher);
    }
    scenario.add_watch(PERSISTENT, &format!("/{:0900}", 1), 100);
    scenario.answer();
    scenario.cut_and_connect();
    scenario.feed(&granted(7, 6000));
    let mut out = Vec::new();
    scenario.machine.poll_transmit(scenario.now, &mut out);
    let (mut rest, mut frames) = (&out[..], 0);
    while let Some((payload, tail)) = frame::split(rest, 1000).unwrap() {
        (rest, frames) = (tail, frames + 1);
        assert!(payload.len() <= 1000);
    }
    assert_eq!(frames, 7);
}

/// A path that fits into its own request and into no setWatches: its watchers are notified of the end.
#[test]
fn a_watch_whose_path_fits_into_no_set_watches_ends() {
    let mut scenario = Scenario::connected_with(config().with_max_request_bytes(100));
    scenario.add_watch(PERSISTENT, &format!("/{:080}", 1), 1);
    scenario.add_watch(PERSISTENT, "/a", 2);
    scenario.answer();
    scenario.watch_events();
    let sent = scenario.reconnect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(scenario.watch_events(), [(1, EventType::PersistentWatchRemoved)]);
    assert_eq!(scenario.machine.watches(), 1);
}

/// Watches that are asked for and dropped while there is no connection leave nothing behind.
#[test]
fn watches_that_come_and_go_without_a_connection_leave_nothing() {
    let mut scenario = Scenario::watching(&[(RECURSIVE, "/a")]);
    scenario.cut();
    scenario.add_watch(PERSISTENT, "/a", 2);
    scenario.add_watch(RECURSIVE, "/b", 3);
    scenario.cancel_watch("/a", 1);
    scenario.cancel_watch("/b", 3);
    let sent = scenario.resume_and_read();
    assert_eq!(sent.len(), 2, "nothing is set again: {sent:?}");
    let sent = [scenario.answer_sent(), scenario.answer(), scenario.answer()].concat();
    // The first was asked for when a recursive watch was there.
    assert!(sent.iter().any(|request| request.contains(r#""/a", mode: Persistent }"#)), "{sent:?}");
    assert!(sent.iter().any(|request| request.contains(r#""/b", watcher_type: Any"#)), "{sent:?}");
    assert_eq!(scenario.machine.watches(), 1);
}

/// The pauses between tries start anew with each connection.
#[test]
fn a_new_connection_knows_nothing_of_earlier_refusals() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/p")]);
    for _ in 0..3 {
        scenario.reconnect();
        scenario.reply(xid::SET_WATCHES, 60, ErrorCode::ThrottledOp, b"");
        let pause = scenario.machine.unset.retry_at().unwrap().duration_since(scenario.now);
        assert!(pause <= ms(100), "{pause:?}");
    }
    scenario.cut();
    assert_eq!(scenario.machine.unset.retry_at(), None);
}

/// Changes between the loss of a persistent watch and its return are reported, however late it returns.
#[test]
fn a_persistent_watch_is_set_again_from_when_it_was_lost() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/p")]);
    scenario.reconnect();
    scenario.reply(xid::SET_WATCHES, 60, ErrorCode::ThrottledOp, b"");
    scenario.read("/x", 2, 70);
    scenario.wait(ms(100));
    scenario.sends("relative_zxid: 50,");
}

/// A server before 3.6 that refuses all: no persistent watch ends by it, and it is not asked again at once.
#[test]
fn a_refusal_of_one_shots_as_unknown_waits_as_others_do() {
    let mut scenario = Scenario::reading(WatchKind::Data);
    scenario.reconnect();
    scenario.reply(xid::SET_WATCHES, 60, ErrorCode::Unimplemented, b"");
    assert_eq!(scenario.answer(), [""; 0]);
    assert!(scenario.machine.unset.retry_at().is_some());
}

/// The reply to setWatches would be about a mode that another request has changed meanwhile.
#[test]
fn nothing_is_sent_about_a_path_while_its_watches_are_being_set() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/p"), (PERSISTENT, "/p")]);
    assert_eq!(scenario.reconnect().len(), 1);
    scenario.remove("/p", 2);
    assert_eq!(scenario.answer(), [""; 0]);
    scenario.reply(xid::SET_WATCHES, 60, ErrorCode::Ok, b"");
    assert_eq!(scenario.answer(), [""; 0]);
    scenario.remove("/p", 1);
    assert_eq!(scenario.answer().len(), 1);
}

/// The size of its own frame counts, not that of the requests in front of it.
#[test]
fn watches_set_again_behind_other_requests_have_their_own_size() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/p")]);
    scenario.reconnect();
    scenario.reply(xid::SET_WATCHES, 60, ErrorCode::ThrottledOp, b"");
    scenario.get("/x", 2);
    let before = scenario.machine.metrics();
    assert_eq!(before.pending_bytes, before.outgoing_bytes);
    scenario.wait(ms(100));
    let after = scenario.machine.metrics();
    assert_eq!(after.pending, 2);
    assert_eq!(after.pending_bytes, after.outgoing_bytes);
}
