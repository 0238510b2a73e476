//! Watches against a model: the session machine beside the embedded server, frame by frame, without IO.
//!
//! A scenario is a random sequence of watches that are added, dropped, forgotten and removed, of changes by another
//! client, and of frames that arrive, one at a time, in either direction. The model knows which event each change owes
//! to each watcher. Whenever all frames have arrived, each event owed was delivered, or a resync was delivered after
//! it.
//!
//! `DOCENT_WATCH_MODEL=10000000` makes that number of checks instead of 200,000; `DOCENT_WATCH_MODEL_SEED=7` begins
//! with that scenario. A failure names its scenario and prints what happened in it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use bytes::BytesMut;
use docent_protocol::{
    AddWatchMode, Decode as _, ErrorCode, EventType, KeeperState, OpCode, WatcherType,
    acl::OPEN_ACL_UNSAFE,
    connect::ConnectRequest,
    frame,
    jute::Reader,
    operation::{Exists, GetChildren, GetData},
    raw::put_request,
    reply::ReplyHeader,
    request::{CreateRequest, DeleteRequest, ReadRequest, Request, RequestHeader, SetDataRequest},
};
use docent_session::{
    Config, Error, ErrorKind, Outcome, WatchedEvent,
    config::Host,
    machine::{Connect, Event, Registration, Session},
    runtime::Instant,
    watch::WatchKind,
};
use docent_testing::server::{self, ConnectionId, Ensemble, Version};

const LIMIT: usize = 1 << 24;
const STEPS: usize = 60;
const ROUNDS: usize = 4;
const PATHS: [&str; 5] = ["/a", "/a/b", "/a/b/c", "/a/d", "/e"];
const KINDS: [WatchKind; 5] = [
    WatchKind::Data,
    WatchKind::Exist,
    WatchKind::Child,
    WatchKind::Persistent,
    WatchKind::PersistentRecursive,
];
const TYPES: [WatcherType; 5] = [
    WatcherType::Any,
    WatcherType::Data,
    WatcherType::Children,
    WatcherType::Persistent,
    WatcherType::PersistentRecursive,
];

/// The faults of a scenario, beside watches that come and go and nodes that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Faults {
    /// Frames arrive between the requests; otherwise each request is answered before the next.
    pipelined: bool,
    cuts: bool,
    errors: bool,
    /// removeWatches of a type, which removes the watches of all watchers.
    removals: bool,
}

impl Faults {
    fn of(seed: u64) -> Self {
        let bits = seed / 3 % 16;
        Self {
            pipelined: !bits.is_multiple_of(4),
            cuts: bits / 4 % 2 == 1,
            errors: bits / 8 == 1,
            removals: bits % 4 == 3,
        }
    }

    /// Whether a watcher may receive more events than expected.
    const fn repeats(self) -> bool {
        self.cuts || self.errors || self.removals
    }
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(bound).unwrap()).unwrap()
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Created,
    Deleted,
    DataChanged,
}

/// A change of the tree, with its position in the server's output to the client.
#[derive(Debug, Clone)]
struct Change {
    position: usize,
    what: What,
    path: &'static str,
}

impl Change {
    /// The event that a watch of a kind on `path` owes.
    fn owed(&self, kind: WatchKind, path: &str) -> Option<(EventType, &'static str)> {
        let here = self.path == path;
        let parent = self.path.rsplit_once('/').map(|(parent, _)| parent);
        let is_child = parent == Some(path);
        let is_below = self.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        let event = match self.what {
            What::Created => EventType::NodeCreated,
            What::Deleted => EventType::NodeDeleted,
            What::DataChanged => EventType::NodeDataChanged,
        };
        let children = is_child && self.what != What::DataChanged;
        let parent = PATHS.iter().find(|path| Some(**path) == parent);
        let changed_children = parent.map(|parent| (EventType::NodeChildrenChanged, *parent));
        match kind {
            WatchKind::Child if here && self.what == What::Deleted => Some((event, self.path)),
            WatchKind::Child => changed_children.filter(|_| children),
            WatchKind::PersistentRecursive => (here || is_below).then_some((event, self.path)),
            _ if here => Some((event, self.path)),
            WatchKind::Persistent => changed_children.filter(|_| children),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Watcher {
    kind: WatchKind,
    path: &'static str,
    /// Whether its request was answered.
    confirmed: bool,
    owed: Vec<(EventType, &'static str)>,
    /// Delivered events that were not expected.
    repeats: usize,
    /// Whether a one-shot watch has been set again on another connection: a creation and a deletion in between are
    /// visible to no client.
    moved: bool,
}

struct World {
    machine: Session<u32, u32>,
    server: Ensemble,
    faults: Faults,
    /// Whether requests are refused at the moment.
    refuses: bool,
    now: Duration,
    rng: Rng,
    connection: Option<ConnectionId>,
    host: Host,
    /// The client that changes nodes.
    other: ConnectionId,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    /// Frames of this connection that the server has sent, and that have arrived.
    sent: usize,
    arrived: usize,
    changes: Vec<Change>,
    existing: BTreeSet<&'static str>,
    watchers: BTreeMap<u32, Watcher>,
    /// Paths on which a persistent watch was forgotten: the server has it still.
    left: BTreeSet<&'static str>,
    tokens: u32,
    checks: u64,
    seed: u64,
    /// Recorded only when a failed scenario is repeated.
    log: Option<String>,
}

impl World {
    fn new(seed: u64, is_logged: bool) -> Self {
        let version = [Version::V3_6, Version::V3_8, Version::V3_9][(seed % 3) as usize];
        let mut server = Ensemble::new(server::Config { version, ..server::Config::default() });
        let other = connect(&mut server);
        let config = Config::new("one:1").unwrap().with_session_timeout(Duration::from_secs(40));
        let mut world = Self {
            machine: Session::new(config, seed),
            server,
            faults: Faults::of(seed),
            refuses: Faults::of(seed).errors,
            now: Duration::ZERO,
            rng: Rng(seed),
            connection: None,
            host: Host { name: "one".to_owned(), port: 1 },
            other,
            up: VecDeque::new(),
            down: VecDeque::new(),
            sent: 0,
            arrived: 0,
            changes: Vec::new(),
            existing: BTreeSet::new(),
            watchers: BTreeMap::new(),
            left: BTreeSet::new(),
            tokens: 0,
            checks: 0,
            seed,
            log: is_logged.then(String::new),
        };
        let faults = world.faults;
        world.note(format_args!("scenario {seed}, {version}, {faults:?}"));
        world.reconnect();
        world
    }

    fn instant(&self) -> Instant {
        Instant::from_duration(self.now)
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        if let Some(log) = &mut self.log {
            let _ = writeln!(log, "{what}");
        }
    }

    fn fail(&self, why: impl std::fmt::Display) -> ! {
        if let Some(log) = &self.log {
            panic!("{log}\n{why}");
        }
        play(self.seed, true);
        panic!("scenario {}: {why}; not when it was repeated", self.seed)
    }

    // The wire.

    /// Takes the output of the machine, frame by frame.
    fn collect_up(&mut self) {
        let mut out = Vec::new();
        self.machine.poll_transmit(self.instant(), &mut out);
        let mut rest = &out[..];
        while let Some((payload, tail)) = frame::split(rest, LIMIT).unwrap() {
            self.up.push_back(rest[..frame::LENGTH_SIZE + payload.len()].to_vec());
            rest = tail;
        }
    }

    fn collect_down(&mut self) {
        let Some(connection) = self.connection else { return };
        let Some(bytes) = self.server.poll_transmit(connection) else { return };
        let mut rest = &bytes[..];
        while let Some((payload, tail)) = frame::split(rest, LIMIT).unwrap() {
            self.down.push_back(rest[..frame::LENGTH_SIZE + payload.len()].to_vec());
            self.sent += 1;
            rest = tail;
        }
    }

    /// One frame arrives at the server, or is refused there.
    fn step_up(&mut self) -> bool {
        self.collect_up();
        let (Some(connection), Some(bytes)) = (self.connection, self.up.pop_front()) else {
            return false;
        };
        let header = RequestHeader::decode(&mut Reader::new(&bytes[4..])).unwrap();
        let refusable = header.xid != 0 && header.op != OpCode::Ping;
        if self.refuses && refusable && self.rng.one_in(6) {
            let err = [ErrorCode::ThrottledOp, ErrorCode::SystemError][self.rng.below(2)];
            self.note(format_args!("  {} is refused: {err}", header.op));
            let mut out = Vec::new();
            let zxid = self.server.last_zxid();
            let header = ReplyHeader { xid: header.xid, zxid, err };
            frame::put_record(&mut out, LIMIT, &header).unwrap();
            self.down.push_back(out);
            self.sent += 1;
            return true;
        }
        if header.xid != 0 {
            self.note(format_args!("  {} (xid {}) arrives", header.op, header.xid));
        }
        self.server.handle_input(self.now, connection, &bytes);
        self.collect_down();
        true
    }

    /// One frame arrives at the client.
    fn step_down(&mut self) -> bool {
        let Some(bytes) = self.down.pop_front() else { return false };
        self.arrived += 1;
        self.machine.handle_input(self.instant(), &mut BytesMut::from(&bytes[..]));
        if let Some(why) = self.machine.wants_disconnect() {
            self.fail(format_args!("the machine gives up: {why}"));
        }
        self.hear();
        true
    }

    /// Takes the events and replies of the machine.
    fn hear(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Watch { watcher, event } => self.delivered(watcher, &event),
                Event::Ended(kind) => self.fail(format_args!("ended: {kind}")),
                _ => {}
            }
        }
        while let Some(done) = self.machine.poll_completion() {
            let err = done.result.err().map(|error| error.kind());
            self.answered(done.token, err);
        }
    }

    fn answered(&mut self, token: u32, err: Option<ErrorKind>) {
        let Some(watcher) = self.watchers.get_mut(&token) else { return };
        let (kind, path) = (watcher.kind, watcher.path);
        let watches = err.is_none() || (kind == WatchKind::Exist && err == Some(ErrorKind::NoNode));
        if !watches {
            self.watchers.remove(&token);
            // Forgets the watch, as the handle of a failed request does.
            let now = self.instant();
            self.machine.cancel_watch(path, &token, || now);
            return self.note(format_args!("  {token} failed: {err:?}"));
        }
        watcher.confirmed = true;
        let missed = self.changes.iter().filter(|change| change.position >= self.arrived);
        watcher.owed.extend(missed.filter_map(|change| change.owed(kind, path)));
        self.note(format_args!("  {token} is confirmed"));
    }

    fn delivered(&mut self, token: u32, event: &WatchedEvent) {
        self.note(format_args!(
            "  {token} receives {} {} {}",
            event.event_type, event.path, event.state
        ));
        let Some(watcher) = self.watchers.get_mut(&token) else {
            self.fail(format_args!("{token} receives an event after its end"));
        };
        if event.is_end() {
            if !self.faults.removals || event.state != KeeperState::SyncConnected {
                self.fail(format_args!("{token} has ended"));
            }
            self.watchers.remove(&token);
            return;
        }
        if event.is_resync() {
            if &*event.path != watcher.path {
                self.fail(format_args!("the resync of {token} is about another path"));
            }
            self.checks += watcher.owed.len() as u64;
            watcher.owed.clear();
            if !self.faults.repeats() {
                self.fail(format_args!("{token} resyncs, and nothing was lost"));
            }
            if !watcher.kind.is_persistent() {
                self.watchers.remove(&token);
            }
            return;
        }
        if watcher.kind.is_persistent() {
            let owed = watcher.owed.iter().position(|(event_type, path)| {
                *event_type == event.event_type && **path == *event.path
            });
            match owed {
                Some(index) => {
                    self.checks += 1;
                    watcher.owed.remove(index);
                }
                None => watcher.repeats += 1,
            }
            if watcher.repeats > 0 && !self.faults.repeats() {
                self.fail(format_args!("{token} receives an event that is not owed"));
            }
        } else {
            self.checks += 1;
            if watcher.owed.is_empty() && !self.faults.repeats() {
                self.fail(format_args!("{token} receives an event that is not owed"));
            }
            self.watchers.remove(&token);
        }
    }

    // The steps of a scenario.

    fn token(&mut self) -> u32 {
        self.tokens += 1;
        self.tokens
    }

    fn path(&mut self) -> &'static str {
        PATHS[self.rng.below(PATHS.len())]
    }

    fn add(&mut self) {
        // Most watches are on one path, where they affect each other.
        let path = if self.rng.one_in(3) { self.path() } else { PATHS[0] };
        let (kind, token, now) = (KINDS[self.rng.below(5)], self.token(), self.instant());
        self.note(format_args!("{token} watches {path}: {kind:?}"));
        let watcher =
            Watcher { kind, path, confirmed: false, owed: Vec::new(), repeats: 0, moved: false };
        self.watchers.insert(token, watcher);
        let registration = Registration { kind, path: path.into(), watcher: token };
        let read = |watch| ReadRequest { path: path.into(), watch };
        let machine = &mut self.machine;
        match kind {
            WatchKind::Data => {
                machine.submit_watching(|w| GetData(read(w)), token, registration, || now);
            }
            WatchKind::Exist => {
                machine.submit_watching(|w| Exists(read(w)), token, registration, || now);
            }
            WatchKind::Child => {
                machine.submit_watching(|w| GetChildren(read(w)), token, registration, || now);
            }
            WatchKind::Persistent => {
                machine.add_watch(AddWatchMode::Persistent, token, path.into(), token, || now);
            }
            _ => {
                let mode = AddWatchMode::PersistentRecursive;
                machine.add_watch(mode, token, path.into(), token, || now);
            }
        }
    }

    fn drop_one(&mut self) {
        let tokens: Vec<_> = self.watchers.keys().copied().collect();
        if tokens.is_empty() {
            return;
        }
        let token = tokens[self.rng.below(tokens.len())];
        let watcher = self.watchers.remove(&token).unwrap();
        let (path, now) = (watcher.path, self.instant());
        if !watcher.confirmed {
            self.note(format_args!("{token} is cancelled"));
            self.machine.cancel_watch(path, &token, || now);
        } else if self.rng.one_in(3) {
            self.note(format_args!("{token} is forgotten"));
            self.machine.forget_watch(path, &token);
            if watcher.kind.is_persistent() {
                self.left.insert(path);
            }
        } else {
            self.note(format_args!("{token} is removed"));
            let reply = self.token();
            self.machine.remove_watch(path, &token, Some(reply), || now);
        }
    }

    fn remove_for_all(&mut self) {
        let (path, token, now) = (self.path(), self.token(), self.instant());
        let watcher_type = TYPES[self.rng.below(TYPES.len())];
        self.note(format_args!("all of {path} are removed: {watcher_type}"));
        self.machine.remove_watches(path.into(), watcher_type, token, || now);
    }

    /// Another client changes something.
    fn change(&mut self) {
        let path = if self.rng.one_in(2) { self.path() } else { PATHS[self.rng.below(2)] };
        let parent = path.rsplit_once('/').unwrap().0;
        let has_children = PATHS.iter().any(|other| {
            other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
                && self.existing.contains(other)
        });
        let what = match self.existing.contains(path) {
            false if parent.is_empty() || self.existing.contains(parent) => What::Created,
            true if !has_children && self.rng.one_in(2) => What::Deleted,
            true => What::DataChanged,
            false => return,
        };
        self.change_so(what, path);
    }

    fn change_so(&mut self, what: What, path: &'static str) {
        self.note(format_args!("{path}: {what:?}"));
        self.collect_down();
        let change = Change { position: self.sent, what, path };
        let (name, data, version) = (path.into(), None, -1);
        let request = match what {
            What::Created => {
                self.existing.insert(path);
                let acl = OPEN_ACL_UNSAFE.into();
                Request::Create(CreateRequest { path: name, data, acl, flags: 0 })
            }
            What::Deleted => {
                self.existing.remove(path);
                Request::Delete(DeleteRequest { path: name, version })
            }
            What::DataChanged => Request::SetData(SetDataRequest { path: name, data, version }),
        };
        let mut out = Vec::new();
        put_request(&mut out, LIMIT, 1, &request).unwrap();
        self.server.handle_input(self.now, self.other, &out);
        let reply = self.server.poll_transmit(self.other).unwrap();
        let reply = ReplyHeader::decode(&mut Reader::new(&reply[4..])).unwrap();
        assert!(reply.err.is_ok(), "{what:?} {path}: {}", reply.err);
        for watcher in self.watchers.values_mut().filter(|watcher| watcher.confirmed) {
            watcher.owed.extend(change.owed(watcher.kind, watcher.path));
        }
        self.changes.push(change);
        self.collect_down();
    }

    fn cut(&mut self) {
        self.note("the connection is cut");
        self.up.clear();
        self.down.clear();
        if let Some(connection) = self.connection.take() {
            self.server.handle_disconnected(self.now, connection);
        }
        let why = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown);
        let (now, host) = (self.instant(), self.host.clone());
        self.machine.handle_disconnected(now, &host, &why);
        // Only watchers that existed already are owed the events of earlier changes.
        (self.sent, self.arrived) = (0, 0);
        self.changes.clear();
        self.left.clear();
        self.hear();
        for watcher in self.watchers.values_mut().filter(|watcher| watcher.confirmed) {
            watcher.moved = true;
        }
    }

    fn reconnect(&mut self) {
        loop {
            match self.machine.poll_connect(self.instant()) {
                Connect::To(..) => break,
                Connect::At(at) => self.now = at.duration_since(Instant::ZERO),
                other => self.fail(format_args!("{other:?}")),
            }
        }
        self.note("connected");
        self.machine.handle_connected(self.instant());
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.connection = Some(self.server.handle_connect(self.now, 0, peer).unwrap());
        self.step_up();
        self.step_down();
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..=4 => self.add(),
            5..=7 => self.drop_one(),
            8..=11 => self.change(),
            12 if self.faults.removals => self.remove_for_all(),
            13 if self.faults.cuts && self.rng.one_in(3) => {
                self.cut();
                for _ in 0..self.rng.below(6) {
                    match self.rng.below(3) {
                        0 => self.add(),
                        1 => self.drop_one(),
                        _ => self.change(),
                    }
                    self.hear();
                }
                self.reconnect();
            }
            14 if self.faults.errors => self.wait(Duration::from_millis(300)),
            15..=17 => {
                self.step_up();
            }
            _ => {
                self.step_down();
            }
        }
        self.hear();
        if !self.faults.pipelined {
            self.settle();
        }
    }

    /// All frames arrive.
    fn settle(&mut self) {
        while self.step_up() || self.step_down() {}
    }

    fn wait(&mut self, duration: Duration) {
        self.now += duration;
        self.machine.handle_timeout(self.instant());
        self.hear();
    }

    /// All frames arrive, and deferred work is done.
    fn check(&mut self) {
        self.note("all arrives");
        self.refuses = false;
        self.settle();
        for _ in 0..4 {
            self.wait(Duration::from_secs(6));
            self.settle();
        }
        self.refuses = self.faults.errors;
        self.server.handle_timeout(self.now);
        for (token, watcher) in &self.watchers {
            if !watcher.confirmed {
                self.fail(format_args!("{token} was never answered"));
            }
            let invisible = watcher.kind == WatchKind::Exist
                && watcher.moved
                && !self.existing.contains(watcher.path);
            if !watcher.owed.is_empty() && !invisible {
                self.fail(format_args!("{token} never received {:?}", watcher.owed));
            }
            self.checks += 1;
        }
        self.changes.clear();
        self.check_silence();
    }

    /// On paths without a watcher, no persistent watch is left on the server. A one-shot watch may be: its event ends
    /// it.
    fn check_silence(&mut self) {
        self.refuses = false;
        for path in PATHS {
            // A recursive watch reports the nodes below as well.
            let concerns = |other: &str| path.starts_with(other);
            if self.left.iter().any(|left| concerns(left))
                || self.watchers.values().any(|watcher| concerns(watcher.path))
            {
                continue;
            }
            if !self.existing.contains(path) {
                let parent = path.rsplit_once('/').unwrap().0;
                if !parent.is_empty() && !self.existing.contains(parent) {
                    continue;
                }
                self.change_so(What::Created, path);
            }
            self.change_so(What::DataChanged, path);
            self.settle();
            let events = self.machine.metrics().events;
            self.change_so(What::DataChanged, path);
            self.settle();
            self.checks += 1;
            if self.machine.metrics().events > events {
                self.fail(format_args!(
                    "the server has a persistent watch on {path} without a watcher"
                ));
            }
        }
        self.refuses = self.faults.errors;
        self.changes.clear();
    }
}

/// Connects the client that changes nodes, without a machine.
fn connect(server: &mut Ensemble) -> ConnectionId {
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let id = server.handle_connect(Duration::ZERO, 0, peer).unwrap();
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        time_out: 60_000,
        session_id: 0,
        passwd: Some(&[0; 16]),
        read_only: Some(false),
    };
    let mut out = Vec::new();
    frame::put_record(&mut out, LIMIT, &request).unwrap();
    server.handle_input(Duration::ZERO, id, &out);
    server.poll_transmit(id).unwrap();
    id
}

/// Plays a scenario; returns the number of checks.
fn play(seed: u64, is_logged: bool) -> u64 {
    let mut world = World::new(seed, is_logged);
    for _ in 0..ROUNDS {
        for _ in 0..STEPS {
            world.step();
        }
        world.check();
        // A watcher whose watch is lost would receive no event of these.
        for _ in 0..6 {
            world.change();
        }
        world.check();
    }
    world.checks
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

// Case (Found in docent itself): a recursive watch that was dropped while another was asked for,
// that was forgotten, or with a child's event on the wire left the others of its path deaf (71 to
// 145 of 200 events).
#[test]
fn every_event_comes_or_a_resync_covers_it() {
    let wanted = number("DOCENT_WATCH_MODEL").unwrap_or(200_000);
    let first = number("DOCENT_WATCH_MODEL_SEED").unwrap_or(0);
    let (mut checks, mut seed) = (0, first);
    while checks < wanted {
        checks += play(seed, false);
        seed += 1;
    }
    println!("{checks} checks in {} scenarios", seed - first);
}
