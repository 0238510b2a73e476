//! Watches that no watcher wants any more: which requests remove them from the server, and when.

use super::*;

/// One of several watchers is dropped; the others keep their watch (kezhuw/zookeeper-client-rust#2).
#[test]
fn only_the_last_watcher_of_a_kind_is_given_back() {
    let mut scenario = Scenario::connected();
    scenario.read_and_watch(WatchKind::Data, "/a", 1);
    scenario.read_and_watch(WatchKind::Data, "/a", 2);
    scenario.read_and_watch(WatchKind::Child, "/a", 3);
    scenario.answer();
    scenario.completions();
    scenario.remove("/a", 1);
    assert_eq!(scenario.answer(), [""; 0]);
    assert_eq!(scenario.completions(), [(1, Ok(50))]);
    scenario.removes("/a", 2, r#"RemoveWatches(WatchesRequest { path: "/a", watcher_type: Data"#);
    scenario.removes("/a", 3, "Children");
    assert_eq!(scenario.machine.watches(), 0);
}

/// kezhuw#22: an event was faster than the removal.
#[test]
fn a_watch_that_is_gone_already_is_given_back_all_the_same() {
    let mut scenario = Scenario::reading(WatchKind::Data);
    scenario.completions();
    scenario.remove("/a", 1);
    scenario.flush();
    scenario.event(EventType::NodeDataChanged, "/a");
    scenario.reply_to_last(51, ErrorCode::NoWatcher);
    assert_eq!(scenario.completions(), [(1, Ok(51))]);
    assert_eq!(scenario.watch_events(), []);
}

/// The one-shot watches of the path have nothing of their own on the server: they rely on the persistent watch, which
/// stays there until the last of them has gone.
#[test]
fn another_watch_of_the_path_keeps_the_persistent_watch_on_the_server() {
    for end_by_event in [true, false] {
        let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
        scenario.read_and_watch(WatchKind::Data, "/a", 2);
        scenario.read_and_watch(WatchKind::Child, "/a", 3);
        scenario.answer();
        scenario.remove("/a", 1);
        assert_eq!(scenario.answer(), [""; 0]);
        scenario.event(EventType::NodeChildrenChanged, "/a");
        assert_eq!(scenario.watch_events(), [(3, EventType::NodeChildrenChanged)]);
        assert_eq!(scenario.answer(), [""; 0]);
        if end_by_event {
            scenario.event(EventType::NodeDataChanged, "/a");
        } else {
            scenario.remove("/a", 2);
        }
        scenario.sends("Any");
        // Nothing is known about the path any more.
        scenario.read_and_watch(WatchKind::Data, "/a", 4);
        scenario.sends("watch: true");
    }
}

#[test]
fn a_recursive_watch_that_goes_leaves_the_persistent_one() {
    let mut scenario = Scenario::watching(&[(RECURSIVE, "/a"), (PERSISTENT, "/a")]);
    scenario.watch_events();
    scenario.remove("/a", 1);
    // Until the server confirms the new mode, it sends the events of the recursive one.
    scenario.event(EventType::NodeCreated, "/a/b");
    assert_eq!(scenario.watch_events(), [(2, EventType::NodeChildrenChanged)]);
    scenario.sends("mode: Persistent }");
    // Since 3.9 both modes are there now, and an event of each comes.
    scenario.event(EventType::NodeDeleted, "/a/b");
    scenario.event(EventType::NodeChildrenChanged, "/a");
    assert_eq!(scenario.watch_events(), [(2, EventType::NodeChildrenChanged)]);
    scenario.sends("PersistentRecursive");
    assert_eq!(scenario.answer(), [""; 0]);
    scenario.removes("/a", 2, "Any");
}

/// Before 3.9 the type is not known, and the mode was replaced.
#[test]
fn a_server_that_keeps_one_mode_is_not_asked_twice_to_remove_the_other() {
    let mut scenario = Scenario::watching(&[(RECURSIVE, "/a"), (PERSISTENT, "/a")]);
    scenario.remove("/a", 1);
    scenario.answer();
    scenario.reply_to_last(51, ErrorCode::MarshallingError);
    scenario.wait(ms(1900));
    assert_eq!(scenario.answer(), [""; 0]);
}

#[test]
fn the_only_watch_of_a_path_is_removed_as_a_whole() {
    for mode in [PERSISTENT, RECURSIVE] {
        let mut scenario = Scenario::watching(&[(mode, "/a")]);
        scenario.completions();
        scenario.removes("/a", 1, "Any");
        assert_eq!(scenario.completions(), [(1, Ok(50))]);
        assert_eq!(scenario.answer(), [""; 0]);
    }
}

/// The recursive watch is removed while a persistent one is requested: the mode is narrowed after the reply to that.
#[test]
fn a_recursive_watch_that_goes_while_another_is_on_its_way_is_made_up_for() {
    let mut scenario = Scenario::watching(&[(RECURSIVE, "/a")]);
    scenario.add_watch(PERSISTENT, "/a", 2);
    scenario.removes("/a", 1, "mode: PersistentRecursive");
    scenario.sends("mode: Persistent }");
    scenario.answer();
    scenario.watch_events();
    scenario.event(EventType::NodeChildrenChanged, "/a");
    assert_eq!(scenario.watch_events(), [(2, EventType::NodeChildrenChanged)]);
}

/// A read that is in flight relies on the recursive mode.
#[test]
fn a_recursive_watch_that_goes_while_a_read_is_on_its_way_is_narrowed() {
    let mut scenario = Scenario::watching(&[(RECURSIVE, "/a")]);
    scenario.read_and_watch(WatchKind::Child, "/a", 2);
    scenario.flush();
    scenario.removes("/a", 1, "mode: Persistent }");
}

/// The mode of a forgotten watch stays on the server, and serves the other watches of the path.
#[test]
fn a_forgotten_recursive_watch_keeps_its_mode() {
    let mut scenario = Scenario::watching(&[(RECURSIVE, "/a"), (PERSISTENT, "/a")]);
    scenario.read_and_watch(WatchKind::Child, "/a", 3);
    scenario.answer();
    scenario.watch_events();
    scenario.machine.forget_watch("/a", &1);
    assert_eq!(scenario.answer(), [""; 0]);
    scenario.event(EventType::NodeCreated, "/a/b");
    assert_eq!(
        scenario.watch_events(),
        [(2, EventType::NodeChildrenChanged), (3, EventType::NodeChildrenChanged)]
    );
    // A read still relies on the mode: a watch of its own would take half of the mode away.
    scenario.read_and_watch(WatchKind::Data, "/a", 4);
    scenario.sends("watch: false");
    // The removal of another watch removes the mode, too.
    scenario.event(EventType::NodeDataChanged, "/a");
    scenario.removes("/a", 2, "Any");
}

/// A one-shot watch under a persistent one has nothing of its own on the server.
#[test]
fn a_covered_watch_is_given_back_without_a_request() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
    scenario.read_and_watch(WatchKind::Data, "/a", 2);
    scenario.answer();
    scenario.remove("/a", 2);
    assert_eq!(scenario.answer(), [""; 0]);
}

/// A removal behind a read that is in flight would take the watch of that read.
#[test]
fn nothing_is_given_back_while_another_is_on_its_way() {
    let mut scenario = Scenario::reading(WatchKind::Data);
    scenario.read_and_watch(WatchKind::Data, "/a", 2);
    scenario.removes("/a", 1, "GetData");
    assert_eq!(scenario.machine.watches(), 1);
}

/// No persistent watch without a watcher may stay on the server.
#[test]
fn an_abandoned_add_watch_is_removed_once_it_is_set() {
    let mut scenario = Scenario::connected();
    scenario.add_watch(PERSISTENT, "/a", 1);
    scenario.cancel_watch("/a", 1);
    scenario.answer();
    scenario.sends("RemoveWatches");
    assert_eq!(scenario.machine.watches(), 0);
}

/// Another connection has other watches: removals queued for this one are dropped, requests are not.
#[test]
fn queued_watch_requests_go_with_the_connection() {
    let mut scenario = Scenario::reading(WatchKind::Data);
    scenario.completions();
    scenario.get("/before", 2);
    scenario.remove("/a", 1);
    scenario.get("/behind", 3);
    scenario.cut();
    assert_eq!(scenario.completions(), [(1, Ok(50))], "the watch is gone, as was asked for");
    let sent = scenario.resume_and_read();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].contains("/before") && sent[1].contains("/behind"), "{sent:?}");
}

/// A read relied on it, so it could not be given back when it was cancelled or dropped; it is once the read's watch has
/// delivered its event. Otherwise a persistent watch without a watcher would stay on the server.
// Case (Found in docent itself): a persistent watch that was dropped while a read relied on it
// stayed on the server.
#[test]
fn a_cancelled_persistent_watch_that_covered_a_read_is_given_back_behind_it() {
    for cancelled in [true, false] {
        let mut scenario = Scenario::connected();
        scenario.add_watch(PERSISTENT, "/a", 1);
        if !cancelled {
            scenario.answer();
        }
        scenario.read_and_watch(WatchKind::Data, "/a", 2);
        scenario.cancel_watch("/a", 1);
        scenario.answer();
        assert_eq!(scenario.answer(), [""; 0]);
        assert_eq!(scenario.machine.watches(), 1);
        scenario.event(EventType::NodeDataChanged, "/a");
        assert_eq!(scenario.watch_events(), [(2, EventType::NodeDataChanged)]);
        scenario.sends("Any");
    }
}

/// After the failure of the read, no read relies on the persistent watch.
// Case (Found in docent itself): a persistent watch that was dropped stayed on the server when the
// read it covered failed or was cancelled.
#[test]
fn a_dropped_persistent_watch_is_given_back_when_the_read_it_covered_fails() {
    for (kind, err) in [
        (WatchKind::Data, ErrorCode::NoNode),
        (WatchKind::Child, ErrorCode::NoAuth),
        (WatchKind::Exist, ErrorCode::ThrottledOp),
    ] {
        let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
        scenario.read_and_watch(kind, "/a", 2);
        scenario.remove("/a", 1);
        scenario.flush();
        assert!(scenario.last_sent().contains("watch: false"), "{:?}", scenario.wire);
        scenario.reply_to_last(51, err);
        scenario.sends("Any");
        assert_eq!(scenario.machine.watches(), 0);
    }
}

/// A cancelled read no longer relies on the persistent watch.
#[test]
fn a_dropped_persistent_watch_is_given_back_when_the_read_it_covered_is_cancelled() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
    scenario.read_and_watch(WatchKind::Data, "/a", 2);
    scenario.remove("/a", 1);
    scenario.cancel_watch("/a", 2);
    let sent = [scenario.answer(), scenario.answer()].concat();
    assert!(sent.len() == 2 && sent[1].contains("Any"), "{sent:?}");
    assert_eq!(scenario.machine.watches(), 0);
}

/// Two persistent watches are in flight, and either is cancelled: the other one keeps its watch.
// Case (Found in docent itself): no test held these rules: of two watches on their way the
// cancelled one goes; the only watch of a path goes as a whole; `Request::path` of each request.
#[test]
fn of_two_watches_on_their_way_the_one_that_is_cancelled_goes() {
    for (gone, left) in [(1, 2), (2, 1)] {
        let mut scenario = Scenario::connected();
        scenario.add_watch(PERSISTENT, "/a", 1);
        scenario.add_watch(PERSISTENT, "/a", 2);
        scenario.cancel_watch("/a", gone);
        assert_eq!(scenario.answer().len(), 2);
        assert_eq!(scenario.answer(), [""; 0], "the other relies on it");
        scenario.event(EventType::NodeDataChanged, "/a");
        assert_eq!(scenario.watch_events(), [(left, EventType::NodeDataChanged)]);
        assert_eq!(scenario.machine.watches(), 1);
    }
}

/// Two reads are in flight, and either is cancelled: only the other one has a watch.
// Case (Pitfalls of the wire, 36): watches without a waiter.
#[test]
fn of_two_reads_on_their_way_the_one_that_is_cancelled_leaves_no_watch() {
    for (gone, left) in [(1, 2), (2, 1)] {
        let mut scenario = Scenario::connected();
        scenario.read_and_watch(WatchKind::Data, "/a", 1);
        scenario.read_and_watch(WatchKind::Data, "/a", 2);
        scenario.cancel_watch("/a", gone);
        scenario.answer();
        scenario.event(EventType::NodeDataChanged, "/a");
        assert_eq!(scenario.watch_events(), [(left, EventType::NodeDataChanged)]);
    }
}

/// The machine's own requests about watches are not refused: a recursive mode that stays on the server
/// keeps changed children from the owner of a persistent watch.
// Case (Found in docent itself): a full queue refused the client's own requests: a recursive watch
// stayed and kept changed children from others.
#[test]
fn a_full_queue_does_not_keep_a_watch_from_being_given_back() {
    let config = config().with_max_requests(2).with_max_pending_bytes(100);
    let mut scenario = Scenario::connected_with(config);
    scenario.add_watch(RECURSIVE, "/a", 1);
    scenario.add_watch(PERSISTENT, "/a", 2);
    scenario.answer();
    scenario.get_each("/b", 3..=5);
    let refused = (5, refused(ErrorKind::TooManyRequests));
    assert_eq!(scenario.completions().last(), Some(&refused));
    scenario.remove("/a", 1);
    let sent = scenario.answer();
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert!(sent[2].contains("AddWatch"), "{sent:?}");
    assert!(scenario.completions().contains(&(1, Ok(50))));
    scenario.sends("RemoveWatches");
}

/// The persistent watch is sent to the next server before all requests.
#[test]
fn a_read_between_two_connections_relies_on_the_persistent_watch() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
    scenario.cut();
    scenario.completions();
    scenario.read_and_watch(WatchKind::Data, "/a", 2);
    let sent = scenario.resume_and_read();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].contains("SetWatches2") && sent[1].contains("watch: false"), "{sent:?}");
}

/// Another watcher of the path is cancelled while there is no connection.
#[test]
fn the_mode_for_the_next_server_stays_as_long_as_a_watcher_does() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a"), (PERSISTENT, "/a")]);
    scenario.cut();
    scenario.cancel_watch("/a", 2);
    assert!(scenario.machine.watches.is_covered("/a"));
    scenario.cancel_watch("/a", 1);
    assert!(!scenario.machine.watches.is_covered("/a"));
    assert!(!scenario.machine.watches.has_modes());
}

/// The watch requests are sent to the next server before the reads behind them.
#[test]
fn reads_between_connections_rely_on_the_watch_requests_in_front_of_them() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/b")]);
    scenario.add_watch(PERSISTENT, "/a", 2);
    scenario.remove_all("/b", WatcherType::Any, 3);
    scenario.cut();
    scenario.read_and_watch(WatchKind::Data, "/a", 4);
    scenario.read_and_watch(WatchKind::Data, "/b", 5);
    let sent = scenario.resume_and_read();
    let [set, add, remove, covered, own] = &sent[..] else { panic!("{sent:?}") };
    assert!(set.contains("SetWatches2") && add.contains("AddWatch") && remove.contains("Any"));
    assert!(covered.contains("watch: false") && own.contains("watch: true"), "{sent:?}");
}

/// The end of the connection completes a removal that was sent.
#[test]
fn a_removal_that_was_on_its_way_when_the_connection_went_has_succeeded() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
    scenario.completions();
    scenario.remove("/a", 1);
    scenario.flush();
    scenario.cut();
    assert!(matches!(scenario.completions()[..], [(1, Ok(_))]));
}

/// The event of the watch finds no watcher, so no request is needed.
#[test]
fn a_one_shot_watch_that_is_cancelled_stays_on_the_server() {
    let mut scenario = Scenario::reading(WatchKind::Data);
    scenario.cancel_watch("/a", 1);
    assert_eq!((scenario.answer(), scenario.machine.watches()), (vec![], 0));
}

#[test]
fn a_forgotten_persistent_watch_stays_until_another_is_cancelled() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
    scenario.machine.forget_watch("/a", &1);
    assert_eq!(scenario.answer(), [""; 0]);
    scenario.add_watch(PERSISTENT, "/a", 2);
    scenario.answer();
    scenario.cancel_watch("/a", 2);
    scenario.sends("Any");
}

/// closeSession is the last request.
#[test]
fn nothing_is_sent_about_watches_behind_a_close() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
    scenario.close(9);
    scenario.cancel_watch("/a", 1);
    scenario.sends("CloseSession");
}
