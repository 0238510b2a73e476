//! Persistent watches, several kinds on one path, and giving them back.

use docent_protocol::AddWatchMode;

use super::*;

const PERSISTENT: AddWatchMode = AddWatchMode::Persistent;
const RECURSIVE: AddWatchMode = AddWatchMode::PersistentRecursive;

impl Story {
    fn add_watch(&mut self, mode: AddWatchMode, path: &str, token: u32) {
        let now = self.now;
        self.machine.add_watch(mode, token, path.into(), token, || now);
    }

    /// As a client reads: the machine decides on the flag.
    fn read_and_watch(&mut self, kind: WatchKind, path: &str, token: u32) {
        let now = self.now;
        let registration = Registration { kind, path: path.into(), watcher: token };
        let read = |watch| ReadRequest { path: path.into(), watch };
        let machine = &mut self.machine;
        match kind {
            WatchKind::Child => {
                machine.submit_watching(|w| GetChildren(read(w)), token, registration, || now);
            }
            WatchKind::Exist => {
                machine.submit_watching(|w| Exists(read(w)), token, registration, || now);
            }
            _ => machine.submit_watching(|w| GetData(read(w)), token, registration, || now),
        }
    }

    fn remove(&mut self, path: &str, watcher: u32) {
        let now = self.now;
        self.machine.remove_watch(path, &watcher, Some(watcher), || now);
    }

    /// Sends what is queued and answers it all; what was sent, as text.
    fn answer(&mut self) -> Vec<String> {
        self.wire.clear();
        self.flush();
        for (xid, _) in self.wire.clone() {
            self.reply(xid, 50, ErrorCode::Ok, b"");
        }
        self.wire.iter().map(|(_, request)| request.clone()).collect()
    }

    fn reconnect(&mut self) -> Vec<String> {
        self.cut();
        self.done();
        self.connect();
        self.wire.clear();
        self.accept(7, 6000);
        self.wire.iter().map(|(_, request)| request.clone()).collect()
    }

    fn told_events(&mut self) -> Vec<(u32, EventType, KeeperState)> {
        std::iter::from_fn(|| self.machine.poll_event())
            .filter_map(|event| match event {
                Event::Watch { watcher, event } => Some((watcher, event.event_type, event.state)),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn a_persistent_watch_tells_every_event() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/a", 1);
    let sent = story.answer();
    assert!(sent[0].contains("AddWatch") && sent[0].contains("mode: Persistent }"), "{sent:?}");
    for _ in 0..3 {
        story.event(EventType::NodeDataChanged, "/a");
    }
    assert_eq!(story.told(), [(1, EventType::NodeDataChanged); 3]);
}

#[test]
fn a_refused_persistent_watch_is_none() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/a", 1);
    story.flush();
    story.reply(1, 5, ErrorCode::MarshallingError, b"");
    assert_eq!(story.machine.watches(), 0);
    assert_eq!(story.done(), [(1, Err((ErrorKind::MarshallingError, Outcome::NotApplied)))]);
}

/// peers t1p, t1r: persistent watches are set again by setWatches2; pitfall 35: and their holders told that
/// they may have missed something, once all are set.
#[test]
fn persistent_watches_are_set_again_and_resynced() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/p", 1);
    story.add_watch(RECURSIVE, "/r", 2);
    story.read_and_watch(WatchKind::Data, "/d", 3);
    story.answer();
    story.told();
    let sent = story.reconnect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].starts_with("SetWatches2"), "{sent:?}");
    assert!(
        sent[0].contains(
            r#"data_watches: ["/d"], exist_watches: [], child_watches: [], persistent_watches: ["/p"], persistent_recursive_watches: ["/r"]"#
        ),
        "{sent:?}"
    );
    assert_eq!(story.told(), [], "not before the server has them");
    story.event(EventType::NodeDataChanged, "/p");
    story.reply(xid::SET_WATCHES, 60, ErrorCode::Ok, b"");
    assert_eq!(
        story.told_events(),
        [
            (1, EventType::NodeDataChanged, KeeperState::SyncConnected),
            (1, EventType::None, KeeperState::SyncConnected),
            (2, EventType::None, KeeperState::SyncConnected)
        ]
    );
}

/// Servers before 3.6 know setWatches only.
#[test]
fn one_shot_watches_alone_are_set_again_by_set_watches() {
    let mut story = Story::connected();
    story.read_and_watch(WatchKind::Child, "/c", 1);
    story.answer();
    let sent = story.reconnect();
    assert!(sent[0].starts_with("SetWatches("), "{sent:?}");
}

/// wire-protocol 6.3: WatchManagerOptimized refuses them; the session must not reconnect for ever.
#[test]
fn a_server_that_refuses_persistent_watches_ends_them_and_not_the_session() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/p", 1);
    story.answer();
    story.reconnect();
    story.reply(xid::SET_WATCHES, 60, ErrorCode::MarshallingError, b"");
    assert!(!story.is_broken());
    assert_eq!(story.told(), [(1, EventType::PersistentWatchRemoved)]);
    assert_eq!(story.machine.watches(), 0);
}

/// ZOOKEEPER-4466, pitfall 34, peers t12: a one-shot watch does not end a persistent one.
#[test]
fn below_a_persistent_watch_a_read_is_sent_without_its_flag() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/a", 1);
    // On its way already.
    story.read_and_watch(WatchKind::Data, "/a", 2);
    let sent = story.answer();
    assert!(sent[1].contains("GetData") && sent[1].contains("watch: false"), "{sent:?}");
    story.read_and_watch(WatchKind::Child, "/a", 3);
    story.read_and_watch(WatchKind::Data, "/b", 4);
    let sent = story.answer();
    assert!(sent[0].contains("watch: false") && sent[1].contains("watch: true"), "{sent:?}");
    story.event(EventType::NodeDataChanged, "/a");
    story.event(EventType::NodeChildrenChanged, "/a");
    story.event(EventType::NodeDataChanged, "/a");
    assert_eq!(
        story.told(),
        [
            (1, EventType::NodeDataChanged),
            (2, EventType::NodeDataChanged),
            (1, EventType::NodeChildrenChanged),
            (3, EventType::NodeChildrenChanged),
            (1, EventType::NodeDataChanged)
        ]
    );
}

/// versions.md 7: recursive then persistent on one path loses the children's events before 3.9.
#[test]
fn the_widest_mode_is_what_the_server_is_asked_for() {
    let mut story = Story::connected();
    story.add_watch(RECURSIVE, "/a", 1);
    story.add_watch(PERSISTENT, "/a", 2);
    let sent = story.answer();
    assert!(sent.iter().all(|request| request.contains("mode: PersistentRecursive")), "{sent:?}");
    story.event(EventType::NodeCreated, "/a/b");
    assert_eq!(story.told(), [(1, EventType::NodeCreated), (2, EventType::NodeChildrenChanged)]);
}

/// pitfall 34, kezhuw#2: one of several watchers goes; the others keep their watch.
#[test]
fn only_the_last_watcher_of_a_kind_is_given_back() {
    let mut story = Story::connected();
    story.read_and_watch(WatchKind::Data, "/a", 1);
    story.read_and_watch(WatchKind::Data, "/a", 2);
    story.read_and_watch(WatchKind::Child, "/a", 3);
    story.answer();
    story.done();
    story.remove("/a", 1);
    assert_eq!(story.answer(), [""; 0]);
    assert_eq!(story.done(), [(1, Ok(50))]);
    story.remove("/a", 2);
    let sent = story.answer();
    assert!(sent.len() == 1 && sent[0].contains("RemoveWatches") && sent[0].contains("Data"));
    story.remove("/a", 3);
    let sent = story.answer();
    assert!(sent.len() == 1 && sent[0].contains("Children"), "{sent:?}");
    assert_eq!(story.machine.watches(), 0);
}

/// kezhuw#22: an event was faster than the removal.
#[test]
fn a_watch_that_is_gone_already_is_given_back_all_the_same() {
    let mut story = Story::connected();
    story.read_and_watch(WatchKind::Data, "/a", 1);
    story.answer();
    story.done();
    story.remove("/a", 1);
    story.flush();
    story.event(EventType::NodeDataChanged, "/a");
    let xid = story.wire.last().unwrap().0;
    story.reply(xid, 51, ErrorCode::NoWatcher, b"");
    assert_eq!(story.done(), [(1, Ok(51))]);
    assert_eq!(story.told(), []);
}

/// The type that takes persistent watches before 3.9 takes the one-shot ones along: they are set again.
#[test]
fn what_is_left_on_the_path_is_set_again() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/a", 1);
    story.answer();
    story.read_and_watch(WatchKind::Data, "/a", 2);
    story.answer();
    story.remove("/a", 1);
    let sent = story.answer();
    assert!(sent[0].contains("RemoveWatches") && sent[0].contains("Any"), "{sent:?}");
    assert!(
        sent[1].contains("relative_zxid: 50") && sent[1].contains(r#"data_watches: ["/a"]"#),
        "{sent:?}"
    );
    // One watch less to care for.
    story.remove("/a", 2);
    assert!(story.answer()[0].contains("Data"));
}

#[test]
fn a_recursive_watch_that_goes_leaves_the_persistent_one() {
    let mut story = Story::connected();
    story.add_watch(RECURSIVE, "/a", 1);
    story.add_watch(PERSISTENT, "/a", 2);
    story.answer();
    story.remove("/a", 1);
    let sent = story.answer();
    assert!(sent[0].contains("AddWatch") && sent[0].contains("mode: Persistent }"), "{sent:?}");
    assert!(sent[1].contains("RemoveWatches") && sent[1].contains("PersistentRecursive"));
    story.remove("/a", 2);
    assert!(story.answer()[0].contains("Any"));
}

/// A one-shot watch under a persistent one has nothing of its own on the server.
#[test]
fn a_covered_watch_is_given_back_without_a_word() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/a", 1);
    story.read_and_watch(WatchKind::Data, "/a", 2);
    story.answer();
    story.remove("/a", 2);
    assert_eq!(story.answer(), [""; 0]);
}

/// A read that is on its way would lose its watch to a removal behind it.
#[test]
fn nothing_is_given_back_while_another_is_on_its_way() {
    let mut story = Story::connected();
    story.read_and_watch(WatchKind::Data, "/a", 1);
    story.answer();
    story.read_and_watch(WatchKind::Data, "/a", 2);
    story.remove("/a", 1);
    let sent = story.answer();
    assert!(sent.len() == 1 && sent[0].contains("GetData"), "{sent:?}");
    assert_eq!(story.machine.watches(), 1);
}

/// The persistent watch went between the read and its reply.
#[test]
fn a_covered_read_whose_cover_has_gone_gets_a_watch_of_its_own() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/a", 1);
    story.answer();
    story.read_and_watch(WatchKind::Data, "/a", 2);
    story.flush();
    let read = story.wire.last().unwrap().0;
    story.machine.forget_watch("/a", &1);
    story.reply(read, 50, ErrorCode::Ok, b"");
    let sent = story.answer();
    // What went is not on the server either, or one of the modes would end the other (ZOOKEEPER-4466).
    assert!(sent.len() == 2 && sent[0].starts_with("RemoveWatches("), "{sent:?}");
    assert!(sent[1].starts_with("SetWatches("), "{sent:?}");
}

/// A persistent watch would tell nobody of events for ever.
#[test]
fn an_add_watch_nobody_waits_for_is_given_back_once_it_is_there() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/a", 1);
    story.machine.cancel_watch("/a", &1, || Instant::ZERO);
    story.answer();
    let sent = story.answer();
    assert!(sent.len() == 1 && sent[0].contains("RemoveWatches"), "{sent:?}");
    assert_eq!(story.machine.watches(), 0);
}

/// Another connection has other watches: what was to be said about this one's is dropped, requests are not.
#[test]
fn what_is_queued_about_watches_goes_with_the_connection() {
    let mut story = Story::connected();
    story.read_and_watch(WatchKind::Data, "/a", 1);
    story.answer();
    story.done();
    story.get("/before", 2);
    story.remove("/a", 1);
    story.get("/behind", 3);
    story.cut();
    assert_eq!(story.done(), [(1, Ok(50))], "the watch is gone, as was asked for");
    story.connect();
    story.wire.clear();
    story.accept(7, 6000);
    let sent: Vec<_> = story.wire.iter().map(|(_, request)| request.clone()).collect();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].contains("/before") && sent[1].contains("/behind"), "{sent:?}");
}

/// Java's synthetic events.
#[test]
fn whose_watches_were_removed_for_all_is_told() {
    let mut story = Story::connected();
    story.read_and_watch(WatchKind::Data, "/a", 1);
    story.read_and_watch(WatchKind::Child, "/a", 2);
    story.add_watch(PERSISTENT, "/b", 3);
    story.answer();
    let now = story.now;
    story.machine.remove_watches("/a".into(), WatcherType::Data, 4, || now);
    story.machine.remove_watches("/a".into(), WatcherType::Any, 5, || now);
    story.machine.remove_watches("/b".into(), WatcherType::Any, 6, || now);
    story.answer();
    assert_eq!(
        story.told(),
        [
            (1, EventType::DataWatchRemoved),
            (2, EventType::ChildWatchRemoved),
            (3, EventType::PersistentWatchRemoved)
        ]
    );
    assert_eq!(story.machine.watches(), 0);
}

#[test]
fn a_removal_for_all_that_finds_none_removes_none() {
    let mut story = Story::connected();
    story.read_and_watch(WatchKind::Data, "/a", 1);
    story.answer();
    story.done();
    let now = story.now;
    story.machine.remove_watches("/a".into(), WatcherType::Children, 2, || now);
    story.flush();
    let xid = story.wire.last().unwrap().0;
    story.reply(xid, 51, ErrorCode::NoWatcher, b"");
    assert_eq!(story.machine.watches(), 1);
    assert_eq!(story.done(), [(2, Err((ErrorKind::NoWatcher, Outcome::NotApplied)))]);
}

/// A read relied on it, so it could not be given back when it was cancelled; once the read has its own watch,
/// it is. Otherwise its events would come for nobody, for ever.
#[test]
fn a_cancelled_persistent_watch_that_covered_a_read_is_given_back_behind_it() {
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/a", 1);
    story.read_and_watch(WatchKind::Data, "/a", 2);
    let now = story.now;
    story.machine.cancel_watch("/a", &1, || now);
    story.answer();
    let sent = story.answer();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].contains("RemoveWatches") && sent[0].contains("Any"), "{sent:?}");
    assert!(sent[1].contains(r#"data_watches: ["/a"]"#), "{sent:?}");
    assert_eq!(story.machine.watches(), 1);

    // The same when it was dropped after its answer and before the read's.
    let mut story = Story::connected();
    story.add_watch(PERSISTENT, "/a", 1);
    story.answer();
    story.read_and_watch(WatchKind::Data, "/a", 2);
    story.remove("/a", 1);
    story.answer();
    let sent = story.answer();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].contains("RemoveWatches"), "{sent:?}");
    assert!(sent[1].contains(r#"data_watches: ["/a"]"#), "{sent:?}");
}

/// What the machine itself sends about its watches is not refused: a recursive mode that stays on the server
/// keeps changed children from who has a persistent watch.
#[test]
fn a_full_queue_does_not_keep_a_watch_from_being_given_back() {
    let mut config = config();
    config.max_requests = 2;
    config.max_pending_bytes = 100;
    let mut story = Story::new(config);
    story.connect();
    story.accept(7, 6000);
    story.add_watch(RECURSIVE, "/a", 1);
    story.add_watch(PERSISTENT, "/a", 2);
    story.answer();
    for token in 3..=5 {
        story.get("/b", token);
    }
    let refused = (5, Err((ErrorKind::TooManyRequests, Outcome::NotApplied)));
    assert_eq!(story.done().last(), Some(&refused));
    story.remove("/a", 1);
    let sent = story.answer();
    assert_eq!(sent.len(), 4, "{sent:?}");
    assert!(sent[2].contains("AddWatch") && sent[3].contains("RemoveWatches"), "{sent:?}");
    assert!(story.done().contains(&(1, Ok(50))));
}
