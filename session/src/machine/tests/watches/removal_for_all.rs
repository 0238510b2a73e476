//! removeWatches for all watches of a path, or for one type, whose replies end watchers.

use super::*;

/// A read behind the removal of all watches sets a watch of its own.
// Case (Found in docent itself): a read behind a caller's removal of all watches of its path relied
// on the one that went; a removal of half a persistent watch left its other watchers deaf
// (ZOOKEEPER-4471).
#[test]
fn a_read_behind_a_removal_for_all_relies_on_no_removed_watch() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
    scenario.read_and_watch(WatchKind::Data, "/a", 2);
    scenario.flush();
    let read = scenario.last_xid();
    scenario.remove_all("/a", WatcherType::Any, 3);
    scenario.read_and_watch(WatchKind::Child, "/a", 4);
    scenario.flush();
    scenario.reply(read, 50, ErrorCode::Ok, b"");
    let [.., (removal, any), (children, own)] = &scenario.wire.clone()[..] else { panic!() };
    assert!(any.contains("Any") && own.contains("watch: true"), "{:?}", scenario.wire);
    scenario.reply(*removal, 51, ErrorCode::Ok, b"");
    scenario.reply(*children, 52, ErrorCode::Ok, b"");
    assert_eq!(
        scenario.watch_events(),
        [(2, EventType::DataWatchRemoved), (1, EventType::PersistentWatchRemoved)]
    );
    assert_eq!((scenario.answer(), scenario.machine.watches()), (vec![], 1));
}

/// Java's client delivers such synthetic events.
#[test]
fn watchers_are_notified_when_a_caller_removes_all_watches() {
    let mut scenario = Scenario::connected();
    scenario.read_and_watch(WatchKind::Data, "/a", 1);
    scenario.read_and_watch(WatchKind::Child, "/a", 2);
    scenario.add_watch(PERSISTENT, "/b", 3);
    scenario.answer();
    scenario.remove_all("/a", WatcherType::Data, 4);
    scenario.remove_all("/a", WatcherType::Any, 5);
    scenario.remove_all("/b", WatcherType::Any, 6);
    scenario.answer();
    assert_eq!(
        scenario.watch_events(),
        [
            (1, EventType::DataWatchRemoved),
            (2, EventType::ChildWatchRemoved),
            (3, EventType::PersistentWatchRemoved)
        ]
    );
    assert_eq!(scenario.machine.watches(), 0);
}

#[test]
fn a_removal_for_all_that_finds_none_removes_none() {
    let mut scenario = Scenario::reading(WatchKind::Data);
    scenario.completions();
    scenario.remove_all("/a", WatcherType::Children, 2);
    scenario.reply_to_last(51, ErrorCode::NoWatcher);
    assert_eq!(scenario.machine.watches(), 1);
    assert_eq!(scenario.completions(), [(2, refused(ErrorKind::NoWatcher))]);
    // The machine's own removal finds none either: an error, but no caller's.
    scenario.remove("/a", 1);
    scenario.reply_to_last(52, ErrorCode::NoWatcher);
    assert_eq!(scenario.completions(), [(1, Ok(52))]);
    assert_eq!(scenario.machine.metrics().error_replies, 2);
}

/// Each type takes only its own kinds away (Java's synthetic events).
#[test]
fn a_removal_of_one_type_notifies_the_watchers_of_its_kinds() {
    for (watcher_type, expected) in [
        (WatcherType::Children, vec![(2, EventType::ChildWatchRemoved)]),
        (WatcherType::Data, vec![(1, EventType::DataWatchRemoved)]),
        (WatcherType::Persistent, vec![(3, EventType::PersistentWatchRemoved)]),
        (WatcherType::PersistentRecursive, vec![(4, EventType::PersistentWatchRemoved)]),
    ] {
        let mut scenario = Scenario::connected();
        scenario.watch(WatchKind::Data, "/a", 1);
        scenario.watch(WatchKind::Child, "/a", 2);
        scenario.add_watch(PERSISTENT, "/a", 3);
        scenario.add_watch(RECURSIVE, "/a", 4);
        scenario.answer();
        scenario.remove_all("/a", watcher_type, 9);
        scenario.watch_events();
        let sent = scenario.answer();
        assert!(sent.iter().any(|request| request.contains("RemoveWatches")), "{sent:?}");
        let mut removed = scenario.watch_events();
        removed.retain(|(_, event)| *event != EventType::None);
        assert_eq!(removed, expected, "{watcher_type:?}");
    }
}

/// Since 3.9 a persistent and a recursive watch of one path are two.
#[test]
fn the_removal_of_a_persistent_watch_leaves_a_recursive_one_beside_it_as_it_is() {
    let mut scenario = Scenario::watching(&[(RECURSIVE, "/a")]);
    scenario.remove_all("/a", WatcherType::Persistent, 2);
    scenario.answer();
    assert_eq!(scenario.answer(), [""; 0]);
    assert_eq!(scenario.watch_events(), []);
}

/// The removal of one kind takes half of a persistent watch away (ZOOKEEPER-4471). The other half
/// would stay on the server for ever, with events for no watcher.
#[test]
fn the_half_of_a_persistent_watch_that_a_removal_left_is_given_back() {
    let mut scenario = Scenario::watching(&[(PERSISTENT, "/a")]);
    scenario.remove_all("/a", WatcherType::Children, 2);
    scenario.removes("/a", 1, "Children");
    scenario.sends("Any");
    assert_eq!(scenario.answer(), [""; 0]);
}
