//! Plays the script of a scenario: one step per line.
//!
//! | step | what it does |
//! |---|---|
//! | `start A B [NAME=VALUE]` | starts peers behind the tap, and waits until each has its session |
//! | `A: COMMAND` | gives a peer a command, which must succeed |
//! | `A: COMMAND = ANSWER` | the command has this answer: `ok TEXT`, `false`, `err KIND` or `err KIND unknown` |
//! | `A: COMMAND &` | does not wait for the answer |
//! | `A = ANSWER` | waits for the oldest open answer; `ok` stands for any success, `any` for any answer |
//! | `A? COMMAND = ANSWER` | repeats a command until it has this answer |
//! | `A ! EVENT` | waits for the next event of a peer that begins with EVENT |
//! | `until [N] FRAME` | waits until the trace has N lines that begin with FRAME |
//! | `quiet A` | waits until the peer sends nothing more |
//! | `inject FAULT OPERATION [of A] [below PATH] [nth N] [times N]` | injects a fault at the tap |
//! | `end-delays` | ends the delays of all faults, once each delays its frame |
//! | `throttle N` | the embedded server refuses the next N requests |
//! | `mark` | begins the part of the trace that the next two steps check |
//! | `sent A OPERATION ...` | waits until a peer has sent these requests, and no other |
//! | `count N FRAME` | the trace has N lines that begin with FRAME |
//! | `cut A`, `refuse A`, `accept A`, `stall A`, `resume A` | the connection of a peer, and its port |
//! | `kill A` | ends the session of a peer on its server, by a second connection |
//! | `close A B` | ends peers, and their sessions |
//!
//! A NAME of `start` is `session`, `retries`, `policy` or `flags` for the command line, `program` for `lock_peer` or
//! `recipe_peer`, `unready` to start without a wait, or else an environment variable. `err KIND unknown` is an error
//! after which the operation may have been applied. FAULT is `drop-before`, `drop-reply`, `lose-reply`, `delay-request`
//! or `delay-reply`. `elsewhere` is a `recipe_peer` that the tap does not record. `PATH/*2` in a command is the second
//! child of PATH, in the order of their numbers.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use docent::OpCode;
use docent_testing::{
    TestingServer,
    fault::{Action, Fault},
    server::{self, Version},
    tap::{Tap, TapClient},
};
use docent_tests::{
    DEADLINE,
    ensemble::changeable,
    eventually,
    given_up_session::config_without_expiry,
    peer::{Answer, Events, Outcome, Peer, Reply},
    until,
};
use tokio::process::Command;

use super::{Area, frames, scenario::Scenario};

/// A peer and its tap.
struct Actor {
    peer: Peer,
    /// `None` for `elsewhere`.
    tap: Option<TapClient>,
    events: Events,
    /// Answers that no step has waited for yet.
    answers: VecDeque<Answer>,
}

pub(crate) struct Player {
    area: &'static Area,
    tap: Tap,
    server: String,
    embedded: Option<TestingServer>,
    /// The length of the trace at the last `mark`.
    mark: u64,
    /// The number of injected faults that delay a frame.
    delays: usize,
    actors: BTreeMap<String, Actor>,
    /// Events of caches, in the form of the recordings.
    said: String,
    /// The line of the script that runs, for messages.
    line: Arc<AtomicUsize>,
}

impl Player {
    /// `real`: the connect string of a real server, if the run has one.
    pub(crate) async fn start(
        area: &'static Area,
        scenario: &Scenario,
        real: Option<&str>,
        line: Arc<AtomicUsize>,
    ) -> Self {
        let kind = scenario.head("server").next();
        let (server, embedded) = match real.filter(|_| kind.is_none()) {
            Some(connect) => (connect.to_owned(), None),
            None => {
                let server = TestingServer::start_with(config(kind)).await.unwrap();
                (server.connect_string(), Some(server))
            }
        };
        let tap = Tap::start(&server).await.unwrap();
        let (actors, said) = (BTreeMap::new(), String::new());
        Self { area, tap, server, embedded, mark: 0, delays: 0, actors, said, line }
    }

    /// Plays the script, and returns the trace.
    pub(crate) async fn play(mut self, scenario: &Scenario) -> String {
        for (number, step) in &scenario.script {
            self.line.store(*number, Ordering::Relaxed);
            self.step(step).await;
        }
        let labels: Vec<_> = self.actors.keys().cloned().collect();
        for label in labels {
            self.close(&label).await;
        }
        self.tap.trace().text() + &self.said
    }

    async fn step(&mut self, step: &str) {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            ["start", ..] => self.start_peers(&words[1..]).await,
            ["until", ..] => self.until(&words[1..].join(" ")).await,
            ["quiet", label] => self.quiet(label).await,
            ["inject", fault, op, ..] => {
                self.delays += usize::from(fault.starts_with("delay-"));
                self.tap.inject(read_fault(fault, op, &words[3..]));
            }
            ["end-delays"] => self.end_delays().await,
            ["throttle", count] => {
                let server = self.embedded.as_ref().expect("`server: embedded` in the head");
                server.throttle(count.parse().unwrap());
            }
            ["mark"] => self.mark = self.tap.len(),
            ["sent", label, ..] => self.sent(label, &words[2..]).await,
            ["count", number, ..] => {
                let (start, trace) =
                    (words[2..].join(" "), self.tap.trace().since(self.mark).text());
                let count = trace.lines().filter(|line| line.starts_with(&start)).count();
                assert_eq!(count.to_string(), number, "{step}: {trace}");
            }
            ["close", ..] => {
                for label in &words[1..] {
                    self.close(label).await;
                }
            }
            ["cut", label] => self.connection(label).cut(),
            ["stall", label] => self.connection(label).stall(),
            ["resume", label] => self.connection(label).resume(),
            ["refuse", label] => self.connection(label).refuse().await.unwrap(),
            ["accept", label] => self.connection(label).accept().await.unwrap(),
            ["kill", label] => self.connection(label).kill_session(DEADLINE).await.unwrap(),
            [label, "=", ..] => {
                let answer = self.actor(label).await.answers.pop_front();
                let reply = answer.expect("a command without a wait").reply().await;
                check(&reply, Some(&words[2..].join(" ")));
            }
            [label, "!", ..] => {
                self.actor(label).await.events.next(&words[2..].join(" ")).await;
            }
            [label, ..] if label.ends_with([':', '?']) => self.command(&words).await,
            _ => panic!("not a step: {step}"),
        }
    }

    async fn command(&mut self, words: &[&str]) {
        let (label, how) = words[0].split_at(words[0].len() - 1);
        let text = words[1..].join(" ");
        let (command, wanted) = match text.split_once(" = ") {
            Some((command, wanted)) => (command, Some(wanted)),
            None => (text.as_str(), None),
        };
        let (command, waits) = match command.strip_suffix(" &") {
            Some(command) => (command, false),
            None => (command, true),
        };
        let command = self.with_paths(command).await;
        let actor = self.actor(label).await;
        if how == "?" {
            let wanted = wanted.expect("an answer to wait for");
            let is_so = async || text_of(&actor.peer.ask(&command).await) == wanted;
            until(&format!("{command} = {wanted}"), is_so).await;
        } else if waits {
            let reply = actor.peer.ask(&command).await;
            check(&reply, wanted);
        } else {
            actor.answers.push_back(actor.peer.send(&command));
        }
    }

    /// Replaces `PATH/*2` by the second child of a node, in the order of their numbers.
    async fn with_paths(&mut self, command: &str) -> String {
        let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        for word in &mut words {
            let Some((parent, number)) = word.split_once("/*") else { continue };
            let mut children = self.actor("elsewhere").await.peer.children(parent).await;
            children.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
            let place = number.parse::<usize>().expect("a number behind /*");
            *word = format!("{parent}/{}", children[place - 1]);
        }
        words.join(" ")
    }

    async fn start_peers(&mut self, words: &[&str]) {
        let (options, labels): (Vec<&str>, Vec<&str>) =
            words.iter().partition(|word| word.contains('=') || **word == "unready");
        for label in labels {
            let tap = self.tap.client(label).await.unwrap();
            if options.contains(&"flags=lazy") {
                tap.refuse().await.unwrap();
            }
            let connect = tap.connect_string();
            self.start_peer(label, &connect, Some(tap), &options).await;
        }
    }

    async fn start_peer(
        &mut self,
        label: &str,
        connect: &str,
        tap: Option<TapClient>,
        options: &[&str],
    ) {
        let mut arguments: Vec<String> =
            self.area.arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut program = self.area.program;
        let mut environment = BTreeMap::from([("LOCK_PEER_DATA", "10.0.0.1")]);
        for (name, value) in options.iter().filter_map(|option| option.split_once('=')) {
            match name {
                "program" => program = value,
                "session" => value.clone_into(&mut arguments[0]),
                "retries" => value.clone_into(&mut arguments[1]),
                "flags" | "sleep" => value.clone_into(&mut arguments[2]),
                "policy" => value.clone_into(&mut arguments[3]),
                _ => drop(environment.insert(name, value)),
            }
        }
        let name = program.to_owned();
        let path = tokio::task::spawn_blocking(move || xtask::example(&name).unwrap());
        let mut command = Command::new(path.await.unwrap());
        command.arg(connect).args(arguments).envs(environment);
        let peer = Peer::spawn(label, command);
        let mut events = peer.events();
        if !options.contains(&"unready") {
            events.next("ready").await;
            if !options.contains(&"flags=lazy") {
                events.next("state CONNECTED").await;
            }
        }
        let actor = Actor { peer, tap, events, answers: VecDeque::new() };
        self.actors.insert(label.to_owned(), actor);
    }

    async fn actor(&mut self, label: &str) -> &mut Actor {
        if label == "elsewhere" && !self.actors.contains_key(label) {
            let server = self.server.clone();
            self.start_peer(label, &server, None, &["program=recipe_peer"]).await;
        }
        self.actors.get_mut(label).unwrap_or_else(|| panic!("{label} is not started"))
    }

    fn connection(&self, label: &str) -> &TapClient {
        let actor = self.actors.get(label).and_then(|actor| actor.tap.as_ref());
        actor.unwrap_or_else(|| panic!("{label} is not started"))
    }

    async fn close(&mut self, label: &str) {
        // The script may have closed it already.
        let Some(mut actor) = self.actors.remove(label) else { return };
        actor.peer.end().await;
        let events = actor.peer.events().drain();
        for event in events.iter().filter(|event| event.text.starts_with("cache ")) {
            self.said.push_str(&format!("# {label} ! {}\n", event.text));
        }
    }

    async fn until(&self, frame: &str) {
        let (count, start) = match frame.split_once(' ') {
            Some((number, start)) if number.parse::<usize>().is_ok() => {
                (number.parse().unwrap(), start)
            }
            _ => (1, frame),
        };
        until(&format!("{count} lines {start}"), async || {
            let trace = self.tap.trace().text();
            let lines = trace.lines().filter(|line| line.starts_with(start));
            lines.count() >= count
        })
        .await;
    }

    async fn end_delays(&self) {
        // A frame that arrives later would be delayed to the end of the test.
        until("each fault delays its frame", async || {
            let trace = self.tap.trace();
            let begins = |fault| matches!(fault, "DELAY_BEFORE" | "reply delayed");
            let delayed = trace.iter().filter(|record| record.injected.is_some_and(begins));
            delayed.count() >= self.delays
        })
        .await;
        self.tap.end_delays();
    }

    async fn sent(&self, label: &str, wanted: &[&str]) {
        let sent = eventually(&format!("{label} sends {wanted:?}"), async || {
            let trace = self.tap.trace().since(self.mark);
            let requests = trace.iter().filter(|record| &*record.client == label);
            let sent =
                requests.filter_map(|record| record.op().filter(|op| record.is_request(*op)));
            let sent = sent.filter(|op| *op != OpCode::Ping).map(|op| op.to_string());
            Some(sent.collect::<Vec<_>>()).filter(|sent| sent.len() >= wanted.len())
        })
        .await;
        assert_eq!(sent, wanted, "{label}: {}", self.tap.trace().since(self.mark).text());
    }

    async fn quiet(&mut self, label: &str) {
        let mut before = (0, 0);
        let peer = &self.actors[label].peer;
        until("no more requests", async || {
            // These replies arrive after all events so far.
            peer.ask("sync").await;
            peer.ask("settled").await;
            let trace = self.tap.trace().text();
            let sent =
                trace.lines().filter(|line| line.contains(" -> ") && !line.contains("sync("));
            let sent = sent.count();
            before = (sent, if before.0 == sent { before.1 + 1 } else { 0 });
            before.1 >= 3
        })
        .await;
    }
}

/// Compares an answer. Without `wanted`, it must be a success with any text. Of an error, the kind and the outcome
/// count.
fn check(reply: &Reply, wanted: Option<&str>) {
    let text = text_of(reply);
    let fits = match wanted {
        None | Some("ok") => text == "ok" || text.starts_with("ok "),
        Some("any") => true,
        Some(wanted) => text == wanted,
    };
    assert!(fits, "expected {}, got {text}: {reply:?}", wanted.unwrap_or("ok"));
}

/// An answer in the form of the recordings, without GUIDs and texts of errors.
fn text_of(reply: &Reply) -> String {
    let text = match &reply.outcome {
        Outcome::Ok(text) if text.is_empty() => "ok".to_owned(),
        Outcome::Ok(text) => format!("ok {text}"),
        Outcome::TimedOut => "false".to_owned(),
        Outcome::Error { kind, text } if text.contains("(the operation may have been applied)") => {
            format!("err {kind} unknown")
        }
        Outcome::Error { kind, .. } => format!("err {kind}"),
    };
    let (mut out, mut copied) = (String::new(), 0);
    for place in frames::ids_of(&text) {
        out.push_str(&text[copied..place.start]);
        out.push_str("GUID");
        copied = place.end;
    }
    out + &text[copied..]
}

fn read_fault(fault: &str, op: &str, words: &[&str]) -> Fault {
    let action = match fault {
        "drop-before" => Action::DropRequest,
        "drop-reply" => Action::DropReply,
        "lose-reply" => Action::LoseReply,
        "delay-request" => Action::DelayRequest(DEADLINE),
        "delay-reply" => Action::DelayReply(DEADLINE),
        _ => panic!("not a fault: {fault}"),
    };
    let op = (0..200).map(OpCode::from_number).find(|one| one.to_string() == op);
    let mut fault = Fault::new(action, Some(op.expect("an operation")));
    for pair in words.chunks(2) {
        fault = match *pair {
            ["of", client] => fault.of(client),
            ["below", path] => fault.below(path),
            ["nth", number] => fault.nth(number.parse().unwrap()),
            ["times", number] => fault.times(number.parse().unwrap()),
            _ => panic!("not a part of a fault: {pair:?}"),
        };
    }
    fault
}

/// The server of a scenario: `None`, or `embedded`, `no expiry`, `version 3.4`, `version 3.9`, `tick 500 ms`,
/// `containers 700 ms` or `reconfig`.
fn config(kind: Option<&str>) -> server::Config {
    let millis = |text: &str| Duration::from_millis(text.trim_end_matches(" ms").parse().unwrap());
    let default = server::Config {
        // No empty container is removed during a scenario.
        container_check_interval: Duration::from_secs(24 * 3600),
        ..Default::default()
    };
    match kind.map(|kind| kind.split_once(' ').unwrap_or((kind, ""))) {
        None | Some(("embedded", _)) => default,
        Some(("no", "expiry")) => config_without_expiry(),
        Some(("version", "3.4")) => server::Config { version: Version::V3_4, ..default },
        Some(("version", "3.9")) => server::Config { version: Version::V3_9, ..default },
        Some(("tick", time)) => server::Config { tick_time: millis(time), ..default },
        Some(("containers", time)) => {
            server::Config { container_check_interval: millis(time), ..default }
        }
        Some(("reconfig", _)) => {
            let container_check_interval = default.container_check_interval;
            server::Config { container_check_interval, ..changeable(1) }
        }
        Some(other) => panic!("not a server: {other:?}"),
    }
}
