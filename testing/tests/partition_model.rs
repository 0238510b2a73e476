//! Random faults of an ensemble, and what must hold whatever happens: acknowledged writes are kept, reads of a session
//! do not go back, and the proven bounds of a session end before its nodes are deleted. The naive bound does not.
//!
//! A scenario is a seed. `DOCENT_PARTITION_SCENARIOS=100000` plays that number of scenarios instead of 60;
//! `DOCENT_PARTITION_SEED=7` begins with seed 7; `DOCENT_PARTITION_TRACE=1` notes each answer. A failure names its
//! scenario and prints its history.

use docent_protocol::{Decode as _, reply::StatReply};
use std::{collections::BTreeSet, fmt::Write as _};

use super::*;

const MEMBERS: usize = 3;
const CLIENTS: usize = 4;
/// The duration of the faults, and of the healed time after them, in milliseconds.
const FAULTS: u64 = 40_000;
const PEACE: u64 = 20_000;
const REGISTER: &str = "/register";

/// A request without a reply.
#[derive(Debug, Clone, Copy)]
struct Sent {
    xid: i32,
    what: What,
    at: Duration,
    to_leader: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Ping,
    Read,
    Sync,
    /// A sequential create.
    Append,
    /// A write of the register, if it has the version last seen.
    Set(i32),
}

/// The bounds of a session, each an instant until which it is believed to exist.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    /// When the last answered request was sent, plus the timeout.
    naive: Duration,
    /// The timeout, counted from the latest of these: the connect request that made the session (R0); an answered write
    /// to the leader (R1); a connect request that resumed the session, if a write behind it on that connection was
    /// answered (R2).
    proven: Duration,
    /// When the last answered write was sent. Rivals under R3 wait for another timeout after they have seen the node
    /// gone.
    written: Duration,
}

#[derive(Default)]
struct Client {
    connection: Option<ConnectionId>,
    /// The id and the password, the timeout granted at its creation, and the smallest one granted.
    session: Option<(i64, Vec<u8>)>,
    timeout: Duration,
    member: usize,
    /// When the connection's handshake began, and whether its connect request resumed the session.
    since: Duration,
    is_joining: bool,
    has_node: bool,
    pending: VecDeque<Sent>,
    next_xid: i32,
    next_ping: Duration,
    last_zxid: i64,
    version: i32,
    bounds: Bounds,
}

/// The other clients only ping and read once they have their node, as most lock holders do. A ping waits for the
/// unanswered writes of its session, so a writer notices a cut that the others do not.
fn is_writer(at: usize) -> bool {
    at.is_multiple_of(2)
}

struct Scenario {
    b: Bench,
    rng: Random,
    clients: Vec<Client>,
    text: String,
    /// The sessions that have made their ephemeral node, with their bounds, and when a member has deleted that node.
    born: BTreeMap<i64, Bounds>,
    deleted: BTreeMap<i64, Duration>,
    seen: [BTreeSet<i64>; MEMBERS],
    /// The paths of acknowledged creates, by zxid.
    appended: BTreeMap<i64, String>,
    /// The number of acknowledged writes of the register, and of those with an unknown outcome.
    set: i32,
    unknown: i32,
    /// The number of sessions whose node was deleted before the naive bound.
    naive_failed: u32,
    /// The longest time by which a naive bound outlived its node.
    worst: Duration,
    faults: u32,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let mut rng = Random(seed);
        let (tick, sync_limit) = [(500, 5), (500, 10), (200, 10), (1000, 5)][rng.below(4)];
        let mut b = Bench::new(Config {
            servers: MEMBERS,
            tick_time: ms(tick),
            sync_limit,
            min_session_timeout: Some(ms(500)),
            read_only_mode_enabled: rng.one_in(2),
            seed,
            ..Config::default()
        });
        let (id, ..) = b.connect();
        for path in [REGISTER, "/log", "/e"] {
            assert_eq!(b.create(id, path, 0), ErrorCode::Ok);
        }
        let clients = (0..CLIENTS).map(|_| Client { next_xid: 1, ..Client::default() }).collect();
        Self {
            b,
            rng,
            clients,
            text: format!("tick {tick}, limit {sync_limit}\n"),
            born: BTreeMap::new(),
            deleted: BTreeMap::new(),
            seen: Default::default(),
            appended: BTreeMap::new(),
            set: 0,
            unknown: 0,
            naive_failed: 0,
            worst: Duration::ZERO,
            faults: 0,
        }
    }

    fn note(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:>7} {text}", self.b.now.as_millis());
    }

    fn run(&mut self) {
        while self.b.now < ms(FAULTS) {
            if self.rng.one_in(12) {
                self.fault();
            }
            self.step();
        }
        self.note("all healed");
        self.b.machine.heal_all(self.b.now);
        for member in 0..MEMBERS {
            self.b.machine.start_member(self.b.now, member);
            self.b.machine.set_lag(self.b.now, member, false);
        }
        while self.b.now < ms(FAULTS + PEACE) {
            self.step();
        }
        self.end();
    }

    fn fault(&mut self) {
        self.faults += 1;
        let (member, other) = (self.rng.below(MEMBERS), self.rng.below(MEMBERS));
        let now = self.b.now;
        let text = match self.rng.below(10) {
            0 => {
                self.b.machine.cut(now, member, other);
                format!("cut {member} to {other}")
            }
            1 => {
                self.b.machine.heal(now, member, other);
                format!("heal {member} to {other}")
            }
            2 | 3 => {
                self.b.machine.isolate(now, member);
                format!("isolate {member}")
            }
            4 => {
                self.b.machine.cut(now, Peer::Clients, member);
                format!("cut clients to {member}")
            }
            5 => {
                self.b.machine.cut(now, member, Peer::Clients);
                format!("cut {member} to clients")
            }
            6 => {
                self.b.machine.stop_member(now, member);
                format!("stop {member}")
            }
            7 => {
                self.b.machine.start_member(now, member);
                format!("start {member}")
            }
            8 => {
                let lags = self.rng.one_in(2);
                self.b.machine.set_lag(now, member, lags);
                format!("lag {member} {lags}")
            }
            _ => {
                self.b.machine.heal_all(now);
                for member in 0..MEMBERS {
                    self.b.machine.start_member(now, member);
                }
                "heal all".to_owned()
            }
        };
        self.note(&text);
    }

    fn step(&mut self) {
        let millis = self.rng.below(80) + 1;
        self.b.advance(ms(millis as u64));
        for at in 0..CLIENTS {
            self.receive(at);
            self.act(at);
            self.receive(at);
        }
        self.look();
    }

    /// Notes which ephemeral nodes the members have, and which of them are gone.
    fn look(&mut self) {
        for member in 0..MEMBERS {
            let Some(owners) = owners(&mut self.b, member) else { continue };
            for gone in self.seen[member].difference(&owners) {
                if self.deleted.contains_key(gone) {
                    continue;
                }
                self.deleted.insert(*gone, self.b.now);
                let now = self.b.now.as_millis();
                let _ = writeln!(self.text, "{now:>7} node of {gone:x} deleted");
            }
            self.seen[member] = owners;
        }
    }

    /// Checks the bounds of a session whose node is gone. A bound counts even if it is extended after the deletion was
    /// seen: that would be a belief in a session that has ended.
    fn check_bounds(&mut self) {
        for (id, bounds) in &self.born {
            let Some(deleted) = self.deleted.get(id) else { continue };
            assert!(bounds.proven <= *deleted, "proven {bounds:?}, deleted {deleted:?}: {id:x}");
            assert!(bounds.written <= *deleted, "a write of an ended session: {id:x}");
            if bounds.naive > *deleted {
                self.naive_failed += 1;
                self.worst = self.worst.max(bounds.naive - *deleted);
            }
        }
    }

    /// Notes a request that is sent now. Returns its connection and its xid.
    fn note_request(&mut self, at: usize, what: What) -> (ConnectionId, i32) {
        let client = &mut self.clients[at];
        let xid = if what == What::Ping { -2 } else { client.next_xid };
        client.next_xid += 1;
        let to_leader = self.b.machine.role(client.member) == Role::Leader;
        client.pending.push_back(Sent { xid, what, at: self.b.now, to_leader });
        (client.connection.unwrap(), xid)
    }

    fn send(&mut self, at: usize, what: What) {
        let (id, xid) = self.note_request(at, what);
        let b = &mut self.b;
        let path = REGISTER.into();
        match what {
            What::Ping => b.send(id, xid, OpCode::Ping, &RawBody(&[])),
            What::Read => b.send(id, xid, OpCode::Exists, &ReadRequest { path, watch: false }),
            What::Sync => b.send(id, xid, OpCode::Sync, &PathRequest { path }),
            What::Append => b.send(id, xid, OpCode::Create, &create("/log/x-", b"", 2)),
            What::Set(version) => {
                b.send(id, xid, OpCode::SetData, &SetDataRequest { path, data: None, version });
            }
        }
    }

    fn act(&mut self, at: usize) {
        let now = self.b.now;
        let client = &self.clients[at];
        if client.connection.is_none() {
            if self.rng.one_in(8) {
                self.connect(at);
            }
            return;
        }
        if client.is_joining {
            if now > client.since + Duration::from_secs(2) {
                self.disconnect(at);
            }
            return;
        }
        let oldest = client.pending.front().map(|sent| sent.at);
        if oldest.is_some_and(|sent| now > sent + client.timeout * 2 / 3) || self.rng.one_in(200) {
            return self.disconnect(at);
        }
        if now >= client.next_ping {
            self.clients[at].next_ping = now + self.clients[at].timeout / 3;
            self.send(at, What::Ping);
        }
        let what = match self.rng.below(60) {
            0..3 => What::Read,
            3 => What::Sync,
            4 | 5 if is_writer(at) => What::Append,
            6 | 7 if is_writer(at) => What::Set(self.clients[at].version),
            _ => return,
        };
        self.send(at, what);
    }

    fn connect(&mut self, at: usize) {
        let member = self.rng.below(MEMBERS);
        let peer = std::net::Ipv4Addr::LOCALHOST.into();
        let Some(id) = self.b.machine.handle_connect(self.b.now, member, peer) else { return };
        // Always the same timeout: with another one, a resumption whose reply is lost would shorten the session
        // unnoticed.
        self.b.time_out = [2000, 4000, 6000][at % 3];
        let client = &mut self.clients[at];
        client.connection = Some(id);
        (client.member, client.since, client.is_joining) = (member, self.b.now, true);
        let (session, passwd) = client.session.clone().unwrap_or_else(|| (0, vec![0; 16]));
        self.b.ask(id, session, &passwd, Some(false), client.last_zxid);
    }

    fn disconnect(&mut self, at: usize) {
        let Some(id) = self.clients[at].connection.take() else { return };
        for sent in std::mem::take(&mut self.clients[at].pending) {
            self.unknown += i32::from(matches!(sent.what, What::Set(_)));
        }
        self.clients[at].is_joining = false;
        self.b.machine.handle_disconnected(self.b.now, id);
    }

    fn greeted(&mut self, at: usize, greeting: Greeting) {
        let client = &mut self.clients[at];
        match greeting {
            Greeting::Silence => {}
            Greeting::Closed | Greeting::Header(_) => self.disconnect(at),
            Greeting::Session { id: 0, .. } => {
                client.session = None;
                client.last_zxid = 0;
                self.disconnect(at);
            }
            Greeting::Session { id, passwd, time_out, .. } => {
                let timeout = ms(u64::try_from(time_out).unwrap());
                client.is_joining = false;
                client.next_ping = self.b.now;
                let is_new = client.session.is_none();
                client.session = Some((id, passwd));
                let base = client.since + timeout;
                if is_new {
                    (client.timeout, client.has_node) = (timeout, false);
                    client.bounds = Bounds { naive: base, proven: base, written: client.since };
                } else {
                    assert_eq!(client.timeout, timeout);
                }
                let text = format!("{at} has {id:x} on {}, {time_out} ms", client.member);
                if is_new {
                    // The first request of the connection creates the session's node.
                    let (connection, xid) = self.note_request(at, What::Append);
                    let node = format!("/e/{id:x}");
                    self.b.send(connection, xid, OpCode::Create, &create(&node, b"", 1));
                }
                self.note(&text);
            }
        }
    }

    fn receive(&mut self, at: usize) {
        let Some(id) = self.clients[at].connection else { return };
        if self.clients[at].is_joining {
            let greeting = self.b.greeting(id);
            if greeting != Greeting::Silence || self.b.machine.is_closed(id) {
                let silent = greeting == Greeting::Silence;
                self.greeted(at, if silent { Greeting::Closed } else { greeting });
            }
        }
        if self.clients[at].connection.is_none() || self.clients[at].is_joining {
            return;
        }
        for answer in self.b.answers(id) {
            let sent = self.clients[at].pending.pop_front().unwrap();
            assert_eq!(answer.header.xid, sent.xid, "out of order");
            self.answered(at, sent, answer.header.err, answer.header.zxid, &answer.body);
        }
        if self.b.machine.is_closed(id) {
            self.disconnect(at);
        }
    }

    fn answered(&mut self, at: usize, sent: Sent, err: ErrorCode, zxid: i64, body: &[u8]) {
        let now = self.b.now;
        if std::env::var_os("DOCENT_PARTITION_TRACE").is_some() {
            self.note(&format!("{at} {sent:?}: {err:?} {zxid:x}"));
        }
        let client = &mut self.clients[at];
        let (id, _) = client.session.clone().unwrap();
        assert!(zxid >= client.last_zxid, "{at} goes back from {:x} to {zxid:x}", client.last_zxid);
        client.last_zxid = zxid;
        let timeout = client.timeout;
        // A bound that has passed is not extended.
        let extend = |bound: &mut Duration, base: Duration| {
            if now <= *bound {
                *bound = (*bound).max(base + timeout);
            }
        };
        extend(&mut client.bounds.naive, sent.at);
        let is_write = matches!(sent.what, What::Append | What::Set(_));
        if is_write && err == ErrorCode::Ok {
            client.bounds.written = sent.at;
            extend(&mut client.bounds.proven, client.since);
            if sent.to_leader {
                extend(&mut client.bounds.proven, sent.at);
            }
        }
        match (sent.what, err) {
            (What::Append, ErrorCode::Ok) => {
                let path = Reader::new(body).text("path").unwrap().to_string();
                if path.starts_with("/e/") {
                    client.has_node = true;
                } else {
                    let before = self.appended.insert(zxid, path.clone());
                    assert_eq!(before, None, "two creates with {zxid:x}");
                }
            }
            (What::Read, ErrorCode::Ok) => {
                client.version = StatReply::decode(&mut Reader::new(body)).unwrap().stat.version;
            }
            (What::Set(version), ErrorCode::Ok) => {
                let stat = StatReply::decode(&mut Reader::new(body)).unwrap().stat;
                assert_eq!(stat.version, version + 1);
                client.version = stat.version;
                self.set += 1;
            }
            (What::Set(_), ErrorCode::BadVersion) | (What::Ping | What::Sync, ErrorCode::Ok) => {}
            (_, ErrorCode::NotReadOnly | ErrorCode::SessionExpired) => {}
            other => panic!("{other:?}"),
        }
        if self.clients[at].has_node {
            let bounds = self.clients[at].bounds;
            self.born.insert(id, bounds);
        }
    }

    /// After the faults are healed: one leader, all members alike, no acknowledged write is lost.
    fn end(&mut self) {
        let leader = self.b.machine.leader().unwrap();
        for member in 0..MEMBERS {
            let role = if member == leader { Role::Leader } else { Role::Follower };
            assert_eq!(self.b.machine.role(member), role);
        }
        for at in 0..CLIENTS {
            self.disconnect(at);
        }
        let mut order: Vec<_> = self.appended.values().cloned().collect();
        assert!(order.is_sorted(), "sequence numbers in the order of zxids: {order:?}");
        order.dedup();
        assert_eq!(order.len(), self.appended.len(), "equal sequence numbers");
        for member in 0..MEMBERS {
            let (id, ..) = self.b.connect_to(member);
            for path in &order {
                assert_eq!(self.b.exists(id, path, false), ErrorCode::Ok, "{path} on {member}");
            }
            let read = ReadRequest { path: REGISTER.into(), watch: false };
            let answer = self.b.call(id, OpCode::Exists, &read).unwrap();
            let stat = StatReply::decode(&mut Reader::new(&answer.body)).unwrap().stat;
            let most = self.set + self.unknown;
            assert!((self.set..=most).contains(&stat.version), "{} of {}", stat.version, self.set);
        }
        // Unused sessions expire.
        self.b.advance(Duration::from_secs(70));
        self.look();
        self.check_bounds();
        let left = self.born.keys().filter(|id| !self.deleted.contains_key(id)).count();
        assert_eq!(left, 0, "nodes of sessions that have ended");
    }
}

/// The sessions with an ephemeral node on a member; `None` if it does not serve.
fn owners(b: &mut Bench, member: usize) -> Option<BTreeSet<i64>> {
    let peer = std::net::Ipv4Addr::LOCALHOST.into();
    let id = b.machine.handle_connect(b.now, member, peer)?;
    b.bytes(id, b"dump");
    let text = b.machine.poll_transmit(id)?;
    b.machine.handle_disconnected(b.now, id);
    let text = String::from_utf8(text.to_vec()).unwrap();
    let (_, nodes) = text.split_once("Sessions with Ephemerals")?;
    let (nodes, _) = nodes.split_once("Connections dump").unwrap();
    let ids = nodes.lines().filter_map(|line| line.strip_suffix(':')?.strip_prefix("0x"));
    Some(ids.map(|id| i64::from_str_radix(id, 16).unwrap()).collect())
}

#[test]
fn whatever_is_cut_acknowledged_writes_are_kept_and_proven_bounds_hold() {
    let count = number("DOCENT_PARTITION_SCENARIOS", 60);
    let first = number("DOCENT_PARTITION_SEED", 1);
    let (mut failed, mut worst, mut faults, mut sessions) = (0, Duration::ZERO, 0, 0);
    for seed in first..first + count {
        let mut scenario = Scenario::new(seed);
        let run = std::panic::AssertUnwindSafe(|| scenario.run());
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("{}DOCENT_PARTITION_SEED={seed} DOCENT_PARTITION_SCENARIOS=1", scenario.text);
            std::panic::resume_unwind(panic);
        }
        failed += scenario.naive_failed;
        worst = worst.max(scenario.worst);
        faults += scenario.faults;
        sessions += scenario.born.len();
    }
    println!(
        "{count} scenarios, {faults} faults, {sessions} sessions; {failed} outlived by the naive bound, by {worst:?}"
    );
    // A small number of scenarios may contain no such session.
    assert!(count < 60 || failed > 0 && worst > Duration::from_secs(1), "{failed} {worst:?}");
}
