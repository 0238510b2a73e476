//! The watch table: whom each event is told to, and what is told to the next server.

use super::*;
use WatchKind::{Child, Data, Exist, Persistent, PersistentRecursive};

fn table(entries: &[(WatchKind, &str, u32)]) -> Watches<u32> {
    let mut watches = Watches::default();
    for &(kind, path, watcher) in entries {
        watches.add(kind, path.into(), watcher);
    }
    watches
}

fn dispatch(
    watches: &mut Watches<u32>,
    event: EventType,
    path: &str,
) -> Vec<(u32, EventType, String)> {
    let mut told = Vec::new();
    watches.dispatch(event, path, |watcher, event, path| {
        told.push((watcher, event, path.to_string()));
    });
    told.sort_by_key(|(watcher, ..)| *watcher);
    told
}

fn who(watches: &mut Watches<u32>, event: EventType, path: &str) -> Vec<u32> {
    dispatch(watches, event, path).into_iter().map(|(watcher, ..)| watcher).collect()
}

/// wire-protocol section 6.2, the client's side of the trigger matrix.
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

/// wire-protocol section 6.2, the persistent columns.
#[test]
fn persistent_watches_stay_and_recursive_ones_hear_what_is_below() {
    let mut watches = table(&[(Persistent, "/a", 1), (PersistentRecursive, "/b", 2)]);
    for event in [
        EventType::NodeCreated,
        EventType::NodeDataChanged,
        EventType::NodeDeleted,
        EventType::NodeChildrenChanged,
    ] {
        assert_eq!(who(&mut watches, event, "/a"), [1], "{event}");
        assert_eq!(who(&mut watches, event, "/a/x"), [], "{event}");
        // pitfall 34: not of changed children (ZOOKEEPER-4475).
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

/// pitfall 34: a server before 3.9 has the recursive mode only, and never says that children changed.
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
    // 3.9 says so as well: nobody is told twice.
    assert_eq!(who(&mut watches, EventType::NodeChildrenChanged, "/a"), []);
    assert_eq!(watches.len(), 2);
}

#[test]
fn an_event_for_nobody_is_ignored() {
    let mut watches = table(&[(Data, "/a", 1)]);
    assert!(who(&mut watches, EventType::NodeDeleted, "/b").is_empty());
    watches.remove("/a", &1);
    assert!(who(&mut watches, EventType::NodeDeleted, "/a").is_empty());
    assert_eq!(watches.len(), 0);
}

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
    let mut sent = Vec::new();
    watches.replay(|replay| sent.push(format!("{:?}", replay.request(9))));
    assert_eq!(sent.len(), 1);
    assert!(
        sent[0].contains(
            r#"data_watches: ["/d"], exist_watches: ["/e"], child_watches: ["/d"], persistent_watches: ["/p"], persistent_recursive_watches: ["/r"]"#
        ),
        "{}",
        sent[0]
    );
}

/// ZOOKEEPER-706, reliability case 15.
#[test]
fn a_large_replay_is_split_and_loses_nothing() {
    let mut watches = Watches::default();
    for number in 0..11_000 {
        let path: Arc<str> = format!("/{number:099}").into();
        watches.add([Data, Exist, Child, Persistent][number % 4], path, number);
    }
    let (mut batches, mut total, mut with_persistent) = (0, 0, 0);
    watches.replay(|replay| {
        let request = replay.request(1);
        let lists = [
            request.data_watches,
            request.exist_watches,
            request.child_watches,
            request.persistent_watches,
            request.persistent_recursive_watches,
        ];
        let bytes: usize =
            lists.iter().flat_map(|list| list.iter()).map(|path| 4 + path.as_bytes().len()).sum();
        assert!(bytes <= REPLAY_BYTES + 104, "{bytes}");
        batches += 1;
        total += lists.iter().map(List::len).sum::<usize>();
        with_persistent += usize::from(replay.has_persistent());
    });
    assert_eq!((batches, total), (9, 11_000));
    assert_eq!(with_persistent, 3, "only those with persistent paths take setWatches2");
}
