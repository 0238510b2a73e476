//! Persistent watches, several kinds on one path, and their removal.

use docent_protocol::AddWatchMode;

use super::*;

mod refusals;
mod removal;
mod removal_for_all;

pub(super) const PERSISTENT: AddWatchMode = AddWatchMode::Persistent;
pub(super) const RECURSIVE: AddWatchMode = AddWatchMode::PersistentRecursive;

const RESYNC: (EventType, KeeperState) = (EventType::None, KeeperState::SyncConnected);

impl Scenario {
    pub(super) fn add_watch(&mut self, mode: AddWatchMode, path: &str, token: u32) {
        self.machine.add_watch(mode, token, path.into(), token, self.clock());
    }

    /// Reads as a client does: the machine decides on the watch flag.
    pub(super) fn read_and_watch(&mut self, kind: WatchKind, path: &str, token: u32) {
        let (clock, machine) = (self.clock(), &mut self.machine);
        let registration = Registration { kind, path: path.into(), watcher: token };
        let read = |watch| ReadRequest { path: path.into(), watch };
        match kind {
            WatchKind::Child => {
                machine.submit_watching(|w| GetChildren(read(w)), token, registration, clock);
            }
            WatchKind::Exist => {
                machine.submit_watching(|w| Exists(read(w)), token, registration, clock);
            }
            _ => machine.submit_watching(|w| GetData(read(w)), token, registration, clock),
        }
    }

    /// A session with these persistent watches; the watcher of the first one is 1.
    fn watching(watches: &[(AddWatchMode, &str)]) -> Self {
        let mut scenario = Self::connected();
        for (token, (mode, path)) in (1..).zip(watches) {
            scenario.add_watch(*mode, path, token);
        }
        scenario.answer();
        scenario
    }

    /// A session with a watch of this kind on `/a`, whose watcher is 1.
    fn reading(kind: WatchKind) -> Self {
        let mut scenario = Self::connected();
        scenario.read_and_watch(kind, "/a", 1);
        scenario.answer();
        scenario
    }

    fn remove(&mut self, path: &str, watcher: u32) {
        self.machine.remove_watch(path, &watcher, Some(watcher), self.clock());
    }

    /// Sends all queued requests and replies to each; returns the requests as text.
    fn answer(&mut self) -> Vec<String> {
        self.wire.clear();
        self.flush();
        for (xid, _) in self.wire.clone() {
            self.reply(xid, 50, ErrorCode::Ok, b"");
        }
        self.sent().into_iter().map(str::to_owned).collect()
    }

    /// Replies to the sent requests.
    fn answer_sent(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.wire);
        for (xid, _) in &sent {
            self.reply(*xid, 50, ErrorCode::Ok, b"");
        }
        sent.into_iter().map(|(_, request)| request).collect()
    }

    fn reconnect(&mut self) -> Vec<String> {
        self.cut();
        self.completions();
        self.resume_and_read()
    }

    /// The requests behind the handshake of the next connection.
    fn resume_and_read(&mut self) -> Vec<String> {
        self.connect();
        self.wire.clear();
        self.accept(7, 6000);
        self.wire.iter().map(|(_, request)| request.clone()).collect()
    }

    /// Sends one request, with this text in it, and replies to it.
    #[track_caller]
    fn sends(&mut self, text: &str) {
        let sent = self.answer();
        assert!(sent.len() == 1 && sent[0].contains(text), "{sent:?}");
    }

    /// Gives a watch back, for which one request is sent, with this text in it.
    #[track_caller]
    fn removes(&mut self, path: &str, watcher: u32, text: &str) {
        self.remove(path, watcher);
        self.sends(text);
    }

    fn remove_all(&mut self, path: &str, watcher_type: WatcherType, token: u32) {
        self.machine.remove_watches(path.into(), watcher_type, token, self.clock());
    }

    fn watch_events_in_state(&mut self) -> Vec<(u32, (EventType, KeeperState))> {
        self.watch_events_as(|event| (event.event_type, event.state))
    }
}

#[test]
fn a_persistent_watch_delivers_every_event() {
    let mut scenario = Scenario::connected();
    scenario.add_watch(PERSISTENT, "/a", 1);
    let sent = scenario.answer();
    assert!(sent[0].contains("AddWatch") && sent[0].contains("mode: Persistent }"), "{sent:?}");
    for _ in 0..3 {
        scenario.event(EventType::NodeDataChanged, "/a");
    }
    assert_eq!(scenario.watch_events(), [(1, EventType::NodeDataChanged); 3]);
}

/// setWatches2 sets persistent watches again. Once all are set, their watchers receive a resync event, because events
/// of the gap may be missing.
// Case (Pitfalls of the wire, 35): events lost in a gap.
// Case (What broke other clients): persistent watches not restored.
#[test]
fn persistent_watches_are_set_again_and_resynced() {
    let mut scenario = Scenario::connected();
    scenario.add_watch(PERSISTENT, "/p", 1);
    scenario.add_watch(RECURSIVE, "/r", 2);
    scenario.read_and_watch(WatchKind::Data, "/d", 3);
    scenario.answer();
    scenario.watch_events();
    let sent = scenario.reconnect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let one_shots = r#"data_watches: ["/d"], exist_watches: [], child_watches: []"#;
    let persistent = r#"persistent_watches: ["/p"], persistent_recursive_watches: ["/r"]"#;
    assert_contains(&sent[0], &["SetWatches2", one_shots, persistent]);
    assert_eq!(scenario.watch_events(), [], "not before the server has them");
    scenario.event(EventType::NodeDataChanged, "/p");
    scenario.reply(xid::SET_WATCHES, 60, ErrorCode::Ok, b"");
    let changed = (EventType::NodeDataChanged, KeeperState::SyncConnected);
    assert_eq!(scenario.watch_events_in_state(), [(1, changed), (1, RESYNC), (2, RESYNC)]);
}

/// `ZooKeeper.ExistsWatchRegistration`: the watch of an exists that has found the node is a data watch. Otherwise the
/// next server would report the node as created.
#[test]
fn an_exists_that_finds_its_node_is_set_again_as_data() {
    for (err, list) in [(ErrorCode::Ok, "data"), (ErrorCode::NoNode, "exist")] {
        let mut scenario = Scenario::connected();
        scenario.read_and_watch(WatchKind::Exist, "/a", 1);
        scenario.flush();
        scenario.reply(1, 50, err, b"");
        let sent = scenario.reconnect();
        assert!(sent[0].contains(&format!(r#"{list}_watches: ["/a"]"#)), "{sent:?}");
    }
}

/// ZOOKEEPER-4466: a one-shot watch must not end a persistent one.
// Case (Pitfalls of the wire, 34): modes on one path, removal that hits others.
#[test]
fn below_a_persistent_watch_a_read_is_sent_without_its_flag() {
    let mut scenario = Scenario::connected();
    scenario.add_watch(PERSISTENT, "/a", 1);
    // On its way already.
    scenario.read_and_watch(WatchKind::Data, "/a", 2);
    let sent = scenario.answer();
    assert!(sent[1].contains("GetData") && sent[1].contains("watch: false"), "{sent:?}");
    scenario.read_and_watch(WatchKind::Child, "/a", 3);
    scenario.read_and_watch(WatchKind::Data, "/b", 4);
    let sent = scenario.answer();
    assert!(sent[0].contains("watch: false") && sent[1].contains("watch: true"), "{sent:?}");
    scenario.event(EventType::NodeDataChanged, "/a");
    scenario.event(EventType::NodeChildrenChanged, "/a");
    scenario.event(EventType::NodeDataChanged, "/a");
    assert_eq!(
        scenario.watch_events(),
        [
            (1, EventType::NodeDataChanged),
            (2, EventType::NodeDataChanged),
            (1, EventType::NodeChildrenChanged),
            (3, EventType::NodeChildrenChanged),
            (1, EventType::NodeDataChanged)
        ]
    );
}

/// ZooKeeper before 3.9: a persistent watch added to the path of a recursive one ends the events of its children
/// (`WatchManager.addWatch` replaces the mode).
#[test]
fn the_widest_mode_is_requested_from_the_server() {
    let mut scenario = Scenario::connected();
    scenario.add_watch(RECURSIVE, "/a", 1);
    scenario.add_watch(PERSISTENT, "/a", 2);
    let sent = scenario.answer();
    assert!(sent.iter().all(|request| request.contains("mode: PersistentRecursive")), "{sent:?}");
    scenario.event(EventType::NodeCreated, "/a/b");
    assert_eq!(
        scenario.watch_events(),
        [(1, EventType::NodeCreated), (2, EventType::NodeChildrenChanged)]
    );
}

// Registration and delivery.

// Case (Pitfalls of the wire, 38): an event before its watch is registered.
#[test]
fn a_watch_is_there_once_its_reply_is() {
    let mut scenario = Scenario::connected();
    scenario.watch(WatchKind::Data, "/a", 1);
    scenario.watch(WatchKind::Data, "/missing", 2);
    scenario.send_watch(WatchKind::Exist, "/missing", 3);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    scenario.reply(2, 5, ErrorCode::NoNode, b"");
    scenario.reply(3, 5, ErrorCode::NoNode, b"");
    assert_eq!(scenario.machine.watches(), 2, "getData on a missing node leaves none");
    scenario.event(EventType::NodeDataChanged, "/a");
    scenario.event(EventType::NodeCreated, "/missing");
    assert_eq!(
        scenario.watch_events(),
        [(1, EventType::NodeDataChanged), (3, EventType::NodeCreated)]
    );
    assert_eq!(scenario.machine.watches(), 0);
}

// Case (Failure cases, 16): an event without a waiter.
#[test]
fn an_event_without_a_watcher_is_dropped() {
    let mut scenario = Scenario::connected();
    scenario.event(EventType::NodeDeleted, "/unwatched");
    assert_eq!(scenario.watch_events(), []);
    assert!(!scenario.is_broken());
}

/// The order of `ClientCnxn.SendThread.primeConnection`: watches and credentials precede all requests.
// Case (Pitfalls of the wire, 29): credentials first, on every connection.
// Case (Pitfalls of the wire, 32): watches not set again.
// Case (Failure cases, 12): an event before the reply to setWatches.
#[test]
fn a_reconnect_sets_credentials_and_watches_before_anything_else() {
    let mut scenario = Scenario::connected_with(config().with_auth("digest", b"u:p"));
    scenario.reply(xid::AUTH, 0, ErrorCode::Ok, b"");
    scenario.watch(WatchKind::Data, "/d", 1);
    scenario.watch(WatchKind::Exist, "/e", 2);
    scenario.send_watch(WatchKind::Child, "/c", 3);
    for (xid, err) in [(1, ErrorCode::Ok), (2, ErrorCode::NoNode), (3, ErrorCode::Ok)] {
        scenario.reply(xid, 77, err, b"");
    }
    scenario.get("/unsent", 4);
    scenario.cut();
    scenario.wire.clear();
    scenario.resume();
    assert_eq!(scenario.xids(), [0, xid::AUTH, xid::SET_WATCHES, 4]);
    let watches = r#"data_watches: ["/d"], exist_watches: ["/e"], child_watches: ["/c"]"#;
    assert_contains(&scenario.wire[2].1, &["relative_zxid: 77", watches]);
    // The catch-up event comes before the reply.
    scenario.event(EventType::NodeDeleted, "/d");
    scenario.reply(xid::SET_WATCHES, 80, ErrorCode::Ok, b"");
    assert_eq!(scenario.watch_events(), [(1, EventType::NodeDeleted)]);
    assert!(!scenario.is_broken());
}
