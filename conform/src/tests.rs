//! Runs the cases on the embedded server, and on servers that break a single rule.

use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    io::{self, Read as _, Write as _},
    net::TcpListener,
    ops::ControlFlow,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use docent_protocol::OpCode;
use docent_testing::{
    TestingCluster, TestingServer,
    fault::Fault,
    server::{Config, Version as Imitated},
    tap::Tap,
};
use tokio::runtime::Runtime;

use crate::{
    Level, Options, Unusable, Verdict, VerdictKind, Version,
    case::{Case, all},
    channel::{Arrived, Channel, Network, Servers},
    html::matrix,
    play::{Ended, Player},
    run,
};

/// An embedded server, and the runtime that it runs on.
struct Embedded {
    server: TestingServer,
    runtime: Runtime,
}

impl Embedded {
    fn start(version: &str) -> Self {
        let version = Imitated::from_number(version).unwrap();
        Self::start_with(Config { version, ..Config::default() })
    }

    fn start_with(config: Config) -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(TestingServer::start_with(config));
        Self { server: server.unwrap(), runtime }
    }

    fn address(&self) -> String {
        self.server.connect_string()
    }
}

#[test]
fn cases_have_names_of_their_own_and_a_source() {
    let cases = all().unwrap();
    let names: BTreeSet<_> = cases.iter().map(|case| &case.id).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 300, "{}", cases.len());
    for case in cases {
        assert!(!case.source.is_empty(), "{}", case.id);
    }
}

#[test]
fn the_embedded_server_conforms_in_each_version() {
    for version in ["3.4", "3.5", "3.6", "3.8", "3.9", "3.10"] {
        let server = Embedded::start(version);
        let report = run(&Options::new([server.address()]), go_on).unwrap();
        let failed: Vec<_> =
            report.verdicts.iter().filter(|one| one.result == VerdictKind::Fail).collect();
        assert!(failed.is_empty(), "{version}: {failed:#?}");
        assert_eq!(report.left, Vec::<String>::new(), "{version}");
    }
}

#[test]
fn the_embedded_ensemble_conforms() {
    for version in ["3.4", "3.9"] {
        let runtime = Runtime::new().unwrap();
        let version = Imitated::from_number(version).unwrap();
        let config = Config { version, servers: 3, ..Config::default() };
        let cluster = runtime.block_on(TestingCluster::start_with(config)).unwrap();
        let addresses = cluster.connect_string();
        let report = run(&Options::new(addresses.split(',')).only("ensemble/"), go_on).unwrap();
        let passed = |one: &&Verdict| one.result == VerdictKind::Pass;
        assert!(report.verdicts.iter().filter(passed).count() >= 10, "{:#?}", report.verdicts);
        assert_eq!(report.failures(Level::Must), 0, "{:#?}", report.verdicts);
    }
}

/// The cases that fail on a ClickHouse Keeper are the differences that `docs/KEEPER.md` lists.
#[test]
fn the_differences_of_a_keeper_are_found() {
    let always = [
        "auth/sasl-keeper",
        "delete/changes-parent",
        "framing/unknown-operation-keeper",
        "handshake/closed-session",
        "handshake/resume-keeper",
        "handshake/unknown-session-keeper",
        "multiread/failures-keeper",
        "stat/child-data",
        "stat/child-deleted",
        "ttl/created-keeper",
    ];
    for (version, others) in [
        (
            "keeper-24.8",
            &["container/created-keeper", "create/create2-keeper", "watch/keeper-remove"][..],
        ),
        (
            "keeper-26.1",
            &["container/created-keeper", "persistent/keeper", "persistent/keeper-recursive"],
        ),
        ("keeper-26.3", &["container/created-keeper", "persistent/keeper-recursive"]),
        ("keeper-26.6", &["persistent/keeper-recursive", "stat/keeper-container-owner"]),
    ] {
        let server = Embedded::start(version);
        let report = run(&Options::new([server.address()]), go_on).unwrap();
        let failed = report.verdicts.iter().filter(|one| one.result == VerdictKind::Fail);
        let failed: BTreeSet<_> = failed.map(|one| one.id.as_str()).collect();
        let expected: BTreeSet<_> = always.iter().chain(others).copied().collect();
        assert_eq!(failed, expected, "{version}");
    }
}

/// A server that is tested as another version fails: steps with a range of versions are about
/// behaviour that differs outside it.
#[test]
fn a_server_of_another_version_is_told_apart() {
    for (version, other) in
        [("3.4", "3.8"), ("3.8", "3.4"), ("3.6", "3.9"), ("3.9", "3.6"), ("3.8", "3.9")]
    {
        let server = Embedded::start(version);
        let mut options = Options::new([server.address()]).version(Version::parse(other).unwrap());
        options.patience = Duration::from_secs(1);
        let report = run(&options, go_on).unwrap();
        assert!(report.failures(Level::Must) > 0, "{version} passes as {other}");
    }
}

/// What arrived on each connection, in the order in which they were opened.
type Tape = Rc<RefCell<Vec<Vec<Arrived>>>>;

/// Records what the servers send.
struct Recorder {
    servers: Servers,
    tape: Tape,
}

struct Recorded {
    channel: Box<dyn Channel>,
    tape: Tape,
    index: usize,
}

impl Network for Recorder {
    fn open(&mut self, server: usize) -> io::Result<Box<dyn Channel>> {
        let channel = self.servers.open(server)?;
        let mut tape = self.tape.borrow_mut();
        tape.push(Vec::new());
        let index = tape.len() - 1;
        Ok(Box::new(Recorded { channel, tape: Rc::clone(&self.tape), index }))
    }
}

impl Recorded {
    fn keep(&self, arrived: Arrived) -> Arrived {
        self.tape.borrow_mut()[self.index].push(arrived.clone());
        arrived
    }
}

impl Channel for Recorded {
    fn send(&mut self, bytes: &[u8]) {
        self.channel.send(bytes);
    }

    fn receive(&mut self, until: Instant) -> Arrived {
        let arrived = self.channel.receive(until);
        self.keep(arrived)
    }

    fn receive_text(&mut self, until: Instant) -> Arrived {
        let arrived = self.channel.receive_text(until);
        self.keep(arrived)
    }
}

/// A server that replays a recording, whatever is sent to it.
struct Replay(VecDeque<Vec<Arrived>>);

struct Replayed(VecDeque<Arrived>);

impl Network for Replay {
    fn open(&mut self, _server: usize) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(Replayed(self.0.pop_front().unwrap_or_default().into())))
    }
}

impl Channel for Replayed {
    fn send(&mut self, _bytes: &[u8]) {}

    fn receive(&mut self, _until: Instant) -> Arrived {
        self.0.pop_front().unwrap_or(Arrived::Closed)
    }

    fn receive_text(&mut self, until: Instant) -> Arrived {
        self.receive(until)
    }
}

fn play(network: &mut dyn Network, case: &Case, version: Version) -> Result<(), Ended> {
    Player::new(network, version, format!("/{}", case.id.replace('/', "-"))).play(case)
}

/// Variants of a message, as a server could send them if it broke a rule.
fn mutations(arrived: &Arrived) -> Vec<Arrived> {
    match arrived {
        Arrived::Frame(payload) => {
            // One number or one character is changed. Long data are changed only at their beginning.
            let changed =
                (3..payload.len().min(256)).step_by(4).chain([payload.len() - 1]).map(|index| {
                    let mut payload = payload.clone();
                    payload[index] = payload[index].wrapping_add(1);
                    Arrived::Frame(payload)
                });
            changed.chain([Arrived::Closed]).collect()
        }
        Arrived::Closed => vec![Arrived::Nothing],
        Arrived::Nothing => vec![Arrived::Closed],
        Arrived::Text(_) => vec![Arrived::Text(b"?".to_vec()), Arrived::Nothing],
    }
}

/// Each reply of a server matters to its case: some change of it makes the case fail.
#[test]
fn each_answer_of_a_server_can_fail_its_case() {
    let server = Embedded::start("3.9");
    let version = Version::parse("3.9.5").unwrap();
    let (mut played, mut unnoticed) = (0, Vec::new());
    for case in all().unwrap() {
        // These cases wait for timeouts.
        let waits = case.steps.iter().any(|step| step.words.contains(&"until".to_owned()));
        if !case.versions.contains(version) || !case.needs.is_empty() || waits {
            continue;
        }
        let servers = Servers(vec![server.address()]);
        let housekeeper = &mut servers.clone();
        let root = format!("create /{}", case.id.replace('/', "-"));
        assert_eq!(
            Player::new(housekeeper, version, String::new()).ask("A", &root).unwrap().kind,
            "OK"
        );
        let tape = Tape::default();
        match play(&mut Recorder { servers, tape: Rc::clone(&tape) }, &case, version) {
            Ok(()) => {}
            Err(Ended::Skipped(_)) => continue,
            Err(error) => panic!("{}: {error:?}", case.id),
        }
        let tape = tape.take();
        play(&mut Replay(tape.clone().into()), &case, version).unwrap();
        played += 1;
        for (connection, arrived) in tape.iter().enumerate() {
            for (index, one) in arrived.iter().enumerate() {
                let is_noticed = mutations(one).into_iter().any(|mutation| {
                    let mut tape = tape.clone();
                    tape[connection][index] = mutation;
                    play(&mut Replay(tape.into()), &case, version).is_err()
                });
                if !is_noticed {
                    unnoticed.push(format!("{}: {one:?}", case.id));
                }
            }
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
    assert!(played > 250, "{played}");
}

const fn go_on(_: &Verdict) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Starts a program that is not a server: it replies to each connection with these bytes and closes it.
fn something_else(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(reply);
        }
    });
    address
}

#[test]
fn what_is_no_server_is_named() {
    for (reply, text) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "it speaks HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "it speaks TLS"),
        (b"", "it closed the connection"),
        (b"garbage, and more of it", "the reply to the handshake was garbage"),
    ] {
        let error = run(&Options::new([something_else(reply)]), go_on).unwrap_err();
        assert!(matches!(error, Unusable::Server(_)), "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = run(&Options::new([closed]), go_on).unwrap_err();
    assert!(error.to_string().contains("no connection"), "{error}");
}

#[test]
fn a_server_that_may_not_be_written_is_named() {
    let config = Config { read_only: true, local_sessions_enabled: true, ..Config::default() };
    let server = Embedded::start_with(config);
    let error = run(&Options::new([server.address()]), go_on).unwrap_err();
    assert!(error.to_string().contains("or is read-only"), "{error}");

    let server = Embedded::start("3.9");
    let mut servers = Servers(vec![server.address()]);
    let mut player = Player::new(&mut servers, Version::UNKNOWN, String::new());
    for request in ["create /mine", "setACL / world:anyone:1"] {
        assert_eq!(player.ask("A", request).unwrap().kind, "OK");
    }
    let options = Options::new([server.address()]).only("delete/missing");
    let error = run(&options, go_on).unwrap_err();
    assert!(error.to_string().contains("NOAUTH: give --parent"), "{error}");
    assert_eq!(run(&options.parent("/mine"), go_on).unwrap().failures(Level::Must), 0);
}

#[test]
fn a_server_that_ends_in_the_middle_is_no_pass() {
    let server = Embedded::start("3.9");
    let options = Options::new([server.address()]);
    let error = run(&options, |_| {
        server.server.stop();
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert!(error.to_string().starts_with("after the cases: "), "{error}");
}

#[test]
fn a_run_that_is_ended_early_deletes_its_nodes() {
    let server = Embedded::start("3.9");
    let options = Options::new([server.address()]).only("create/");
    let report = run(&options, |_| ControlFlow::Break(())).unwrap();
    assert_eq!((report.verdicts, report.left), (Vec::new(), Vec::new()));
    let mut servers = Servers(vec![server.address()]);
    let mut player = Player::new(&mut servers, Version::UNKNOWN, String::new());
    let children = player.ask("A", "getChildren /").unwrap().fields["children"].clone();
    assert_eq!(children, "zookeeper");
}

// Case (Found in docent itself): `docent conform` with a second address where nothing listens tested the first one for a
// minute, and said nothing of the second but in the cases that use it.
#[test]
fn each_server_must_be_there() {
    let server = Embedded::start("3.9");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = run(&Options::new([server.address(), closed.clone()]), go_on).unwrap_err();
    assert!(error.to_string().starts_with(&format!("{closed}: no connection")), "{error}");
}

impl Embedded {
    /// A relay to the server that does this to each request of an operation, and its address.
    fn behind(&self, fault: Fault) -> (Tap, String) {
        let tap = self.runtime.block_on(Tap::start(&self.address())).unwrap();
        tap.inject(fault.times(u32::MAX));
        let address = tap.connect_string();
        (tap, address)
    }
}

// Case (Found in docent itself): `docent conform` could not test a server that has no authentication.
#[test]
fn a_server_without_authentication_is_tested() {
    let server = Embedded::start("3.9");
    let (_tap, address) = server.behind(Fault::drop_before(OpCode::Auth));
    let options = Options::new([address]).only("create/reply");
    let report = run(&options.version(Version::parse("3.9.5").unwrap()), go_on).unwrap();
    assert_eq!((report.failures(Level::Must), report.left), (0, Vec::new()));
}

// Case (Found in docent itself): at the end, `docent conform` waited 10 s for each node that a server did not delete.
#[test]
fn a_server_that_deletes_nothing_is_asked_once() {
    let server = Embedded::start("3.9");
    let never = Duration::from_secs(24 * 3600);
    let (_tap, address) = server.behind(Fault::delay_request(OpCode::Delete, never));
    let mut options = Options::new([address]).only("create/acl");
    options.patience = Duration::from_millis(500);
    let report = run(&options.version(Version::parse("3.9.5").unwrap()), go_on).unwrap();
    assert_eq!(report.left.len(), 1, "{:?}", report.left);
}

/// Connections on which events arrive for ever, behind the reply to the handshake.
struct Events {
    has_begun: bool,
}

impl Network for Events {
    fn open(&mut self, _server: usize) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(Self { has_begun: false }))
    }
}

impl Channel for Events {
    fn send(&mut self, _bytes: &[u8]) {}

    fn receive(&mut self, _until: Instant) -> Arrived {
        let numbers = |numbers: &[i32]| numbers.iter().flat_map(|it| it.to_be_bytes()).collect();
        Arrived::Frame(if std::mem::replace(&mut self.has_begun, true) {
            numbers(&[-1, 0, 0, 0, 1, 3, 0])
        } else {
            numbers(&[0, 30_000, 0, 1, 16, 0, 0, 0, 0])
        })
    }

    fn receive_text(&mut self, _until: Instant) -> Arrived {
        Arrived::Nothing
    }
}

// Case (Found in docent itself): `docent conform` did not end on a server that sent events without a pause.
#[test]
fn a_server_that_sends_events_for_ever_does_not_reply() {
    let mut network = Events { has_begun: false };
    let mut player = Player::new(&mut network, Version::UNKNOWN, String::new());
    player.patience = Duration::from_millis(10);
    assert_eq!(player.ask("A", "ping").unwrap().kind, "nothing");
}

#[test]
fn a_harmful_request_is_not_sent_without_leave() {
    let server = Embedded::start("3.9");
    let mut servers = Servers(vec![server.address()]);
    let mut player = Player::new(&mut servers, Version::UNKNOWN, String::new());
    let refused = player.ask("A", "check / 0");
    assert!(matches!(&refused, Err(Ended::Unplayable(why)) if why.contains("harm")), "{refused:?}");
}

#[test]
fn reports_have_each_case() {
    let server = Embedded::start("3.8");
    // A version other than the server's, so that some cases fail.
    let options =
        Options::new([server.address()]).only("acl/").version(Version::parse("3.9.5").unwrap());
    let report = run(&options, go_on).unwrap();
    let verdicts: Vec<Verdict> = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(verdicts, report.verdicts);
    let failed = report.failures(Level::Must);
    assert!(failed > 0);
    let junit = report.to_junit();
    assert_eq!(junit.matches("<testcase ").count(), verdicts.len());
    assert_eq!(junit.matches("<failure ").count(), junit.matches("</failure>").count());
    let other = Verdict { id: "acl/<new>".to_owned(), ..verdicts[0].clone() };
    let page = matrix("A title", &[verdicts.clone(), vec![other]]);
    assert_eq!(page.matches("<tr>").count(), verdicts.len() + 2);
    assert!(page.contains("acl/&lt;new&gt;") && !page.contains("<new>"));
}
