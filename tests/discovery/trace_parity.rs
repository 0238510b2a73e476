//! Service discovery sends the same requests as Curator, and finds the same instances.
//!
//! `../data/curator-discovery-traces.txt` was recorded from Curator behind a proxy. Its commands are given to the example
//! `recipe_peer` behind the tap of `docent-testing`, with its changes, cuts and lost replies. The answers are compared, and
//! the requests of each client; each test states the lines in which docent differs by design. Everywhere, an instance is
//! watched by exists (3) after it was written, and the close of a cache sends removeWatches instead of checkWatches (C7):
//! these are left out of the comparison. `docs/CURATOR.md` lists all scenarios.

use std::collections::BTreeMap;

use docent::{Client, OpCode};
use docent_testing::{
    TestingServer,
    fault::Fault,
    tap::{CompareOptions, Record, Tap, TapClient, compare},
};

use crate::{
    RECORDED,
    support::{
        DEADLINE, eventually,
        peer::{Answer, Peer, Side},
        recordings::assert_played_and_listed,
    },
};

const TRACES: &str = include_str!("../data/curator-discovery-traces.txt");

struct Scenario {
    recording: &'static str,
    /// The requests of the recording.
    expected: String,
    tap: Tap,
    peers: BTreeMap<String, (Peer, TapClient)>,
    writer: Client,
    /// A command whose write has its reply held back, and the wanted answer.
    held_back: Option<(Answer, &'static str)>,
    /// The answers that differ by design: the command, its number among the same ones, our answer.
    answers: Vec<(&'static str, usize, &'static str)>,
    _server: TestingServer,
}

impl Scenario {
    async fn start(title: &str) -> Self {
        let server = TestingServer::start().await.unwrap();
        let start = format!("=== {title}\n");
        let (_, rest) = TRACES.split_once(&start).unwrap_or_else(|| panic!("no scenario {title}"));
        let recording = rest.split("\n=== ").next().unwrap_or_default();
        let tap = Tap::start(&server.connect_string()).await.unwrap();
        let mut peers = BTreeMap::new();
        for label in ["A", "B"] {
            if recording.contains(&format!("{label} -> connect")) {
                let client = tap.client(label).await.unwrap();
                let peer =
                    Peer::start(Side::Docent, label, &client.connect_string(), RECORDED).await;
                peers.insert(label.to_owned(), (peer, client));
            }
        }
        let writer = Client::connect(&server.connect_string()).await.unwrap();
        let (expected, answers) = (requests(recording), Vec::new());
        let held_back = None;
        Self { recording, expected, tap, peers, writer, held_back, answers, _server: server }
    }

    /// Gives the commands of the recording to the peers, and compares their answers.
    async fn play(&mut self) {
        let lines: Vec<&'static str> = self.recording.lines().map(str::trim).collect();
        let mut is_refused = false;
        for (at, line) in lines.iter().enumerate() {
            let rest = &lines[at + 1..];
            if let Some(change) = line.strip_prefix("# elsewhere: ") {
                self.change(change, at, rest).await;
            } else if let Some(on) = line.strip_prefix("# PROXY: refuse new connections ") {
                let (peer, client) = &self.peers["B"];
                is_refused = on == "on";
                if is_refused {
                    client.refuse().await.unwrap();
                } else {
                    client.accept().await.unwrap();
                    peer.event("state RECONNECTED").await;
                }
            } else if let Some(label) = line.strip_suffix(" xx PROXY: connection cut") {
                let (peer, client) = &self.peers[label];
                let mut events = peer.events_from_now();
                client.cut();
                events.next("state SUSPENDED").await;
                if !is_refused {
                    events.next("state RECONNECTED").await;
                }
            } else if line.starts_with("# A = ")
                && let Some((answer, wanted)) = self.held_back.take()
            {
                self.tap.end_delays();
                assert_eq!(answer.reply().await.ok(), wanted);
            } else if let Some((label, command)) =
                line.strip_prefix("# ").and_then(|line| line.split_once(": "))
                && self.peers.contains_key(label)
            {
                self.command(label, command, at, rest).await;
            }
        }
        for (peer, _) in std::mem::take(&mut self.peers).into_values() {
            peer.close().await;
        }
    }

    async fn command(&mut self, label: &str, command: &str, at: usize, rest: &[&'static str]) {
        let (peer, client) = &self.peers[label];
        if command.starts_with("killsession") {
            let mut events = peer.events_from_now();
            client.kill_session(DEADLINE).await.unwrap();
            events.next("state RECONNECTED").await;
            return;
        }
        let end = rest.iter().position(|line| line.starts_with(&format!("# {label} = "))).unwrap();
        if rest[..end].iter().any(|line| line.contains("DROP_REPLY")) {
            self.tap.inject(Fault::drop_reply(OpCode::Create2).of(label));
        }
        let wanted = self.answer(at, rest[end]);
        if rest[..end].iter().any(|line| line.contains("HOLD_BACK")) {
            // Curator's reply to its delete; docent's to its only write.
            self.tap.inject(Fault::delay_reply(OpCode::SetData, DEADLINE).of(label));
            let before = self.tap.len();
            let answer = peer.send(command);
            let mut records = self.tap.subscribe_from(before);
            records.until(DEADLINE, |r| r.is_reply(OpCode::SetData)).await.unwrap();
            self.held_back = Some((answer, wanted));
        } else if command.starts_with("sclist") {
            // The cache follows the changes.
            eventually(&format!("{command}: {wanted}"), async || {
                (peer.ask(command).await.ok() == wanted).then_some(())
            })
            .await;
        } else {
            assert_eq!(peer.ask(command).await.ok(), wanted, "{command}");
        }
    }

    /// The answer that is wanted, by the line of the command and that of the recorded answer.
    fn answer(&self, at: usize, answer: &'static str) -> &'static str {
        let command = self.recording.lines().map(str::trim).nth(at).unwrap();
        let number = self.recording.lines().take(at).filter(|line| line.trim() == command).count();
        let recorded = answer.split_once(" = ok").unwrap().1.trim();
        let is_it = |asked: &str| command.split_once(": ").is_some_and(|(_, text)| text == asked);
        let differs = self.answers.iter().find(|(asked, n, _)| is_it(asked) && *n == number);
        assert!(differs.is_none_or(|(_, _, ours)| *ours != recorded), "{command} is equal");
        differs.map_or(recorded, |(_, _, ours)| ours)
    }

    /// A change on another connection. Waits for what docent makes of it.
    async fn change(&self, change: &str, at: usize, rest: &[&'static str]) {
        match change.split(' ').collect::<Vec<_>>()[..] {
            ["create", path, data] if self.held_back.is_some() => {
                // In Curator, the node was deleted.
                let mode = docent::CreateMode::Persistent;
                let refused = self.writer.create(path, data.as_bytes(), mode).await.unwrap_err();
                assert_eq!(refused.kind(), docent::ErrorKind::NodeExists);
            }
            ["create", path, data] => {
                let mode = docent::CreateMode::Persistent;
                self.writer.create(path, data.as_bytes(), mode).await.unwrap();
                eventually("the read of a cache", async || {
                    let trace = self.tap.trace();
                    let is_read =
                        |r: &Record| r.is_request(OpCode::GetData) && r.path() == Some(path);
                    trace.iter().any(is_read).then_some(())
                })
                .await;
            }
            ["set", path, data] => {
                // The watch is there, and sees the change.
                self.looks(1).await;
                self.writer.set_data(path, data.as_bytes(), None).await.unwrap();
                self.looks(2).await;
            }
            ["get", path] => {
                // The reconnect is over.
                self.looks(3).await;
                let node = self.writer.get_data(path).await.unwrap();
                let data = String::from_utf8(node.data.to_vec()).unwrap();
                let wanted = self.answer(at, rest[0]);
                assert_eq!(format!("{} {data}", node.stat.version), wanted);
            }
            ["delete", path] => {
                let deleted = self.writer.exists(path).await.unwrap().unwrap();
                self.writer.delete(path, None).await.unwrap();
                // In Curator, it stays deleted.
                eventually("the instance", async || {
                    let stat = self.writer.exists(path).await.unwrap()?;
                    (stat.czxid != deleted.czxid).then_some(())
                })
                .await;
            }
            ["children", path] => {
                let wanted = self.answer(at, rest[0]);
                eventually(&format!("{change}: {wanted}"), async || {
                    let mut names = self.writer.get_children(path).await.unwrap().to_vec();
                    names.iter_mut().for_each(|name| *name = with_masked_guid(&format!("/{name}")));
                    names.sort_unstable();
                    let answer =
                        format!("{} {}", names.len(), names.concat().replace('/', " ").trim());
                    (answer == wanted).then_some(())
                })
                .await;
            }
            _ => panic!("{change}"),
        }
    }

    /// Waits until the watched instance was read this often.
    async fn looks(&self, count: usize) {
        eventually(&format!("{count} looks"), async || {
            let trace = self.tap.trace();
            let looks = trace.iter().filter(|r| r.is_reply(OpCode::GetData));
            (looks.count() == count).then_some(())
        })
        .await;
    }

    /// The lines of the recording for which docent sends others. Each must be there.
    fn differs(&mut self, lines: &str, ours: &str) {
        let trimmed = |text: &str| -> String {
            text.lines().map(|line| format!("{}\n", line.trim())).collect()
        };
        let (lines, ours) = (trimmed(lines), trimmed(ours));
        assert!(self.expected.contains(&lines), "{lines}\nis not in\n{}", self.expected);
        self.expected = self.expected.replacen(&lines, &ours, 1);
    }

    /// Compares the requests of each client, in any order if their tasks are independent.
    fn assert_equal(&self, order: Order) {
        let actual = requests(&self.tap.trace().text());
        let own_watch = |line: &&str| !(line.contains("exists(3)") && line.ends_with("watch=true"));
        let arranged = |text: &str| {
            let mut lines: Vec<&str> = text.lines().filter(own_watch).collect();
            match order {
                Order::Same => {}
                Order::Any => lines.sort_unstable(),
                Order::AnyAndOnce => {
                    lines.sort_unstable();
                    lines.dedup();
                }
            }
            lines.join("\n") + "\n"
        };
        let options = CompareOptions::default().without("removeWatches").without("checkWatches");
        let options = options.without("setWatches").without("setWatches2");
        if let Err(difference) = compare(&arranged(&self.expected), &arranged(&actual), &options) {
            panic!("{difference}\n\nactual trace:\n{}", self.tap.trace().text());
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Same,
    /// Instances are registered independently of each other.
    Any,
    /// And reads may be repeated: which events precede them is a race.
    AnyAndOnce,
}

/// The requests, under the name that the client had on its first connection.
fn requests(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.split_once(" -> "));
    let lines = lines.filter(|(client, _)| !client.contains(['#', ' ']));
    let lines = lines.filter(|(_, rest)| !rest.starts_with("connect "));
    let lines = lines.map(|(client, rest)| {
        let client = client.trim_end_matches(['\'', '*']);
        // The recordings have no zxids.
        let rest = match rest.split_once(" zxid=") {
            Some((front, back)) => format!("{front} {}", back.split_once(' ').unwrap().1),
            None => rest.to_owned(),
        };
        format!("{client} -> {}\n", with_masked_guid(&rest))
    });
    lines.collect()
}

/// The name of a protected node, with `GUID` for its prefix. The text of a trace has `G1` for the first GUID.
fn with_masked_guid(text: &str) -> String {
    let Some((front, back)) = text.split_once("/_c_") else { return text.to_owned() };
    let rest = match back.strip_prefix('G') {
        Some(numbered) => numbered.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => &back[36..],
    };
    format!("{front}/GUID{rest}")
}

/// A registration as Curator sends it.
fn create(path: &str, port: u32, service_type: &str, flags: u32) -> String {
    let id = path.rsplit('/').next().unwrap();
    let id = if id.contains("i4-") { "i4-" } else { id };
    let address = &id[1..2];
    format!(
        "A -> create2(15) {path} data=\"{}\" acl=31:world:anyone flags={flags}",
        json(id, &format!("10.1.1.{address}"), port, service_type)
    )
}

fn json(id: &str, address: &str, port: u32, service_type: &str) -> String {
    format!(
        r#"{{"name":"web","id":"{id}","address":"{address}","port":{port},"sslPort":null,"payload":null,"registrationTimeUTC":1700000000000,"serviceType":"{service_type}","uriSpec":null}}"#
    )
}

/// C39: an instance that is registered again is written. C28: the sequential one has a GUID, and is deleted. C33: the
/// permanent one stays.
#[tokio::test]
async fn d23_registrations_and_queries() {
    let mut scenario = Scenario::start("D23-discovery-register-query").await;
    scenario.answers =
        vec![("children /d23/svc/web", 0, "3 i2 i3 i5"), ("children /d23/svc/web", 1, "2 i2 i5")];
    scenario.play().await;
    let again = create("/d23/svc/web/i1", 8081, "DYNAMIC", 1);
    let written = json("i1", "10.1.1.1", 8081, "DYNAMIC");
    scenario.differs(
        &format!("{again}\nA -> delete(2) /d23/svc/web/i1 v=-1\n{again}"),
        &format!("A -> setData(5) /d23/svc/web/i1 data=\"{written}\" v=-1"),
    );
    scenario.differs(
        &create("/d23/svc/web/i4-", 1, "DYNAMIC_SEQUENTIAL", 3),
        &create("/d23/svc/web/GUID-i4-", 1, "DYNAMIC_SEQUENTIAL", 3),
    );
    scenario.differs(
        "B -> getData(4) /d23/svc/web/i1 watch=false
         B -> getData(4) /d23/svc/web/i2 watch=false
         B -> getData(4) /d23/svc/web/i4-0000000004 watch=false
         B -> getData(4) /d23/svc/web/i3 watch=false",
        "B -> getData(4) /d23/svc/web/GUID-i4-0000000003 watch=false
         B -> getData(4) /d23/svc/web/i1 watch=false
         B -> getData(4) /d23/svc/web/i2 watch=false
         B -> getData(4) /d23/svc/web/i3 watch=false",
    );
    scenario.differs(
        "A -> delete(2) /d23/svc/web/i4- v=-1
         A -> delete(2) /d23/svc/web/i2 v=-1",
        "A -> delete(2) /d23/svc/web/GUID-i4-0000000003 v=-1",
    );
    scenario.assert_equal(Order::Same);
}

/// C32: a reconnect in the same session writes nothing. C28: a new session creates the same sequential node. A deleted
/// instance is created again; one whose create lost its reply is written.
#[tokio::test]
async fn d24_a_reconnect_and_an_expiry() {
    let mut scenario = Scenario::start("D24-discovery-reconnect-and-expiry").await;
    scenario.answers = vec![
        ("children /d24/web", 0, "2 GUID-i4-0000000001 i1"),
        ("children /d24/web", 1, "2 GUID-i4-0000000001 i1"),
    ];
    scenario.play().await;
    let i1 = create("/d24/web/i1", 8080, "DYNAMIC", 1);
    let i4 = create("/d24/web/i4-", 1, "DYNAMIC_SEQUENTIAL", 3);
    let i9 = create("/d24/web/i9", 9, "DYNAMIC", 1);
    let delete = |id: &str| format!("A -> delete(2) /d24/web/{id} v=-1");
    scenario.differs(
        &[&*i4, &i4, &i1, &delete("i1"), &i1].join("\n"),
        &create("/d24/web/GUID-i4-", 1, "DYNAMIC_SEQUENTIAL", 3),
    );
    scenario.differs(
        &[&*i4, &i1].join("\n"),
        // Once in the new session, and once after its deletion.
        &[&*create("/d24/web/GUID-i4-0000000001", 1, "DYNAMIC_SEQUENTIAL", 1), &i1, &i1].join("\n"),
    );
    let written = json("i9", "10.1.1.9", 9, "DYNAMIC");
    scenario.differs(
        &[&*i9, &delete("i9"), &i9, &i9, &delete("i9"), &i9, &i4, &i1].join("\n"),
        &format!("{i9}\nA -> setData(5) /d24/web/i9 data=\"{written}\" v=-1"),
    );
    scenario.assert_equal(Order::Any);
}

/// C1: the cache has the new address. It creates no nodes, so the first instance does; it does not list the children of
/// instances (C10).
#[tokio::test]
async fn d25_a_cache_of_a_service() {
    let mut scenario = Scenario::start("D25-service-cache").await;
    scenario.answers = vec![
        ("sclist disc:/d25 web", 1, "1 i1=10.2.2.2:9091"),
        ("sclist disc:/d25 web", 2, "1 i1=10.2.2.2:9091"),
    ];
    scenario.play().await;
    let parents = "A -> exists(3) /d25/web/i1 watch=false
         A -> exists(3) /d25/web watch=false
         A -> exists(3) /d25 watch=false
         A -> createContainer(19) /d25 data=<empty> acl=31:world:anyone flags=4
         A -> createContainer(19) /d25/web data=<empty> acl=31:world:anyone flags=4";
    scenario.differs(
        "B -> exists(3) /d25/web watch=false
         B -> exists(3) /d25 watch=false
         B -> createContainer(19) /d25 data=<empty> acl=31:world:anyone flags=4
         B -> createContainer(19) /d25/web data=<empty> acl=31:world:anyone flags=4
         B -> exists(3) /d25/web/foo watch=false",
        parents,
    );
    scenario.differs("B -> getChildren2(12) /d25/web/i1 watch=false", "");
    scenario.differs("B -> getChildren2(12) /d25/web/bad watch=false", "");
    scenario.assert_equal(Order::AnyAndOnce);
}

/// A provider looks at no parents, and does not list the children of instances (C10).
#[tokio::test]
async fn d26_a_provider() {
    let mut scenario = Scenario::start("D26-service-provider").await;
    scenario.play().await;
    scenario.differs(
        "B -> exists(3) /d26/web watch=false
         B -> exists(3) /d26/web/foo watch=false",
        "",
    );
    for id in ["i1", "i2", "i3"] {
        scenario.differs(&format!("B -> getChildren2(12) /d26/web/{id} watch=false"), "");
    }
    scenario.assert_equal(Order::Any);
}

/// One getData with watch for each look instead of a cache. C32: a reconnect in the same session writes nothing, so the
/// node is the one that the other process has written.
#[tokio::test]
async fn d29_watched_instances() {
    let mut scenario = Scenario::start("D29-discovery-watch-instances").await;
    let theirs = json("i1", "10.9.9.9", 9999, "DYNAMIC");
    let written = format!("1 {}", theirs.replace("}", ",\"enabled\":true}"));
    scenario.answers = vec![("get /d29/web/i1", 0, written.leak())];
    scenario.play().await;
    let (watch, read) =
        ("A -> addWatch(106) /d29/web/i1 mode=0", "A -> getData(4) /d29/web/i1 watch=false");
    let look = "A -> getData(4) /d29/web/i1 watch=true";
    scenario.differs(&[watch, read].join("\n"), "");
    scenario.differs(&[read, read].join("\n"), &[look, look].join("\n"));
    let create = create("/d29/web/i1", 9999, "DYNAMIC", 1).replace("10.1.1.1", "10.9.9.9");
    let delete = "A -> delete(2) /d29/web/i1 v=-1";
    scenario.differs(&[&*create, delete, &create, read, watch, read].join("\n"), look);
    scenario.assert_equal(Order::Same);
}

/// C29, C39: an instance that is registered again is written, so that no other client can take its id in between. C32: a
/// reconnect in the same session writes nothing. C30: the instance that vanishes then is created again in its last
/// form, and the other one is left as it is.
#[tokio::test]
async fn d36_registration_races() {
    let mut scenario = Scenario::start("D36-discovery-registration-races").await;
    scenario.answers = vec![("children /d36/web", 0, "1 i1"), ("children /d36/web", 1, "2 i1 i2")];
    scenario.play().await;
    let i1 = |port| create("/d36/web/i1", port, "DYNAMIC", 1);
    let write = |port| {
        let json = json("i1", "10.1.1.1", port, "DYNAMIC");
        format!("A -> setData(5) /d36/web/i1 data=\"{json}\" v=-1")
    };
    let delete = "A -> delete(2) /d36/web/i1 v=-1";
    let i2 = create("/d36/web/i2", 4, "PERMANENT", 0);
    scenario.differs(
        &[&*i1(2), delete, &i1(2), delete, &i1(3), &i2, &i1(1), delete].join("\n"),
        &[write(2), write(3), i2.clone(), i1(3)].join("\n"),
    );
    scenario.assert_equal(Order::Same);
}

#[test]
fn every_recorded_scenario_is_played_and_listed() {
    assert_played_and_listed(TRACES, &[include_str!("trace_parity.rs")]);
}
