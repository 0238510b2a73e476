//! The watch table: which watchers receive an event, and the replay to the next server.

use docent_protocol::{KeeperState, List};

use super::{
    replay::{OVERHEAD, REPLAY_BYTES},
    *,
};
use WatchKind::{Child, Data, Exist, Persistent, PersistentRecursive};

fn table(entries: &[(WatchKind, &str, u32)]) -> Watches<u32> {
    let mut watches = Watches::default();
    for &(kind, path, watcher) in entries {
        add(&mut watches, kind, path.into(), watcher);
    }
    watches
}

/// Registers a watch as if its request were answered.
fn add(watches: &mut Watches<u32>, kind: WatchKind, path: Arc<str>, watcher: u32) {
    watches.request(kind, Arc::clone(&path), watcher);
    assert!(watches.set(kind, &path, watcher));
    if kind.is_persistent() {
        let mode = watches.mode_entry(&path);
        mode.confirmed = mode.confirmed.or_wider(Mode::of(kind));
    }
}

/// The requests of a replay, and whether each includes persistent watches.
fn batches(watches: &Watches<u32>, limit: usize) -> Vec<(String, usize, usize, bool)> {
    let mut sent = Vec::new();
    let too_long = watches.batches(&watches.set_paths(), 9, limit, |replay, batch| {
        let request = replay.request(9);
        let lists = [
            request.data_watches,
            request.exist_watches,
            request.child_watches,
            request.persistent_watches,
            request.persistent_recursive_watches,
        ];
        let bytes = lists.iter().flat_map(|list| list.iter()).map(|path| 4 + path.as_bytes().len());
        let (bytes, count) = (bytes.sum(), lists.iter().map(List::len).sum());
        sent.push((format!("{request:?}"), bytes, count, batch.has_persistent()));
    });
    assert!(too_long.is_empty());
    sent
}

fn dispatch(
    watches: &mut Watches<u32>,
    event: EventType,
    path: &str,
) -> Vec<(u32, EventType, String)> {
    let mut notified = Vec::new();
    watches.dispatch(event, path, |watcher, event, path| {
        notified.push((watcher, event, path.to_string()));
    });
    notified.sort_by_key(|(watcher, ..)| *watcher);
    notified
}

fn who(watches: &mut Watches<u32>, event: EventType, path: &str) -> Vec<u32> {
    dispatch(watches, event, path).into_iter().map(|(watcher, ..)| watcher).collect()
}

/// Source: `ZKWatchManager.materialize`, the lists for each event type.
#[test]
fn an_event_takes_the_lists_it_concerns() {
    let all = [(Data, "/a", 1), (Exist, "/a", 2), (Child, "/a", 3), (Data, "/a/b", 4)];
    for (event, taken, left) in [
        (EventType::NodeCreated, vec![1, 2], 2),
        (EventType::NodeDataChanged, vec![1, 2], 2),
        (EventType::NodeDeleted, vec![1, 2, 3], 1),
        (EventType::NodeChildrenChanged, vec![3], 3),
        (EventType::Unknown(99), vec![], 4),
    ] {
        let mut watches = table(&all);
        assert_eq!((who(&mut watches, event, "/a"), watches.len()), (taken, left), "{event}");
    }
}

/// The persistent watch that covers two reads was set after the next change of the node.
// Case (Found in docent itself): a one-shot watch of a read that a persistent watch covers reported
// the creation of a node that had existed, if the persistent watch was set after the deletion.
#[test]
fn a_one_shot_watch_reports_what_a_server_would_although_the_first_event_is_missing() {
    let reported = |kind, event| {
        let mut watches = table(&[(Persistent, "/a", 1), (kind, "/a", 2)]);
        let events = dispatch(&mut watches, event, "/a");
        assert_eq!(events.first().map(|(_, event, _)| *event), Some(event));
        events.get(1).map(|(_, event, _)| *event)
    };
    for (kind, event, as_seen) in [
        (Data, EventType::NodeCreated, EventType::NodeDataChanged),
        (Data, EventType::NodeDataChanged, EventType::NodeDataChanged),
        (Data, EventType::NodeDeleted, EventType::NodeDeleted),
        (Exist, EventType::NodeCreated, EventType::NodeCreated),
        (Exist, EventType::NodeDataChanged, EventType::NodeCreated),
        (Exist, EventType::NodeDeleted, EventType::NodeCreated),
        (Child, EventType::NodeDeleted, EventType::NodeDeleted),
    ] {
        assert_eq!(reported(kind, event), Some(as_seen), "{kind:?} {event}");
    }
}

/// A watch whose read relied on a persistent one: that is requested, or to be removed, or the connection was lost.
#[test]
fn each_sign_of_a_persistent_watch_makes_a_deletion_a_creation() {
    for (queued, confirmed, entries) in [
        (Mode::Persistent, Mode::None, &[(Exist, "/a", 2)][..]),
        (Mode::None, Mode::Persistent, &[(Exist, "/a", 2)]),
        (Mode::None, Mode::None, &[(Persistent, "/a", 1), (Exist, "/a", 2)]),
    ] {
        let mut watches = table(entries);
        let mode = watches.mode_entry(&"/a".into());
        (mode.queued, mode.confirmed) = (queued, confirmed);
        let events = dispatch(&mut watches, EventType::NodeDeleted, "/a");
        assert_eq!(events.last().map(|(_, event, _)| *event), Some(EventType::NodeCreated));
    }
}

/// A server answers a setWatches that it has refused before with the deletion of a node that was watched then. Meanwhile, another
/// read has found no node.
// Case (Found in docent itself): a watch for the creation of a node reported one that never was,
// when a late setWatches reported the deletion before: a member of a double barrier entered alone.
#[test]
fn a_deletion_that_is_reported_late_is_no_creation() {
    for unset in [None, Some(7)] {
        let mut watches = table(&[(Data, "/a", 1), (Exist, "/a", 2)]);
        watches.mode_entry(&"/a".into()).unset = unset;
        let events = dispatch(&mut watches, EventType::NodeDeleted, "/a");
        let events: Vec<_> = events.iter().map(|(_, event, _)| *event).collect();
        assert_eq!(events, [EventType::NodeDeleted; 2]);
    }
}

/// Source: `ZKWatchManager.materialize`, the persistent lists.
#[test]
fn persistent_watches_stay_and_recursive_ones_report_descendants() {
    let mut watches = table(&[(Persistent, "/a", 1), (PersistentRecursive, "/b", 2)]);
    for event in [
        EventType::NodeCreated,
        EventType::NodeDataChanged,
        EventType::NodeDeleted,
        EventType::NodeChildrenChanged,
    ] {
        assert_eq!(who(&mut watches, event, "/a"), [1], "{event}");
        assert_eq!(who(&mut watches, event, "/a/x"), [], "{event}");
        // Recursive watches do not report changed children (ZOOKEEPER-4475).
        let heard = if event == EventType::NodeChildrenChanged { vec![] } else { vec![2] };
        assert_eq!(who(&mut watches, event, "/b"), heard, "{event}");
        assert_eq!(who(&mut watches, event, "/b/x/y"), heard, "{event}");
        assert_eq!(who(&mut watches, event, "/bx"), [], "{event}");
    }
    assert_eq!(watches.len(), 2);
}

#[test]
fn a_recursive_watch_on_the_root_hears_everything() {
    let mut watches = table(&[(PersistentRecursive, "/", 1)]);
    assert_eq!(who(&mut watches, EventType::NodeCreated, "/a/b"), [1]);
    assert_eq!(who(&mut watches, EventType::NodeDataChanged, "/"), [1]);
}

/// A server before 3.9 has only the recursive mode, and never reports changed children.
#[test]
fn under_a_recursive_watch_a_child_stands_for_changed_children() {
    let mut watches =
        table(&[(PersistentRecursive, "/a", 1), (Persistent, "/a", 2), (Child, "/a", 3)]);
    assert_eq!(
        dispatch(&mut watches, EventType::NodeCreated, "/a/b"),
        [
            (1, EventType::NodeCreated, "/a/b".to_owned()),
            (2, EventType::NodeChildrenChanged, "/a".to_owned()),
            (3, EventType::NodeChildrenChanged, "/a".to_owned())
        ]
    );
    // 3.9 reports them as well: no watcher receives the event twice.
    assert_eq!(who(&mut watches, EventType::NodeChildrenChanged, "/a"), []);
    assert_eq!(watches.len(), 2);
}

// Case (Pitfalls of the wire, 33): an exist watch in the data list.
#[test]
fn the_replay_keeps_the_lists_apart_and_names_a_path_once_in_each() {
    let watches = table(&[
        (Data, "/d", 1),
        (Data, "/d", 2),
        (Exist, "/e", 3),
        (Child, "/d", 4),
        (Persistent, "/p", 5),
        (PersistentRecursive, "/r", 6),
        // Only the mode that the server is to keep.
        (Persistent, "/r", 7),
    ]);
    let sent = batches(&watches, usize::MAX);
    assert_eq!(sent.len(), 1);
    assert!(
        sent[0].0.contains(
            r#"data_watches: ["/d"], exist_watches: ["/e"], child_watches: ["/d"], persistent_watches: ["/p"], persistent_recursive_watches: ["/r"]"#
        ),
        "{sent:?}"
    );
}

/// ZOOKEEPER-706.
// Case (Pitfalls of the wire, 18): a setWatches over the limit.
// Case (What broke other clients): more than 128 KiB of watches end the session.
#[test]
fn a_large_replay_is_split_and_loses_nothing() {
    let mut watches = Watches::default();
    for number in 0..11_000 {
        let path: Arc<str> = format!("/{number:099}").into();
        add(&mut watches, [Data, Exist, Child, Persistent][number as usize % 4], path, number);
    }
    for (limit, least) in [(usize::MAX, 9), (64 * 1024, 17), (1000, 1143)] {
        let sent = batches(&watches, limit);
        let largest = sent.iter().map(|(_, bytes, ..)| *bytes).max().unwrap();
        assert!(largest <= REPLAY_BYTES && largest + 36 <= limit, "{largest}");
        assert_eq!(sent.iter().map(|(_, _, count, _)| count).sum::<usize>(), 11_000);
        assert!(sent.len() >= least && sent.len() <= least + 100, "{}", sent.len());
        // Only batches with persistent paths need setWatches2, and they come last.
        let first = sent.iter().position(|(.., persistent)| *persistent).unwrap();
        assert!(sent[first..].iter().all(|(.., persistent)| *persistent));
        assert!(first >= sent.len() / 2);
    }
}

/// Before 3.9 the last of a path's modes is the final one: a batch that is sent again must end with it too.
#[test]
fn the_watches_of_a_path_are_not_parted_unless_they_must_be() {
    let entries =
        [(Data, "/path", 1), (Child, "/path", 2), (Persistent, "/path", 3), (Data, "/q", 4)];
    let watches = table(&entries);
    assert_eq!(batches(&watches, 36 + 27 + 5).len(), 2);
    let sent = batches(&watches, 36 + 26);
    let persistent: Vec<_> = sent.iter().map(|(.., persistent)| *persistent).collect();
    assert_eq!(persistent, [false, false, false, true], "{sent:?}");
    assert_eq!(sent.iter().map(|(_, _, count, _)| count).sum::<usize>(), 4);
}

/// A path that fits into an addWatch may fit into no setWatches.
#[test]
fn a_path_that_fits_into_no_set_watches_is_named() {
    let watches = table(&[(Data, "/a", 1), (Persistent, "/longer", 2)]);
    let mut sent = 0;
    let too_long = watches.batches(&watches.set_paths(), 9, 36 + 10, |_, _| sent += 1);
    assert_eq!((too_long, sent), (vec!["/longer".into()], 1));
}

/// Alone in its request, also if several watches of it are.
// Case (Found in docent itself): the watch of a path of more than 128 KiB ended at each reconnect.
#[test]
fn a_path_that_is_longer_than_a_batch_is_sent_alone() {
    let long = format!("/{}", "x".repeat(REPLAY_BYTES));
    let mut watches = table(&[(Data, "/a", 1), (Persistent, "/b", 2)]);
    for (watcher, kind) in (3..).zip([Data, Persistent]) {
        add(&mut watches, kind, (*long).into(), watcher);
    }
    let sent = batches(&watches, usize::MAX);
    let sizes: Vec<_> = sent.iter().map(|(_, bytes, count, _)| (*bytes, *count)).collect();
    assert_eq!(sizes, [(2 * (4 + 2), 2), (2 * (4 + long.len()), 2)]);
    // What does not fit together is parted.
    let sent = batches(&watches, OVERHEAD + 4 + long.len());
    assert_eq!(sent.len(), 3);
    let too_long = watches.batches(&watches.set_paths(), 9, OVERHEAD + 3 + long.len(), |_, _| ());
    assert_eq!(too_long, [Arc::from(long)]);
}

/// One path with many watchers, and back to one.
#[test]
fn watchers_of_one_path_go_in_any_order() {
    let mut watches = table(&[]);
    let count = 1000;
    for watcher in 0..count {
        add(&mut watches, [Data, Child, Persistent][watcher as usize % 3], "/a".into(), watcher);
    }
    assert_eq!(watches.len(), 1000);
    for watcher in (0..count).filter(|watcher| watcher * 7 % 10 > 0) {
        assert_eq!(
            watches.remove("/a", &watcher),
            Some([Data, Child, Persistent][watcher as usize % 3])
        );
        assert_eq!(watches.remove("/a", &watcher), None);
    }
    assert_eq!(watches.len(), 100);
    let notified = dispatch(&mut watches, EventType::NodeDeleted, "/a");
    assert_eq!(notified.len(), 100);
    let left: Vec<_> = (0..count).filter(|w| w % 10 == 0 && w % 3 == 2).collect();
    assert_eq!(who(&mut watches, EventType::NodeCreated, "/a"), left);
    for watcher in left {
        watches.remove("/a", &watcher);
    }
    assert_eq!((watches.len(), watches.is_watched("/a")), (0, false));
}

/// Watchers receive an event in order of registration.
#[test]
fn watchers_are_notified_in_their_order() {
    let mut watches = table(&[(Data, "/a", 9), (Data, "/a", 1), (Data, "/a", 5)]);
    let mut notified = Vec::new();
    watches.dispatch(EventType::NodeDeleted, "/a", |watcher, _, _| notified.push(watcher));
    assert_eq!(notified, [9, 1, 5]);
}

// Case (Found in docent itself): the table of watches kept the memory of a burst.
#[test]
fn the_memory_of_a_burst_is_given_back() {
    let mut watches = Watches::default();
    for watcher in 0..10_000 {
        add(&mut watches, Persistent, format!("/{watcher}").into(), watcher);
    }
    for watcher in 0..10_000 {
        watches.remove(&format!("/{watcher}"), &watcher);
        watches.drop_mode(&format!("/{watcher}"));
    }
    assert!(watches.paths.capacity() <= 2 * KEPT_PATHS, "{}", watches.paths.capacity());
    assert!(watches.modes.capacity() <= 2 * KEPT_PATHS, "{}", watches.modes.capacity());
}

/// Two paths that fit exactly are one request, which is as long as the limit; `ClientCnxn` splits at 128 KiB.
#[test]
fn a_replay_fills_its_requests_to_the_limit() {
    assert_eq!(REPLAY_BYTES, 131_072);
    let watches = table(&[(Persistent, "/1234567", 1), (PersistentRecursive, "/7654321", 2)]);
    let lengths = |limit| {
        let mut lengths = Vec::new();
        let too_long = watches.batches(&watches.set_paths(), 9, limit, |replay, _| {
            let mut out = Vec::new();
            let operation = docent_protocol::operation::SetWatches2(replay.request(9));
            docent_protocol::frame::put_operation(&mut out, usize::MAX, -8, &operation).unwrap();
            lengths.push(out.len() - 4);
        });
        (lengths, too_long.len())
    };
    // Header and zxid, the lengths of five lists, and two paths with their lengths.
    let whole = 8 + 8 + 5 * 4 + 2 * (4 + 8);
    assert_eq!(lengths(whole), (vec![whole], 0));
    assert_eq!(lengths(whole - 1), (vec![whole - 12; 2], 0));
    assert_eq!(lengths(whole - 12), (vec![whole - 12; 2], 0));
    assert_eq!(lengths(whole - 13), (vec![], 2));
}

/// Shrinking earlier, or to less, would let each removal move the whole table.
#[test]
fn a_table_shrinks_to_twice_its_length_once_seven_eighths_are_free() {
    let shrunk = |capacity, len| {
        let mut table = Table::with_capacity(capacity);
        for number in 0..len {
            table.insert(Arc::from(format!("/{number}")), ());
        }
        let before = table.capacity();
        shrink(&mut table);
        (before, table.capacity())
    };
    // Capacities are seven eighths of powers of two.
    assert_eq!(shrunk(10_000, 3000), (14_336, 14_336));
    assert_eq!(shrunk(10_000, 1792), (14_336, 14_336));
    assert_eq!(shrunk(10_000, 1791), (14_336, 3584));
    assert_eq!(shrunk(10_000, 1000), (14_336, 3584));
    assert_eq!(shrunk(50, 1), (56, 56));
}

/// While the count is 0, no event is looked up at the ancestors of its node.
#[test]
fn the_recursive_watches_are_counted() {
    let mut watches = table(&[
        (PersistentRecursive, "/a", 1),
        (PersistentRecursive, "/a", 2),
        (PersistentRecursive, "/b", 3),
        (Persistent, "/a", 4),
    ]);
    assert_eq!((watches.recursive, watches.len()), (3, 4));
    watches.remove("/a", &4);
    watches.remove("/a", &2);
    watches.remove("/b", &3);
    assert_eq!((watches.recursive, watches.len()), (1, 1));
    watches.remove("/a", &1);
    assert_eq!((watches.recursive, watches.len()), (0, 0));
}

/// A canceled request leaves no watch, and a failed one does not either.
#[test]
fn a_request_is_no_watch_yet() {
    let mut watches = Watches::default();
    let path: Arc<str> = "/a".into();
    watches.request(Data, Arc::clone(&path), 1);
    watches.request(Persistent, Arc::clone(&path), 2);
    watches.request(Child, Arc::clone(&path), 3);
    assert_eq!(who(&mut watches, EventType::NodeDeleted, "/a"), []);
    assert!(watches.set_paths().is_empty() && watches.is_watched("/a"));
    assert_eq!((watches.widest("/a"), watches.widest_set("/a")), (Mode::Persistent, Mode::None));
    assert!(watches.withdraw("/a", &1) && !watches.withdraw("/a", &1));
    assert_eq!(watches.remove("/a", &2), Some(Persistent));
    assert!(!watches.set(Persistent, &path, 2));
    assert!(watches.set(Child, &path, 3) && !watches.withdraw("/a", &3));
    assert_eq!(watches.len(), 1);
}

/// The last event, and the event that only reports missed events.
#[test]
fn the_end_differs_from_a_resync() {
    for (event_type, state, is_resync, is_end) in [
        (EventType::None, KeeperState::Expired, false, true),
        (EventType::None, KeeperState::Closed, false, true),
        (EventType::None, KeeperState::SyncConnected, true, false),
        (EventType::None, KeeperState::ConnectedReadOnly, true, false),
        (EventType::DataWatchRemoved, KeeperState::SyncConnected, false, true),
        (EventType::ChildWatchRemoved, KeeperState::SyncConnected, false, true),
        (EventType::PersistentWatchRemoved, KeeperState::SyncConnected, false, true),
        (EventType::NodeDeleted, KeeperState::SyncConnected, false, false),
    ] {
        let event = WatchedEvent { event_type, state, path: "/a".into(), zxid: None };
        assert_eq!((event.is_resync(), event.is_end()), (is_resync, is_end), "{event:?}");
    }
}
